//! How often each site occurs in a trace, and which sites are kept out of it.

use crate::layout::*;
use nopal_abi::*;

/// Calls of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub entries: u64,
    pub exits: u64,
}

/// Counts records, and leaves out those of silent sites.
#[derive(Default)]
pub struct Tally {
    calls: Vec<Calls>,
    silent: Vec<bool>,
    any_silent: bool,
}

impl Tally {
    pub fn calls(&self, site: u32) -> Calls {
        self.calls.get(site as usize).copied().unwrap_or_default()
    }

    /// Of all sites together.
    pub fn all(&self) -> Calls {
        let sum = |all: Calls, one: &Calls| Calls {
            entries: all.entries + one.entries,
            exits: all.exits + one.exits,
        };
        self.calls.iter().fold(Calls::default(), sum)
    }

    pub fn clear(&mut self) {
        self.calls.clear();
    }

    /// From now on the records of a site are left out, or not any more.
    pub fn silence(&mut self, site: u32, silent: bool) {
        let site = site as usize % SITE_LIMIT as usize;
        if self.silent.len() <= site {
            self.silent.resize(site + 1, false);
        }
        self.silent[site] = silent;
        self.any_silent = silent || self.any_silent && self.silent.contains(&true);
    }

    /// Counts whole records, as a scan lets them through. Moves those that are kept together; returns how many words
    /// these are, and how many events were left out.
    pub fn pass(&mut self, words: &mut [u64]) -> (usize, u64) {
        let (mut from, mut to, mut left_out) = (0, 0, 0);
        while let Some(&word) = words.get(from) {
            let extended = kind(word) == KIND_EXTENDED;
            let length = if extended {
                RESYNC_WORDS
            } else {
                usize::from(WORDS[kind(word) as usize]).max(1)
            };
            let end = (from + length).min(words.len());
            let event = is_event(word);
            let site = site(word) as usize;
            if self.any_silent && event && self.silent.get(site).copied().unwrap_or(false) {
                left_out += 1;
            } else {
                if event {
                    self.count(word, site);
                }
                words.copy_within(from..end, to);
                to += end - from;
            }
            from = end;
        }
        (to, left_out)
    }

    #[inline(always)]
    fn count(&mut self, word: u64, site: usize) {
        if self.calls.len() <= site {
            self.calls.resize(site + 1, Calls::default());
        }
        let calls = &mut self.calls[site];
        match kind(word) {
            KIND_EXIT | KIND_EXIT_RESULT | KIND_UNWIND | KIND_PENDING_RESULT => calls.exits += 1,
            _ => calls.entries += 1,
        }
    }
}

fn is_event(word: u64) -> bool {
    !matches!(kind(word), KIND_NONE | KIND_HOLE | KIND_EXTENDED)
}
