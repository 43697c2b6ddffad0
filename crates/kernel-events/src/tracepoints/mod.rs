//! Any tracepoints of the running kernel, of the threads of a process and of all that they start, by tracefs.
//!
//! Their records name threads only. The process of a new thread is told by its creator's `task_newtask`.

mod choose;
mod format;

use crate::clock::{Clock, counter};
use crate::functions::instance::{Instance, ProcessorRing};
use crate::functions::page::{self, PAGE, PAGES_AT_ONCE, room};
use crate::tracefs::tracing;
use anyhow::{Context, Result};
pub use choose::check;
use choose::{Tracepoint, choose, read};
use format::Format;
use nopal_trace::Field;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// The instance's name tells it from that of functions.
const INSTANCE: &str = "-events";
const NEW_TASK: (&str, &str) = ("task", "task_newtask");
/// In `clone_flags`: the new task is a thread of its creator's process.
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

/// Records tracepoints until it is dropped.
pub struct TracepointEvents {
    // Dropped before the instance, which is not removed while its files are open.
    rings: Vec<ProcessorRing>,
    instance: Instance,
    clock: Clock,
    /// Whether the kernel stamps events with the counter; else with CLOCK_MONOTONIC.
    has_counter: bool,
    chosen: HashMap<u16, (String, Format)>,
    new_task: NewTask,
    /// The process of each thread.
    processes: HashMap<u32, u32>,
    /// Read, and not passed on yet.
    held: Vec<Raw>,
    page: Vec<u8>,
}

struct Raw {
    clock: u64,
    processor: u32,
    body: Vec<u8>,
}

/// One event of a thread.
#[derive(Debug)]
pub struct TracepointEvent<'a> {
    pub processor: u32,
    pub clock: u64,
    pub process: u32,
    pub thread: u32,
    /// The tracepoint's number in the running kernel.
    pub id: u16,
    pub name: &'a str,
    pub fields: &'a [Field],
    /// The words of a marker's record behind the clock.
    pub words: &'a [u64],
}

/// The places of `task_newtask`'s fields.
#[derive(Clone, Copy, Debug)]
struct NewTask {
    id: u16,
    thread: usize,
    flags: usize,
}

impl NewTask {
    fn read() -> Result<NewTask> {
        let text = read(NEW_TASK.0, NEW_TASK.1, "format")?;
        let offset = |field: &str, size| crate::tracepoint::offset(&text, field, size);
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "));
        let parsed = || {
            Some(NewTask {
                id: id?.trim().parse().ok()?,
                thread: offset("pid", 4)?,
                flags: offset("clone_flags", 8)?,
            })
        };
        parsed().context("the kernel describes task:task_newtask in an unknown format")
    }
}

impl TracepointEvents {
    /// `words`: `GROUP`, `GROUP:NAME`, or a name alone, each a glob. An error names a missing one, and the nearest.
    pub fn open(process: i32, words: &[String]) -> Result<TracepointEvents> {
        // Mistakes are reported before missing rights.
        let chosen = choose(words)?;
        TracepointEvents::of_instance(process, chosen).context("tracepoints cannot be recorded")
    }

    fn of_instance(process: i32, chosen: Vec<Tracepoint>) -> Result<TracepointEvents> {
        let instance = Instance::named(INSTANCE)?;
        let processors = crate::online()?;
        let new_task = NewTask::read()?;
        let has_counter = instance.write("trace_clock", "x86-tsc").is_ok();
        if !has_counter {
            instance.write("trace_clock", "mono")?;
        }
        instance.write("buffer_size_kb", &room(processors.len()).to_string())?;
        instance.write("options/event-fork", "1")?;
        let threads = instance.add_threads("set_event_pid", process)?;
        instance.write(&enable(NEW_TASK.0, NEW_TASK.1), "1")?;
        let mut formats = HashMap::new();
        for tracepoint in chosen {
            let Tracepoint { group, name } = &tracepoint;
            let text = read(group, name, "format")?;
            let format = Format::parse(&text).with_context(|| {
                format!("the kernel describes {group}:{name} in an unknown format")
            })?;
            instance.write(&enable(group, name), "1")?;
            formats.insert(format.id, (format!("{group}:{name}"), format));
        }
        let rings = instance.rings(&processors)?;
        instance.write("tracing_on", "1")?;
        Ok(TracepointEvents {
            rings,
            instance,
            clock: Clock::new(),
            has_counter,
            chosen: formats,
            new_task,
            processes: threads
                .into_iter()
                .map(|thread| (thread as u32, process as u32))
                .collect(),
            held: Vec::new(),
            page: vec![0; PAGE],
        })
    }

