//! The first word of a record, and how long the record is.

use crate::*;

/// Words that a RESYNC record has.
pub const RESYNC_WORDS: usize = RESYNC_BYTES / 8;

const LOW: u64 = 0xffff_ffff;
const SITE_BITS: u32 = SITE_LIMIT.ilog2();

/// The first word of a record: the low half of the clock, a kind, and a site with a tag, or the number of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Word(pub u64);

/// Words of a record by its kind; 0 if the kind is unknown, or does not determine it.
const WORDS: [u8; 16] = {
    let (mut words, mut kind) = ([0; 16], 0);
    while kind < words.len() {
        words[kind] = match kind as u32 {
            KIND_ENTRY | KIND_EXIT | KIND_TAIL | KIND_ONLY | KIND_UNWIND | KIND_HOLE => 1,
            KIND_EXIT_RESULT | KIND_PENDING_RESULT => 2,
            KIND_CALL_SITE | KIND_PENDING_CALL_SITE => 2,
            KIND_ENTRY_ARGS | KIND_TAIL_ARGS | KIND_ONLY_ARGS | KIND_PENDING_ARGS => {
                1 + ARGUMENTS as u8
            }
            _ => 0,
        };
        kind += 1;
    }
    words
};

/// A bit for each kind of entry or exit, and for each kind with records of one word.
const SITES: u32 = kinds_of(ARGUMENTS as u8 + 1);
const PLAIN: u32 = kinds_of(1);

const fn kinds_of(most_words: u8) -> u32 {
    let (mut kinds, mut kind) = (0, 0);
    while kind < WORDS.len() {
        let has_call = !matches!(
            kind as u32,
            KIND_HOLE | KIND_CALL_SITE | KIND_PENDING_CALL_SITE
        );
        if WORDS[kind] != 0 && WORDS[kind] <= most_words && has_call {
            kinds |= 1 << kind;
        }
        kind += 1;
    }
    kinds
}

impl Word {
    /// A record of an entry or exit of the call whose return address is at `slot`.
    #[inline]
    pub const fn new(kind: u32, site: u32, slot: u64, clock: u64) -> Word {
        let tag = slot >> 4 & 0xff;
        Word(clock & LOW | (kind as u64) << 32 | (site as u64) << 36 | tag << 56)
    }

    /// The first word of an extended record.
    #[inline]
    pub const fn extended(event: u32, clock: u64) -> Word {
        Word(clock & LOW | (KIND_EXTENDED as u64) << 32 | (event as u64) << 36)
    }

    pub const fn hole(clock: u64) -> Word {
        Word::new(KIND_HOLE, 0, 0, clock)
    }

    #[inline(always)]
    pub const fn kind(self) -> u32 {
        (self.0 >> 32) as u32 & 15
    }

    /// Tag and site, which an exit has in common with its entry.
    #[inline(always)]
    pub const fn key(self) -> u32 {
        (self.0 >> 36) as u32
    }

    #[inline(always)]
    pub const fn site(self) -> u32 {
        site_of(self.key())
    }

    #[inline(always)]
    pub const fn tag(self) -> u8 {
        tag_of(self.key())
    }

    /// The same entry or exit, of another site.
    #[inline]
    pub const fn with_site(self, site: u32) -> Word {
        const SITES: u64 = (SITE_LIMIT as u64 - 1) << 36;
        Word(self.0 & !SITES | (site as u64) << 36 & SITES)
    }

    /// The number of an extended record's event.
    #[inline(always)]
    pub const fn event(self) -> u32 {
        (self.0 >> 36) as u32
    }

    #[inline(always)]
    pub const fn is_resync(self) -> bool {
        self.0 >> 32 == (KIND_EXTENDED | EVENT_RESYNC << 4) as u64
    }

