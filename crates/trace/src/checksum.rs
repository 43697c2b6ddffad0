//! CRC32C, by which damage is found.

/// What a sum begins with, and what is done to it in the end.
const BEGIN: u32 = !0;

/// Of the reversed polynomial, a byte at a time.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// A sum that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum(u32);

impl Sum {
    pub const fn new() -> Sum {
        Sum(BEGIN)
    }

    pub fn value(self) -> u32 {
        !self.0
    }

    pub fn words(self, words: &[u64]) -> Sum {
        match has_instruction() {
            true => self.all::<Instruction>(words),
            false => self.all::<Table>(words),
        }
    }

    fn all<W: Way>(self, words: &[u64]) -> Sum {
        words.iter().fold(self, |sum, word| W::add(sum, *word))
    }

    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<8>();
        let with = |sum: Sum, word: &[u8; 8]| match has_instruction() {
            true => Instruction::add(sum, u64::from_le_bytes(*word)),
            false => sum.table(word),
        };
        words.iter().fold(self, with).table(rest)
    }

    fn table(self, bytes: &[u8]) -> Sum {
        let with = |sum: u32, byte: &u8| sum >> 8 ^ TABLE[(sum as u8 ^ byte) as usize];
        Sum(bytes.iter().fold(self.0, with))
    }
}

/// A way to take one more word into a sum.
pub trait Way {
    fn add(sum: Sum, word: u64) -> Sum;
}

/// By the processor's instruction: [`has_instruction`] was asked.
pub struct Instruction;

/// By the table, on every processor.
pub struct Table;

/// Not at all: what a sum costs is measured against this.
pub struct Nothing;

impl Way for Instruction {
    #[inline(always)]
    fn add(sum: Sum, word: u64) -> Sum {
        #[cfg(target_arch = "x86_64")]
        {
            let mut sum = u64::from(sum.0);
            // SAFETY: it changes a register, and the processor has it.
            unsafe {
                std::arch::asm!("crc32 {sum}, {word}", sum = inout(reg) sum, word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags));
            }
            Sum(sum as u32)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Table::add(sum, word)
    }
}

impl Way for Table {
    #[inline(always)]
    fn add(sum: Sum, word: u64) -> Sum {
        sum.table(&word.to_le_bytes())
    }
}

impl Way for Nothing {
    #[inline(always)]
    fn add(sum: Sum, _word: u64) -> Sum {
        sum
    }
}

/// Whether the processor has an instruction for it, as all since 2011 have.
#[inline(always)]
pub fn has_instruction() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::arch::is_x86_feature_detected!("sse4.2");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        assert_eq!(Sum::new().bytes(b"123456789").value(), 0xe306_9283);
        assert_eq!(Sum::new().bytes(&[0; 32]).value(), 0x8a91_36aa);
        let words: [u64; 4] = std::array::from_fn(|at| 0x0123_4567_89ab_cdef << at);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = [
            Sum::new().words(&words),
            Sum::new().bytes(&bytes),
            Sum::new().bytes(&bytes[..11]).bytes(&bytes[11..]),
            Sum::new().all::<Table>(&words),
        ];
        assert_eq!(all, [Sum::new().table(&bytes); 4]);
    }
}
