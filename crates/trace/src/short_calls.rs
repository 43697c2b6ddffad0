//! Leaves out calls that are shorter than the user wants them, and counts them by site.
//!
//! Each packet is judged by itself: a call is left out if its entry and its exit are in one packet, so no state passes
//! from one to the next, and a packet holds the counts of the calls that it lacks. All calls in a short call are short,
//! also those of which only the entry is recorded.
//!
//! All records with the last clock of a packet stay: they show a writer that adopts the trace how far this one had come.
//!
//! The records that stay mean the same without the others. A RESYNC has the slot of the event that follows it, so that
//! event stays, and no call is left out that began before the RESYNC: its thread may be on another stack since.

use nopal_abi::*;

/// Words of a record of [`SHORT_CALLS`] without its sites: the first one, the clock, the length.
const WORDS: usize = 3;

#[derive(Clone, Copy)]
struct Open {
    key: u32,
    clock: u32,
    /// The position of the entry's record, or of that of its call site.
    at: usize,
    style: Style,
    stays: bool,
}

#[derive(Default)]
pub struct ShortCalls {
    /// Ticks of the counter; 0 leaves out nothing.
    below: u32,
    open: Vec<Open>,
    /// The positions of records that are to go.
    gone: Vec<usize>,
    /// Calls left out of the packet, by site, and the sites of which there are any.
    calls: Vec<u32>,
    sites: Vec<u32>,
}

/// The result for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub words: usize,
    /// Events that were left out, and calls.
    pub events: u64,
    pub calls: u32,
}

impl ShortCalls {
    /// From now on leaves out calls that take less than this many ticks. A packet has a RESYNC at each change of the
    /// clock's upper half, so longer calls than the lower half can tell are never judged.
    pub fn below(&mut self, ticks: u64) {
        self.below = u32::try_from(ticks).unwrap_or(u32::MAX);
    }

    pub fn leaves_out(&self) -> bool {
        self.below > 0
    }

    /// Leaves out the short calls of a packet, whole records that a scan let through, the last one at the clock `end`.
    /// A record of their counts follows the remaining ones. Nothing is left out that would need more room than it had.
    pub fn pass(&mut self, words: &mut [u64], end: u64) -> Kept {
        let events = self.find(words, end as u32);
        let freed: usize = self.gone.iter().map(|at| length_gone(words, *at)).sum();
        let calls: u32 = self
            .sites
            .iter()
            .map(|site| self.calls[*site as usize])
            .sum();
        let kept = match calls {
            1.. if freed >= WORDS + self.sites.len() => Kept {
                words: self.compact(words, end),
                events,
                calls,
            },
            _ => Kept {
                words: words.len(),
                ..Kept::default()
            },
        };
        for site in self.sites.drain(..) {
            self.calls[site as usize] = 0;
        }
        kept
    }

    /// Finds the records that are to go, and counts their calls. Returns how many records they are.
    fn find(&mut self, words: &[u64], end: u32) -> u64 {
        self.open.clear();
        self.gone.clear();
        let mut stays = false;
        let mut call_site = None;
        let mut at = 0;
        while let Some(&word) = words.get(at) {
            let word = Word(word);
            let open = Open {
                key: word.key(),
                clock: word.low_clock(),
                at: match call_site.take() {
                    Some((key, before)) if key == word.key() => before,
                    _ => at,
                },
                style: match word.kind() {
                    KIND_TAIL | KIND_TAIL_ARGS => Style::Tail,
                    KIND_ONLY | KIND_ONLY_ARGS => Style::Only,
                    _ => Style::Wrapped,
                },
                stays,
            };
            match word.kind() {
                // Whether it was a call or a jump is not known.
                KIND_PENDING_ARGS => self.open.clear(),
                _ if word.is_exit() => self.exit(word, at, end),
                _ if word.has_site() => self.open.push(open),
                _ if word.is_call_site() => call_site = Some((word.key(), at)),
                KIND_EXTENDED if !word.is_resync() => {}
                _ => self.open.clear(),
            }
            match word.has_site() {
                true => stays = false,
                false => stays |= word.is_resync(),
            }
            at += length(words, at);
        }
        self.gone.sort_unstable();
        self.gone.len() as u64
    }

    /// The call on top ends, with the functions that it has jumped to, and those in it that have no exit.
    fn exit(&mut self, word: Word, at: usize, end: u32) {
        let has_no_exit = |open: &&Open| match open.style {
            Style::Wrapped => false,
            Style::Tail => tag_of(open.key) == word.tag(),
            Style::Only => true,
        };
        let inside = self.open.iter().rev().take_while(has_no_exit).count();
        let under = self.open.len() - inside;
        let Some(call) = under.checked_sub(1).map(|first| self.open[first]) else {
            return self.open.clear();
        };
        if call.style != Style::Wrapped || call.key != word.key() {
            return self.open.clear();
        }
        let ticks = word.low_clock().wrapping_sub(call.clock);
        let is_short = ticks < self.below && !call.stays && word.low_clock() != end;
        for open in self.open.split_off(under - 1) {
            if is_short {
                self.gone.push(open.at);
                self.count(site_of(open.key));
            }
        }
        if is_short {
            self.gone.push(at);
        }
    }

    fn count(&mut self, site: u32) {
        let index = site as usize;
        if self.calls.len() <= index {
            self.calls.resize(index + 1, 0);
        }
        if self.calls[index] == 0 {
            self.sites.push(site);
        }
        self.calls[index] += 1;
    }

    /// Takes the records out, and puts the counts behind the others. Returns how many words these are.
    fn compact(&self, words: &mut [u64], end: u64) -> usize {
        let (mut from, mut to) = (0, 0);
        for &at in self.gone.iter().chain([&words.len()]) {
            let behind = match at < words.len() {
                true => at + length_gone(words, at),
                false => at,
            };
            words.copy_within(from..at, to);
            to += at - from;
            from = behind;
        }
        let sites = self.sites.len();
        let count = (sites as u64 + 1) | (sites as u64) << 32;
        let record = [Word::extended(SHORT_CALLS, end).0, end, count];
        let calls = |site: &u32| u64::from(*site) | u64::from(self.calls[*site as usize]) << 32;
        let record = record.into_iter().chain(self.sites.iter().map(calls));
        for (place, word) in words[to..].iter_mut().zip(record) {
            *place = word;
            to += 1;
        }
        to
    }
}

/// Words of what is to go at a position: an entry goes with its call site.
fn length_gone(words: &[u64], at: usize) -> usize {
    let first = length(words, at);
    match Word(words[at]).is_call_site() {
        true if at + first < words.len() => first + length(words, at + first),
        _ => first,
    }
}

/// Words of the record at a position.
fn length(words: &[u64], at: usize) -> usize {
    let left = words.len() - at;
    let length = Word(words[at]).words(&words[at + 1..]);
    length.unwrap_or(1).min(left)
}
