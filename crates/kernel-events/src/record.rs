//! Decodes records of perf.

use crate::ring::Record;
use crate::tracepoint::Tracepoints;
use nopal_trace::{KernelEvent, TaskState};
use perf_event_open_sys::bindings::*;
use std::collections::HashMap;

/// The size of the end of a record of a switch: the thread, and the time.
const SAMPLE_ID: usize = 16;

pub struct Decoder {
    tracepoints: Tracepoints,
    /// The last event of each processor. A thread that was met twice when the recording began may report each event
    /// twice.
    last: HashMap<u32, KernelEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An event at a time of CLOCK_MONOTONIC, in nanoseconds.
    Event(u64, KernelEvent),
    Lost(u64),
    Nothing,
}

impl Decoder {
    pub fn new(tracepoints: Tracepoints) -> Decoder {
        Decoder {
            tracepoints,
            last: HashMap::new(),
        }
    }

    pub fn decode(&mut self, processor: u32, record: Record) -> Found {
        let found = match record.kind {
            PERF_RECORD_SAMPLE => self.sample(record.body),
            PERF_RECORD_SWITCH => self.switch(processor, record.misc, record.body),
            PERF_RECORD_LOST => {
                self.last.remove(&processor);
                // The event's number, and how many.
                word(record.body, 8).map(Found::Lost)
            }
            _ => None,
        };
        found.unwrap_or(Found::Nothing)
    }

    /// A sample holds the thread, the time, the length of the tracepoint's record, and that record.
    fn sample(&self, body: &[u8]) -> Option<Found> {
        let who = word(body, 0)?;
        let ns = word(body, 8)?;
        let (length, raw) = body.get(16..)?.split_first_chunk()?;
        let raw = raw.get(..u32::from_le_bytes(*length) as usize)?;
        let event = self
            .tracepoints
            .decode(raw, who as u32, (who >> 32) as u32)?;
        Some(Found::Event(ns, event))
    }

    fn switch(&mut self, processor: u32, misc: u16, body: &[u8]) -> Option<Found> {
        let sample = body.len().checked_sub(SAMPLE_ID)?;
        let who = word(body, sample)?;
        let ns = word(body, sample + 8)?;
        let (process, thread) = (who as u32, (who >> 32) as u32);
        let has = |flag: u32| u32::from(misc) & flag != 0;
        let event = match has(PERF_RECORD_MISC_SWITCH_OUT) {
            false => KernelEvent::In { process, thread },
            true => KernelEvent::Out {
                process,
                thread,
                state: match has(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) {
                    true => TaskState::PREEMPTED,
                    false => TaskState::BLOCKED,
                },
            },
        };
        let before = self.last.insert(processor, event);
        (before != Some(event)).then_some(Found::Event(ns, event))
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let word = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(out: bool, preempted: bool, body: &[u8]) -> Record<'_> {
        let out = if out { PERF_RECORD_MISC_SWITCH_OUT } else { 0 };
        let preempted = if preempted {
            PERF_RECORD_MISC_SWITCH_OUT_PREEMPT
        } else {
            0
        };
        Record {
            kind: PERF_RECORD_SWITCH,
            misc: (out | preempted) as u16,
            body,
        }
    }

    #[test]
    fn a_thread_that_tells_twice_is_heard_once() {
        let mut decoder = Decoder::new(Tracepoints::none());
        let body = [7u64 | 8 << 32, 1000].map(u64::to_le_bytes).concat();
        let event = KernelEvent::Out {
            process: 7,
            thread: 8,
            state: TaskState::PREEMPTED,
        };
        let out = switch(true, true, &body);
        assert_eq!(decoder.decode(0, out), Found::Event(1000, event));
        assert_eq!(decoder.decode(0, out), Found::Nothing);
        assert_eq!(decoder.decode(1, out), Found::Event(1000, event));
        let into = switch(false, false, &body);
        assert!(matches!(decoder.decode(0, into), Found::Event(..)));
        assert_eq!(decoder.decode(0, out), Found::Event(1000, event));
        let lost = [1u64, 5].map(u64::to_le_bytes).concat();
        let lost = Record {
            kind: PERF_RECORD_LOST,
            misc: 0,
            body: &lost,
        };
        assert_eq!(decoder.decode(0, lost), Found::Lost(5));
        assert_eq!(decoder.decode(0, out), Found::Event(1000, event));
    }

    #[test]
    fn records_that_are_cut_short_say_nothing() {
        let mut decoder = Decoder::new(Tracepoints::none());
        let body = [1u8; 40];
        for kind in [PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH, PERF_RECORD_LOST, 99] {
            for length in 0..16 {
                let record = Record {
                    kind,
                    misc: 0,
                    body: &body[..length],
                };
                assert_eq!(decoder.decode(0, record), Found::Nothing, "{kind} {length}");
            }
        }
        let sample = Record {
            kind: PERF_RECORD_SAMPLE,
            misc: 0,
            body: &body,
        };
        assert_eq!(
            decoder.decode(0, sample),
            Found::Nothing,
            "longer than it is"
        );
    }
}
