//! Counts of what is collected, and of what is lost.

use crate::memory::lost::Lost;
use nopal_abi::{Cursor, Event, Record, Word};
use nopal_trace::{Chunk, Note, losses};

/// The counts of the collected records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub events: u64,
    pub holes: u64,
    pub damage: u64,
    /// Calls that were left out since they were short.
    pub short: u64,
    /// Kernel events, and those of them that are missing.
    pub system: u64,
    pub kernel_events_lost: u64,
    /// Those of them that the kernel's module has lost.
    pub lost_by_module: Lost,
    /// Processors on which a record of the kernel was never stored: how many came after it there is not known.
    pub kernel_processors_cut: u64,
    /// Functions of the kernel that its module traces.
    pub kernel_functions: u64,
    /// Switches away from idle tasks that the kernel did not tell.
    pub kernel_events_missed: u64,
    /// Bytes of records written.
    pub bytes: u64,
    /// Events that were recorded and then dropped: by the flight recorder, or because the disk was full.
    pub given_up: u64,
    /// Those among them that the flight recorder dropped for newer ones.
    pub dropped: u64,
}

impl Totals {
    pub fn count(&mut self, chunk: &Chunk) {
        if let Chunk::Written {
            events,
            holes,
            damage,
            short,
        } = chunk
        {
            self.events += events;
            self.holes += holes;
            self.damage += damage;
            self.short += short;
        }
    }

    /// The note of lost events: in regions and by the kernel's module, and of those that had been recorded.
    pub fn lost(&self, in_regions: Lost) -> Note {
        let in_regions = in_regions + self.lost_by_module;
        let mut reasons = in_regions.reasons();
        let own = [
            (losses::DROPPED, self.dropped),
            (losses::AFTER_END, self.given_up - self.dropped),
        ];
        let own = own.into_iter().filter(|(_, events)| *events > 0);
        reasons.extend(own.map(|(name, events)| (name.to_owned(), events)));
        Note::Lost {
            process: 0,
            events: in_regions.all() + self.given_up,
            reasons,
        }
    }
}

/// Calls, returns and markers in records that are not written out. Passes over words that were not stored, and stops where
/// records make no sense.
pub fn count_events(words: &[u64]) -> u64 {
    let mut events = 0;
    each_record(words, 0, |record| {
        let is_event = !matches!(
            record.event,
            Event::CallSite { .. } | Event::Resync { .. } | Event::Hole
        );
        events += u64::from(is_event);
    });
    events
}

/// The clock of the last of these records, of which the first has the clock `begin`.
pub fn last_clock(words: &[u64], begin: u64) -> u64 {
    let mut last = begin;
    each_record(words, begin, |record| last = record.clock);
    last
}

fn each_record(words: &[u64], begin: u64, mut take: impl FnMut(&Record)) {
    let mut records = Cursor::new(words);
    let mut clock = begin;
    loop {
        match (records.take(clock), records.rest()) {
            (Some(record), _) => {
                clock = record.clock;
                take(&record);
            }
            (None, [word, ..]) if !Word(*word).is_written() => records.skip(1),
            (None, _) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::*;

    fn first(kind: u32, number: u32) -> u64 {
        match kind {
            KIND_EXTENDED => Word::extended(number, 0).0,
            _ => Word::new(kind, number, 0, 0).0,
        }
    }

    #[test]
    fn events_of_every_length_are_counted() {
        let likely_call = first(KIND_ENTRY, 7);
        let fixed = EVENT_DEFINED | 3 << EVENT_WORDS_SHIFT;
        let variable = (EVENT_DEFINED + 1) | (EVENT_VARIABLE << EVENT_WORDS_SHIFT);
        let records = [
            &[first(KIND_EXTENDED, EVENT_RESYNC), 1, 2, 3, 4, 5][..],
            &[first(KIND_ENTRY_ARGS, 8), 1, 2, 3, 4, 5, likely_call],
            &[first(KIND_EXTENDED, fixed), 1, likely_call, likely_call],
            &[
                first(KIND_EXTENDED, variable),
                1,
                3,
                likely_call,
                likely_call,
            ],
            &[first(KIND_EXIT_RESULT, 8), likely_call, first(KIND_HOLE, 0)],
            &[likely_call],
        ];
        assert_eq!(count_events(&records.concat()), 5);
        // A record whose length is unknown.
        let unknown = [
            likely_call,
            first(KIND_EXTENDED, EVENT_DEFINED),
            likely_call,
        ];
        assert_eq!(count_events(&unknown), 1);
    }
}
