//! The calls of a thread that are open where the records begin that the flight recorder still holds.

use nopal_abi::{ChunkHeader, Cursor, Style};
use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Sink};
use nopal_trace::{Note, OpenCall, Place, ThreadKey};

/// The calls after all records of a thread that were given up.
#[derive(Clone, Default)]
pub struct OpenCalls {
    rebuilder: CallRebuilder,
    arguments: Arguments,
    /// The number of the chunk that follows, and the events that were lost before.
    sequence: u64,
    discarded: u64,
    /// The events in all chunks that were given up.
    given_up: u64,
}

/// The arguments of the last call of each depth that had some, with the clock of its entry.
#[derive(Clone, Default)]
struct Arguments(Vec<(u64, [u64; 6])>);

impl OpenCalls {
    /// Goes on over the records of the thread's oldest chunk, which holds so many events.
    pub fn pass(&mut self, header: &ChunkHeader, words: &[u64], events: u64) {
        self.given_up += events;
        let is_lossy = header.sequence != self.sequence || header.discarded > self.discarded;
        let words = without_room(words);
        let clock = header.clock_begin;
        self.rebuilder
            .records(words, clock, is_lossy, &mut self.arguments);
        self.sequence = header.sequence.saturating_add(1);
        self.discarded = header.discarded;
    }

    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// None: there are no such calls.
    pub fn note(&self, thread: ThreadKey) -> Option<Note> {
        let frames = self.rebuilder.frames().iter().enumerate();
        let frames = frames.filter(|(_, frame)| frame.style() != Style::Only);
        let calls: Vec<OpenCall> = frames
            .map(|(depth, frame)| OpenCall {
                only: false,
                site: frame.site(),
                tag: frame.tag(),
                tail: frame.style() == Style::Tail,
                clock: frame.clock,
                slot: frame.slot,
                exact: false,
                arguments: self.arguments.of(depth, frame),
            })
            .collect();
        (!calls.is_empty()).then_some(Note::Open {
            process: thread.process,
            thread: thread.thread,
            begin: thread.begin,
            sequence: self.sequence,
            calls,
            place: Place::default(),
        })
    }
}

/// The records of a chunk without the words at its end that were not used.
fn without_room(words: &[u64]) -> &[u64] {
    let mut records = Cursor::new(words);
    while records.take(0).is_some() {}
    match records.rest() {
        rest if rest.iter().all(|word| *word == 0) => &words[..words.len() - rest.len()],
        _ => words,
    }
}

impl Arguments {
    fn of(&self, depth: usize, frame: &Frame) -> Option<[u64; 6]> {
        let (clock, arguments) = self.0.get(depth)?;
        (frame.note == 1 && *clock == frame.clock).then_some(*arguments)
    }
}

impl Sink for Arguments {
    fn takes_runs(&self) -> bool {
        true
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let (Some(arguments), Some(frame)) = (arguments, frames.last()) else {
            return 0;
        };
        self.0.resize(frames.len().max(self.0.len()), (0, [0; 6]));
        self.0[frames.len() - 1] = (frame.clock, arguments);
        1
    }

    fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {}
    fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
    fn stray(&mut self, _: &Frame, _: Ending) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::{KIND_ENTRY, KIND_ENTRY_ARGS, KIND_EXIT, Word};

    const KEY: ThreadKey = ThreadKey {
        process: 7,
        thread: 8,
        begin: 9,
    };

    fn header(sequence: u64) -> ChunkHeader {
        ChunkHeader {
            sequence,
            clock_begin: 100,
            ..ChunkHeader::default()
        }
    }

    fn open(calls: &OpenCalls) -> Vec<(u32, u64, Option<[u64; 6]>)> {
        match calls.note(KEY) {
            Some(Note::Open { calls, .. }) => calls
                .iter()
                .map(|call| (call.site, call.clock, call.arguments))
                .collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn calls_are_open_over_chunks_until_they_end_or_records_are_missing() {
        let record = |kind, site, clock| Word::new(kind, site, 8, clock).0;
        let arguments = [0, 5, 4, 3, 2, 0];
        let mut calls = OpenCalls::default();
        let mut first = vec![record(KIND_ENTRY, 1, 101), record(KIND_ENTRY_ARGS, 2, 102)];
        first.extend(arguments);
        // Room that was not used.
        first.extend([0; 9]);
        calls.pass(&header(0), &first, 2);
        assert_eq!(open(&calls), [(1, 101, None), (2, 102, Some(arguments))]);
        calls.pass(&header(1), &[record(KIND_EXIT, 2, 103)], 1);
        assert_eq!(open(&calls), [(1, 101, None)]);
        calls.pass(&header(3), &[record(KIND_ENTRY, 3, 104)], 1);
        assert_eq!(open(&calls), [(3, 104, None)]);
    }
}
