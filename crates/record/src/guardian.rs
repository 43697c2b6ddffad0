//! The guardian: a process beside the tool that knows how to take nopal out of every traced process, and does so if
//! the tool dies before it has.

use crate::collecting::collect::{Collector, Keep};
use crate::collecting::notes::{counter, snapshot};
use crate::memory::lost::Lost;
use crate::memory::numbers::Inside;
use crate::memory::region::Region;
use crate::patch::journal::Journal;
use crate::patch::remove::{WhileHeld, is_held, processes_with, remove};
use anyhow::{Context, Result, ensure};
use nopal_process::{LoaderChange, Memory};
use nopal_trace::{Batch, Note, Subscriber, ThreadKey, Writer};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, WaitOptions, setsid, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_name;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The tool's end. The guardian sees it close when the tool dies.
pub struct Guardian {
    line: OwnedFd,
    process: i32,
    /// Messages about memory that it has not acknowledged.
    unanswered: usize,
}

/// Its name.
pub const GUARDIAN: &str = "nopal-guardian";

/// In place of the number of a process.
const DISMISSED: i32 = 0;
/// The same: the region of an inode is no process's any more, and its records are written.
const FORGET: i32 = -1;
/// The same: the trace is complete, but the tool ends without having left every process.
const COMPLETE: i32 = -2;

/// A message of the tool.
#[derive(Clone, Copy, Default, FromBytes, Immutable, IntoBytes)]
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
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("socketpair")?;
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
            lost: region.lost().all(),
            ..Message::default()
        };
        // It would find nothing there, either.
        let _ = send(&self.line, message, None);
    }

    /// Before the text of a loader is changed to wait for it.
    pub fn announce_loader(&self, change: &LoaderChange) {
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

    /// When this returns, the guardian has mapped all memory that it knows of. By that, another nopal knows that it
    /// lives, and leaves the process to it: a guardian that had not run yet when the tool was killed would take out
    /// what another takes out, too.
    pub fn watches(&mut self) {
        for _ in 0..std::mem::take(&mut self.unanswered) {
            // Until the guardian answers, or is gone; a signal may come before.
            let mut has_it = [0];
            while recv(&self.line, &mut has_it, RecvFlags::empty()) == Err(Errno::INTR) {}
        }
    }

    /// Its process.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Leaves it to the guardian to take nopal out of the processes where it still is, as this process ends. Whether there
    /// is one.
    pub fn hand_over(&self) -> bool {
        let message = Message {
            process: COMPLETE,
            ..Message::default()
        };
        send(&self.line, message, None).is_ok()
    }

    /// Everything is in order.
    pub fn dismiss(&mut self) {
        let _ = send(&self.line, Message::default(), None);
        let _ = waitpid(Pid::from_raw(self.process), WaitOptions::empty());
    }
}

fn send(line: &OwnedFd, message: Message, region: Option<BorrowedFd>) -> Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut room);
    if let Some(region) = &region {
        files.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(
            region,
        )));
    }
    let parts = [IoSlice::new(message.as_bytes())];
    let sent = sendmsg(line, &parts, &mut files, SendFlags::NOSIGNAL)?;
    ensure!(sent == size_of::<Message>(), "a message was cut");
    Ok(())
}

