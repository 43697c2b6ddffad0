//! Parts of functions that were split off before the function moved the stack pointer. Their unwinding entries look
//! like those of functions, but flags and red zone may be in use where they begin.

use crate::Image;
use crate::unwind::UnwindEntry;

/// Compilers align functions to this, but not the parts that they moved out of the way.
const ALIGNMENT: u64 = 16;

/// Removes probable cold parts from sorted entries without names: code among unaligned code, which other code jumps to,
/// and which nothing calls.
pub(crate) fn remove(image: &Image, entries: &mut Vec<UnwindEntry>) {
    let suspects: Vec<u64> = suspects(image)
        .filter(|start| {
            entries
                .binary_search_by_key(start, |entry| entry.start)
                .is_ok()
        })
        .collect();
    if suspects.is_empty() {
        return;
    }
    let reached = Reached::of(image, suspects);
    entries.retain(|entry| match reached.suspects.binary_search(&entry.start) {
        Ok(index) => !reached.jumped_to[index] || reached.called[index],
        Err(_) => true,
    });
}

/// A part may be aligned by chance, but it has unaligned neighbours, and no gap before it.
fn suspects(image: &Image) -> impl Iterator<Item = u64> {
    let all = image.frames().entries();
    let is_aligned = |entry: &UnwindEntry| entry.start.is_multiple_of(ALIGNMENT);
    (0..all.len()).filter_map(move |index| {
        let start = all[index].start;
        let before = index.checked_sub(1).map(|before| &all[before]);
        let after = all.get(index + 1);
        let has_gap =
            before.is_none_or(|before| before.end != start) && !image.code().begins_at(start);
        let is_suspect = !is_aligned(&all[index])
            || (!has_gap && !before.into_iter().chain(after).all(is_aligned));
        is_suspect.then_some(start)
    })
}

/// The jumps and calls in a file to some addresses.
struct Reached {
    suspects: Vec<u64>,
    filter: Filter,
    jumped_to: Vec<bool>,
    called: Vec<bool>,
}

impl Reached {
    fn of(image: &Image, suspects: Vec<u64>) -> Reached {
        let (filter, none) = (Filter::of(&suspects), vec![false; suspects.len()]);
        let mut reached = Reached {
            suspects,
            filter,
            jumped_to: none.clone(),
            called: none,
        };
        for range in image.code().ranges() {
            let code = usize::try_from(range.end - range.start)
                .ok()
                .and_then(|len| image.bytes(range.start, len));
            reached.read(image, range.start, code.unwrap_or_default());
        }
        reached
    }

    /// Decodes at every byte: a misaligned instruction is unlikely to lead exactly to a suspect.
    fn read(&mut self, image: &Image, start: u64, code: &[u8]) {
        for index in jumps(code) {
            let Some(bytes) = code.get(index..index + 6) else {
                break;
            };
            let (is_call, end) = match (bytes[0], bytes[1]) {
                (0xe8, _) => (true, 5),
                (0xe9, _) => (false, 5),
                (0x0f, 0x80..=0x8f) => (false, 6),
                _ => continue,
            };
            let from = start + index as u64;
            let displacement = i32::from_le_bytes([
                bytes[end - 4],
                bytes[end - 3],
                bytes[end - 2],
                bytes[end - 1],
            ]);
            let target = from
                .wrapping_add(end as u64)
                .wrapping_add_signed(displacement.into());
            if !self.filter.may_hold(target) {
                continue;
            }
            let Ok(suspect) = self.suspects.binary_search(&target) else {
                continue;
            };
            if is_call {
                self.called[suspect] = true;
            } else if image
                .frames()
                .covering(from)
                .is_none_or(|entry| entry.start != target)
            {
                // A loop may go back to the first instruction of its own function.
                self.jumped_to[suspect] = true;
            }
        }
    }
}

/// The offsets at which a jump or a call may begin, by its first byte.
fn jumps(code: &[u8]) -> impl Iterator<Item = usize> {
    let (words, rest) = code.as_chunks();
    let words = words.iter().enumerate().flat_map(|(index, word)| {
        let mut found = first_bytes(u64::from_le_bytes(*word));
        std::iter::from_fn(move || {
            let bit = (found != 0).then(|| found.trailing_zeros() as usize)?;
            found &= found - 1;
            Some(index * 8 + bit / 8)
        })
    });
    words.chain(code.len() - rest.len()..code.len())
}

/// The highest bits of those bytes of a word that are 0xe8, 0xe9 or 0x0f, and perhaps of others behind one.
fn first_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let zeroes = |word: u64| word.wrapping_sub(ONES) & !word & ONES << 7;
    let calls = (word ^ (ONES * 0xe8)) & !ONES;
    zeroes(calls) | zeroes(word ^ (ONES * 0x0f))
}

/// Answers for most addresses that they are not in a set.
struct Filter(Vec<u64>);

impl Filter {
    fn of(addresses: &[u64]) -> Filter {
        let mut filter = Filter(vec![0; (addresses.len() / 4).next_power_of_two()]);
        for &address in addresses {
            let (word, bit) = filter.place(address);
            filter.0[word] |= bit;
        }
        filter
    }

    fn may_hold(&self, address: u64) -> bool {
        let (word, bit) = self.place(address);
        self.0[word] & bit != 0
    }

    fn place(&self, address: u64) -> (usize, u64) {
        let scattered = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (
            (scattered >> 32) as usize & (self.0.len() - 1),
            1 << (scattered >> 26 & 63),
        )
    }
}
