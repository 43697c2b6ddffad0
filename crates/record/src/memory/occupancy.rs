//! Who has the chunks of a region.

use nopal_abi::{CHUNK_FREE, CHUNK_FULL, CHUNK_STATE_MASK};
use std::sync::atomic::{AtomicU32, Ordering};

/// The chunks of a region at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occupancy {
    pub taken: usize,
    /// The number of them that were handed over.
    pub full: usize,
    /// Behind the last of them.
    pub end: usize,
    /// A number that most likely differs where any chunk has another state or owner.
    pub digest: u64,
}

/// Odd, with bits all over, so that each state changes all bits above it.
const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The states in a line of the processor's cache.
const TOGETHER: usize = 16;

impl Occupancy {
    /// By the state words of all chunks.
    pub fn of(states: &[AtomicU32]) -> Occupancy {
        let mut occupancy = Occupancy::default();
        for (first, states) in (0..).step_by(TOGETHER).zip(states.chunks(TOGETHER)) {
            let all = states.iter().map(|state| state.load(Ordering::Relaxed));
            // As most are.
            if all.fold(CHUNK_FREE, |all, state| all | state) == CHUNK_FREE {
                continue;
            }
            for (chunk, state) in (first..).zip(states) {
                // Acquire pairs with the release of the thread that handed the chunk over.
                occupancy.add(chunk, state.load(Ordering::Acquire));
            }
        }
        occupancy
    }

    fn add(&mut self, chunk: usize, state: u32) {
        if state & CHUNK_STATE_MASK != CHUNK_FREE {
            self.taken += 1;
            self.end = chunk + 1;
        }
        self.full += usize::from(state & CHUNK_STATE_MASK == CHUNK_FULL);
        // A sum of products, which do not wait for each other. A free chunk adds nothing.
        let factor = DIGEST_FACTOR.wrapping_mul(2 * chunk as u64 + 1);
        self.digest = self
            .digest
            .wrapping_add(u64::from(state).wrapping_mul(factor));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::CHUNK_OWNED;

    #[test]
    fn all_chunks_are_seen_wherever_they_are() {
        let of = |taken: &[(usize, u32)]| {
            let mut states = vec![CHUNK_FREE; 100];
            for (chunk, state) in taken {
                states[*chunk] = *state;
            }
            let states: Vec<AtomicU32> = states.into_iter().map(AtomicU32::new).collect();
            Occupancy::of(&states)
        };
        assert_eq!(of(&[]), Occupancy::default());
        let [owner, other] = [0x9e37_79b1, 0x5851_f42d].map(|begin: u32| begin & !CHUNK_STATE_MASK);
        let mut digests = vec![0];
        for chunk in 0..100 {
            let owned = of(&[(chunk, owner | CHUNK_OWNED)]);
            assert_eq!((owned.taken, owned.full, owned.end), (1, 0, chunk + 1));
            let others = of(&[(chunk, other | CHUNK_OWNED)]);
            let full = of(&[(chunk, CHUNK_FULL), (99, CHUNK_FULL)]);
            let both = 1 + usize::from(chunk < 99);
            assert_eq!((full.taken, full.full, full.end), (both, both, 100));
            digests.extend([owned.digest, others.digest]);
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 201, "each has a digest of its own");
    }
}
