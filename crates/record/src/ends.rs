//! The ends of traced processes for which others wait, noticed as they come.

use crate::collecting::notes::counter;
use nopal_beside::Mutex;
use nopal_process::{Ending, ExitWatch};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Descriptors that are left for all else, and the share of the others that watched processes may take.
const LEFT: u64 = 256;
const SHARE: u64 = 4;

/// Ends that are taken from the kernel at once.
const AT_ONCE: usize = 64;

/// Each watched process takes a descriptor. Where there are too few, ends are seen when processes are looked for.
pub struct Ends {
    /// Ready while a process has ended of which this was not noticed.
    set: Option<OwnedFd>,
    most: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    watched: HashMap<i32, ExitWatch>,
    noticed: Vec<End>,
}

pub struct End {
    pub process: i32,
    /// When it was noticed.
    pub counter: u64,
    pub ending: Ending,
}

impl Ends {
    pub fn new() -> Ends {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ends {
            set: epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            most: usize::try_from(files.saturating_sub(LEFT) / SHARE).unwrap_or(usize::MAX),
            known: Mutex::default(),
        }
    }

    /// Watches a process from now on. `is_it`: whether it is the one that is meant, and not another one that has got its
    /// number.
    pub fn watch(&self, process: i32, is_it: impl FnOnce() -> bool) {
        // One that had the number before may have ended.
        self.notice();
        let Some(set) = &self.set else {
            return;
        };
        {
            let known = self.known.lock();
            if known.watched.contains_key(&process) || known.watched.len() >= self.most {
                return;
            }
        }
        let Ok(mut watch) = ExitWatch::new(process) else {
            return;
        };
        // If it still lives afterwards, it has had its number meanwhile.
        if !is_it() || !matches!(watch.poll(), Ok(None)) {
            return;
        }
        let mut known = self.known.lock();
        if known.watched.contains_key(&process) {
            return;
        }
        let data = epoll::EventData::new_u64(process as u64);
        if epoll::add(set, &watch, data, epoll::EventFlags::IN).is_ok() {
            known.watched.insert(process, watch);
        }
    }

    pub fn watches(&self, process: i32) -> bool {
        self.known.lock().watched.contains_key(&process)
    }

    /// Notes the ends that have come.
    pub fn notice(&self) {
        let Some(set) = &self.set else {
            return;
        };
        let mut known = self.known.lock();
        loop {
            let mut events = Vec::with_capacity(AT_ONCE);
            let found = epoll::wait(set, spare_capacity(&mut events), Some(&Timespec::default()));
            if !matches!(found, Ok(1..)) {
                return;
            }
            // Not before: they may have recorded until then.
            let now = counter();
            for event in events {
                let process = event.data.u64() as i32;
                let Some(mut watch) = known.watched.remove(&process) else {
                    return;
                };
                let _ = epoll::delete(set, &watch);
                let ending = watch.poll().ok().flatten().unwrap_or(Ending::Unknown);
                known.noticed.push(End {
                    process,
                    counter: now,
                    ending,
                });
            }
        }
    }

    /// The ends that have come since this was asked last.
    pub fn take(&self) -> Vec<End> {
        self.notice();
        std::mem::take(&mut self.known.lock().noticed)
    }

    /// Waits for the ends of all watched processes, this long at most. A process's memory goes before its end is known.
    pub fn wait(&self, most: Duration) {
        let deadline = Instant::now() + most;
        loop {
            self.notice();
            let left = deadline.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || self.known.lock().watched.is_empty();
            let Some(set) = self.set.as_ref().filter(|_| !is_over) else {
                return;
            };
            let mut files = [PollFd::new(set, PollFlags::IN)];
            let left = Timespec::try_from(left).unwrap_or_default();
            if !matches!(poll(&mut files, Some(&left)), Ok(_) | Err(Errno::INTR)) {
                return;
            }
        }
    }

    /// Whether a watched process has no memory any more.
    pub fn any_is_ending(&self) -> bool {
        let known = self.known.lock();
        let mut watched = known.watched.keys();
        watched.any(|process| !nopal_process::has_memory(*process))
    }

    /// Ready for reading while there is one that was not noticed.
    pub fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.set.as_ref().map(AsFd::as_fd)
    }
}
