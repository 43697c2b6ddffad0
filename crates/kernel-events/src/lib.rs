//! Kernel events, read by perf: context switches and wake-ups.
//!
//! Where the kernel permits it, these are its scheduler's tracepoints on all processors, and so of all tasks. Else they
//! are the context switches of the traced processes' own threads, which need no rights. Functions of the kernel that
//! the traced threads run come from the kernel's own tracer of functions, and other tracepoints from tracefs as well.

mod clock;
mod event;
mod functions;
mod kinds;
mod permission;
mod positions;
mod record;
mod ring;
mod tracefs;
mod tracepoint;
mod tracepoints;

pub use functions::{missing as missing_for_functions, remove_left_behind};
pub use kinds::Kinds;
pub use permission::{Allowed, allowed};
pub use positions::{Position, Positions};
pub use tracepoints::{TracepointEvent, TracepointEvents, check as check_tracepoint};

use anyhow::{Context, Result, bail, ensure};
pub use clock::counter;
use clock::{Clock, monotonic};
use event::Descriptor;
use functions::Functions;
use nopal_trace::{KernelEvent, KernelRecord};
use record::{Decoder, Found};
use ring::Ring;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use tracepoint::Tracepoints;

/// Pages of a ring for users whose locked memory the kernel limits: its default for each processor.
const PAGES_OF_USERS: usize = 128;
/// For others: the most of each processor, and of all together.
const PAGES: usize = 1 << 12;
const PAGES_OF_ALL: usize = 1 << 16;

/// Records events until it is dropped.
pub struct KernelEvents {
    processors: Vec<Processor>,
    decoder: Decoder,
    clock: Clock,
    functions: Option<Functions>,
    /// By the clock of perf: all later events are recorded.
    begin: u64,
    /// Records of each processor that were not handed on yet.
    held: BTreeMap<u32, Unread>,
}

struct Processor {
    number: u32,
    ring: Ring,
    /// The events that write into the ring. They live as long as their descriptors.
    events: Vec<Descriptor>,
    /// Events that the ring has reported as lost.
    reported: u64,
}

#[derive(Default)]
struct Unread {
    records: Vec<KernelRecord>,
    /// Earlier events are no longer passed on.
    given: u64,
}

