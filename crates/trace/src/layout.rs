//! The layout of packets.

use nopal_abi::*;

/// The stream class of packets of threads.
pub const THREAD_STREAM: u32 = 0;
pub const MAGIC: u32 = 0xC1FC_1FC1;
pub const HEADER_BYTES: usize = CHUNK_HEADER_BYTES;
pub const HEADER_WORDS: usize = HEADER_BYTES / 8;
