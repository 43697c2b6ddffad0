//! `nopal mount`: the sessions of this user as files, until a signal comes.

use anstream::eprintln;
use anyhow::{Result, ensure};

use crate::arguments::Mount;

const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

pub fn run(mount: &Mount) -> Result<()> {
    // This comes before other threads, which inherit the mask.
    let set = block()?;
    let mounted = || {
        eprintln!(
            "nopal: the sessions are in {}; Ctrl-C unmounts",
            mount.directory.display()
        )
    };
    nopal_mount::mount(&mount.directory, mounted, move || wait(&set))
}

fn block() -> Result<libc::sigset_t> {
    // SAFETY: a set that sigemptyset and sigaddset make.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in ENDING {
            libc::sigaddset(&mut set, signal);
        }
        let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        ensure!(failed == 0, "signals cannot be blocked");
        Ok(set)
    }
}

fn wait(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: a valid set, and a place for the signal.
    while unsafe { libc::sigwait(set, &mut signal) } != 0 {}
}