    /// Takes the events so far, in order of time, up to a moment that it returns: no earlier event is still to come.
    /// `lose` gets the number of missing events of a processor, before the events that came after them.
    pub fn read(
        &mut self,
        mut lose: impl FnMut(u32, u64),
        take: impl FnMut(TracepointEvent) -> Result<()>,
    ) -> Result<u64> {
        let until = counter();
        self.fill(&mut lose)?;
        self.give(until, take)?;
        Ok(until)
    }

    /// Stops recording, and takes the remaining events.
    pub fn end(
        &mut self,
        mut lose: impl FnMut(u32, u64),
        take: impl FnMut(TracepointEvent) -> Result<()>,
    ) -> Result<()> {
        self.instance.write("tracing_on", "0")?;
        self.fill(&mut lose)?;
        self.give(u64::MAX, take)?;
        for ring in &self.rings {
            let lost = self.instance.lost(ring.processor);
            if lost > ring.reported {
                lose(ring.processor, lost - ring.reported);
            }
        }
        Ok(())
    }

    fn fill(&mut self, lose: &mut impl FnMut(u32, u64)) -> Result<()> {
        if !self.has_counter {
            self.clock.snapshot();
        }
        let (has_counter, clock, held) = (self.has_counter, &self.clock, &mut self.held);
        for ring in &mut self.rings {
            for _ in 0..PAGES_AT_ONCE {
                let length = match ring.file.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error).context("reading the kernel's tracepoints"),
                };
                let processor = ring.processor;
                page::bodies(&self.page[..length], |time, body| match body {
                    page::Body::Event(body) => held.push(Raw {
                        clock: if has_counter {
                            time
                        } else {
                            clock.counter(time)
                        },
                        processor,
                        body: body.to_vec(),
                    }),
                    page::Body::Lost(events) => {
                        ring.reported = ring.reported.saturating_add(events);
                        lose(processor, events);
                    }
                });
            }
        }
        self.held.sort_by_key(|raw| raw.clock);
        Ok(())
    }

    fn give(
        &mut self,
        until: u64,
        mut take: impl FnMut(TracepointEvent) -> Result<()>,
    ) -> Result<()> {
        let ready = self.held.partition_point(|raw| raw.clock < until);
        let mut words = Vec::new();
        for Raw {
            clock,
            processor,
            body,
        } in self.held.drain(..ready)
        {
            let (Some(id), Some(thread)) = (page::number(&body), page::half(&body, 4)) else {
                continue;
            };
            let process = *self.processes.entry(thread).or_insert_with(|| of(thread));
            if id == self.new_task.id
                && let (Some(new), Some(flags)) = (
                    page::half(&body, self.new_task.thread),
                    page::word(&body, self.new_task.flags),
                )
            {
                let is_thread = flags & CLONE_THREAD != 0;
                self.processes
                    .insert(new, if is_thread { process } else { new });
            }
            words.clear();
            if let Some((name, format)) = self.chosen.get(&id)
                && format.push_values(&body, processor, &mut words).is_some()
            {
                take(TracepointEvent {
                    processor,
                    clock,
                    process,
                    thread,
                    id,
                    name,
                    fields: &format.fields,
                    words: &words,
                })?;
            }
        }
        Ok(())
    }
}

/// The process of a thread without a note: its process began between two steps of the beginning.
fn of(thread: u32) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process = process.and_then(|process| process.trim().parse().ok());
    process.unwrap_or(thread)
}

fn enable(group: &str, name: &str) -> String {
    format!("events/{group}/{name}/enable")
}

/// The folder with a folder for each group.
fn events() -> Result<PathBuf> {
    Ok(tracing()?.join("events"))
}
