//! The guardian: a process beside the tool that knows how to take nopal out of every traced process, and does so if
//! the tool dies before it has.

use crate::collect::{Collector, Keep};
use crate::notes::{counter, snapshot};
use crate::region::{Region, memory_file};
use crate::remove::{Journal, has_mapped, processes_with, remove_by};
use crate::traced::Traced;
use anyhow::{Context, Result, ensure};
use nopal_trace::{Note, Writer};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The tool's end. The guardian sees it close when the tool dies.
pub struct Guardian {
    line: OwnedFd,
    process: i32,
}

const DISMISSED: u8 = b'd';
const WATCH: u8 = b'w';

impl Guardian {
    /// Starts it. The tool must have one thread only.
    pub fn start(directory: &Path) -> Result<Guardian> {
        let directory = std::path::absolute(directory)?;
        let mut ends = [0; 2];
        // SAFETY: a valid array for two descriptors, which are new and ours.
        let made = unsafe {
            libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                ends.as_mut_ptr(),
            )
        };
        ensure!(made == 0, "socketpair: {}", std::io::Error::last_os_error());
        // SAFETY: as above.
        let (ours, theirs) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: one thread, so the child's memory is whole.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("no guardian"),
            0 => {
                drop(ours);
                guard(theirs, &directory);
                // SAFETY: ends the child without running what the parent registered.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Guardian {
                line: ours,
                process,
            }),
        }
    }

    /// Tells of a process, or of what has changed in it since.
    pub fn watch(&mut self, traced: &mut Traced) -> Result<()> {
        let journal = traced.journal();
        let mut file = File::from(memory_file(c"nopal-journal")?);
        file.write_all(&postcard::to_stdvec(&journal)?)?;
        // A guardian that is gone guards no more, but the recording goes on.
        let _ = send(
            &self.line,
            WATCH,
            &[file.as_raw_fd(), traced.region.file().as_raw_fd()],
        );
        Ok(())
    }

    /// Its process.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Everything is in order.
    pub fn dismiss(&mut self) {
        let _ = send(&self.line, DISMISSED, &[]);
        // SAFETY: waits for our own child; the status is not wanted.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

fn send(line: &OwnedFd, word: u8, files: &[i32]) -> Result<()> {
    let mut byte = [word];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = [0u64; 8];
    // SAFETY: the message and all it points to live through the call; CMSG_* stay within `control`.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if !files.is_empty() {
            let bytes = size_of_val(files) as u32;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            std::ptr::copy_nonoverlapping(
                files.as_ptr(),
                libc::CMSG_DATA(header).cast(),
                files.len(),
            );
        }
        libc::sendmsg(line.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    ensure!(sent == 1, "{}", std::io::Error::last_os_error());
    Ok(())
}

/// A word and the descriptors that came with it; `None` when the other end is closed.
fn receive(line: &OwnedFd) -> Option<(u8, Vec<OwnedFd>)> {
    let mut byte = [0u8];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = [0u64; 8];
    // SAFETY: as in `send`; descriptors that arrive are new and ours.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        if libc::recvmsg(line.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) <= 0 {
            return None;
        }
        let mut files = Vec::new();
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<i32>();
            let numbers = libc::CMSG_DATA(header).cast::<i32>();
            files.extend((0..count).map(|i| OwnedFd::from_raw_fd(numbers.add(i).read_unaligned())));
        }
        Some((byte[0], files))
    }
}

/// What the guardian knows of one process image and its forks.
struct Watched {
    journal: Journal,
    region: Arc<Region>,
}

/// The guardian's life. Nobody listens to its errors: it does what it can.
fn guard(line: OwnedFd, directory: &Path) {
    leave_the_program_alone();
    let mut watched: Vec<Watched> = Vec::new();
    while let Some((word, files)) = receive(&line) {
        if word == DISMISSED {
            return;
        }
        let Some(new) = read_watched(files) else {
            continue;
        };
        match watched.iter_mut().find(|old| {
            old.journal.process == new.journal.process && old.region.inode() == new.region.inode()
        }) {
            Some(old) => *old = new,
            None => watched.push(new),
        }
    }
    clean_up(&watched);
    let _ = complete(directory, &watched);
}

fn read_watched(files: Vec<OwnedFd>) -> Option<Watched> {
    let [journal, region] = <[OwnedFd; 2]>::try_from(files).ok()?;
    let journal = File::from(journal);
    let mut bytes = vec![0; journal.metadata().ok()?.len() as usize];
    journal.read_exact_at(&mut bytes, 0).ok()?;
    let journal: Journal = postcard::from_bytes(&bytes).ok()?;
    let region = Arc::new(Region::open(region, journal.process).ok()?);
    Some(Watched { journal, region })
}

/// Out of the terminal's reach, and without the program's input and output.
fn leave_the_program_alone() {
    // SAFETY: plain system calls on our own process.
    unsafe {
        libc::setsid();
        for signal in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGPIPE,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null >= 0 {
            for standard in 0..3 {
                libc::dup2(null, standard);
            }
        }
        libc::prctl(libc::PR_SET_NAME, c"nopal-guardian".as_ptr());
    }
}

fn clean_up(watched: &[Watched]) {
    let regions: Vec<_> = watched
        .iter()
        .map(|watched| watched.region.clone())
        .collect();
    for process in processes_with(&regions, &[std::process::id() as i32]) {
        let own = |watched: &&Watched| watched.journal.process == process;
        let has = |watched: &&Watched| has_mapped(process, &watched.region);
        let Some(known) = watched
            .iter()
            .filter(has)
            .find(own)
            .or_else(|| watched.iter().find(has))
        else {
            continue;
        };
        let journal = Journal {
            process,
            ..known.journal.clone()
        };
        let _ = remove_by(&journal, &known.region);
    }
}

/// Writes what the tool had not written yet, and how the trace came to end.
fn complete(directory: &Path, watched: &[Watched]) -> Result<()> {
    let mut writer = Writer::adopt(directory)?;
    writer.set_readable(nopal_symbols::demangle);
    let mut collector = Collector::new(Keep::All, None);
    let mut lost = 0;
    for watched in watched {
        collector.finish(&watched.region, &mut writer)?;
        lost += watched.region.lost();
    }
    writer.note(&snapshot())?;
    writer.note(&Note::Lost {
        process: 0,
        events: lost,
    })?;
    writer.note(&Note::End {
        counter: counter(),
        complete: false,
        why: "nopal was killed".into(),
    })?;
    writer.sync_metadata()
}
