//! Restartable sequences (rseq): code that the kernel restarts at another place if the thread is moved in the middle.

use std::ops::Range;

use crate::code::Memory;

/// Longer ones are no sequences but data that looks like one.
const LONGEST: u64 = 64 << 10;

/// The code that must not be changed: each sequence, and each handler with the signature before it. Sorted by start.
///
/// A sequence is described by 32 bytes of data: version and flags (4 each), start, length, abort handler (8 each). They
/// are found from the handlers: the `pointers` (word, and where it points) that lead to one are the last word of each.
pub(crate) fn sequences(
    memory: &Memory<'_>,
    aborts: &[u64],
    pointers: &[(u64, u64)],
) -> Vec<Range<u64>> {
    if aborts.is_empty() {
        return Vec::new();
    }
    let target = |place: u64| {
        pointers
            .iter()
            .find(|pointer| pointer.0 == place)
            .map(|pointer| pointer.1)
    };
    let mut ranges: Vec<Range<u64>> = aborts
        .iter()
        .map(|&abort| abort.saturating_sub(8)..abort.saturating_add(1))
        .collect();
    for &(place, _) in pointers
        .iter()
        .filter(|pointer| aborts.contains(&pointer.1))
    {
        let (Some(start), Some(length)) = (
            target(place.wrapping_sub(16)),
            memory.word(place.wrapping_sub(8)),
        ) else {
            continue;
        };
        if length <= LONGEST {
            ranges.push(start..start.saturating_add(length));
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}
