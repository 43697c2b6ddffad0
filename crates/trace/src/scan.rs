//! Finds the end of a chunk's records, and turns them into a packet's content.
//!
//! A chunk comes from the memory of the traced process, so it may hold anything. A scan lets through only whole records
//! of known kinds whose clocks never go back.

use crate::checksum::{BLOCK, Following, Instruction, STREAMS, Sum, Table, Way};
use crate::chunk_cursor::ChunkPhase;
use crate::markers::Markers;
use crate::occurrences::Occurrences;
use nopal_abi::*;
use std::mem::offset_of;

/// The result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Words of records, up to the last one that was written.
    pub words: usize,
    pub events: u64,
    pub holes: u64,
    /// Invalid words that were cut off or replaced.
    pub damage: u64,
    /// The first clock and the last one.
    pub begin: u64,
    pub end: u64,
    /// The sum of the words as the scan leaves them.
    pub sum: Sum,
}

/// A record that its thread may still complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished;

/// Facts about a chunk besides its records.
#[derive(Clone, Copy)]
pub struct Known {
    /// The least number of words that its thread has reserved.
    pub reserved: usize,
    /// The clock in its header.
    pub begin: u64,
    /// A clock that cannot have been reached yet.
    pub future: u64,
    pub state: ChunkPhase,
    /// Its thread as a RESYNC names it: the process in the lower half, the thread in the upper one.
    pub task: u64,
}

/// Where a RESYNC has process and thread.
const RESYNC_TASK: usize = offset_of!(Resync, process) / 8;

/// Scans the records of a chunk. A growing chunk is never unfinished; its remaining records are scanned the next time.
pub fn scan(
    words: &mut [u64],
    known: Known,
    markers: &Markers,
    occurrences: &mut Occurrences,
) -> Result<Content, Unfinished> {
    match Instruction::of_this_processor() {
        Some(instruction) => scan_by(instruction, words, known, markers, occurrences),
        None => scan_by(Table, words, known, markers, occurrences),
    }
}

