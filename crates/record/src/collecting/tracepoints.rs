//! Tracepoints of the kernel in the traced threads: each becomes a marker in what the thread did in the kernel.

use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::kernel_functions::{IMAGE, release};
use crate::collecting::tasks::Tasks;
use crate::options::Options;
use anyhow::Result;
use nopal_abi::*;
use nopal_kernel_events::{TracepointEvent, TracepointEvents};
use nopal_trace::{Note, event_number};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Event numbers go down from here: those of the program's markers go up, and those of the kernel's module go down from
/// the limit to half of it.
const LAST_EVENT: u32 = EVENT_LIMIT / 2;

/// How often chunks that are not full are written.
const FLUSH: Duration = Duration::from_secs(1);

pub struct TracepointReading {
    system: TracepointEvents,
    tasks: Tasks,
    processors: BTreeMap<u32, Processor>,
    /// The trace's event numbers.
    events: HashMap<u16, u32>,
    next_flush: Instant,
    lost: u64,
    count: u64,
}

/// The records of a processor since the last reading, as its chunk would hold them.
#[derive(Default)]
struct Processor {
    words: Vec<u64>,
    thread: Option<(u32, u32)>,
    chunks: u64,
    discarded: u64,
}

impl TracepointReading {
    /// Records tracepoints in the threads of a process and in what they start.
    pub fn open(process: i32, options: &Options) -> Result<TracepointReading> {
        Ok(TracepointReading {
            system: TracepointEvents::open(process, &options.tracepoints)?,
            tasks: Tasks::default(),
            processors: BTreeMap::new(),
            events: HashMap::new(),
            next_flush: Instant::now() + FLUSH,
            lost: 0,
            count: 0,
        })
    }

    /// Writes what has come. Returns how many events that was.
    pub fn read(&mut self, shared: &Shared, collector: &mut Collector) -> Result<u64> {
        self.write(shared, collector, false)
    }

    /// Ends the recording, and writes what is left.
    pub fn finish(&mut self, shared: &Shared, collector: &mut Collector) -> Result<()> {
        self.write(shared, collector, true).map(drop)
    }

    fn write(&mut self, shared: &Shared, collector: &mut Collector, all: bool) -> Result<u64> {
        let before = self.count;
        let (mut lost, mut notes) = (Vec::new(), Vec::new());
        let lose = |processor, events| lost.push((processor, events));
        let (processors, events) = (&mut self.processors, &mut self.events);
        let count = &mut self.count;
        let take = |event: TracepointEvent| {
            let next = LAST_EVENT - events.len() as u32;
            let number = *events.entry(event.id).or_insert_with(|| {
                let number = event_number(next, event.fields);
                notes.push(Note::Marker {
                    event: number,
                    image: IMAGE,
                    name: event.name.to_owned(),
                    format: String::new(),
                    fields: event.fields.to_vec(),
                    file: String::new(),
                    line: 0,
                    tracepoint: true,
                });
                number
            });
            *count += 1;
            processors
                .entry(event.processor)
                .or_default()
                .push(&event, number);
            Ok(())
        };
        let until = match all {
            true => {
                self.system.end(lose, take)?;
                u64::MAX
            }
            false => self.system.read(lose, take)?,
        };
        for (processor, events) in lost {
            self.lost += events;
            self.processors.entry(processor).or_default().discarded += events;
        }
        for (number, processor) in &mut self.processors {
            let mark = u64::from(*number) + 1;
            processor.give(mark, &mut self.tasks);
            self.tasks.complete(mark, until);
        }
        let flushes = all || Instant::now() >= self.next_flush;
        let chunks = match flushes {
            true => self.tasks.flush(until),
            false => self.tasks.settle(until),
        };
        if flushes {
            self.next_flush = Instant::now() + FLUSH;
        }
        let mut writer = shared.writer.lock();
        if !notes.is_empty() {
            writer.note(&Note::Image {
                image: IMAGE,
                path: "kernel".into(),
                identity: release(),
            })?;
        }
        for note in notes {
            writer.note(&note)?;
        }
        for chunk in chunks {
            chunk.write(collector, &mut writer)?;
        }
        collector.totals.kernel_events_lost += std::mem::take(&mut self.lost);
        Ok(self.count - before)
    }
}

impl Processor {
    fn push(&mut self, event: &TracepointEvent, number: u32) {
        let who = (event.process, event.thread);
        if self.thread.replace(who) != Some(who) {
            let resync = Resync::new(event.clock, 0, 0, who, RESYNC_CHUNK);
            self.words.extend_from_slice(&resync.words());
        }
        self.words
            .extend([Word::extended(number, event.clock).0, event.clock]);
        self.words.extend_from_slice(event.words);
    }

    fn give(&mut self, mark: u64, tasks: &mut Tasks) {
        if self.words.is_empty() {
            return;
        }
        self.chunks += 1;
        let header = ChunkHeader {
            thread_begin: mark,
            sequence: self.chunks,
            discarded: self.discarded,
            ..ChunkHeader::default()
        };
        tasks.take(&header, &self.words);
        self.words.clear();
        self.thread = None;
    }
}
