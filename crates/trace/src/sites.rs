//! Sites: which of them occur in a trace.

use nopal_abi::SITE_LIMIT;

const WORDS: usize = SITE_LIMIT as usize / 64;

/// A set of site numbers.
pub struct SiteSet {
    bits: Box<[u64; WORDS]>,
    len: usize,
}

impl SiteSet {
    pub fn new() -> SiteSet {
        SiteSet {
            bits: Box::new([0; WORDS]),
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn insert(&mut self, site: u32) {
        let word = &mut self.bits[site as usize / 64 % WORDS];
        let bit = 1 << (site % 64);
        // Testing first keeps the loop free of a store that the next load would wait for.
        if *word & bit == 0 {
            *word |= bit;
            self.len += 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.bits.iter().enumerate().flat_map(|(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| index as u32 * 64 + bit)
        })
    }
}
