//! Finds a node of a tree by its parent and its function.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashes of numbers that a trace cannot foresee.
#[derive(Clone, Debug)]
pub struct Places {
    seed: u64,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            seed: RandomState::new().hash_one(0) | 1,
        }
    }
}

impl BuildHasher for Places {
    type Hasher = PlaceHasher;

    #[inline(always)]
    fn build_hasher(&self) -> PlaceHasher {
        PlaceHasher {
            seed: self.seed,
            hash: 0,
        }
    }
}

pub struct PlaceHasher {
    seed: u64,
    hash: u64,
}

impl Hasher for PlaceHasher {
    #[inline(always)]
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    /// Both halves of a product, so that each bit of the number changes low and high bits of the hash.
    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.hash ^ number).wrapping_add(self.seed.rotate_left(32));
        let product = u128::from(mixed) * u128::from(self.seed);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }
}
