//! The system's events, taken from the kernel by perf: who leaves a processor, who gets it, who is woken.
//!
//! Where the kernel permits it, these are its scheduler's tracepoints on all processors, and so of all tasks. Else they are
//! the context switches of the traced processes' own threads, which need no rights.

mod clock;
mod event;
mod kinds;
mod permission;
mod record;
mod ring;
mod tracepoint;

pub use kinds::Kinds;
pub use permission::{Allowed, allowed};

use anyhow::{Context, Result, ensure};
use clock::Clock;
use event::Descriptor;
use nopal_trace::SystemRecord;
use record::{Decoder, Found};
use ring::Ring;
use std::collections::HashSet;
use std::fs;
use tracepoint::Tracepoints;

/// Pages of a ring where the kernel limits what a user may lock in memory: its default for each processor.
const PAGES_OF_USERS: usize = 128;
/// And elsewhere: of each processor at most so many, and of all together.
const PAGES: usize = 1 << 12;
const PAGES_OF_ALL: usize = 1 << 16;

/// Events that are being recorded. They end when this goes.
pub struct System {
    processors: Vec<Processor>,
    decoder: Decoder,
    clock: Clock,
    records: Vec<SystemRecord>,
}

struct Processor {
    number: u32,
    ring: Ring,
    /// Those that write into the ring; they live as long as their descriptors.
    events: Vec<Descriptor>,
    /// Events that the ring has told of as lost.
    told: u64,
}

/// What came of one processor, oldest first.
pub enum News<'a> {
    Records(&'a [SystemRecord]),
    /// So many events are missing here.
    Lost(u64),
}

impl System {
    /// Begins to record. `process` and all that it starts are those whose own switches are recorded where no more is
    /// permitted. The second value says then what is missing and how to allow it.
    pub fn open(kinds: Kinds, process: i32) -> Result<(System, Option<String>)> {
        match permission::allowed() {
            Allowed::Everything => Ok((System::of_all(kinds)?, None)),
            Allowed::Own(missing) => {
                ensure!(kinds.switches(), "wake-ups cannot be recorded: {missing}");
                Ok((System::of_process(process)?, Some(missing)))
            }
            Allowed::Nothing(missing) => Err(anyhow::anyhow!(
                "the system's events cannot be recorded: {missing}"
            )),
        }
    }

    fn of_all(kinds: Kinds) -> Result<System> {
        let tracepoints = Tracepoints::read(kinds)?;
        let numbers = online()?;
        let share = (PAGES_OF_ALL / numbers.len().max(1)).max(1);
        let pages = PAGES.min(1 << share.ilog2());
        let mut processors = Vec::new();
        for number in numbers {
            let mut events = Vec::new();
            for id in tracepoints.ids() {
                events.push(Descriptor::tracepoint(id, number)?);
            }
            processors.push(Processor::new(number, events, pages)?);
        }
        Ok(System::new(processors, Decoder::new(tracepoints)))
    }

    fn of_process(process: i32) -> Result<System> {
        let mut processors: Vec<Processor> = Vec::new();
        let numbers = online()?;
        let mut known = HashSet::new();
        loop {
            let threads: Vec<i32> = threads(process)?
                .into_iter()
                .filter(|thread| known.insert(*thread))
                .collect();
            // Threads that begin meanwhile come by their creators, or are found the next time, or both.
            if threads.is_empty() {
                break;
            }
            for thread in threads {
                for (place, number) in numbers.iter().enumerate() {
                    let event = match Descriptor::switches(thread, *number) {
                        Err(error) if is_gone(&error) => break,
                        other => other?,
                    };
                    match processors.get_mut(place) {
                        Some(processor) => processor.add(event)?,
                        None => {
                            processors.push(Processor::new(*number, vec![event], PAGES_OF_USERS)?)
                        }
                    }
                }
            }
        }
        ensure!(!processors.is_empty(), "process {process} has ended");
        Ok(System::new(processors, Decoder::new(Tracepoints::none())))
    }

    fn new(processors: Vec<Processor>, decoder: Decoder) -> System {
        System {
            processors,
            decoder,
            clock: Clock::new(),
            records: Vec::new(),
        }
    }

    /// Takes what has come since the last time. Returns how many events these were.
    pub fn read(&mut self, mut take: impl FnMut(u32, News) -> Result<()>) -> Result<u64> {
        // What is in the rings now happened before this.
        let heads: Vec<u64> = self.processors.iter().map(|one| one.ring.head()).collect();
        self.clock.snapshot();
        let mut events = 0;
        for (processor, head) in self.processors.iter_mut().zip(heads) {
            let records = &mut self.records;
            records.clear();
            let mut lost = Vec::new();
            let (decoder, clock) = (&mut self.decoder, &self.clock);
            processor.ring.read(head, |record| {
                match decoder.decode(processor.number, record) {
                    Found::Event(ns, event) => records.push(SystemRecord {
                        clock: clock.counter(ns),
                        event,
                    }),
                    Found::Lost(events) => lost.push((records.len(), events)),
                    Found::Nothing => {}
                }
            });
            events += records.len() as u64;
            let mut from = 0;
            for (to, count) in lost {
                take(processor.number, News::Records(&records[from..to]))?;
                take(processor.number, News::Lost(count))?;
                processor.told = processor.told.saturating_add(count);
                from = to;
            }
            take(processor.number, News::Records(&records[from..]))?;
        }
        Ok(events)
    }

    /// Records no more. Takes what is left, and what was lost after the last event.
    pub fn end(mut self, mut take: impl FnMut(u32, News) -> Result<()>) -> Result<()> {
        for processor in &self.processors {
            processor.events.iter().for_each(Descriptor::disable);
        }
        self.read(&mut take)?;
        for processor in &self.processors {
            let lost: u64 = processor.events.iter().map(Descriptor::lost).sum();
            if lost > processor.told {
                take(processor.number, News::Lost(lost - processor.told))?;
            }
        }
        Ok(())
    }
}

impl Processor {
    fn new(number: u32, events: Vec<Descriptor>, pages: usize) -> Result<Processor> {
        let (first, others) = events.split_first().context("no event is asked for")?;
        let ring = Ring::map(first, pages)?;
        others.iter().try_for_each(|event| event.write_to(first))?;
        Ok(Processor {
            number,
            ring,
            events,
            told: 0,
        })
    }

    fn add(&mut self, event: Descriptor) -> Result<()> {
        event.write_to(&self.events[0])?;
        self.events.push(event);
        Ok(())
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.and_then(std::io::Error::raw_os_error) == Some(libc::ESRCH)
}

fn threads(process: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{process}/task");
    let entries = fs::read_dir(&path).with_context(|| path)?;
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    Ok(entries
        .filter_map(|entry| number(entry.ok()?.file_name()))
        .collect())
}

/// The processors that run.
fn online() -> Result<Vec<u32>> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(PATH).context(PATH)?;
    ranges(&text).with_context(|| format!("{PATH} says {text:?}"))
}

/// `0-3,8`
fn ranges(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last.checked_sub(first)? > 1 << 16 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_by_ranges() {
        assert_eq!(ranges("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        for wrong in ["", "x", "3-1", "0-4294967295"] {
            assert_eq!(ranges(wrong), None, "{wrong}");
        }
    }
}
