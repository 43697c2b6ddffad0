//! The first word of a record.

use nopal_abi as abi;

pub fn kind_of(word: u64) -> u32 {
    (word >> 32) as u32 & 15
}

/// Tag and site: what an exit has in common with its entry.
pub fn key_of(word: u64) -> u32 {
    (word >> 36) as u32
}

pub fn site_of(key: u32) -> u32 {
    key & (abi::SITE_LIMIT - 1)
}

pub fn tag_of(key: u32) -> u32 {
    key >> 20
}

/// The full clock of a record whose predecessor's is `before`.
#[inline(always)]
pub fn clock_after(before: u64, word: u64) -> u64 {
    before.wrapping_add(u64::from((word as u32).wrapping_sub(before as u32)))
}

/// Takes one word off the front.
#[inline(always)]
pub fn take(rest: &mut &[u64]) -> Option<u64> {
    let (word, after) = rest.split_first()?;
    *rest = after;
    Some(*word)
}

pub fn take_words<const N: usize>(rest: &mut &[u64]) -> Option<[u64; N]> {
    let (words, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*words)
}
