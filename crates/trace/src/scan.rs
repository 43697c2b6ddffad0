//! Finds where the records of a chunk end, and makes of them a packet's content.
//!
//! A chunk comes from the memory of the traced process, so it may hold anything. What a scan lets through are whole
//! records of known kinds whose clocks never go back.

use crate::checksum::{Instruction, Sum, Table, Way, has_instruction};
use crate::layout::*;
use crate::markers::{Markers, payload_words};
use crate::occurrences::Occurrences;
use crate::taken::State;
use nopal_abi::*;

/// What a scan found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Words of records, up to the last one that was written.
    pub words: usize,
    pub events: u64,
    pub holes: u64,
    /// Words that were cut off or replaced because they make no sense.
    pub damage: u64,
    /// The first clock and the last one.
    pub begin: u64,
    pub end: u64,
    /// Of the words, as they are when the scan has done with them.
    pub sum: Sum,
}

/// A bit for each kind of event that has one word.
const PLAIN: u32 = {
    let (mut plain, mut kind) = (0, 0);
    while kind < WORDS.len() {
        if WORDS[kind] == 1 && kind != KIND_HOLE as usize {
            plain |= 1 << kind;
        }
        kind += 1;
    }
    plain
};

/// A record that its thread may yet complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished;

/// What is known about a chunk besides its records.
#[derive(Clone, Copy)]
pub struct Known {
    /// Words that its thread has reserved, at least.
    pub reserved: usize,
    /// The clock in its header.
    pub begin: u64,
    /// A clock that cannot have been reached yet.
    pub future: u64,
    pub state: State,
}

/// Scans the records of a chunk. One that grows is never unfinished; what is left of it counts the next time.
pub fn scan(
    words: &mut [u64],
    known: Known,
    markers: &Markers,
    occurrences: &mut Occurrences,
) -> Result<Content, Unfinished> {
    match has_instruction() {
        true => scan_by::<Instruction>(words, known, markers, occurrences),
        false => scan_by::<Table>(words, known, markers, occurrences),
    }
}

pub fn scan_by<W: Way>(
    words: &mut [u64],
    known: Known,
    markers: &Markers,
    occurrences: &mut Occurrences,
) -> Result<Content, Unfinished> {
    let begin = known.begin;
    let mut scan = Scan {
        words,
        known,
        markers,
        position: 0,
        content: Content {
            words: 0,
            events: 0,
            holes: 0,
            damage: 0,
            begin,
            end: begin,
            sum: Sum::new(),
        },
    };
    let whole = scan.begin().and_then(|()| scan.run::<W>(occurrences));
    if known.state != State::Growing {
        whole?;
    }
    Ok(Content {
        words: scan.position,
        ..scan.content
    })
}

struct Scan<'a> {
    words: &'a mut [u64],
    known: Known,
    markers: &'a Markers,
    position: usize,
    content: Content,
}

