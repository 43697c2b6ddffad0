//! The header of a chunk and packet, to and from its words.

use crate::checksum::Sum;
use crate::layout::{HEADER_WORDS, MAGIC};
use anyhow::{Context, Result};
use nopal_abi::{CHUNK_BYTES, ChunkHeader};
use zerocopy::FromBytes;

/// The header of a chunk, and its words of records.
pub fn parts(chunk: &mut [u8]) -> Result<(ChunkHeader, &mut [u64])> {
    let words = words_mut(chunk).filter(|words| words.len() <= CHUNK_BYTES / 8);
    let parts = words.and_then(|words| words.split_first_chunk_mut::<HEADER_WORDS>());
    let (first, records) = parts.context("a chunk is not aligned, or has a wrong size")?;
    Ok((read(first), records))
}

pub fn put(header: &ChunkHeader, chunk: &mut [u8]) {
    if let Some(first) = words_mut(chunk).and_then(|words| words.first_chunk_mut()) {
        write(header, first);
    }
}

pub fn words_mut(bytes: &mut [u8]) -> Option<&mut [u64]> {
    <[u64]>::mut_from_bytes(bytes).ok()
}

pub fn read(words: &[u64; HEADER_WORDS]) -> ChunkHeader {
    zerocopy::transmute!(*words)
}

pub fn write(header: &ChunkHeader, words: &mut [u64; HEADER_WORDS]) {
    *words = zerocopy::transmute!(*header);
}

/// The checksum of a packet: of its records, its header up to the sum, the number of its file, and the header after the sum,
/// in this order. So a packet is valid only in its own file.
pub fn checksum(records: Sum, header: &ChunkHeader, file: u32) -> u32 {
    let mut words = [0; HEADER_WORDS];
    write(header, &mut words);
    words[HEADER_WORDS - 1] = u64::from(header.short_calls) << 32 | u64::from(file);
    records.words(&words).value()
}

/// The first words of every packet of a stream class of the trace `uuid` (its bytes, the first one lowest).
pub fn beginning(stream: u32, uuid: u128) -> [u64; 3] {
    let first = u64::from(MAGIC) | u64::from(stream) << 32;
    [first, uuid as u64, (uuid >> 64) as u64]
}