    /// Whether this is an entry or exit that has one word.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        PLAIN >> self.kind() & 1 != 0
    }

    /// Whether this is an entry or exit of a site.
    #[inline(always)]
    pub const fn has_site(self) -> bool {
        SITES >> self.kind() & 1 != 0
    }

    /// Whether this tells where the call of the next entry is.
    #[inline(always)]
    pub const fn is_call_site(self) -> bool {
        matches!(self.kind(), KIND_CALL_SITE | KIND_PENDING_CALL_SITE)
    }

    #[inline(always)]
    pub const fn is_exit(self) -> bool {
        matches!(
            self.kind(),
            KIND_EXIT | KIND_EXIT_RESULT | KIND_UNWIND | KIND_PENDING_RESULT
        )
    }

    /// Whether its thread was about to store the words after it.
    #[inline(always)]
    pub const fn is_pending(self) -> bool {
        matches!(
            self.kind(),
            KIND_PENDING_ARGS | KIND_PENDING_RESULT | KIND_PENDING_CALL_SITE
        )
    }

    /// Whether its thread has stored it: the upper half comes last.
    #[inline(always)]
    pub const fn is_written(self) -> bool {
        self.0 > LOW
    }

    #[inline(always)]
    pub const fn low_clock(self) -> u32 {
        self.0 as u32
    }

    /// The whole clock; `before` is that of the previous record. A RESYNC shows changes of the upper half, so clocks
    /// that go back are damage: then the previous one is repeated.
    #[inline(always)]
    pub const fn clock_after(self, before: u64) -> u64 {
        before + self.low_clock().saturating_sub(before as u32) as u64
    }

    /// Ticks since a clock that does not go back: a little faster than [`Word::clock_after`], and equally right without
    /// damage.
    #[inline(always)]
    pub const fn ticks_after(self, before: u64) -> u64 {
        self.low_clock().wrapping_sub(before as u32) as u64
    }

    #[inline(always)]
    pub const fn with_clock(self, clock: u64) -> Word {
        Word(self.0 & !LOW | clock & LOW)
    }

    /// Words of the record; `rest` begins after this word. None if the record is unknown, or its length is not written
    /// yet. `rest` may have fewer words.
    #[inline]
    pub fn words(self, rest: &[u64]) -> Option<usize> {
        match WORDS[self.kind() as usize] {
            0 if self.is_resync() => Some(RESYNC_WORDS),
            0 if self.kind() == KIND_EXTENDED => Some(2 + self.payload_words(rest)?),
            0 => None,
            words => Some(usize::from(words)),
        }
    }

    /// Words after the clock of an extended record; `rest` begins with the clock. None if the number does not give the
    /// length, or it is not written yet.
    #[inline]
    pub fn payload_words(self, rest: &[u64]) -> Option<usize> {
        match self.event() >> EVENT_WORDS_SHIFT {
            0 => None,
            EVENT_VARIABLE => match *rest.get(1)? as u32 {
                0 => None,
                words => Some(words as usize),
            },
            words => Some(words as usize - 1),
        }
    }
}

#[inline(always)]
pub const fn site_of(key: u32) -> u32 {
    key & (SITE_LIMIT - 1)
}

#[inline(always)]
pub const fn tag_of(key: u32) -> u8 {
    (key >> SITE_BITS) as u8
}

/// The [`Word::key`] of a site and a tag.
#[inline(always)]
pub const fn key_of(site: u32, tag: u8) -> u32 {
    site | (tag as u32) << SITE_BITS
}

impl Resync {
    pub const fn new(clock: u64, slot: u64, stack: u64, of: (u32, u32), reason: u32) -> Resync {
        let first = Word::extended(EVENT_RESYNC, clock);
        Resync {
            clock_low: first.low_clock(),
            kind_and_event: (first.0 >> 32) as u32,
            clock,
            slot,
            stack,
            process: of.0,
            thread: of.1,
            reason,
            reserved: 0,
        }
    }

    /// As it stands in a chunk.
    pub fn words(&self) -> [u64; RESYNC_WORDS] {
        let pair = |low, high| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.clock_low, self.kind_and_event),
            self.clock,
            self.slot,
            self.stack,
            pair(self.process, self.thread),
            pair(self.reason, self.reserved),
        ]
    }

    /// The whole clock of the RESYNC at the begin of `words`, which may be cut short.
    pub fn clock_of(words: &[u64]) -> Option<u64> {
        let &[first, clock, ..] = words else {
            return None;
        };
        Word(first).is_resync().then_some(clock)
    }
}
