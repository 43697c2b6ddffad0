//! CRC32C, by which damage is found.

/// The initial value of a sum, and its final inversion.
const BEGIN: u64 = 0xffff_ffff;

/// The table of the reversed polynomial, for a byte at a time.
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

/// Sums that run at once: the latency of the instruction is three times the interval at which it can be issued.
pub const STREAMS: usize = 3;
/// Words of each of them.
const STREAM: usize = 128;
/// Words of all.
pub const BLOCK: usize = STREAMS * STREAM;

/// The effect of `STREAM` words of 0 on a sum, for each of its bytes: CRC is linear.
const FOLLOWED: [[u32; 256]; 4] = {
    let mut bits = [0; 32];
    let mut bit = 0;
    while bit < bits.len() {
        let mut sum = 1 << bit;
        let mut left = STREAM * 8;
        while left > 0 {
            sum = sum >> 8 ^ TABLE[(sum & 0xff) as usize];
            left -= 1;
        }
        bits[bit] = sum;
        bit += 1;
    }
    let mut parts = [[0; 256]; 4];
    let mut at = 0;
    while at < 4 * 256 {
        let mut bit = 0;
        while bit < 8 {
            if at >> bit & 1 == 1 {
                parts[at / 256][at % 256] ^= bits[at / 256 * 8 + bit];
            }
            bit += 1;
        }
        at += 1;
    }
    parts
};

/// A running sum: the lower half. The upper half is 0, as the instruction leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    pub const fn new() -> Sum {
        Sum(BEGIN)
    }

    pub fn value(self) -> u32 {
        !(self.0 as u32)
    }

    pub fn words(self, words: &[u64]) -> Sum {
        match Instruction::of_this_processor() {
            Some(instruction) => self.streams(words, instruction),
            None => self.all(words, Table),
        }
    }

    fn streams(self, words: &[u64], way: impl Way) -> Sum {
        let (blocks, rest) = words.as_chunks();
        let with = |sum, block| {
            let mut sum = Following::new(sum);
            sum.follow(block);
            sum.end(0, way)
        };
        blocks.iter().fold(self, with).all(rest, way)
    }

    /// The sum after `STREAM` further words of 0.
    fn followed(self) -> Sum {
        let bytes = (self.0 as u32).to_le_bytes();
        let parts = bytes.iter().zip(&FOLLOWED);
        Sum(parts.fold(0, |sum, (byte, part)| {
            sum ^ u64::from(part[usize::from(*byte)])
        }))
    }

    fn with(self, other: Sum) -> Sum {
        Sum(self.0 ^ other.0)
    }

    fn all(self, words: &[u64], way: impl Way) -> Sum {
        words.iter().fold(self, |sum, word| way.add(sum, *word))
    }

    pub fn bytes(self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<8>();
        let with = |sum: Sum, word: &[u8; 8]| match Instruction::of_this_processor() {
            Some(instruction) => instruction.add(sum, u64::from_le_bytes(*word)),
            None => sum.table(word),
        };
        words.iter().fold(self, with).table(rest)
    }

    fn table(self, bytes: &[u8]) -> Sum {
        let with = |sum: u32, byte: &u8| sum >> 8 ^ TABLE[(sum as u8 ^ byte) as usize];
        Sum(u64::from(bytes.iter().fold(self.0 as u32, with)))
    }
}

/// A sum that is one block of words behind a loop over these. Its steps wait neither for what the loop computes nor for one
/// another, so that they take next to no time beside it.
pub struct Following<'a> {
    block: Option<&'a [u64; BLOCK]>,
    /// The sum before the block with its first words, and those of its other parts.
    sums: [Sum; STREAMS],
}

impl<'a> Following<'a> {
    pub fn new(sum: Sum) -> Following<'a> {
        let mut sums = [Sum(0); STREAMS];
        sums[0] = sum;
        Following { block: None, sums }
    }

    /// Takes word `at` of each part of the block. The steps of a block go from 0 to `STREAM`.
    #[inline(always)]
    pub fn step(&mut self, at: usize, way: impl Way) {
        let Some(block) = self.block else {
            return;
        };
        for (stream, sum) in self.sums.iter_mut().enumerate() {
            *sum = way.add(*sum, block[stream * STREAM + at]);
        }
    }

    /// Goes to the next block, after all steps of the one before.
    pub fn follow(&mut self, block: &'a [u64; BLOCK]) {
        *self = Following {
            block: Some(block),
            ..Following::new(self.joined())
        };
    }

    /// The sum of all blocks, after the steps before `next` of the last one.
    pub fn end(mut self, next: usize, way: impl Way) -> Sum {
        for at in next..STREAM {
            self.step(at, way);
        }
        self.joined()
    }

    /// Each sum is carried over the words that follow it.
    fn joined(&self) -> Sum {
        let [first, rest @ ..] = self.sums;
        match self.block {
            Some(_) => rest
                .into_iter()
                .fold(first, |sum, next| sum.followed().with(next)),
            None => first,
        }
    }
}

/// A way to take one more word into a sum.
pub trait Way: Copy {
    fn add(self, sum: Sum, word: u64) -> Sum;
}

/// By the processor's instruction. A value of this type exists only where the processor has it.
#[derive(Clone, Copy)]
pub struct Instruction(());

/// By the table, on every processor.
#[derive(Clone, Copy)]
pub struct Table;

/// No sum, to measure the cost of sums.
#[derive(Clone, Copy)]
pub struct Nothing;

impl Way for Instruction {
    #[inline(always)]
    fn add(self, sum: Sum, word: u64) -> Sum {
        #[cfg(target_arch = "x86_64")]
        {
            let mut sum = sum.0;
            // SAFETY: it changes a register, and the processor has it, as `self` shows.
            unsafe {
                std::arch::asm!("crc32 {sum}, {word}", sum = inout(reg) sum, word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags));
            }
            Sum(sum)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Table.add(sum, word)
    }
}

impl Way for Table {
    #[inline(always)]
    fn add(self, sum: Sum, word: u64) -> Sum {
        sum.table(&word.to_le_bytes())
    }
}

impl Way for Nothing {
    #[inline(always)]
    fn add(self, sum: Sum, _word: u64) -> Sum {
        sum
    }
}

impl Instruction {
    /// All processors since 2011 have it.
    #[inline(always)]
    pub fn of_this_processor() -> Option<Instruction> {
        #[cfg(target_arch = "x86_64")]
        let has = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(not(target_arch = "x86_64"))]
        let has = false;
        has.then_some(Instruction(()))
    }
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
            Sum::new().all(&words, Table),
        ];
        assert_eq!(all, [Sum::new().table(&bytes); 4]);
    }

    #[test]
    fn any_number_of_words_has_the_same_sum_in_all_ways() {
        let mut random = crate::synthetic::Random::new(1);
        for count in [0, 1, 3 * STREAM - 1, 3 * STREAM, 3 * STREAM + 1, 8180] {
            let words: Vec<u64> = (0..count).map(|_| random.number()).collect();
            let expected = Sum::new().all(&words, Table);
            assert_eq!(Sum::new().words(&words), expected, "{count} words");
            if let Some(instruction) = Instruction::of_this_processor() {
                assert_eq!(Sum::new().all(&words, instruction), expected);
            }
        }
    }
}
