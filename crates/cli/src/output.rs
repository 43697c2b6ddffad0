//! Output of results: standard output, through a pager on a terminal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use anstream::{AutoStream, ColorChoice};
use anyhow::Result;

use crate::settings::Settings;

/// Columns of a line if the output is not a terminal, unless COLUMNS says otherwise.
const COLUMNS: usize = 160;

const BUFFER: usize = 1 << 16;

pub type Output = BufWriter<File>;

pub fn stdout() -> Result<Output> {
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(BufWriter::with_capacity(BUFFER, File::from(own)))
}

/// Whether standard output is to be coloured.
pub fn colors() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Writes the rest. A closed pipe is not an error.
pub fn finish(mut out: impl Write, written: Result<()>) -> Result<()> {
    let written = written.and_then(|()| Ok(out.flush()?));
    match written {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        written => written,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let errors = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors
        .into_iter()
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The largest width of a table: that of the terminal, or of the environment.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let terminal = size.map_or(0, |size| usize::from(size.ws_col));
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    match io::stdout().is_terminal() && terminal > 0 {
        true => terminal,
        false => asked().filter(|columns| *columns > 0).unwrap_or(COLUMNS),
    }
}

/// Which texts a pager shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Only those that do not fit on the screen; others are printed.
    Several,
    /// All texts.
    All,
}

/// Gives `write` a pager's input on a terminal, standard output elsewhere.
pub fn paged(pages: Pages, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let Some(mut pager) = pager(pages) else {
        let mut out = stdout()?;
        let written = write(&mut out);
        return finish(out, written);
    };
    // The pager handles Ctrl-C. When it ends, writing fails. SAFETY: no handler is installed, only ignored.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    let result = match pager.stdin.take() {
        Some(input) => {
            let mut out = BufWriter::with_capacity(BUFFER, File::from(OwnedFd::from(input)));
            let written = write(&mut out);
            finish(out, written)
        }
        None => Ok(()),
    };
    pager.wait()?;
    result
}

fn pager_set() -> Option<OsString> {
    let set = Settings::of_process().pager.as_ref();
    set.map(OsString::from)
        .or_else(|| std::env::var_os("PAGER"))
}

/// Starts the pager of the settings, or `$PAGER`, unless it is empty; else `less`, where there is one.
fn pager(pages: Pages) -> Option<Child> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let options = match pages {
        Pages::Several => "FRX",
        Pages::All => "R",
    };
    let mut command = match pager_set() {
        Some(pager) if pager.is_empty() => return None,
        Some(pager) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            if std::env::var_os("LESS").is_none() {
                shell.env("LESS", options);
            }
            shell
        }
        None => {
            let mut less = Command::new("less");
            less.arg(format!("-{options}"));
            less
        }
    };
    command.stdin(Stdio::piped()).spawn().ok()
}
