//! Switches thunks while threads run.

use crate::memory::arena::Arena;
use crate::memory::code::Code;
use crate::patch::change::Change;
use crate::processes::Processes;
use crate::tracee::Tracee;
use anyhow::{Context, Result, ensure};
use nopal_agent::Switched;
use nopal_control::SiteKey;
use std::ops::Range;

impl Processes {
    /// Switches the recording of a site, by its number in the trace, on or off in all processes. A call that has begun
    /// is not affected. Where it is not inserted, nothing happens.
    pub fn switch_number(&self, number: u32, on: bool) -> Result<()> {
        for tracee in self.tracees.values() {
            let changes = tracee.changes.iter();
            let meant = changes.filter(|change| change.function() == Some(number));
            tracee.switch_changes(meant, on_or_off(on))?;
        }
        Ok(())
    }
}

impl Tracee {
    /// The same of many, by their keys; soonest in the order of these.
    pub fn switch(&self, sites: &[SiteKey], to: Switched) -> Result<()> {
        let switches = self.changes.switches(&self.modules);
        for run in runs(&switches.keys, sites) {
            let thunks = switches.thunks[run].iter();
            self.store_pairs(thunks.map(|thunk| (thunk.entry(), thunk.pair(to))))?;
        }
        Ok(())
    }

    pub fn switch_changes<'a>(
        &self,
        changes: impl Iterator<Item = &'a Change>,
        to: Switched,
    ) -> Result<()> {
        self.store_pairs(changes.map(|change| (change.entry, change.switch(to))))
    }

    /// Whether an address is in the thunk of one of these sites.
    pub fn is_in_thunk_of(&self, sites: &[SiteKey], address: u64) -> bool {
        let switches = self.changes.switches(&self.modules);
        let mut runs = runs(&switches.keys, sites);
        runs.any(|run| {
            let mut thunks = switches.thunks[run].iter();
            thunks.any(|thunk| thunk.range().contains(&address))
        })
    }

    /// Many thunks will be switched.
    pub fn make_ready(&self) {
        self.places.arenas.iter().for_each(Arena::make_ready);
    }

    /// In the order of addresses, neighbours are stored soonest. Each store waits until no other processor has a copy
    /// of that code. A processor goes on meanwhile, but has room for some dozens of stores only: so there are no others
    /// in the loop.
    fn store_pairs(&self, pairs: impl Iterator<Item = (u64, [u8; 2])>) -> Result<()> {
        let mut known: Option<&Code> = None;
        for (entry, pair) in pairs {
            if known.is_some_and(|piece| piece.store_pair(entry, pair)) {
                continue;
            }
            let piece = self.piece(entry)?;
            ensure!(
                piece.store_pair(entry, pair),
                "a thunk is at an odd address"
            );
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

pub fn on_or_off(on: bool) -> Switched {
    match on {
        true => Switched::On,
        false => Switched::Off,
    }
}

/// The places of `wanted`, in any order, among `keys`, which are in order: at once for a run that both have in common.
fn runs<'a>(
    keys: &'a [SiteKey],
    mut wanted: &'a [SiteKey],
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = seek(keys, at, *wanted.first()?);
        let both = keys[begin..].iter().zip(wanted);
        let along = both.take_while(|(key, wanted)| key == wanted).count();
        let last;
        (last, wanted) = wanted.split_at(along.max(1));
        at = begin + along;
        // A file that is loaded twice has each key twice.
        while keys.get(at) == last.last() {
            at += 1;
        }
        Some(begin..at)
    })
}

/// The place of the first key that is `wanted` or greater. The search begins at `near`.
fn seek(keys: &[SiteKey], near: usize, wanted: SiteKey) -> usize {
    const STEPS: usize = 16;
    let passed = keys.get(near).is_none_or(|key| *key > wanted);
    let from = if passed { 0 } else { near };
    let rest = &keys[from..];
    let soon = rest.iter().take(STEPS).position(|key| *key >= wanted);
    let after = soon.unwrap_or_else(|| rest.partition_point(|key| *key < wanted));
    from + after
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::{once, repeat_n};

    #[test]
    fn keys_are_found_in_any_order() {
        // Each third key is there; each ninth of a file that is loaded twice.
        let copies = |key: u32| 1 + usize::from(key.is_multiple_of(9));
        let keys = (0..100).step_by(3);
        let keys = keys.flat_map(|key| repeat_n(SiteKey(key), copies(key)));
        let keys: Vec<SiteKey> = keys.collect();
        for step in [1, 2, 3, 29, 50, 99] {
            // Each number up to 100 once, in an order of its own.
            let wanted: Vec<SiteKey> = (0..101).map(|at| SiteKey(at * step % 101)).collect();
            let found = runs(&keys, &wanted).flat_map(|run| keys[run].iter());
            let there = wanted
                .iter()
                .filter(|key| key.0 < 100 && key.0.is_multiple_of(3));
            let expected = there.flat_map(|key| repeat_n(key, copies(key.0)));
            assert!(found.eq(expected), "in steps of {step}");
        }
    }

    #[test]
    fn all_are_one_run() {
        let keys: Vec<SiteKey> = (0..1000).map(SiteKey).collect();
        assert!(runs(&keys, &keys).eq(once(0..1000)));
        assert!(runs(&keys, &keys[300..700]).eq(once(300..700)));
    }
}
