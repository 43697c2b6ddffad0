//! Finds where the records of a chunk end, and makes of them a packet's content.
//!
//! A chunk comes from the memory of the traced process, so it may hold anything. What a scan lets through are whole
//! records of known kinds whose clocks never go back.

use crate::layout::*;
use crate::occurrences::Occurrences;
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
}

/// A record that its thread may yet complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished;

/// Scans the records of a chunk, `words`, of which the thread reserved at least `reserved`. `begin` is the clock in
/// the chunk's header. When the chunk is `settled`, no record will be completed any more, and holes are filled.
pub fn scan(
    words: &mut [u64],
    reserved: usize,
    begin: u64,
    settled: bool,
    occurrences: &mut Occurrences,
) -> Result<Content, Unfinished> {
    let mut scan = Scan {
        words,
        reserved,
        settled,
        position: 0,
        content: Content {
            words: 0,
            events: 0,
            holes: 0,
            damage: 0,
            begin,
            end: begin,
        },
    };
    scan.begin()?;
    scan.run(occurrences)?;
    Ok(Content {
        words: scan.position,
        ..scan.content
    })
}

struct Scan<'a> {
    words: &'a mut [u64],
    reserved: usize,
    settled: bool,
    position: usize,
    content: Content,
}

impl Scan<'_> {
    /// The first record gives the clock; the header's is only what is left when that record was never written.
    fn begin(&mut self) -> Result<(), Unfinished> {
        if let Some(clock) = self.words.get(..RESYNC_WORDS).and_then(resync_clock) {
            self.content.begin = clock;
            self.content.end = clock;
        } else if !self.settled {
            return Err(Unfinished);
        } else if self.content.begin == 0 {
            self.cut();
        }
        Ok(())
    }

    fn run(&mut self, occurrences: &mut Occurrences) -> Result<(), Unfinished> {
        let mut clock = self.content.end;
        while let Some(&word) = self.words.get(self.position) {
            let kind = kind(word);
            let length = usize::from(WORDS[kind as usize]);
            if length == 1 && kind != KIND_HOLE {
                let now = full_clock(clock, word);
                if now < clock {
                    self.words[self.position] = with_clock(word, clock);
                    self.content.damage += 1;
                } else {
                    clock = now;
                }
                occurrences.insert(word);
                self.content.events += 1;
                self.position += 1;
                continue;
            }
            self.content.end = clock;
            self.rare(word, length, occurrences)?;
            clock = self.content.end;
        }
        self.content.end = clock;
        Ok(())
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
            _ if length == 0 || self.words.len() - self.position < length => self.cut(),
            KIND_PENDING_ARGS | KIND_PENDING_RESULT if !self.settled => return Err(Unfinished),
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
            self.cut();
            return Ok(());
        };
        match resync_clock(record) {
            Some(clock) if clock >= self.content.end => {
                self.content.end = clock;
                self.position += RESYNC_WORDS;
            }
            clock => {
                // Its clock is stored last: 0 where the thread did not come to it.
                if record[1] == 0 && clock.is_none() {
                    if !self.settled {
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

    /// Words that were reserved and not written, or the end.
    fn unwritten(&mut self) -> Result<(), Unfinished> {
        let rest = &self.words[self.position..];
        match rest.iter().position(|&word| is_written(word)) {
            _ if !self.settled && self.is_reserved(rest) => Err(Unfinished),
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
        self.position < self.reserved || rest.iter().any(|&word| word != 0)
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

/// The clock of a RESYNC record, when `record` is a whole one.
fn resync_clock(record: &[u64]) -> Option<u64> {
    let &[first, clock, ..] = record else {
        return None;
    };
    let is_resync = kind(first) == KIND_EXTENDED && event(first) == EVENT_RESYNC;
    (is_resync && clock != 0 && same_low_half(first, clock)).then_some(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 5 << 32 | 1000;

    fn word(clock: u64, kind: u32, site: u32) -> u64 {
        with_clock(u64::from(kind) << 32 | u64::from(site) << 36, clock)
    }

    fn resync(clock: u64) -> [u64; RESYNC_WORDS] {
        [
            word(clock, KIND_EXTENDED, EVENT_RESYNC),
            clock,
            0x7000,
            0x6000,
            1,
            1,
        ]
    }

    /// A chunk's records: a RESYNC, `words`, and some room.
    fn records(words: &[u64]) -> Vec<u64> {
        let mut records = resync(BEGIN).to_vec();
        records.extend_from_slice(words);
        records.resize(records.len() + 8, 0);
        records
    }

    fn scan_all(
        words: &mut [u64],
        settled: bool,
    ) -> (Result<Content, Unfinished>, Vec<(u32, u16)>) {
        let mut occurrences = Occurrences::new();
        let content = scan(words, 0, BEGIN, settled, &mut occurrences);
        (content, occurrences.iter().collect())
    }

    #[test]
    fn whole_records_are_left_as_they_are() {
        let mut words = vec![
            word(BEGIN + 1, KIND_ENTRY, 3),
            word(BEGIN + 2, KIND_ENTRY_ARGS, 4),
        ];
        // Arguments that look like records, and like none.
        words.extend([0, word(0, KIND_ENTRY, 99), u64::MAX, 0, 13 << 32, 0]);
        words.extend([
            word(BEGIN + 2, KIND_EXIT_RESULT, 4),
            0,
            word(BEGIN + 9, KIND_UNWIND, 3),
        ]);
        words.extend(resync(6 << 32));
        words.push(word(6 << 32 | 7, KIND_TAIL, 5));
        let mut records = records(&words);
        let before = records.clone();
        let (content, occurring) = scan_all(&mut records, false);
        let end = 6 << 32 | 7;
        let expected = Content {
            words: 6 + words.len(),
            events: 5,
            holes: 0,
            damage: 0,
            begin: BEGIN,
            end,
        };
        assert_eq!(content, Ok(expected));
        assert_eq!(records, before);
        assert_eq!(
            occurring,
            [(3, 1 << 1 | 1 << 9), (4, 1 << 5 | 1 << 8), (5, 1 << 3)]
        );
    }

    #[test]
    fn what_is_reserved_and_not_stored_is_waited_for_and_then_filled() {
        let entry = word(BEGIN + 7, KIND_ENTRY, 3);
        let exit = word(BEGIN + 9, KIND_EXIT, 3);
        let mut half_a_resync = resync(BEGIN + 8);
        half_a_resync[1] = 0;
        let reserved: [&[u64]; 4] = [&[0], &[0x1234], &[0; 7], &half_a_resync];
        for words in reserved {
            let mut records = records(&[&[entry], words, &[exit]].concat());
            assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
            let (content, _) = scan_all(&mut records, true);
            let content = content.unwrap();
            assert_eq!(
                (content.events, content.holes, content.damage),
                (2, words.len() as u64, 0)
            );
            assert!(
                records[7..7 + words.len()]
                    .iter()
                    .all(|&word| word == hole(BEGIN + 7)),
                "{words:?}"
            );
            assert_eq!(records[7 + words.len()], exit);
        }
    }

    #[test]
    fn pending_records_are_waited_for_and_then_kept() {
        for (kind, length) in [(KIND_PENDING_ARGS, 7), (KIND_PENDING_RESULT, 2)] {
            let mut words = vec![0; length];
            words[0] = word(BEGIN + 3, kind, 3);
            let mut records = records(&words);
            assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
            let content = scan_all(&mut records, true).0.unwrap();
            assert_eq!(
                (content.words, content.events, content.holes),
                (6 + length, 1, 0)
            );
        }
    }

    #[test]
    fn the_content_ends_with_the_last_record_that_is_written() {
        let entry = word(BEGIN + 7, KIND_ENTRY, 3);
        let mut torn = records(&[entry, 0x1234]);
        assert_eq!(
            scan_all(&mut torn, false).0,
            Err(Unfinished),
            "its lower half is stored"
        );
        assert_eq!(
            scan_all(&mut torn, true).0.map(|content| content.words),
            Ok(7)
        );

        let mut reserved = records(&[entry, 0]);
        let mut occurrences = Occurrences::new();
        let content = scan(&mut reserved, 8, BEGIN, false, &mut occurrences);
        assert_eq!(
            content,
            Err(Unfinished),
            "its thread says that it has reserved it"
        );
        let content = scan(&mut reserved, 7, BEGIN, false, &mut occurrences);
        assert_eq!(content.map(|content| content.words), Ok(7));
    }

    #[test]
    fn what_makes_no_sense_is_cut_off() {
        let entry = word(BEGIN + 7, KIND_ENTRY, 3);
        let event = word(BEGIN + 8, KIND_EXTENDED, EVENT_RESYNC + 1);
        for nonsense in [word(BEGIN + 8, 13, 3), word(BEGIN + 8, KIND_NONE, 3), event] {
            let mut records = records(&[entry, nonsense, 0, entry]);
            let content = scan_all(&mut records, true).0.unwrap();
            assert_eq!(
                (content.words, content.events, content.damage),
                (7, 1, 2),
                "{nonsense:x}"
            );
        }
        let mut records = records(&[entry]);
        let long = records.len() - 6;
        records[long] = word(BEGIN + 9, KIND_ONLY_ARGS, 3);
        records[7..long].fill(entry);
        let content = scan_all(&mut records, true).0.unwrap();
        assert_eq!(
            (content.words, content.damage),
            (long, 1),
            "it runs past the end of the chunk"
        );
    }

    #[test]
    fn a_clock_never_goes_back() {
        let words = [
            word(BEGIN + 7, KIND_ENTRY, 3),
            word(BEGIN + 6, KIND_EXIT, 3),
        ];
        let mut records = records(
            &[
                &words[..],
                &resync(BEGIN + 6),
                &[word(BEGIN + 8, KIND_ENTRY, 4)],
            ]
            .concat(),
        );
        let content = scan_all(&mut records, true).0.unwrap();
        assert_eq!(records[7], word(BEGIN + 7, KIND_EXIT, 3));
        assert_eq!(records[8..14], [hole(BEGIN + 7); 6]);
        assert_eq!(
            (content.events, content.holes, content.damage, content.end),
            (3, 6, 7, BEGIN + 8)
        );
    }

    #[test]
    fn a_chunk_that_was_not_begun_has_nothing() {
        let mut records = vec![0; 100];
        assert_eq!(scan_all(&mut records, false).0, Err(Unfinished));
        assert_eq!(
            scan_all(&mut records, true)
                .0
                .map(|content| (content.words, content.damage)),
            Ok((0, 0))
        );
        records[50] = word(3, KIND_ENTRY, 1);
        let mut occurrences = Occurrences::new();
        let content = scan(&mut records, 0, 0, true, &mut occurrences).unwrap();
        assert_eq!(
            (content.words, content.damage),
            (0, 1),
            "records of an unknown time"
        );
    }

    #[test]
    fn scanning_again_finds_the_same() {
        let mut records = records(&[
            0,
            word(BEGIN + 7, KIND_ENTRY, 3),
            word(BEGIN + 6, KIND_EXIT, 3),
        ]);
        let first = scan_all(&mut records, true).0.unwrap();
        let second = scan_all(&mut records, true).0.unwrap();
        assert_eq!(second, Content { damage: 0, ..first });
    }
}
