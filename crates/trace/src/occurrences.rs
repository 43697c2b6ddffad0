//! The sites that occur in a trace, by kind of record.

use nopal_abi::{SITE_LIMIT, Word};

/// A record's kind and site are these neighbouring bits of its first word.
const SHIFT: u32 = 32;
const KINDS: u32 = 16;
const KEYS: usize = (KINDS * SITE_LIMIT) as usize;
const WORDS: usize = KEYS / 64;

/// In a word of bits: those of plain records.
const PLAIN: u64 = {
    let (mut bits, mut kind) = (0, 0);
    while kind < KINDS {
        if Word((kind as u64) << SHIFT).is_plain() {
            // Those of all sites in the word.
            bits |= (u64::MAX / ((1 << KINDS) - 1)) << kind;
        }
        kind += 1;
    }
    bits
};

/// A set of kinds with sites.
pub struct Occurrences {
    /// Memory of its own only where there are bits.
    bits: Box<[u64; WORDS]>,
    /// The words up to the highest that has a bit.
    used: usize,
    len: usize,
}

impl Default for Occurrences {
    fn default() -> Occurrences {
        let bits = vec![0; WORDS].into_boxed_slice();
        Occurrences {
            bits: bits.try_into().expect("its length is that of the array"),
            used: 0,
            len: 0,
        }
    }
}

impl Occurrences {
    pub fn new() -> Occurrences {
        Occurrences::default()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn insert(&mut self, word: u64) {
        let key = (word >> SHIFT) as usize % KEYS;
        // Testing first keeps the loop free of a store that the next load would wait for.
        if self.bits[key / 64] & 1 << (key % 64) == 0 {
            self.add(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, key: usize) {
        self.bits[key / 64] |= 1 << (key % 64);
        self.used = self.used.max(key / 64 + 1);
        self.len += 1;
    }

    /// Whether a word is a plain record whose kind and site are in the set.
    #[inline(always)]
    pub fn has_plain(&self, word: u64) -> bool {
        let key = (word >> SHIFT) as usize % KEYS;
        (self.bits[key / 64] & PLAIN) >> (key % 64) & 1 != 0
    }

    /// Sites with the kinds they occur in, one bit a kind, in order of the site.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> {
        let used = self.bits[..self.used]
            .iter()
            .zip(0..)
            .filter(|(bits, _)| **bits != 0);
        let sites = used.flat_map(|(&bits, index)| {
            let kinds = move |place: u32| (bits >> (place * KINDS)) as u16;
            (0..64 / KINDS).map(move |place| (index * (64 / KINDS) + place, kinds(place)))
        });
        sites.filter(|(_, kinds)| *kinds != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_come_with_all_their_kinds() {
        let mut occurrences = Occurrences::new();
        for (kind, site) in [(1, 5), (2, 5), (1, 5), (15, SITE_LIMIT - 1), (0, 0), (9, 7)] {
            occurrences.insert(0xab00_0000_1234_5678 | kind << 32 | u64::from(site) << 36);
        }
        let found: Vec<(u32, u16)> = occurrences.iter().collect();
        assert_eq!(
            found,
            [(0, 1), (5, 0b110), (7, 1 << 9), (SITE_LIMIT - 1, 1 << 15)]
        );
        assert_eq!(occurrences.len(), 5);
    }
}
