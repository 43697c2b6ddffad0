//! Switches thunks on and off, while threads run.

use crate::memory::code::Code;
use crate::session::Session;
use crate::text::change::Change;
use crate::text::inserted::Switch;
use crate::traced::Traced;
use anyhow::{Context, Result};
use nopal_control::SiteKey;

impl Session {
    /// Switches the recording of a site, by its number in the trace, on or off in all processes. A call that has begun
    /// is not affected. Where it is not inserted, nothing happens.
    pub fn switch_number(&mut self, number: u32, on: bool) -> Result<()> {
        for traced in self.traced.values() {
            let changes = traced.changes.iter();
            let meant = changes.filter(|change| change.has_thunk() && change.number == number);
            traced.switch_changes(meant, on)?;
        }
        Ok(())
    }
}

impl Traced {
    /// The same of many, by their keys; soonest in the order of these.
    pub fn switch(&self, sites: &[SiteKey], on: bool) -> Result<()> {
        let switches = meant(self.changes.switches(&self.modules), sites);
        self.store_pairs(switches.map(|switch| (switch.entry, switch.pair(on))))
    }

    pub fn switch_changes<'a>(
        &self,
        changes: impl Iterator<Item = &'a Change>,
        on: bool,
    ) -> Result<()> {
        self.store_pairs(changes.map(|change| (change.entry, change.switch(on))))
    }

    /// In the order of addresses, neighbours are stored soonest.
    fn store_pairs(&self, pairs: impl Iterator<Item = (u64, [u8; 2])>) -> Result<()> {
        let mut known: Option<&Code> = None;
        for (entry, pair) in pairs {
            let piece = known.filter(|piece| piece.contains(entry, pair.len()));
            let piece = match piece {
                Some(piece) => piece,
                None => self.piece(entry)?,
            };
            piece.store_pair(entry, pair)?;
            known = Some(piece);
        }
        Ok(())
    }

    pub fn piece(&self, thunk: u64) -> Result<&Code> {
        let mut arenas = self.places.arenas.iter();
        let piece = arenas.find_map(|arena| arena.piece(thunk, 2).ok());
        Ok(piece.context("a thunk is in no arena")?)
    }
}

/// Those of `switches`, in the order of keys, that have one of `keys`, in any order: a step each where they go along.
fn meant<'a>(switches: &'a [Switch], keys: &'a [SiteKey]) -> impl Iterator<Item = &'a Switch> {
    let mut at = 0;
    keys.iter().flat_map(move |key| {
        let begin = seek(switches, at, *key);
        let mut end = begin;
        // A file that is loaded twice has two.
        while switches.get(end).is_some_and(|switch| switch.key == *key) {
            end += 1;
        }
        at = end;
        &switches[begin..end]
    })
}

/// Where the first is with this key or a greater one. Looked for from `near` on.
fn seek(switches: &[Switch], near: usize, key: SiteKey) -> usize {
    const STEPS: usize = 16;
    let passed = switches.get(near).is_none_or(|switch| switch.key > key);
    let from = if passed { 0 } else { near };
    let rest = &switches[from..];
    let soon = rest.iter().take(STEPS).position(|switch| switch.key >= key);
    let after = soon.unwrap_or_else(|| rest.partition_point(|switch| switch.key < key));
    from + after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_found_by_keys_in_any_order() {
        // Each third key is there; each ninth of a file that is loaded twice.
        let copies = |key: u64| 1 + u64::from(key.is_multiple_of(9));
        let keys = (0..100).step_by(3);
        let switches = keys.flat_map(|key| (0..copies(key)).map(move |copy| (key, copy)));
        let switches: Vec<Switch> = switches
            .map(|(key, copy)| Switch {
                key: SiteKey(key),
                entry: key * 10 + copy,
                pairs: Default::default(),
            })
            .collect();
        for step in [1, 2, 29, 50, 99] {
            // Each number up to 100 once, in an order of its own.
            let wanted: Vec<SiteKey> = (0..101).map(|at| SiteKey(at * step % 101)).collect();
            let found = meant(&switches, &wanted).map(|switch| switch.entry);
            let there = wanted
                .iter()
                .filter(|key| key.0 < 100 && key.0.is_multiple_of(3));
            let expected = there.flat_map(|key| (0..copies(key.0)).map(|copy| key.0 * 10 + copy));
            assert!(found.eq(expected), "in steps of {step}");
        }
    }
}
