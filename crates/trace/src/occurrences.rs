//! The sites that occur in a trace, by kind of record.

use nopal_abi::SITE_LIMIT;

/// A record's kind and site are these neighbouring bits of its first word.
const SHIFT: u32 = 32;
const KINDS: u32 = 16;
const KEYS: usize = (KINDS * SITE_LIMIT) as usize;

/// A set of kinds with sites.
#[derive(Default)]
pub struct Occurrences {
    /// The bits of all sites up to the highest that has come.
    bits: Vec<u64>,
    len: usize,
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
        let bits = self.bits.get(key / 64).copied().unwrap_or(0);
        // Testing first keeps the loop free of a store that the next load would wait for.
        if bits & 1 << (key % 64) == 0 {
            self.add(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, key: usize) {
        if self.bits.len() <= key / 64 {
            self.bits.resize(key / 64 + 1, 0);
        }
        self.bits[key / 64] |= 1 << (key % 64);
        self.len += 1;
    }

    /// Sites with the kinds they occur in, one bit a kind, in order of the site.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> {
        let used = self.bits.iter().zip(0..).filter(|(bits, _)| **bits != 0);
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
