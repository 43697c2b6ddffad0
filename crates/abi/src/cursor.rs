//! Decodes records.

use crate::*;

/// How a function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By a call that is wrapped: an exit follows.
    Wrapped = 0,
    /// By a jump from a wrapped function: ends when that one does.
    Tail = 1,
    /// Not wrapped: no exit follows.
    Only = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Entry {
        site: u32,
        tag: u8,
        style: Style,
        arguments: Option<&'a [u64; ARGUMENTS]>,
    },
    Exit {
        site: u32,
        tag: u8,
        result: Option<u64>,
        unwound: bool,
    },
    /// Of the entry that follows, if it has the same site and tag.
    CallSite {
        site: u32,
        tag: u8,
        return_address: Option<u64>,
    },
    Resync {
        slot: u64,
        stack: u64,
        reason: u32,
    },
    /// An event that a note defines, with all words of its record after the clock.
    Marker {
        event: u32,
        payload: &'a [u64],
    },
    /// Calls that were left out of the packet since they were short: a word a site, see [`short_calls_of`].
    ShortCalls {
        sites: &'a [u64],
    },
    Hole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The whole counter.
    pub clock: u64,
    pub event: Event<'a>,
}

/// Takes records off the front of words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor<'a> {
    words: &'a [u64],
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub fn new(words: &'a [u64]) -> Cursor<'a> {
        Cursor { words }
    }

    /// The undecoded words: all remaining ones, if the next record is unknown or cut short.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u64] {
        self.words
    }

    /// The first word of the next record.
    #[inline(always)]
    pub fn word(&self) -> Option<Word> {
        self.words.first().map(|word| Word(*word))
    }

    /// Skips this many words.
    #[inline(always)]
    pub fn skip(&mut self, words: usize) {
        self.words = self.words.get(words..).unwrap_or_default();
    }

    /// The next record; `before` is the clock of the previous one. Clocks never go back, whatever the words say.
    #[inline(always)]
    pub fn take(&mut self, before: u64) -> Option<Record<'a>> {
        let (&word, rest) = self.words.split_first()?;
        let word = Word(word);
        let event = match word.kind() {
            KIND_ENTRY => entry(word, Style::Wrapped, None),
            KIND_EXIT => exit(word, None, false),
            KIND_TAIL => entry(word, Style::Tail, None),
            KIND_ONLY => entry(word, Style::Only, None),
            KIND_UNWIND => exit(word, None, true),
            KIND_HOLE => Event::Hole,
            _ => return self.long(word, rest, before),
        };
        self.words = rest;
        let clock = word.clock_after(before);
        Some(Record { clock, event })
    }

    /// Decodes a record of several words; `rest` begins with the second.
    #[inline(never)]
    fn long(&mut self, word: Word, rest: &'a [u64], before: u64) -> Option<Record<'a>> {
        let mut clock = word.clock_after(before);
        let (event, rest) = match word.kind() {
            KIND_ENTRY_ARGS | KIND_TAIL_ARGS | KIND_ONLY_ARGS | KIND_PENDING_ARGS => {
                let (arguments, rest) = rest.split_first_chunk()?;
                let (style, is_known) = match word.kind() {
                    KIND_TAIL_ARGS => (Style::Tail, true),
                    KIND_ONLY_ARGS => (Style::Only, true),
                    kind => (Style::Wrapped, kind == KIND_ENTRY_ARGS),
                };
                (entry(word, style, is_known.then_some(arguments)), rest)
            }
            KIND_EXIT_RESULT | KIND_PENDING_RESULT => {
                let (&result, rest) = rest.split_first()?;
                let is_known = word.kind() == KIND_EXIT_RESULT;
                (exit(word, is_known.then_some(result), false), rest)
            }
            KIND_CALL_SITE | KIND_PENDING_CALL_SITE => {
                let (&address, rest) = rest.split_first()?;
                let call_site = Event::CallSite {
                    site: word.site(),
                    tag: word.tag(),
                    return_address: (!word.is_pending()).then_some(address),
                };
                (call_site, rest)
            }
            KIND_EXTENDED if word.is_resync() => {
                let (&[whole, slot, stack, _, reason], rest) = rest.split_first_chunk()?;
                clock = whole.max(before);
                let reason = reason as u32;
                let resync = Event::Resync {
                    slot,
                    stack,
                    reason,
                };
                (resync, rest)
            }
            KIND_EXTENDED => {
                let words = word.payload_words(rest)?;
                let (&whole, rest) = rest.split_first()?;
                let (payload, rest) = rest.split_at_checked(words)?;
                clock = whole.max(before);
                let event = match (word.event(), payload) {
                    (SHORT_CALLS, [_, sites @ ..]) => Event::ShortCalls { sites },
                    (event, payload) => Event::Marker { event, payload },
                };
                (event, rest)
            }
            _ => return None,
        };
        self.words = rest;
        Some(Record { clock, event })
    }
}

/// The number of [`Event::ShortCalls`] with the length of its records.
pub const SHORT_CALLS: u32 = EVENT_SHORT_CALLS | EVENT_VARIABLE << EVENT_WORDS_SHIFT;

/// The site of a word of [`Event::ShortCalls`], and how many of its calls were left out.
pub const fn short_calls_of(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[inline(always)]
fn entry(word: Word, style: Style, arguments: Option<&[u64; ARGUMENTS]>) -> Event<'_> {
    Event::Entry {
        site: word.site(),
        tag: word.tag(),
        style,
        arguments,
    }
}

