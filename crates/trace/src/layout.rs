//! Fields of a record's words, for the scanner and the decoder.

use crate::markers::payload_words;
use nopal_abi::*;

/// The stream class of packets of threads.
pub const THREAD_STREAM: u32 = 0;
pub const MAGIC: u32 = 0xC1FC_1FC1;
pub const HEADER_BYTES: usize = CHUNK_HEADER_BYTES;
pub const HEADER_WORDS: usize = HEADER_BYTES / 8;
pub const RESYNC_WORDS: usize = RESYNC_BYTES / 8;

/// What a word of an unknown record counts as: nothing follows that can be told apart.
pub const UNKNOWN: u8 = 0;

/// Words of a record by its kind; `KIND_EXTENDED` counts as unknown, since its event decides.
pub const WORDS: [u8; 16] = {
    let mut words = [UNKNOWN; 16];
    words[KIND_ENTRY as usize] = 1;
    words[KIND_EXIT as usize] = 1;
    words[KIND_TAIL as usize] = 1;
    words[KIND_ONLY as usize] = 1;
    words[KIND_ENTRY_ARGS as usize] = 1 + ARGUMENTS as u8;
    words[KIND_TAIL_ARGS as usize] = 1 + ARGUMENTS as u8;
    words[KIND_ONLY_ARGS as usize] = 1 + ARGUMENTS as u8;
    words[KIND_EXIT_RESULT as usize] = 2;
    words[KIND_UNWIND as usize] = 1;
    words[KIND_PENDING_ARGS as usize] = 1 + ARGUMENTS as u8;
    words[KIND_PENDING_RESULT as usize] = 2;
    words[KIND_HOLE as usize] = 1;
    words
};

/// Words of the record that begins with `word`; `rest` is what follows.
pub fn record_words(word: u64, rest: &[u64]) -> usize {
    match kind(word) {
        KIND_EXTENDED if event(word) == EVENT_RESYNC => RESYNC_WORDS,
        KIND_EXTENDED => 2 + payload_words(word, rest).unwrap_or(0),
        kind => usize::from(WORDS[kind as usize]).max(1),
    }
}

pub const LOW: u64 = 0xffff_ffff;

#[inline(always)]
pub fn kind(word: u64) -> u32 {
    (word >> 32) as u32 & 15
}

#[inline(always)]
pub fn site(word: u64) -> u32 {
    (word >> 36) as u32 & (SITE_LIMIT - 1)
}

#[inline(always)]
pub fn tag(word: u64) -> u8 {
    (word >> 56) as u8
}

#[inline(always)]
pub fn event(word: u64) -> u32 {
    (word >> 36) as u32
}

#[inline(always)]
pub fn is_written(word: u64) -> bool {
    word > LOW
}

/// The full clock of a word whose upper half is that of `before`.
#[inline(always)]
pub fn full_clock(before: u64, word: u64) -> u64 {
    before & !LOW | word & LOW
}

/// `word` with another lower half of the clock.
pub fn with_clock(word: u64, clock: u64) -> u64 {
    word & !LOW | clock & LOW
}

pub fn same_low_half(one: u64, other: u64) -> bool {
    (one ^ other) & LOW == 0
}

pub fn hole(clock: u64) -> u64 {
    u64::from(KIND_HOLE) << 32 | clock & LOW
}
