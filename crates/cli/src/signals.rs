//! Signals that would end nopal while it has files that must not stay.

use std::mem::zeroed;
use std::ptr::null_mut;

use anyhow::{Result, bail};

const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// As long as this lives, such signals wait. They come when it is dropped.
pub struct Ending {
    before: libc::sigset_t,
}

impl Ending {
    pub fn new() -> Ending {
        // SAFETY: zeroes are a set of signals, and both sets live through the calls.
        unsafe {
            let (mut set, mut before) = (zeroed(), zeroed());
            libc::sigemptyset(&mut set);
            for signal in ENDING {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Ending { before }
        }
    }

    /// An error if one has come.
    pub fn check() -> Result<()> {
        // SAFETY: as above.
        let has_come = unsafe {
            let mut pending = zeroed();
            libc::sigpending(&mut pending);
            ENDING
                .iter()
                .any(|signal| libc::sigismember(&pending, *signal) == 1)
        };
        match has_come {
            true => bail!("interrupted"),
            false => Ok(()),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // SAFETY: the mask that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}
