//! The guardian: a process beside the tool that knows how to take nopal out of every traced process, and does so if
//! the tool dies before it has.

use crate::collecting::collect::{Collector, Keep};
use crate::collecting::notes::{counter, snapshot};
use crate::memory::region::Region;
use crate::patch::journal::Journal;
use crate::patch::remove::{processes_with, remove};
use anyhow::{Context, Result, ensure};
use nopal_process::{LoaderChange, Memory};
use nopal_trace::{Note, Writer};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The tool's end. The guardian sees it close when the tool dies.
pub struct Guardian {
    line: OwnedFd,
    process: i32,
    /// How often it was told of memory, and has not said yet that it has that.
    unanswered: usize,
}

/// Its name.
pub const GUARDIAN: &str = "nopal-guardian";

/// In place of the number of a process.
const DISMISSED: i32 = 0;
/// The same: the region of an inode is no process's any more, and its records are written.
const FORGET: i32 = -1;

/// A message of the tool.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Message {
    process: i32,
    /// How much of `original` stood at `address` in its loader, where that is being changed, and how much of `code` is
    /// to stand there.
    length: u32,
    address: u64,
    original: [u8; 16],
    code: [u8; 16],
    /// The region to forget, and the events that were lost in it.
    inode: u64,
    lost: u64,
}

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
        let tool = std::process::id();
        // SAFETY: one thread, so the child's memory is whole.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("no guardian"),
            0 => {
                drop(ours);
                guard(theirs, &directory, tool);
                // SAFETY: ends the child without running what the parent registered.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Guardian {
                line: ours,
                process,
                unanswered: 0,
            }),
        }
    }

    /// Tells of memory that a process has; what else there is to know stands in the process. [`Guardian::watches`] is
    /// called before its text is changed.
    pub fn watch(&mut self, region: &Region) {
        region.set_owners(std::process::id() as i32, self.process);
        // A guardian that is gone guards no more, but the recording goes on.
        let message = Message {
            process: region.process(),
            ..Message::default()
        };
        let notes = send(&self.line, message, Some(region.file()));
        self.unanswered += usize::from(notes.is_ok());
    }

    /// No process has a region any more, and all that was recorded there is written.
    pub fn forget(&mut self, region: &Region) {
        let message = Message {
            process: FORGET,
            inode: region.inode(),
            lost: region.lost(),
            ..Message::default()
        };
        // It would find nothing there, either.
        let _ = send(&self.line, message, None);
    }

    /// Before the text of a loader is changed to wait for it.
    pub fn tell_of_loader(&self, change: &LoaderChange) {
        let mut message = Message {
            process: change.pid,
            address: change.address,
            length: change.original.len() as u32,
            ..Message::default()
        };
        message.original[..change.original.len()].copy_from_slice(&change.original);
        message.code[..change.code.len()].copy_from_slice(&change.code);
        // A guardian that is gone guards no more, but the recording goes on.
        let _ = send(&self.line, message, None);
    }

    /// When this returns, the guardian has mapped all memory that it was told of. By that, another nopal knows that it
    /// lives, and leaves the process to it: a guardian that had not run yet when the tool was killed would take out
    /// what another takes out, too.
    pub fn watches(&mut self) {
        for _ in 0..std::mem::take(&mut self.unanswered) {
            let mut has_it = 0u8;
            // SAFETY: one byte of ours.
            let mut receive =
                || unsafe { libc::recv(self.line.as_raw_fd(), (&raw mut has_it).cast(), 1, 0) };
            // Until the guardian answers, or is gone; a signal may come before.
            while receive() == -1
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
            {
            }
        }
    }

    /// Its process.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Everything is in order.
    pub fn dismiss(&mut self) {
        let _ = send(&self.line, Message::default(), None);
        // SAFETY: waits for our own child; the status is not wanted.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

fn send(line: &OwnedFd, mut message: Message, region: Option<BorrowedFd>) -> Result<()> {
    let mut part = libc::iovec {
        iov_base: (&raw mut message).cast(),
        iov_len: size_of::<Message>(),
    };
    let mut control = [0u64; 8];
    // SAFETY: the message and all it points to live through the call; CMSG_* stay within `control`.
    let sent = unsafe {
        let mut whole: libc::msghdr = std::mem::zeroed();
        whole.msg_iov = &mut part;
        whole.msg_iovlen = 1;
        if let Some(region) = region {
            let bytes = size_of::<i32>() as u32;
            whole.msg_control = control.as_mut_ptr().cast();
            whole.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let header = libc::CMSG_FIRSTHDR(&whole);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            libc::CMSG_DATA(header)
                .cast::<i32>()
                .write_unaligned(region.as_raw_fd());
        }
        libc::sendmsg(line.as_raw_fd(), &whole, libc::MSG_NOSIGNAL)
    };
    ensure!(
        sent == size_of::<Message>() as isize,
        "{}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// A message and the descriptor that came with it; `None` when the other end is closed.
fn receive(line: &OwnedFd) -> Option<(Message, Option<OwnedFd>)> {
    let mut message = Message::default();
    let mut part = libc::iovec {
        iov_base: (&raw mut message).cast(),
        iov_len: size_of::<Message>(),
    };
    let mut control = [0u64; 8];
    // SAFETY: as in `send`; a descriptor that arrives is new and ours.
    let file = unsafe {
        let mut whole: libc::msghdr = std::mem::zeroed();
        whole.msg_iov = &mut part;
        whole.msg_iovlen = 1;
        whole.msg_control = control.as_mut_ptr().cast();
        whole.msg_controllen = size_of_val(&control);
        if libc::recvmsg(line.as_raw_fd(), &mut whole, libc::MSG_CMSG_CLOEXEC) <= 0 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&whole);
        let came = !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS;
        came.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    };
    Some((message, file))
}

/// The guardian's life. Nobody listens to its errors: it does what it can.
fn guard(line: OwnedFd, directory: &Path, tool: u32) {
    leave_the_program_alone();
    let mut regions: Vec<Arc<Region>> = Vec::new();
    let mut lost = 0;
    let mut loaders: Vec<LoaderChange> = Vec::new();
    while let Some((message, file)) = receive(&line) {
        match message.process {
            DISMISSED => return,
            FORGET => {
                regions.retain(|region| region.inode() != message.inode);
                lost += message.lost;
                continue;
            }
            _ => {}
        }
        if message.length > 0 {
            // It is over with those before that are not there any more.
            loaders.retain(LoaderChange::is_there);
            loaders.push(LoaderChange {
                pid: message.process,
                address: message.address,
                original: message.original[..message.length as usize].to_vec(),
                code: message.code[..message.length as usize].to_vec(),
            });
            continue;
        }
        let region = file.map(|file| Region::open(file, message.process));
        regions.extend(region.and_then(Result::ok).map(Arc::new));
        let has_it = 1u8;
        // SAFETY: one byte of ours. Where the tool is gone, the next message is the end.
        unsafe {
            libc::send(
                line.as_raw_fd(),
                (&raw const has_it).cast(),
                1,
                libc::MSG_NOSIGNAL,
            )
        };
    }
    for loader in &loaders {
        let _ = loader.take_back();
    }
    clean_up(&regions);
    nopal_kernel_events::remove_left_behind(tool);
    let _ = complete(directory, &regions, lost);
    nopal_serve::remove_dead_names();
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
        let name = std::ffi::CString::new(GUARDIAN).unwrap_or_default();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
}

/// A process that changes its mappings meanwhile may not be read, and one that gets no processor may not stop: it is
/// tried again, since nobody else will.
fn clean_up(regions: &[Arc<Region>]) {
    const ATTEMPTS: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(10);
    let mut done = vec![std::process::id() as i32];
    for attempt in 0..ATTEMPTS {
        let left = processes_with(regions, &done);
        if left.is_empty() {
            return;
        }
        if attempt > 0 {
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        done.extend(
            left.into_iter()
                .filter(|process| is_taken_out(*process, regions)),
        );
    }
}

/// Takes out of a process what it has of these regions. Whether there was anything, and it could be.
fn is_taken_out(process: i32, regions: &[Arc<Region>]) -> bool {
    let mut journals = Journal::read_all(process).unwrap_or_default();
    journals.retain(|journal| regions.iter().any(|region| region.inode() == journal.inode));
    // A thread that gets no processor may keep jumps in longer than one attempt lasts.
    let is_out = |journal: &Journal| {
        let memory = Memory::open(process);
        memory.is_ok_and(|memory| !journal.changes.iter().any(|change| change.is_made(&memory)))
    };
    let remove = |journal: &Journal| remove(journal).is_ok() && is_out(journal);
    !journals.is_empty() && journals.iter().all(remove)
}

/// Writes what the tool had not written yet, and how the trace came to end. `lost` events are those of other regions.
fn complete(directory: &Path, regions: &[Arc<Region>], mut lost: u64) -> Result<()> {
    if regions.is_empty() {
        // Nothing was traced yet, and what lies there may be an older trace.
        return Ok(());
    }
    let mut writer = Writer::adopt(directory)?;
    writer.set_readable(nopal_symbols::demangle);
    let mut collector = Collector::new(Keep::All, None);
    for region in regions {
        collector.finish(region, &mut writer)?;
        lost += region.lost();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collecting::notes;

    #[test]
    fn a_tool_that_is_killed_before_it_traces_leaves_an_older_trace_alone() {
        let parent = tempfile::tempdir().unwrap();
        let trace = parent.path().join("trace");
        drop(Writer::create(&trace, notes::session(Vec::new(), Vec::new())).unwrap());
        let before = std::fs::read(trace.join("session/notes")).unwrap();
        complete(&trace, &[], 0).unwrap();
        assert_eq!(std::fs::read(trace.join("session/notes")).unwrap(), before);
    }
}