pub fn scan_by(
    way: impl Way,
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
    let whole = scan.begin().and_then(|()| scan.run(way, occurrences));
    if known.state != ChunkPhase::Growing {
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
    /// The first record gives the clock; the header's serves only when that record was never written.
    fn begin(&mut self) -> Result<(), Unfinished> {
        if let Some(clock) = first_clock(self.words, self.known.future) {
            self.content.begin = clock;
            self.content.end = clock;
        } else if self.known.state != ChunkPhase::Settled {
            return Err(Unfinished);
        } else if self.content.begin == 0 || self.content.begin >= self.known.future {
            self.cut();
        }
        Ok(())
    }

    fn run(&mut self, way: impl Way, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        self.plain(way, occurrences);
        while let Some(&word) = self.words.get(self.position) {
            let begin = self.position;
            self.rare(Word(word), occurrences)?;
            let with = |sum: Sum, word: &u64| way.add(sum, *word);
            let passed = &self.words[begin..self.position];
            self.content.sum = passed.iter().fold(self.content.sum, with);
            self.plain(way, occurrences);
        }
        Ok(())
    }

    /// Passes over plain events of one word, which nearly all records are.
    fn plain(&mut self, way: impl Way, occurrences: &mut Occurrences) {
        loop {
            self.usual(way, occurrences);
            let Some(word) = self.words.get(self.position).copied().map(Word) else {
                break;
            };
            if !word.is_plain() {
                break;
            }
            // The upper half of the clock is the same in all of them.
            let low = self.content.end as u32;
            if word.low_clock() < low {
                self.words[self.position] = word.with_clock(low.into()).0;
                self.content.damage += 1;
            }
            let word = self.words[self.position];
            occurrences.insert(word);
            self.content.sum = way.add(self.content.sum, word);
            self.pass(1, word);
        }
    }

    /// Passes over those that change nothing but the clock: it does not go back, and kind and site have occurred before.
    fn usual(&mut self, way: impl Way, occurrences: &Occurrences) {
        let words = &self.words[self.position..];
        let is_usual =
            |word: u64, low: u32| Word(word).low_clock() >= low && occurrences.has_plain(word);
        let mut low = self.content.end as u32;
        let mut sum = Following::new(self.content.sum);
        let mut passed = 0;
        let steps = 'blocks: {
            for block in words.as_chunks::<BLOCK>().0 {
                let mut next = low;
                for (at, words) in block.as_chunks::<STREAMS>().0.iter().enumerate() {
                    for word in words {
                        if !is_usual(*word, next) {
                            break 'blocks at;
                        }
                        next = Word(*word).low_clock();
                    }
                    sum.step(at, way);
                }
                sum.follow(block);
                low = next;
                passed += BLOCK;
            }
            0
        };
        let mut sum = sum.end(steps, way);
        for word in &words[passed..] {
            if !is_usual(*word, low) {
                break;
            }
            low = Word(*word).low_clock();
            sum = way.add(sum, *word);
            passed += 1;
        }
        self.content.sum = sum;
        if let Some(last) = passed.checked_sub(1) {
            self.pass(passed, words[last]);
        }
    }

    /// Passes over plain events, of which this word is the last.
    fn pass(&mut self, events: usize, last: u64) {
        let before = self.content.end as u32;
        self.content.end += u64::from(Word(last).low_clock() - before);
        self.content.events += events as u64;
        self.position += events;
    }

    /// A record that is not a plain event of one word.
    #[inline(never)]
    fn rare(&mut self, word: Word, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        match word.kind() {
            _ if !word.is_written() => return self.unwritten(),
            KIND_HOLE => {
                self.retime(word);
                self.content.holes += 1;
                self.position += 1;
            }
            KIND_EXTENDED if word.is_resync() => return self.resync(),
            KIND_EXTENDED => return self.defined(word, occurrences),
            _ => return self.entry_or_exit(word, occurrences),
        }
        Ok(())
    }

    fn entry_or_exit(
        &mut self,
        word: Word,
        occurrences: &mut Occurrences,
    ) -> Result<(), Unfinished> {
        let left = self.words.len() - self.position;
        match word.words(&[]).filter(|length| *length <= left) {
            None if self.known.state == ChunkPhase::Growing => return Err(Unfinished),
            None => self.cut(),
            _ if word.is_pending() && self.known.state != ChunkPhase::Settled => {
                return Err(Unfinished);
            }
            Some(length) if word.is_call_site() && self.waits_for_entry(length) => {
                return Err(Unfinished);
            }
            Some(length) => {
                self.retime(word);
                occurrences.insert(word.0);
                self.content.events += u64::from(word.has_site());
                self.position += length;
            }
        }
        Ok(())
    }

    /// Whether the entry of a call site of this length is still to be stored: the two stay together.
    fn waits_for_entry(&self, length: usize) -> bool {
        let entry = self.words.get(self.position + length);
        self.known.state != ChunkPhase::Settled
            && entry.is_none_or(|word| !Word(*word).is_written())
    }

    fn retime(&mut self, word: Word) {
        self.content.end = word.clock_after(self.content.end);
        let retimed = word.with_clock(self.content.end);
        self.words[self.position] = retimed.0;
        self.content.damage += u64::from(retimed != word);
    }

    fn resync(&mut self) -> Result<(), Unfinished> {
        let Some(record) = self.words.get(self.position..self.position + RESYNC_WORDS) else {
            if self.known.state == ChunkPhase::Growing {
                return Err(Unfinished);
            }
            self.cut();
            return Ok(());
        };
        match resync_clock(record, self.known.future) {
            Some(clock) if clock >= self.content.end => {
                self.content.end = clock;
                // In a PID namespace, the thread knows itself by other numbers than the header has by now.
                self.words[self.position + RESYNC_TASK] = self.known.task;
                self.position += RESYNC_WORDS;
            }
            clock => {
                // Its clock is stored last: 0 if the thread did not reach that.
                if record[1] == 0 && clock.is_none() {
                    if self.known.state != ChunkPhase::Settled {
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
    fn defined(&mut self, word: Word, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        let record = &self.words[self.position..];
        let clock = record.get(1).copied().unwrap_or(0);
        let length = word.payload_words(&record[1..]);
        let may_be_begun = length.is_some() || word.event() >> EVENT_WORDS_SHIFT == EVENT_VARIABLE;
        if clock == 0 && may_be_begun && self.known.state != ChunkPhase::Settled {
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
            if self.known.state == ChunkPhase::Growing {
                return Err(Unfinished);
            }
            self.cut();
            return Ok(());
        };
        let marker = self.markers.get(word.event());
        let makes_sense = marker.is_some_and(|marker| marker.values(payload).is_some());
        let is_possible = word.low_clock() == clock as u32
            && (self.content.end..self.known.future).contains(&clock);
        if makes_sense && is_possible {
            self.content.end = clock;
            self.content.events += 1;
            occurrences.insert(word.0);
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
        match rest.iter().position(|&word| Word(word).is_written()) {
            _ if self.known.state != ChunkPhase::Settled && self.is_reserved(rest) => {
                Err(Unfinished)
            }
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
        let hole = Word::hole(self.content.end).0;
        self.words[self.position..end].fill(hole);
        self.content.holes += (end - self.position) as u64;
        self.position = end;
    }

    /// Leaves out everything from here on, which cannot be split into records.
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
    let fits = Word(*record.first()?).low_clock();
    Resync::clock_of(record).filter(|clock| *clock != 0 && *clock < future && *clock as u32 == fits)
}

#[cfg(test)]
mod tests;
