//! The progress of a recording, for people who watch it.

use nopal_abi::{Cursor, Event};
use std::collections::HashMap;

/// The events of one in so many chunks are counted by function.
const ONE_IN: usize = 16;
/// Functions that are named.
const NAMED: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub events: u64,
    /// Events a second since the last look.
    pub rate: u64,
    /// Events that were not recorded.
    pub lost: u64,
    pub bytes: u64,
    /// The trace ends when it has so many.
    pub most_bytes: Option<u64>,
    /// The names of the functions that make most events, and their parts of all in per cent, as sampled since the last
    /// look.
    pub busiest: Vec<(String, u64)>,
}

/// The events of some chunks, by site.
#[derive(Default)]
pub struct Sample {
    chunks: usize,
    events: HashMap<u32, u64>,
}

impl Sample {
    /// Counts the records of a chunk, if it is its turn.
    pub fn take(&mut self, words: &[u64]) {
        self.chunks += 1;
        if self.chunks % ONE_IN != 1 {
            return;
        }
        let mut records = Cursor::new(words);
        while let Some(record) = records.take(0) {
            if let Event::Entry { site, .. } | Event::Exit { site, .. } = record.event {
                *self.events.entry(site).or_default() += 1;
            }
        }
    }

    /// The sites with most events, and their parts of all in per cent. Begins again.
    pub fn busiest(&mut self) -> Vec<(u32, u64)> {
        let all: u64 = self.events.values().sum();
        let mut sites: Vec<(u32, u64)> = self.events.drain().collect();
        sites.sort_unstable_by_key(|(site, events)| (std::cmp::Reverse(*events), *site));
        sites.truncate(NAMED);
        for (_, events) in &mut sites {
            *events = (*events * 100).checked_div(all).unwrap_or(0);
        }
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::{KIND_ENTRY, KIND_EXIT, Word};

    #[test]
    fn the_busiest_are_those_of_the_chunks_that_are_sampled() {
        let call = |site: u32| [KIND_ENTRY, KIND_EXIT].map(|kind| Word::new(kind, site, 8, 1).0);
        let mut sample = Sample::default();
        sample.take(&[[1; 3].map(call), [2, 2, 3].map(call)].concat().concat());
        // It is not the turn of this one.
        sample.take(&[4; 100].map(call).concat());
        assert_eq!(sample.busiest(), [(1, 50), (2, 33), (3, 16)]);
        assert_eq!(sample.busiest(), []);
    }
}
