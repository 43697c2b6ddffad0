//! Where results go.

use std::io::{self, BufWriter, IsTerminal, Write};

use anstream::AutoStream;
use anyhow::Result;

/// Columns of a line where the output is not a terminal: nothing is shortened.
const UNBOUNDED: usize = usize::MAX;

pub type Output = BufWriter<AutoStream<io::Stdout>>;

pub fn stdout() -> Output {
    BufWriter::with_capacity(1 << 16, AutoStream::auto(io::stdout()))
}

/// A reader that has seen enough is no error.
pub fn finish(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// The result of writing all that was put into `out`.
pub fn flushed(mut out: impl Write, written: io::Result<()>) -> io::Result<()> {
    written.and_then(|()| out.flush())
}

/// How wide a table may be.
pub fn width() -> usize {
    if !io::stdout().is_terminal() {
        return UNBOUNDED;
    }
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize, into a local of that type.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    if asked == 0 && size.ws_col > 0 {
        usize::from(size.ws_col)
    } else {
        UNBOUNDED
    }
}
