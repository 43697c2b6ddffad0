//! The part of a writer that looks at each record, by itself.

use crate::checksum::Nothing;
use crate::chunk_cursor::ChunkPhase;
use crate::layout::HEADER_WORDS;
use crate::markers::Markers;
use crate::occurrences::Occurrences;
use crate::scan::{Content, Known, Unfinished, scan, scan_by};

#[derive(Default)]
pub struct Scanner {
    markers: Markers,
    occurrences: Occurrences,
}

impl Scanner {
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Goes over a chunk's records, with their checksum or without one, and returns the number of events.
    pub fn scan(&mut self, chunk: &mut [u64], sums: bool) -> u64 {
        let known = Known {
            reserved: 0,
            begin: 0,
            future: u64::MAX,
            state: ChunkPhase::Settled,
            task: 0,
        };
        let records = &mut chunk[HEADER_WORDS..];
        let (markers, occurrences) = (&self.markers, &mut self.occurrences);
        let found: Result<Content, Unfinished> = match sums {
            true => scan(records, known, markers, occurrences),
            false => scan_by(Nothing, records, known, markers, occurrences),
        };
        found.map_or(0, |content| content.events)
    }
}
