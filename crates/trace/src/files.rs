//! Which files a trace has, and how long they are, as its notes tell.

use crate::note::Note;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Files {
    /// Lengths in bytes, by number.
    pub streams: BTreeMap<u32, u64>,
    pub processors: BTreeMap<u32, u64>,
    /// All files are told of: no other is the trace's.
    pub is_all: bool,
}

impl Files {
    pub fn of(notes: &[Note]) -> Files {
        let mut files = Files::default();
        for note in notes {
            match note {
                Note::Files {
                    streams,
                    processors,
                } => {
                    files.streams.extend(streams.iter().copied());
                    files.processors.extend(processors.iter().copied());
                }
                Note::End { .. } => files.is_all = true,
                _ => {}
            }
        }
        files
    }
}