impl Scan<'_> {
    /// The first record gives the clock; the header's is only what is left when that record was never written.
    fn begin(&mut self) -> Result<(), Unfinished> {
        if let Some(clock) = first_clock(self.words, self.known.future) {
            self.content.begin = clock;
            self.content.end = clock;
        } else if self.known.state != State::Settled {
            return Err(Unfinished);
        } else if self.content.begin == 0 || self.content.begin >= self.known.future {
            self.cut();
        }
        Ok(())
    }

    fn run<W: Way>(&mut self, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        self.plain::<W>(occurrences);
        while let Some(&word) = self.words.get(self.position) {
            let length = usize::from(WORDS[kind(word) as usize]);
            let begin = self.position;
            self.rare(word, length, occurrences)?;
            let with = |sum: Sum, word: &u64| W::add(sum, *word);
            let passed = &self.words[begin..self.position];
            self.content.sum = passed.iter().fold(self.content.sum, with);
            self.plain::<W>(occurrences);
        }
        Ok(())
    }

    /// Passes over plain events of one word, which nearly all records are.
    fn plain<W: Way>(&mut self, occurrences: &mut Occurrences) {
        let clock = self.content.end;
        let mut low = clock & LOW;
        let mut damage = 0;
        let mut passed = 0;
        let mut sum = self.content.sum;
        for word in &mut self.words[self.position..] {
            if PLAIN >> kind(*word) & 1 == 0 {
                break;
            }
            // The upper half of the clock is the same in all of them.
            if *word & LOW < low {
                *word = with_clock(*word, low);
                damage += 1;
            }
            low = *word & LOW;
            occurrences.insert(*word);
            // Beside the scan it takes no time; alone, it would take that of a copy.
            sum = W::add(sum, *word);
            passed += 1;
        }
        self.position += passed;
        self.content.events += passed as u64;
        self.content.damage += damage;
        self.content.sum = sum;
        self.content.end = clock & !LOW | low;
    }

    /// A record that is not a plain event of one word.
    #[inline(never)]
    fn rare(
        &mut self,
        word: u64,
        length: usize,
        occurrences: &mut Occurrences,
    ) -> Result<(), Unfinished> {
        match kind(word) {
            _ if !is_written(word) => return self.unwritten(),
            KIND_HOLE => {
                self.retime(word);
                self.content.holes += 1;
                self.position += 1;
            }
            KIND_EXTENDED if event(word) == EVENT_RESYNC => return self.resync(),
            KIND_EXTENDED => return self.defined(word, occurrences),
            _ if length == 0 || self.words.len() - self.position < length => {
                if self.known.state == State::Growing {
                    return Err(Unfinished);
                }
                self.cut();
            }
            KIND_PENDING_ARGS | KIND_PENDING_RESULT if self.known.state != State::Settled => {
                return Err(Unfinished);
            }
            _ => {
                self.retime(word);
                occurrences.insert(word);
                self.content.events += 1;
                self.position += length;
            }
        }
        Ok(())
    }

    fn retime(&mut self, word: u64) {
        let now = full_clock(self.content.end, word);
        if now < self.content.end {
            self.words[self.position] = with_clock(word, self.content.end);
            self.content.damage += 1;
        } else {
            self.content.end = now;
        }
    }

    fn resync(&mut self) -> Result<(), Unfinished> {
        let Some(record) = self.words.get(self.position..self.position + RESYNC_WORDS) else {
            if self.known.state == State::Growing {
                return Err(Unfinished);
            }
            self.cut();
            return Ok(());
        };
        match resync_clock(record, self.known.future) {
            Some(clock) if clock >= self.content.end => {
                self.content.end = clock;
                self.position += RESYNC_WORDS;
            }
            clock => {
                // Its clock is stored last: 0 where the thread did not come to it.
                if record[1] == 0 && clock.is_none() {
                    if self.known.state != State::Settled {
                        return Err(Unfinished);
                    }
                } else {
                    self.content.damage += RESYNC_WORDS as u64;
                }
                self.fill(self.position + RESYNC_WORDS);
            }
        }
        Ok(())
    }

    /// A record of an event that a note defines. Its clock is stored last, and its length before all else that follows.
    fn defined(&mut self, word: u64, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        let record = &self.words[self.position..];
        let clock = record.get(1).copied().unwrap_or(0);
        let length = payload_words(word, &record[1..]);
        let may_be_begun = length.is_some() || event(word) >> EVENT_WORDS_SHIFT == EVENT_VARIABLE;
        if clock == 0 && may_be_begun && self.known.state != State::Settled {
            return Err(Unfinished);
        }
        let Some(words) = length else {
            match clock {
                0 if may_be_begun => self.fill(self.position + 1),
                _ => self.cut(),
            }
            return Ok(());
        };
        let Some(payload) = record.get(2..).and_then(|rest| rest.get(..words)) else {
            if self.known.state == State::Growing {
                return Err(Unfinished);
            }
            self.cut();
            return Ok(());
        };
        let marker = self.markers.get(event(word));
        let makes_sense = marker.is_some_and(|marker| marker.values(payload).is_some());
        let is_possible =
            same_low_half(word, clock) && (self.content.end..self.known.future).contains(&clock);
        if makes_sense && is_possible {
            self.content.end = clock;
            self.content.events += 1;
            occurrences.insert(word);
            self.position += 2 + words;
        } else {
            if clock != 0 {
                self.content.damage += 2 + words as u64;
            }
            self.fill(self.position + 2 + words);
        }
        Ok(())
    }

    /// Words that were reserved and not written, or the end.
    fn unwritten(&mut self) -> Result<(), Unfinished> {
        let rest = &self.words[self.position..];
        match rest.iter().position(|&word| is_written(word)) {
            _ if self.known.state != State::Settled && self.is_reserved(rest) => Err(Unfinished),
            Some(length) => {
                self.fill(self.position + length);
                Ok(())
            }
            None => {
                self.end();
                Ok(())
            }
        }
    }

    fn is_reserved(&self, rest: &[u64]) -> bool {
        self.position < self.known.reserved || rest.iter().any(|&word| word != 0)
    }

    fn fill(&mut self, end: usize) {
        let hole = hole(self.content.end);
        self.words[self.position..end].fill(hole);
        self.content.holes += (end - self.position) as u64;
        self.position = end;
    }

    /// Leaves out all from here on, which cannot be told apart into records.
    fn cut(&mut self) {
        let rest = &self.words[self.position..];
        self.content.damage += rest.iter().filter(|&&word| word != 0).count() as u64;
        self.end();
    }

    fn end(&mut self) {
        let words = std::mem::take(&mut self.words);
        self.words = &mut words[..self.position];
    }
}

/// The clock of the RESYNC that a chunk begins with.
pub fn first_clock(words: &[u64], future: u64) -> Option<u64> {
    resync_clock(words.get(..RESYNC_WORDS)?, future)
}

/// The clock of a RESYNC record, when `record` is a whole one.
fn resync_clock(record: &[u64], future: u64) -> Option<u64> {
    let &[first, clock, ..] = record else {
        return None;
    };
    let is_resync = kind(first) == KIND_EXTENDED && event(first) == EVENT_RESYNC;
    let is_possible = clock != 0 && clock < future && same_low_half(first, clock);
    (is_resync && is_possible).then_some(clock)
}

#[cfg(test)]
mod tests;
