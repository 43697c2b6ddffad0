//! Chunks: pieces of a thread's buffer, and packets of the trace.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
pub const CHUNK_SHIFT: u32 = 16;
pub const CHUNK_BYTES: usize = 1 << CHUNK_SHIFT;
pub const CHUNK_HEADER_BYTES: usize = 96;

pub const CHUNK_STATE_MASK: u32 = 3;
pub const CHUNK_FREE: u32 = 0;
pub const CHUNK_OWNED: u32 = 1;
pub const CHUNK_FULL: u32 = 2;

/// The header of a chunk.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct ChunkHeader {
    pub magic: u32,
    pub stream_id: u32,
    pub uuid: [u8; 16],
    pub clock_begin: u64,
    pub clock_end: u64,
    pub content_bits: u64,
    pub packet_bits: u64,
    pub discarded: u64,
    pub sequence: u64,
    pub process: u32,
    pub thread: u32,
    pub thread_begin: u64,
    pub checksum: u32,
    pub reserved: u32,
}
