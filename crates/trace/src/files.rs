//! The files of a trace and their lengths, by its notes.

use crate::note::Note;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Files {
    /// Lengths in bytes, by number.
    pub streams: BTreeMap<u32, u64>,
    pub processors: BTreeMap<u32, u64>,
    /// All files are listed: no other belongs to the trace.
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
