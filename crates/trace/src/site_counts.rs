//! Counts the records of each site, and leaves silent sites out of a trace.

use nopal_abi::*;

/// Calls of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub entries: u64,
    pub exits: u64,
}

/// Counts records, and leaves out those of silent sites.
#[derive(Default)]
pub struct SiteCounts {
    calls: Vec<Calls>,
    silent: Vec<Changes>,
    any_silent: bool,
}

/// The clocks at which a site became silent, became audible again, and so on. A record is compared by its own clock,
/// since it arrives later.
#[derive(Clone, Default)]
struct Changes(Vec<u64>);

/// Beyond this number the oldest two changes are dropped: records between them would be equally old.
const MOST_CHANGES: usize = 256;

impl Changes {
    fn is_silent(&self) -> bool {
        self.0.len() % 2 == 1
    }

    fn was_silent(&self, clock: u64) -> bool {
        self.0.partition_point(|change| *change <= clock) % 2 == 1
    }

    fn change(&mut self, silent: bool, clock: u64) {
        if silent == self.is_silent() {
            return;
        }
        if self.0.len() == MOST_CHANGES {
            self.0.drain(..2);
        }
        self.0.push(clock);
    }
}

impl SiteCounts {
    /// A copy that leaves out the same sites.
    pub fn without_counts(&self) -> SiteCounts {
        SiteCounts {
            calls: Vec::new(),
            silent: self.silent.clone(),
            any_silent: self.any_silent,
        }
    }

    pub fn calls(&self, site: u32) -> Calls {
        self.calls.get(site as usize).copied().unwrap_or_default()
    }

    /// The sum over all sites.
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

    /// Leaves out the records of a site from `clock` on, or no longer does.
    pub fn silence(&mut self, site: u32, silent: bool, clock: u64) {
        let site = site as usize % SITE_LIMIT as usize;
        if !silent && self.silent.len() <= site {
            return;
        }
        if self.silent.len() <= site {
            self.silent.resize(site + 1, Changes::default());
        }
        self.silent[site].change(silent, clock);
        self.any_silent = true;
    }

    /// Counts whole records that a scan let through, the first not before `begin`. Compacts those that are kept;
    /// returns their number of words, and the number of events left out.
    pub fn pass(&mut self, words: &mut [u64], begin: u64) -> (usize, u64) {
        let (mut from, mut to, mut left_out, mut clock) = (0, 0, 0, begin);
        while let Some((&word, rest)) = words[from..].split_first() {
            let word = Word(word);
            let end = from + word.words(rest).unwrap_or(1).min(rest.len() + 1);
            let event = word.has_site();
            let has_site = event || word.is_call_site();
            let site = word.site() as usize;
            clock = match (word.kind(), rest.first()) {
                (KIND_EXTENDED, Some(whole)) => *whole,
                _ => word.clock_after(clock),
            };
            let silent = || {
                self.silent
                    .get(site)
                    .is_some_and(|one| one.was_silent(clock))
            };
            if self.any_silent && has_site && silent() {
                left_out += u64::from(event);
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
    fn count(&mut self, word: Word, site: usize) {
        if self.calls.len() <= site {
            self.calls.resize(site + 1, Calls::default());
        }
        let calls = &mut self.calls[site];
        match word.is_exit() {
            true => calls.exits += 1,
            false => calls.entries += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(clock: u64, kind: u32, which: u32) -> u64 {
        Word::new(kind, which, 0, clock).0
    }

    #[test]
    fn a_site_is_silent_by_the_clock_of_its_records() {
        let mut site_counts = SiteCounts::default();
        let clock = 7 << 32;
        for (silent, at) in [(true, 10), (false, 20), (false, 22), (true, 30)] {
            site_counts.silence(5, silent, clock + at);
        }
        let at = [5, 10, 19, 20, 29, 30, 99];
        let mut words = at.map(|at| word(clock + at, KIND_ENTRY, 5));
        let kept = [words[0], words[3], words[4]];
        assert_eq!(site_counts.pass(&mut words, clock), (3, 4));
        assert_eq!(
            (words[..3].to_vec(), site_counts.calls(5).entries),
            (kept.into(), 3)
        );
        assert_eq!(site_counts.calls(6), Calls::default());
    }

    #[test]
    fn the_call_sites_of_a_silent_site_are_left_out_with_its_entries() {
        let mut site_counts = SiteCounts::default();
        site_counts.silence(5, true, 0);
        let call = |site| {
            [
                word(9, KIND_CALL_SITE, site),
                0x1234,
                word(9, KIND_ENTRY, site),
            ]
        };
        let mut words = [call(5), call(6)].concat();
        assert_eq!(site_counts.pass(&mut words, 1), (3, 1));
        assert_eq!(words[..3], call(6));
        assert_eq!(site_counts.all().entries, 1);
    }

    /// A marker's values may look like any record.
    #[test]
    fn the_words_of_markers_are_no_events() {
        let mut site_counts = SiteCounts::default();
        site_counts.silence(5, true, 0);
        let event = 4 << EVENT_WORDS_SHIFT | EVENT_DEFINED;
        let looks_like_one = word(9, KIND_ENTRY, 5);
        let mut words = [
            [Word::extended(event, 8).0, 8].as_slice(),
            &[looks_like_one; 3],
        ]
        .concat();
        words.push(word(9, KIND_EXIT, 5));
        let before = words.clone();
        assert_eq!(site_counts.pass(&mut words, 1), (5, 1));
        assert_eq!(
            (&words[..5], site_counts.all()),
            (&before[..5], Calls::default())
        );
    }
}
