//! A terminal that may go away while it is used.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub const UNUSABLE: &str = "the terminal cannot be used";

/// How long it takes until another size of the terminal is noticed.
pub const REACTION: Duration = Duration::from_millis(100);

/// Whether there still is a terminal, of which the library that reads keys does not tell. Waits for a key, at most so
/// long.
pub fn is_there(wait: Duration) -> Result<bool> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut input, Timespec::try_from(wait).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context(UNUSABLE),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(!input[0].revents().intersects(gone))
}