/// A message and the descriptor that came with it; `None` when the other end is closed.
fn receive(line: &OwnedFd) -> Option<(Message, Option<OwnedFd>)> {
    let mut message = Message::default();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut room);
    let mut parts = [IoSliceMut::new(message.as_mut_bytes())];
    let received = recvmsg(line, &mut parts, &mut files, RecvFlags::CMSG_CLOEXEC);
    received.ok().filter(|received| received.bytes > 0)?;
    let file = files.drain().find_map(|came| match came {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Some((message, file))
}

/// The guardian's life. Nobody listens to its errors: it does what it can.
fn guard(line: OwnedFd, directory: &Path, tool: u32) {
    leave_the_program_alone();
    let mut regions: Vec<Arc<Region>> = Vec::new();
    let mut lost = 0;
    let mut loaders: Vec<LoaderChange> = Vec::new();
    let mut is_complete = false;
    while let Some((message, file)) = receive(&line) {
        match message.process {
            DISMISSED => return,
            FORGET => {
                regions.retain(|region| region.inode() != message.inode);
                lost += message.lost;
                continue;
            }
            COMPLETE => {
                is_complete = true;
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
        // Where the tool is gone, the next message is the end.
        let _ = rustix::net::send(&line, &[1], SendFlags::NOSIGNAL);
    }
    for loader in &loaders {
        let _ = loader.take_back();
    }
    clean_up(&regions);
    nopal_kernel_events::remove_left_behind(tool);
    if !is_complete {
        let _ = complete(directory, &regions, lost);
    }
    nopal_serve::remove_dead_names();
}

/// Out of the terminal's reach, and without the program's input and output.
fn leave_the_program_alone() {
    let _ = setsid();
    for signal in [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGPIPE,
    ] {
        // SAFETY: no handler of ours is lost.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
    let name = std::ffi::CString::new(GUARDIAN).unwrap_or_default();
    let _ = set_name(&name);
}

/// A process that changes its mappings meanwhile may not be read, and one that gets no processor may not stop: it is
/// tried again, since nobody else will.
fn clean_up(regions: &[Arc<Region>]) {
    const ATTEMPTS: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(10);
    let mut done = vec![std::process::id() as i32];
    for attempt in 0..ATTEMPTS {
        let mut left = processes_with(regions, &done);
        // Those that are waited for come last.
        left.sort_by_cached_key(|process| is_held(*process));
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
    let remove =
        |journal: &Journal| remove(journal, WhileHeld::Wait, &|| ()).is_ok() && is_out(journal);
    !journals.is_empty() && journals.iter().all(remove)
}

/// Writes what the tool had not written yet, and how the trace came to end. `lost` events are those of other regions.
fn complete(directory: &Path, regions: &[Arc<Region>], lost: u64) -> Result<()> {
    if regions.is_empty() {
        // Nothing was traced yet, and what lies there may be an older trace.
        return Ok(());
    }
    let mut writer = Writer::adopt(directory)?;
    writer.set_readable(nopal_symbols::demangle);
    // By other names, what the trace has of threads that have ended would seem to be missing.
    let known = writer.subscribe(Box::new(KnownThreads {
        regions: regions.to_vec(),
        numbers: HashMap::new(),
    }))?;
    writer.unsubscribe(known);
    let mut collector = Collector::new(Keep::All, None);
    let mut known = Lost::default();
    for region in regions {
        collector.finish(region, &mut writer)?;
        known = known + region.lost();
    }
    writer.note(&snapshot())?;
    writer.note(&Note::Lost {
        process: 0,
        events: lost + known.all(),
        reasons: known.reasons(),
    })?;
    writer.note(&Note::End {
        counter: counter(),
        complete: false,
        why: Note::KILLED.into(),
    })?;
    writer.sync_metadata()
}

/// Tells regions what the trace calls the threads of PID namespaces.
struct KnownThreads {
    regions: Vec<Arc<Region>>,
    /// What processes and threads are called inside; none, where the trace has only that.
    numbers: HashMap<(u32, u32), Option<u32>>,
}

impl Subscriber for KnownThreads {
    fn note(&mut self, note: &Note) {
        match *note {
            Note::Inside {
                process,
                thread,
                number,
            } => drop(self.numbers.insert((process, thread), Some(number))),
            Note::Namespace {
                process,
                thread: Some(thread),
            } => drop(self.numbers.insert((process, thread), None)),
            Note::Thread {
                process,
                thread,
                begin,
                kernel: false,
                ..
            } => {
                let here = ThreadKey {
                    process,
                    thread,
                    begin,
                };
                let number = |thread| self.numbers.get(&(process, thread)).copied();
                let inside = match (number(process).flatten(), number(thread)) {
                    (Some(process), Some(Some(thread))) => Inside::Known { process, thread },
                    (Some(process), Some(None)) => Inside::Thread { process },
                    _ => return,
                };
                for region in &self.regions {
                    region.remember(here, inside);
                }
            }
            _ => {}
        }
    }

    fn records(&mut self, _: Batch) {}

    fn thread_ended(&mut self, _: ThreadKey) {}
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
