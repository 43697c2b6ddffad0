//! Restartable sequences (rseq): code that the kernel restarts at another place if the thread is moved in the middle.

use std::ops::Range;

use crate::code::Memory;

/// Longer ones are data that looks like a sequence.
const LONGEST: u64 = 64 << 10;

/// The code that must not be changed: each sequence, and each handler with the signature before it. Sorted, disjoint.
///
/// A sequence is described by 32 bytes of data: version and flags (4 each), start, length, abort handler (8 each). They
/// are found from the handlers: the `pointers` (word, and where it points) that lead to one are the last word of each.
pub(crate) fn sequences(
    memory: &Memory<'_>,
    aborts: &[u64],
    pointers: &mut [(u64, u64)],
) -> Vec<Range<u64>> {
    if aborts.is_empty() {
        return Vec::new();
    }
    pointers.sort_unstable();
    let target = |place: u64| {
        let index = pointers.binary_search_by_key(&place, |pointer| pointer.0);
        index.ok().map(|index| pointers[index].1)
    };
    let mut ranges: Vec<Range<u64>> = aborts
        .iter()
        .map(|&abort| abort.saturating_sub(8)..abort.saturating_add(1))
        .collect();
    for &(place, handler) in pointers.iter() {
        if aborts.binary_search(&handler).is_err() {
            continue;
        }
        let start = target(place.wrapping_sub(16));
        let length = memory.word(place.wrapping_sub(8));
        if let (Some(start), Some(length)) = (start, length)
            && length <= LONGEST
        {
            ranges.push(start..start.saturating_add(length));
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let overlap = next.start <= range.end;
        if overlap {
            range.end = range.end.max(next.end);
        }
        overlap
    });
    ranges
}
