//! Signals to the tool while a program runs under it. SIGINT and SIGQUIT from the keys of a terminal go to the whole
//! process group, and so reach the program by themselves, as do those that the program sends to its own group. Other
//! signals that a process has sent are meant for the tool, and handed on.

use anyhow::{Result, ensure};
use nopal_process::parent;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// They end a recording, once the program has ended.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// Would end the tool as well, as would those for real time, but mean something else to most programs.
const OTHER: [i32; 8] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// Those of timers that nopal has from whoever executed it: what would have become the program has not.
const OF_TIMERS: [i32; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

/// The greatest `si_code` of what a process sends. The kernel's own, as for keys pressed at the terminal, have others.
const FROM_PROCESS: i32 = 0;

pub struct Signals {
    set: libc::sigset_t,
    file: OwnedFd,
}

#[derive(Default)]
pub struct Asked {
    /// The user wants the recording to end, once the program has.
    pub enough: bool,
    pub to_forward: Vec<i32>,
}

/// To a process that may have ended: then nothing happens.
pub fn send_signal(process: i32, signal: i32) {
    // Others would mean groups.
    if process > 0 {
        // SAFETY: takes numbers only.
        unsafe { libc::kill(process, signal) };
    }
}

/// Whether a process is this one, or was started by it or by one that was.
fn descends_from_us(process: i32) -> bool {
    let ours = std::process::id() as i32;
    let ancestors = std::iter::successors(Some(process), |&process| parent(process).ok());
    ancestors
        .take_while(|&process| process > 0)
        .any(|process| process == ours)
}

impl AsFd for Signals {
    /// Ready for reading while there are some.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Signals {
    /// Makes ready without any change that a program launched afterwards would inherit.
    pub fn before_launch() -> Result<Signals> {
        // SAFETY: a set that sigemptyset and sigaddset make, and a descriptor that is new and ours.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            let of_real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
            for signal in ENDING.into_iter().chain(OTHER).chain(of_real_time) {
                libc::sigaddset(&mut set, signal);
            }
            let file = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            ensure!(file >= 0, "signalfd: {}", std::io::Error::last_os_error());
            Ok(Signals {
                set,
                file: OwnedFd::from_raw_fd(file),
            })
        }
    }

    /// From here on these signals no longer end the tool.
    pub fn after_launch(&self) -> Result<()> {
        // SAFETY: a valid set.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &self.set, std::ptr::null_mut()) };
        ensure!(failed == 0, "signals cannot be blocked");
        Ok(())
    }

    /// The signals since the last call.
    pub fn take(&self) -> Asked {
        let mut asked = Asked::default();
        loop {
            // SAFETY: plain data, filled in by read.
            let mut information: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            let bytes = size_of::<libc::signalfd_siginfo>();
            // SAFETY: a valid buffer of that length.
            let read =
                unsafe { libc::read(self.file.as_raw_fd(), (&raw mut information).cast(), bytes) };
            if read != bytes as isize {
                return asked;
            }
            let signal = information.ssi_signo as i32;
            let sent = information.ssi_code <= FROM_PROCESS;
            if sent && descends_from_us(information.ssi_pid as i32) {
                continue;
            }
            let is_of_timer = !sent && OF_TIMERS.contains(&signal);
            asked.enough |= is_of_timer || ENDING.contains(&signal);
            if (sent || is_of_timer) && !matches!(signal, libc::SIGINT | libc::SIGQUIT) {
                asked.to_forward.push(signal);
            }
        }
    }
}