/// An update of one processor, oldest first.
pub enum Update<'a> {
    /// A function of the kernel, by an address in it that later records have.
    Function(u64, &'a str),
    Records(&'a [KernelRecord]),
    /// This many events are missing here.
    Lost(u64),
}

impl KernelEvents {
    /// Begins to record. Where no more is permitted, only the switches of `process` and of all that it starts are
    /// recorded; the second value then says what is missing and how to allow it. Functions of the kernel, where they
    /// are asked for, are those that its threads and all that they start run, and that match one of the globs if there
    /// are any.
    pub fn open(
        kinds: Kinds,
        process: i32,
        only: &[String],
    ) -> Result<(KernelEvents, Option<String>)> {
        let functions = match kinds.functions() {
            true => Some(Functions::open(process, &online()?, only)?),
            false => None,
        };
        let (system, missing) = match permission::allowed() {
            _ if !kinds.scheduling() => (
                KernelEvents::new(Vec::new(), Decoder::new(Tracepoints::none())),
                None,
            ),
            Allowed::Everything => (KernelEvents::of_all(kinds)?, None),
            Allowed::Own(missing) => {
                ensure!(kinds.switches(), "wake-ups cannot be recorded: {missing}");
                (KernelEvents::of_process(process)?, Some(missing))
            }
            Allowed::Nothing(missing) => {
                bail!("kernel events cannot be recorded: {missing}")
            }
        };
        Ok((
            KernelEvents {
                functions,
                begin: monotonic(),
                ..system
            },
            missing,
        ))
    }

    fn of_all(kinds: Kinds) -> Result<KernelEvents> {
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
        Ok(KernelEvents::new(processors, Decoder::new(tracepoints)))
    }

    fn of_process(process: i32) -> Result<KernelEvents> {
        let mut processors: Vec<Processor> = Vec::new();
        let numbers = online()?;
        let mut known = HashSet::new();
        loop {
            let threads: Vec<i32> = threads(process)?
                .into_iter()
                .filter(|thread| known.insert(*thread))
                .collect();
            // Threads that begin meanwhile are added by their creators, or found the next time, or both.
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
        Ok(KernelEvents::new(
            processors,
            Decoder::new(Tracepoints::none()),
        ))
    }

    fn new(processors: Vec<Processor>, decoder: Decoder) -> KernelEvents {
        KernelEvents {
            processors,
            decoder,
            clock: Clock::new(),
            functions: None,
            begin: 0,
            held: BTreeMap::new(),
        }
    }

    /// Takes the new events, and returns their number.
    pub fn read(&mut self, take: impl FnMut(u32, Update) -> Result<()>) -> Result<u64> {
        // All events of a processor before this moment are in its rings once they are read. Of later events, one ring
        // may have some while the other does not have earlier ones yet.
        let until = match self.functions {
            Some(_) => counter(),
            None => u64::MAX,
        };
        self.fill(u64::MAX)?;
        self.give(until, take)
    }

    /// Takes the events in the rings that came before `end`, by the clock of perf.
    fn fill(&mut self, end: u64) -> Result<()> {
        let own = self.begin..end;
        // The events in the rings now happened before this.
        let heads: Vec<u64> = self.processors.iter().map(|one| one.ring.head()).collect();
        self.clock.snapshot();
        for (processor, head) in self.processors.iter_mut().zip(heads) {
            let held = &mut self.held.entry(processor.number).or_default().records;
            let (decoder, clock) = (&mut self.decoder, &self.clock);
            let reported = &mut processor.reported;
            let mut last = 0;
            processor.ring.read(head, |record| {
                match decoder.decode(processor.number, record) {
                    Found::Event(ns, _) if !own.contains(&ns) => {}
                    Found::Event(ns, event) => {
                        last = clock.counter(ns);
                        held.push(KernelRecord { clock: last, event });
                    }
                    Found::Lost(events) => {
                        *reported = reported.saturating_add(events);
                        let event = KernelEvent::Lost { events };
                        held.push(KernelRecord { clock: last, event });
                    }
                    Found::Nothing => {}
                }
            });
        }
        if let Some(functions) = &mut self.functions {
            let held = &mut self.held;
            functions.read(&self.clock, |processor, record| {
                held.entry(processor).or_default().records.push(record);
            })?;
            for held in self.held.values_mut() {
                held.records.sort_by_key(|record| record.clock);
            }
        }
        Ok(())
    }

    /// Passes on the events until then, and returns their number.
    fn give(&mut self, until: u64, mut take: impl FnMut(u32, Update) -> Result<()>) -> Result<u64> {
        let is_lost = |record: &KernelRecord| matches!(record.event, KernelEvent::Lost { .. });
        let mut events = 0;
        for (&processor, held) in &mut self.held {
            let ready = match until {
                u64::MAX => held.records.len(),
                _ => held.records.partition_point(|record| record.clock < until),
            };
            let ready = &mut held.records[..ready];
            for record in ready.iter_mut() {
                // Between two readings, the conversion is inexact.
                record.clock = record.clock.max(held.given);
                held.given = record.clock;
                if let (
                    KernelEvent::Function {
                        function, caller, ..
                    },
                    Some(functions),
                ) = (record.event, &mut self.functions)
                {
                    for address in [function, caller] {
                        if let Some(name) = functions.name(address) {
                            take(processor, Update::Function(address, name))?;
                        }
                    }
                }
            }
            for run in ready.chunk_by(|one, other| !is_lost(one) && !is_lost(other)) {
                match run[0].event {
                    KernelEvent::Lost { events } => take(processor, Update::Lost(events))?,
                    _ => {
                        events += run.len() as u64;
                        take(processor, Update::Records(run))?;
                    }
                }
            }
            let given = ready.len();
            held.records.drain(..given);
        }
        Ok(events)
    }

    /// Stops recording. Takes the remaining events, up to the begin of the next recording, and the number of those lost
    /// after the last one.
    pub fn end(
        mut self,
        next: Option<&KernelEvents>,
        mut take: impl FnMut(u32, Update) -> Result<()>,
    ) -> Result<()> {
        for processor in &self.processors {
            processor.events.iter().for_each(Descriptor::disable);
        }
        if let Some(functions) = &self.functions {
            functions.stop()?;
        }
        self.fill(next.map_or(u64::MAX, |next| next.begin))?;
        self.give(u64::MAX, &mut take)?;
        for processor in &self.processors {
            let lost: u64 = processor.events.iter().map(Descriptor::lost).sum();
            if lost > processor.reported {
                take(processor.number, Update::Lost(lost - processor.reported))?;
            }
        }
        for (processor, lost) in self.functions.iter().flat_map(Functions::lost) {
            if lost > 0 {
                take(processor, Update::Lost(lost))?;
            }
        }
        Ok(())
    }
}

impl Processor {
    fn new(number: u32, events: Vec<Descriptor>, pages: usize) -> Result<Processor> {
        let (first, others) = events.split_first().context("no event is requested")?;
        let ring = Ring::map(first, pages)?;
        others.iter().try_for_each(|event| event.write_to(first))?;
        Ok(Processor {
            number,
            ring,
            events,
            reported: 0,
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

/// The online processors.
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
