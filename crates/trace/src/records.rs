//! Decodes records.

use crate::layout::*;
use crate::markers::payload_words;
use nopal_abi::*;

/// How a function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By a call that is wrapped: an exit follows.
    Wrapped,
    /// By a jump from a wrapped function: ends when that one does.
    Tail,
    /// Not wrapped: no exit follows.
    Only,
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
    Resync {
        slot: u64,
        stack: u64,
        reason: u32,
    },
    /// An event that a note defines; all of its record behind the clock.
    Marker {
        event: u32,
        payload: &'a [u64],
    },
    Hole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The whole counter.
    pub clock: u64,
    pub event: Event<'a>,
}

/// The records of a packet, in order. Clocks never go back, whatever the words say.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    words: &'a [u64],
    clock: u64,
}

impl<'a> Records<'a> {
    pub(crate) fn new(words: &'a [u64], clock: u64) -> Records<'a> {
        Records { words, clock }
    }

    /// Words not decoded: all that is left when the next record is unknown or cut short.
    pub fn rest(&self) -> &'a [u64] {
        self.words
    }

    /// A record that has more words than one, of which `rest` begins with the second.
    #[inline(never)]
    fn long(&mut self, word: u64, rest: &'a [u64]) -> Option<Record<'a>> {
        let (site, tag) = (site(word), tag(word));
        let mut clock = full_clock(self.clock, word);
        let entry = |style, known: bool| {
            let (arguments, rest) = rest.split_first_chunk()?;
            Some((
                Event::Entry {
                    site,
                    tag,
                    style,
                    arguments: known.then_some(arguments),
                },
                rest,
            ))
        };
        let exit = |known: bool| {
            let (&result, rest) = rest.split_first()?;
            Some((
                Event::Exit {
                    site,
                    tag,
                    result: known.then_some(result),
                    unwound: false,
                },
                rest,
            ))
        };
        let (event, rest) = match kind(word) {
            KIND_ENTRY_ARGS => entry(Style::Wrapped, true)?,
            KIND_TAIL_ARGS => entry(Style::Tail, true)?,
            KIND_ONLY_ARGS => entry(Style::Only, true)?,
            KIND_EXIT_RESULT => exit(true)?,
            KIND_PENDING_ARGS => entry(Style::Wrapped, false)?,
            KIND_PENDING_RESULT => exit(false)?,
            KIND_EXTENDED if event(word) == EVENT_RESYNC => {
                let (&[whole, slot, stack, _, reason], rest) = rest.split_first_chunk()?;
                clock = whole;
                (
                    Event::Resync {
                        slot,
                        stack,
                        reason: reason as u32,
                    },
                    rest,
                )
            }
            KIND_EXTENDED => {
                let words = payload_words(word, rest)?;
                let (&whole, rest) = rest.split_first()?;
                let (payload, rest) = rest.split_at_checked(words)?;
                clock = whole;
                let event = event(word);
                (Event::Marker { event, payload }, rest)
            }
            _ => return None,
        };
        self.words = rest;
        self.clock = self.clock.max(clock);
        Some(Record {
            clock: self.clock,
            event,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        let (&word, rest) = self.words.split_first()?;
        let event = match kind(word) {
            KIND_ENTRY => entry(word, Style::Wrapped),
            KIND_EXIT => exit(word, false),
            KIND_TAIL => entry(word, Style::Tail),
            KIND_ONLY => entry(word, Style::Only),
            KIND_UNWIND => exit(word, true),
            KIND_HOLE => Event::Hole,
            _ => return self.long(word, rest),
        };
        self.words = rest;
        self.clock = self.clock.max(full_clock(self.clock, word));
        Some(Record {
            clock: self.clock,
            event,
        })
    }
}

#[inline(always)]
fn entry(word: u64, style: Style) -> Event<'static> {
    Event::Entry {
        site: site(word),
        tag: tag(word),
        style,
        arguments: None,
    }
}

#[inline(always)]
fn exit(word: u64, unwound: bool) -> Event<'static> {
    Event::Exit {
        site: site(word),
        tag: tag(word),
        result: None,
        unwound,
    }
}
