//! Notes of the threads that record: their names, what they run for, and how they are scheduled.

use crate::collecting::chunk_reader::name_of;
use crate::collecting::notes;
use crate::ends::Ends;
use crate::memory::numbers::Inside;
use crate::memory::region::Region;
use crate::patch::remove::has_mapped;
use anyhow::Result;
use nopal_abi::CHUNK_OWNED;
use nopal_trace::{Note, TaskFacts, ThreadKey, Writer};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A thread that records is asked for its name again after this time.
const NAME_AGE: Duration = Duration::from_millis(10);

/// The name of a thread that was noted last, and when it was asked for.
struct Named {
    name: String,
    /// Whether it was asked for in time. Otherwise the ids may be those of another thread.
    is_found: bool,
    asked: Instant,
    /// The name that it had given itself when a chunk of its was read.
    given: [u8; 16],
    /// Policy, nice level and priority, as the last note has them.
    schedule: Option<(u32, i32, u32)>,
}

/// The notes of threads that the trace has.
#[derive(Default)]
pub struct Naming {
    named: HashMap<ThreadKey, Named>,
    /// The processes that have recorded; the region in which each did so last, by its inode, and when it began to.
    pub recording: HashMap<u32, (u64, u64)>,
    /// Processes, with 0, or threads of one, that are known by numbers of PID namespaces of their own.
    pub in_namespaces: HashSet<(u32, u32)>,
    /// Where the ends of forked processes are noticed.
    pub ends: Option<Arc<Ends>>,
}

impl Naming {
    /// Notes the threads that have begun to record, while they may still be asked for what goes with them.
    pub fn meet(&mut self, region: &Region, writer: &mut Writer) -> Result<()> {
        for chunk in 0..region.chunks() {
            if region.chunk_state(chunk) != CHUNK_OWNED {
                continue;
            }
            let key = name_of(region, chunk).0;
            if is_whole(key) && !self.knows(key) {
                self.note(region, writer, key)?;
            }
        }
        Ok(())
    }

    /// Whether the trace has its name.
    pub fn knows(&self, key: ThreadKey) -> bool {
        self.named.contains_key(&key)
    }

    /// Watches a forked process, unless it is known by numbers of its own.
    fn watch(&self, region: &Region, key: ThreadKey) {
        let process = key.process as i32;
        let is_here = matches!(region.inside(key), None | Some(Inside::Known { .. }));
        if let Some(ends) = &self.ends
            && is_here
            && process != region.process()
        {
            ends.watch(process, || has_mapped(process, region));
        }
    }

    /// Notes a thread's name the first time, and later where it has changed.
    pub fn note(&mut self, region: &Region, writer: &mut Writer, key: ThreadKey) -> Result<()> {
        if let Some(named) = self.named.get_mut(&key) {
            return match named.asked.elapsed() >= NAME_AGE {
                true => named.ask_again(key, writer),
                false => Ok(()),
            };
        }
        let last = self.recording.get(&key.process);
        let known = last.is_some_and(|(of, begin)| *of == region.inode() || key.begin < *begin);
        if !known {
            let now = (region.inode(), key.begin);
            self.recording.insert(key.process, now);
        }
        // Of a process that is known, too: another one may have its number.
        self.watch(region, key);
        for note in thread_notes(region, key) {
            let is_known = match note {
                Note::Process { .. } => known,
                Note::Namespace { process, thread } => {
                    !self.in_namespaces.insert((process, thread.unwrap_or(0)))
                }
                Note::Inside {
                    process, thread, ..
                } => known && process == thread,
                _ => false,
            };
            if let Note::Thread { name, .. } = &note {
                let named = Named {
                    name: name.clone(),
                    is_found: !name.is_empty(),
                    asked: Instant::now(),
                    given: [0; 16],
                    schedule: None,
                };
                self.named.insert(key, named);
            }
            if !is_known {
                writer.note(&note)?;
            }
        }
        match self.named.get_mut(&key) {
            Some(named) => named.ask_schedule(key, writer),
            None => Ok(()),
        }
    }

