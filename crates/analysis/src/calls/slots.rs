//! Slots of return addresses by the tags of records, which are the slots' lowest eight bits.

use nopal_abi::tag_of;

/// The highest slot of the key's tag that is not above `slot`.
pub(super) fn below(slot: u64, key: u32) -> u64 {
    slot.wrapping_sub(slot.wrapping_sub(u64::from(tag_of(key))) & 0xff)
}

/// The lowest slot of the key's tag that is not below `slot`.
pub(super) fn above(slot: u64, key: u32) -> u64 {
    slot.wrapping_add(u64::from(tag_of(key)).wrapping_sub(slot) & 0xff)
}

/// The slot of the key's tag nearest to `slot`.
pub(super) fn nearest(slot: u64, key: u32) -> u64 {
    below(slot.wrapping_add(ABOUT), key)
}

/// Half of the distance between two slots of one tag.
pub(super) const ABOUT: u64 = 0x80;
