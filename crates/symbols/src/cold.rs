use std::collections::HashSet;

use crate::Image;

/// Bytes of `jcc rel32`: 0f 8x and four of displacement.
const JUMP_BYTES: usize = 6;

/// Which of the sorted addresses some other code jumps to on a condition.
///
/// Compilers call functions and may jump to them, but they jump on a condition only within one function. So such a
/// target is a part that was split off a function before it moved the stack pointer, with flags and red zone in use.
pub(crate) fn jumped_to(image: &Image, starts: &[u64]) -> HashSet<u64> {
    let mut targets = HashSet::new();
    let filter = Filter::of(starts);
    for range in image.code().ranges() {
        let code = usize::try_from(range.end - range.start).ok().and_then(|len| image.bytes(range.start, len));
        for (index, jump) in code.unwrap_or_default().windows(JUMP_BYTES).enumerate() {
            if jump[0] != 0x0f || jump[1] & 0xf0 != 0x80 {
                continue;
            }
            let from = range.start + index as u64;
            let displacement = i32::from_le_bytes([jump[2], jump[3], jump[4], jump[5]]);
            let target = from.wrapping_add(JUMP_BYTES as u64).wrapping_add_signed(displacement.into());
            if !filter.may_hold(target) || starts.binary_search(&target).is_err() {
                continue;
            }
            // A loop may go back to the first instruction of its own function.
            if image.frames().covering(from).is_none_or(|entry| entry.start != target) {
                targets.insert(target);
            }
        }
    }
    targets
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
        ((scattered >> 32) as usize & (self.0.len() - 1), 1 << (scattered >> 26 & 63))
    }
}
