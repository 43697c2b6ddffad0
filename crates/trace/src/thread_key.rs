use nopal_abi::ChunkHeader;
use serde::{Deserialize, Serialize};

/// A thread of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    pub process: u32,
    pub thread: u32,
    pub begin: u64,
}

impl ThreadKey {
    pub fn of(header: &ChunkHeader) -> ThreadKey {
        ThreadKey {
            process: header.process,
            thread: header.thread,
            begin: header.thread_begin,
        }
    }
}
