//! How often sites were counted: notes of what has grown.

use crate::collecting::notes::counter;
use crate::memory::region::Region;
use nopal_trace::Note;
use std::collections::{BTreeSet, HashMap};

/// The calls of sites as they were last noted, by the regions' inodes.
#[derive(Default)]
pub struct Counted(HashMap<u64, HashMap<u32, u64>>);

impl Counted {
    pub fn grown(&mut self, region: &Region, sites: &BTreeSet<u32>) -> Option<Note> {
        let mut calls = region.counted(sites);
        if calls.is_empty() {
            return None;
        }
        let known = self.0.entry(region.inode()).or_default();
        // A process may have written anything into its counters.
        calls.retain(|(site, calls)| known.get(site).is_none_or(|known| calls > known));
        known.extend(calls.iter().copied());
        (!calls.is_empty()).then(|| Note::Counted {
            counter: counter(),
            memory: region.inode(),
            calls,
        })
    }

    pub fn forget(&mut self, region: &Region) {
        self.0.remove(&region.inode());
    }
}