    /// Notes the name that a thread has given itself, as one of its chunks has it, if it has ended meanwhile.
    pub fn note_given(
        &mut self,
        writer: &mut Writer,
        key: ThreadKey,
        given: [u8; 16],
    ) -> Result<()> {
        let Some(named) = self.named.get_mut(&key) else {
            return Ok(());
        };
        if given == [0; 16] || given == named.given {
            return Ok(());
        }
        named.given = given;
        let text = given.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = || String::from_utf8_lossy(text).into_owned();
        // One that lives may have got another name from another thread.
        let name = named.present_name(key).unwrap_or_else(text);
        named.rename(key, name, writer)
    }
}

/// A thread that has just taken its chunk has not filled in the header, which was zero.
pub fn is_whole(key: ThreadKey) -> bool {
    key.process != 0 && key.thread != 0 && key.begin != 0
}

impl Named {
    /// Notes how the thread is scheduled, where that has changed.
    fn ask_schedule(&mut self, key: ThreadKey, writer: &mut Writer) -> Result<()> {
        if !self.is_found {
            return Ok(());
        }
        let schedule = nopal_process::schedule(key.thread as i32);
        if schedule.is_none() || schedule == self.schedule {
            return Ok(());
        }
        self.schedule = schedule;
        match task_note(key.process, key.thread) {
            Some(note) => writer.note(&note),
            None => Ok(()),
        }
    }

    fn ask_again(&mut self, key: ThreadKey, writer: &mut Writer) -> Result<()> {
        self.asked = Instant::now();
        self.ask_schedule(key, writer)?;
        match self.present_name(key) {
            Some(name) => self.rename(key, name, writer),
            None => Ok(()),
        }
    }

    /// None: the thread has ended.
    fn present_name(&self, key: ThreadKey) -> Option<String> {
        let name = nopal_process::thread_name(key.process as i32, key.thread as i32);
        name.ok().filter(|_| self.is_found)
    }

    fn rename(&mut self, key: ThreadKey, name: String, writer: &mut Writer) -> Result<()> {
        if name == self.name {
            return Ok(());
        }
        self.name.clone_from(&name);
        writer.note(&Note::Thread {
            process: key.process,
            thread: key.thread,
            begin: key.begin,
            name,
            kernel: false,
        })
    }
}

/// The user a thread runs for and its scheduling, unless it has ended.
pub fn task_note(process: u32, thread: u32) -> Option<Note> {
    Some(Note::Task {
        process,
        thread,
        counter: nopal_kernel_events::counter(),
        facts: task_facts(process, thread)?,
    })
}

pub fn task_facts(process: u32, thread: u32) -> Option<TaskFacts> {
    let task = nopal_process::scheduling(process as i32, thread as i32)?;
    Some(TaskFacts {
        uid: task.uid,
        nice: task.nice,
        policy: task.policy,
        rt_prio: task.real_time_priority,
    })
}

/// Names a thread, and its process where that is a forked one or has a number of its own.
pub fn thread_notes(region: &Region, key: ThreadKey) -> impl Iterator<Item = Note> {
    let ancestor = region.process() as u32;
    let inside = region.inside(key);
    let name = match inside {
        None | Some(Inside::Known { .. }) => {
            nopal_process::thread_name(key.process as i32, key.thread as i32).ok()
        }
        Some(Inside::Thread { .. } | Inside::Process) => None,
    };
    let forked = (key.process != ancestor).then(|| notes::forked(key, ancestor));
    let thread = Note::Thread {
        process: key.process,
        thread: key.thread,
        begin: key.begin,
        name: name.unwrap_or_default(),
        kernel: false,
    };
    let inside = inside
        .into_iter()
        .flat_map(move |inside| inside_notes(key, inside));
    inside.chain(forked).chain([thread])
}

/// By which numbers a thread is known, and which others its process and it have.
fn inside_notes(key: ThreadKey, inside: Inside) -> impl Iterator<Item = Note> {
    let ThreadKey {
        process, thread, ..
    } = key;
    let called = |thread, number| Note::Inside {
        process,
        thread,
        number,
    };
    let namespace = |thread| Note::Namespace { process, thread };
    let (first, second) = match inside {
        Inside::Known {
            process: own,
            thread: number,
        } => (
            called(process, own),
            (thread != process).then(|| called(thread, number)),
        ),
        Inside::Thread { process: own } => (called(process, own), Some(namespace(Some(thread)))),
        Inside::Process => (namespace(None), None),
    };
    std::iter::once(first).chain(second)
}
