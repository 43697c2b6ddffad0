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
    let [
        magic_stream,
        uuid_1,
        uuid_2,
        clock_begin,
        clock_end,
        content_bits,
        packet_bits,
        rest @ ..,
    ] = *words;
    let [discarded, sequence, process_thread, thread_begin, checksum] = rest;
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&uuid_1.to_le_bytes());
    uuid[8..].copy_from_slice(&uuid_2.to_le_bytes());
    ChunkHeader {
        magic: magic_stream as u32,
        stream_id: (magic_stream >> 32) as u32,
        uuid,
        clock_begin,
        clock_end,
        content_bits,
        packet_bits,
        discarded,
        sequence,
        process: process_thread as u32,
        thread: (process_thread >> 32) as u32,
        thread_begin,
        checksum: checksum as u32,
        short_calls: (checksum >> 32) as u32,
    }
}

pub fn write(header: &ChunkHeader, words: &mut [u64; HEADER_WORDS]) {
    let [_, uuid_1, uuid_2] = beginning(header.stream_id, u128::from_le_bytes(header.uuid));
    *words = [
        u64::from(header.magic) | u64::from(header.stream_id) << 32,
        uuid_1,
        uuid_2,
        header.clock_begin,
        header.clock_end,
        header.content_bits,
        header.packet_bits,
        header.discarded,
        header.sequence,
        u64::from(header.process) | u64::from(header.thread) << 32,
        header.thread_begin,
        u64::from(header.checksum) | u64::from(header.short_calls) << 32,
    ];
}

/// The checksum of a packet: of its records, its header up to the sum, and the number of its file, in this order. So a
/// packet is valid only in its own file.
pub fn checksum(records: Sum, header: &ChunkHeader, file: u32) -> u32 {
    let mut words = [0; HEADER_WORDS];
    write(header, &mut words);
    words[HEADER_WORDS - 1] = u64::from(file);
    records.words(&words).value()
}

/// The first words of every packet of a stream class of the trace `uuid` (its bytes, the first one lowest).
pub fn beginning(stream: u32, uuid: u128) -> [u64; 3] {
    let first = u64::from(MAGIC) | u64::from(stream) << 32;
    [first, uuid as u64, (uuid >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::CHUNK_HEADER_BYTES;

    #[test]
    fn words_are_the_bytes_of_the_structure() {
        let bytes: [u8; CHUNK_HEADER_BYTES] = std::array::from_fn(|index| index as u8 + 1);
        let structure: ChunkHeader = zerocopy::transmute!(bytes);
        let words = std::array::from_fn(|index| {
            u64::from_le_bytes(bytes[index * 8..][..8].try_into().unwrap())
        });
        assert_eq!(read(&words), structure);
        let mut written = [0; HEADER_WORDS];
        write(&structure, &mut written);
        assert_eq!(written, words);
    }
}
