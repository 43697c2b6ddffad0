//! `nopal view`: a trace in the browser.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use nopal_record::Options;
use nopal_trace::Trace;
use nopal_view::{Server, Shown};

use crate::arguments::{Input, More, View};
use crate::open::tell_damage;
use crate::output;
use crate::progress::Progress;

/// The command that opens an address in the user's browser.
const OPENER: &str = "xdg-open";

pub fn run(arguments: &View) -> Result<()> {
    let default = [Options::DIRECTORY.into()];
    let what = match arguments.what.as_slice() {
        [] => &default,
        some => some,
    };
    let traces: Result<Vec<Shown>> = what.iter().map(|what| shown(what)).collect();
    let server = Server::new(traces?, arguments.port)?;
    let address = server.address();
    let mut out = output::stdout()?;
    writeln!(out, "{address}")?;
    out.flush()?;
    eprintln!("nopal: the page is at this address; Ctrl-C ends it");
    if !arguments.no_browser {
        open(&address);
    }
    thread::scope(|scope| {
        let check = || server.check(tell_damage);
        let check_beside = move || {
            // Of this thread alone: the page goes first.
            let _ = rustix::process::nice(19);
            check();
        };
        if nopal_beside::try_spawn(scope, check_beside).is_none() {
            check();
        }
        server.run()
    })
}

/// A trace with its index.
fn shown(what: &Path) -> Result<Shown> {
    let directory = directory(what)?;
    let workers = thread::available_parallelism().map_or(1, usize::from);
    if let Some(shown) = Shown::unchecked(&directory, workers) {
        return Ok(shown);
    }
    let trace = Input::new([directory], &More::default()).open()?;
    let progress = Progress::new("making the index");
    let update = |done, all| progress.update(done, all);
    Ok(Shown::new(trace, workers, Some(&update)))
}

/// Opens the address in a browser, if there is one. Errors are ignored, since the user has the address.
fn open(address: &str) {
    let browser = Command::new(OPENER)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match browser {
        Ok(mut browser) => {
            // The command may run as long as the browser does.
            let wait = move || match browser.wait() {
                Ok(status) if !status.success() => eprintln!("{NO_BROWSER}"),
                _ => {}
            };
            let _ = thread::Builder::new().spawn(wait);
        }
        Err(_) => eprintln!("{NO_BROWSER}"),
    }
}

const NO_BROWSER: &str = "nopal: the browser could not be opened: open the address yourself";

/// The directory of a trace: as given, or that of the session which traces a process.
fn directory(what: &Path) -> Result<PathBuf> {
    let process = what.to_str().and_then(|word| word.parse::<u32>().ok());
    match process {
        Some(process) if !what.exists() => of_process(process),
        _ => Ok(what.to_owned()),
    }
}

/// The trace that is being recorded of a process: among those that are open for writing, the one that has the process.
fn of_process(process: u32) -> Result<PathBuf> {
    let is_of = |directory: &PathBuf| {
        let trace = Trace::open(directory);
        trace.is_ok_and(|trace| {
            let processes = trace.processes();
            trace.is_growing() && processes.iter().any(|known| known.process == process)
        })
    };
    let processes = fs::read_dir("/proc").context("cannot read /proc")?;
    let files = processes
        .filter_map(|entry| fs::read_dir(entry.ok()?.path().join("fd")).ok())
        .flatten()
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let mut directories = files
        .filter(|file| file.ends_with("session/notes"))
        .filter_map(|notes| Some(notes.ancestors().nth(2)?.to_owned()));
    match directories.find(is_of) {
        Some(directory) => Ok(directory),
        None => {
            bail!("process {process} is not being recorded: `nopal attach {process}` records it")
        }
    }
}
