//! Changes to a program's text.

use anyhow::{Context, Result};
use nopal_agent::Thunk;
use nopal_plan::{JUMP, LONGEST_WINDOW, Site};
use nopal_process::Patch;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A jump at a site, to its thunk or hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub address: u64,
    window: u8,
    before: [u8; LONGEST_WINDOW],
    /// Where the jump goes; a thunk's switch is its first two bytes.
    pub entry: u64,
    /// Where the displaced instructions went.
    pub body: u64,
    /// In the trace; 0 for a hook.
    pub number: u32,
}

impl Change {
    pub fn new(base: u64, site: &Site, thunk: &Thunk, number: u32) -> Result<Change> {
        let change = Change {
            address: base.wrapping_add(site.address),
            window: site.window,
            before: site.expected,
            entry: thunk.entry,
            body: thunk.body,
            number,
        };
        i32::try_from(change.distance()).context("a thunk is out of reach")?;
        Ok(change)
    }

    fn distance(&self) -> i64 {
        self.entry.wrapping_sub(self.address + JUMP as u64) as i64
    }

    /// The bytes that the jump displaces.
    pub fn window(&self) -> Range<u64> {
        self.address..self.address + self.bytes() as u64
    }

    fn bytes(&self) -> usize {
        usize::from(self.window).min(LONGEST_WINDOW)
    }

    /// What the window holds without the change.
    pub fn before(&self) -> &[u8] {
        &self.before[..self.bytes()]
    }

    /// What it holds with it, in its first bytes: only those of the jump differ.
    fn after(&self) -> [u8; LONGEST_WINDOW] {
        let mut after = self.before;
        after[0] = 0xe9;
        after[1..JUMP].copy_from_slice(&(self.distance() as i32).to_le_bytes());
        after
    }
}

/// Changes, in the order in which they are given, ready to be made or taken back.
pub struct Patches<'a> {
    changes: &'a [Change],
    after: Vec<[u8; LONGEST_WINDOW]>,
}

impl Patches<'_> {
    pub fn of(changes: &[Change]) -> Patches<'_> {
        Patches {
            changes,
            after: changes.iter().map(Change::after).collect(),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&Change, &[u8])> {
        let both = self.changes.iter().zip(&self.after);
        both.map(|(change, after)| (change, &after[..change.bytes()]))
    }

    pub fn insertion(&self) -> Vec<Patch<'_>> {
        self.pairs()
            .map(|(change, after)| Patch {
                address: change.address,
                expected: change.before(),
                new: after,
            })
            .collect()
    }

    pub fn removal(&self) -> Vec<Patch<'_>> {
        self.pairs()
            .map(|(change, after)| Patch {
                address: change.address,
                expected: after,
                new: change.before(),
            })
            .collect()
    }
}
