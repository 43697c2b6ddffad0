use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::information::{parent, start_time, stat_fields};
use crate::ptrace::{self, WaitStatus};

/// The end of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed {
        signal: i32,
        core: bool,
    },
    /// The status is unknown: its parent or another process took it, or a thread got another id by `execve`.
    Unknown,
}

impl Ending {
    pub(crate) fn from_wait_status(status: WaitStatus) -> Ending {
        match status.code {
            libc::CLD_EXITED => Ending::Exited(status.status),
            libc::CLD_KILLED => Ending::Killed {
                signal: status.status,
                core: false,
            },
            libc::CLD_DUMPED => Ending::Killed {
                signal: status.status,
                core: true,
            },
            _ => Ending::Unknown,
        }
    }

    /// Decodes the status of `wait`.
    fn from_status(status: i32) -> Ending {
        if libc::WIFEXITED(status) {
            Ending::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Ending::Killed {
                signal: libc::WTERMSIG(status),
                core: libc::WCOREDUMP(status),
            }
        } else {
            Ending::Unknown
        }
    }
}

/// The end of an untraced child of ours, or `None` while it lives. Needs no descriptor.
pub fn child_ending(pid: i32) -> Option<Ending> {
    let mut status = 0;
    // SAFETY: waitpid fills in the number.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) } {
        0 => None,
        -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => None,
        -1 => Some(Ending::Unknown),
        _ => Some(Ending::from_status(status)),
    }
}

/// Whether the kernel tells the status of a process that others wait for. Before Linux 6.15 it forgets it, and before 6.16
/// it tells that of the first thread, which may have ended before the process.
static TELLS_STATUS: LazyLock<bool> = LazyLock::new(|| {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
});

/// Notices the end of a process, whether it is our child or not. A process ends when all its threads have ended; a
/// traced one only when its [`crate::Thread`] has reported it, or is dropped.
#[derive(Debug)]
pub struct ExitWatch {
    pid: i32,
    started: u64,
    process: OwnedFd,
    ending: Option<Ending>,
}

impl ExitWatch {
    pub fn new(pid: i32) -> Result<ExitWatch> {
        let process = Pid::from_raw(pid).ok_or(Errno::INVAL);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let process = process.with_context(|| format!("cannot watch process {pid}"))?;
        Ok(ExitWatch {
            pid,
            started: start_time(pid)?,
            process,
            ending: None,
        })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The end of the process, or `None` while it lives. Reaps our own child.
    pub fn poll(&mut self) -> Result<Option<Ending>> {
        self.wait_at_most(Duration::ZERO)
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self) -> Result<Ending> {
        loop {
            if let Some(ending) = self.wait_at_most(Duration::from_secs(3600))? {
                return Ok(ending);
            }
        }
    }

    fn wait_at_most(&mut self, time: Duration) -> Result<Option<Ending>> {
        if self.ending.is_none() && self.has_ended(time)? {
            self.ending = Some(self.find_out());
        }
        Ok(self.ending)
    }

    fn has_ended(&self, time: Duration) -> Result<bool> {
        let mut ends = [PollFd::new(&self.process, PollFlags::IN)];
        match poll(&mut ends, Timespec::try_from(time).ok().as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error).context("cannot poll a process"),
        }
    }

    fn find_out(&self) -> Ending {
        // Only now: an earlier wait could consume a stop of a traced thread. Without `/proc`, the kernel still refuses
        // processes that are not our children.
        let own = parent(self.pid).map_or(true, |parent| parent == std::process::id() as i32);
        if own
            && let Ok(Some(status)) = ptrace::wait_status(self.pid, libc::WEXITED | libc::WNOHANG)
        {
            return Ending::from_wait_status(status);
        }
        if !*TELLS_STATUS {
            return Ending::Unknown;
        }
        let reaped = || self.status_of_reaped();
        // It may be reaped between the first look and the second.
        reaped()
            .or_else(|| self.status_of_zombie())
            .or_else(reaped)
            .unwrap_or(Ending::Unknown)
    }

    /// The descriptor keeps it.
    fn status_of_reaped(&self) -> Option<Ending> {
        const PIDFD_INFO_EXIT: u64 = 1 << 3;
        // _IOWR(0xff, 11, struct of 64 bytes)
        const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b;
        #[repr(C)]
        #[derive(Default)]
        struct Information {
            mask: u64,
            ids_and_credentials: [u32; 13],
            exit_code: i32,
        }
        const { assert!(size_of::<Information>() == 64) };
        let mut found = Information {
            mask: PIDFD_INFO_EXIT,
            ..Information::default()
        };
        // SAFETY: the request's number says how long the structure is.
        let result =
            unsafe { libc::ioctl(self.process.as_raw_fd(), PIDFD_GET_INFO, &raw mut found) };
        (result == 0 && found.mask & PIDFD_INFO_EXIT != 0)
            .then(|| Ending::from_status(found.exit_code))
    }

    /// Until its parent reaps it, field 52 has the status. Whoever may not trace it finds 0 there, and in field 35, which
    /// says otherwise that it waits.
    fn status_of_zombie(&self) -> Option<Ending> {
        let fields = stat_fields(&format!("/proc/{}/stat", self.pid)).ok()?;
        let same = fields.get(22 - 3)?.parse::<u64>().ok()? == self.started;
        let is_told = fields.get(35 - 3)? == "1";
        let status = fields.get(52 - 3)?.parse().ok()?;
        (same && is_told && fields[0] == "Z").then(|| Ending::from_status(status))
    }
}

impl AsFd for ExitWatch {
    /// Becomes readable when the process ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}