#[inline(always)]
fn exit(word: Word, result: Option<u64>, unwound: bool) -> Event<'static> {
    Event::Exit {
        site: word.site(),
        tag: word.tag(),
        result,
        unwound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: u64 = 7 << 32 | 100;
    const SLOT: u64 = 0x7ffd_1238;

    /// Each kind, whole and cut short by a word.
    #[test]
    fn records_of_all_kinds_are_taken_whole_or_not_at_all() {
        let variable = EVENT_DEFINED | EVENT_VARIABLE << EVENT_WORDS_SHIFT;
        let fixed = EVENT_DEFINED | 3 << EVENT_WORDS_SHIFT;
        let resync = Resync::new(BEFORE + 1, SLOT, 9, (4, 5), RESYNC_JUMP).words();
        let mut records: Vec<Vec<u64>> = (KIND_ENTRY..=KIND_PENDING_CALL_SITE)
            .map(|kind| {
                let first = Word::new(kind, 8, SLOT, BEFORE + 1);
                let more = first.words(&[]).unwrap() - 1;
                [&[first.0][..], &[1, 2, 3, 4, 5, 6][..more]].concat()
            })
            .collect();
        records.push(resync.into());
        records.push(vec![Word::extended(fixed, BEFORE + 1).0, BEFORE + 1, 2, 3]);
        records.push(vec![Word::extended(variable, 0).0, BEFORE + 1, 2, 3]);
        for record in &records {
            let (first, rest) = (Word(record[0]), &record[1..]);
            assert_eq!(first.words(rest), Some(record.len()), "{record:x?}");
            let all = [&record[..], &[0; 9]].concat();
            let mut cursor = Cursor::new(&all);
            let clock = cursor.take(BEFORE).map(|record| record.clock);
            assert_eq!(clock, Some(BEFORE + 1), "{record:x?}");
            assert_eq!(cursor.rest(), [0; 9], "{record:x?}");
            let mut short = Cursor::new(&record[..record.len() - 1]);
            assert_eq!(short.take(BEFORE), None, "{record:x?}");
            assert_eq!(short.rest().len(), record.len() - 1, "{record:x?}");
        }
    }

    #[test]
    fn entries_tell_how_they_came_and_exits_how_they_went() {
        let arguments = [1, 2, 3, 4, 5, 6];
        let take = |kind| {
            let words = [&[Word::new(kind, 8, SLOT, 1).0][..], &arguments].concat();
            let event = Cursor::new(&words).take(0).unwrap().event;
            match event {
                Event::Entry {
                    site: 8,
                    tag: 0x23,
                    style,
                    arguments,
                } => (Some(style), arguments.map(|all| all[5]), false),
                Event::Exit {
                    site: 8,
                    tag: 0x23,
                    result,
                    unwound,
                } => (None, result, unwound),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(take(KIND_ENTRY), (Some(Style::Wrapped), None, false));
        assert_eq!(take(KIND_TAIL), (Some(Style::Tail), None, false));
        assert_eq!(take(KIND_ONLY), (Some(Style::Only), None, false));
        assert_eq!(
            take(KIND_ENTRY_ARGS),
            (Some(Style::Wrapped), Some(6), false)
        );
        assert_eq!(take(KIND_TAIL_ARGS), (Some(Style::Tail), Some(6), false));
        assert_eq!(take(KIND_ONLY_ARGS), (Some(Style::Only), Some(6), false));
        assert_eq!(take(KIND_PENDING_ARGS), (Some(Style::Wrapped), None, false));
        assert_eq!(take(KIND_EXIT), (None, None, false));
        assert_eq!(take(KIND_UNWIND), (None, None, true));
        assert_eq!(take(KIND_EXIT_RESULT), (None, Some(1), false));
        assert_eq!(take(KIND_PENDING_RESULT), (None, None, false));
    }

    #[test]
    fn call_sites_tell_where_a_call_returns_to_unless_that_was_not_stored() {
        let take = |kind| {
            let words = [Word::new(kind, 8, SLOT, 1), Word(0x1234)].map(|word| word.0);
            assert!(!Word(words[0]).has_site() && Word(words[0]).is_call_site());
            match Cursor::new(&words).take(0).unwrap().event {
                Event::CallSite {
                    site: 8,
                    tag: 0x23,
                    return_address,
                } => return_address,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(take(KIND_CALL_SITE), Some(0x1234));
        assert_eq!(take(KIND_PENDING_CALL_SITE), None);
    }

    /// The words of a RESYNC are its bytes.
    #[test]
    fn a_resync_has_the_layout_of_the_runtime() {
        let resync = Resync::new(BEFORE, SLOT, 9, (4, 5), RESYNC_STACK);
        let bytes: [u64; RESYNC_WORDS] = zerocopy::transmute!(resync);
        assert_eq!(resync.words(), bytes);
        assert_eq!(Resync::clock_of(&bytes), Some(BEFORE));
        let event = Event::Resync {
            slot: SLOT,
            stack: 9,
            reason: RESYNC_STACK,
        };
        assert_eq!(Cursor::new(&bytes).take(0).unwrap().event, event);
    }

    #[test]
    fn clocks_do_not_go_back() {
        let clock = |before, low| Word::new(KIND_ENTRY, 1, 0, low).clock_after(before);
        assert_eq!(clock(BEFORE, 101), BEFORE + 1);
        assert_eq!(clock(BEFORE, 99), BEFORE);
        assert_eq!(clock(BEFORE, 0xffff_ffff), 7 << 32 | 0xffff_ffff);
    }
}
