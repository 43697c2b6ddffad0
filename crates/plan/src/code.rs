//! The file's memory, and its executable part with a bit for every byte.

use std::ops;

use anyhow::{Result, ensure};
use nopal_symbols::Image;

/// The memory described by the file, by address.
pub(crate) struct Memory<'a> {
    parts: Vec<Part<'a>>,
}

struct Part<'a> {
    address: u64,
    bytes: &'a [u8],
    executable: bool,
}

impl<'a> Memory<'a> {
    pub fn of(image: &'a Image) -> Result<Memory<'a>> {
        let mut parts = Vec::new();
        let mut end = 0;
        for segment in image.segments() {
            // If a hostile file makes segments overlap, the first one counts.
            let address = segment.address.max(end);
            let Some(size) = segment
                .address
                .checked_add(segment.file_size)
                .and_then(|last| last.checked_sub(address))
            else {
                continue;
            };
            let Some(bytes) = usize::try_from(size)
                .ok()
                .and_then(|size| image.bytes(address, size))
            else {
                continue;
            };
            end = address + size;
            parts.push(Part {
                address,
                bytes,
                executable: segment.executable,
            });
        }
        let memory = Memory { parts };
        let file = image
            .segments()
            .iter()
            .map(|segment| segment.offset.saturating_add(segment.file_size))
            .max();
        ensure!(
            memory.len() as u64 <= file.unwrap_or(0),
            "the file maps its content several times over"
        );
        Ok(memory)
    }

    /// The bytes from an address to the end of its segment's.
    pub fn from(&self, address: u64) -> Option<&'a [u8]> {
        let after = self.parts.partition_point(|part| part.address <= address);
        let part = self.parts[..after].last()?;
        part.bytes
            .get(usize::try_from(address - part.address).ok()?..)
            .filter(|bytes| !bytes.is_empty())
    }

    pub fn word(&self, address: u64) -> Option<u64> {
        self.from(address)?
            .first_chunk()
            .map(|word| u64::from_le_bytes(*word))
    }

    /// All aligned words, by address.
    pub fn each_word(&self, mut found: impl FnMut(u64, u64)) {
        for part in &self.parts {
            let skip = part.address.wrapping_neg() % 8;
            let bytes = usize::try_from(skip)
                .ok()
                .and_then(|skip| part.bytes.get(skip..))
                .unwrap_or_default();
            let mut place = part.address + skip;
            for word in bytes.as_chunks::<8>().0 {
                found(place, u64::from_le_bytes(*word));
                place += 8;
            }
        }
    }

    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|part| part.address)
    }

    pub fn end(&self) -> u64 {
        let last = self.parts.last();
        last.map_or(0, |part| part.address + part.bytes.len() as u64)
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }
}

/// The executable part of the memory.
pub(crate) struct Code<'a> {
    /// By address.
    ranges: Vec<Range<'a>>,
    /// The addresses from the first to the last.
    extent: ops::Range<u64>,
}

pub(crate) struct Range<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
    /// The number of its first byte.
    first: usize,
}

impl Range<'_> {
    pub fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// The number of one of its bytes.
    #[inline]
    pub fn number(&self, address: u64) -> usize {
        self.first + (address - self.address) as usize
    }
}

impl<'a> Code<'a> {
    pub fn of(memory: &Memory<'a>) -> Code<'a> {
        let mut ranges = Vec::new();
        let mut first = 0;
        for part in memory.parts.iter().filter(|part| part.executable) {
            ranges.push(Range {
                address: part.address,
                bytes: part.bytes,
                first,
            });
            first += part.bytes.len();
        }
        let start = ranges.first().map_or(0, |first| first.address);
        let end = ranges.last().map_or(0, Range::end);
        Code {
            ranges,
            extent: start..end,
        }
    }

    pub fn ranges(&self) -> &[Range<'a>] {
        &self.ranges
    }

    pub fn extent(&self) -> ops::Range<u64> {
        self.extent.clone()
    }

    #[inline]
    pub fn range(&self, address: u64) -> Option<&Range<'a>> {
        if !self.extent.contains(&address) {
            return None;
        }
        self.ranges
            .iter()
            .find(|range| range.address <= address && address < range.end())
    }

    /// The number of a byte of code.
    #[inline]
    pub fn number(&self, address: u64) -> Option<usize> {
        self.range(address).map(|range| range.number(address))
    }

    pub fn len(&self) -> usize {
        self.ranges
            .last()
            .map_or(0, |range| range.first + range.bytes.len())
    }
}

/// A set of bytes of code, by their numbers.
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    pub fn new(code: &Code<'_>) -> Marks {
        Marks(vec![0; code.len().div_ceil(64)])
    }

    pub fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub fn get(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    pub fn join(&mut self, other: &Marks) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }
}
