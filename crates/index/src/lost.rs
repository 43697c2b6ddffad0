//! Lost calls as the index's file has them: each by how it differs from the one before.

use nopal_analysis::range::LostCall;
use serde::{Deserialize, Deserializer, Serializer};

/// The begin and the slot above those of the call before, the site, and the ticks from the begin to the end.
type Written = (i64, i64, u32, u64);

pub fn serialize<S: Serializer>(calls: &[LostCall], serializer: S) -> Result<S::Ok, S::Error> {
    let mut before = (0u64, 0u64);
    let written = calls.iter().map(|call| -> Written {
        let (begin, slot) = std::mem::replace(&mut before, (call.begin, call.slot));
        (
            call.begin.wrapping_sub(begin).cast_signed(),
            call.slot.wrapping_sub(slot).cast_signed(),
            call.site,
            call.end.wrapping_sub(call.begin),
        )
    });
    serializer.collect_seq(written)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LostCall>, D::Error> {
    let written: Vec<Written> = Vec::deserialize(deserializer)?;
    let mut before = (0u64, 0u64);
    let calls = written.into_iter().map(|(begin, slot, site, ticks)| {
        before.0 = before.0.wrapping_add_signed(begin);
        before.1 = before.1.wrapping_add_signed(slot);
        LostCall {
            begin: before.0,
            slot: before.1,
            site,
            end: before.0.wrapping_add(ticks),
        }
    });
    Ok(calls.collect())
}
