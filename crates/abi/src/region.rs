//! The region: shared memory between the tool and a traced process.
//!
//! Both sides write it at once, so it is read and written by atomic operations on the fields' addresses, never
//! through a reference to a whole structure.

pub const REQUESTS: usize = 64;
pub const LOST_COUNTERS: usize = 64;

pub const REQUEST_FREE: u32 = 0;
pub const REQUEST_CLAIMED: u32 = 1;
pub const REQUEST_WAITING: u32 = 2;
pub const REQUEST_DONE: u32 = 3;
pub const REQUEST_GRANTED: u32 = 4;

pub const REQUEST_LIBRARIES: u32 = 1;
pub const REQUEST_EXEC: u32 = 2;
pub const REQUEST_LOCK: u32 = 3;
pub const REQUEST_TRAPS: u32 = 4;

pub const NO_DESCRIPTOR: i32 = -100;

pub const WHEN_FULL_DROP: u32 = 0;
pub const WHEN_FULL_BLOCK: u32 = 1;

/// A request from a thread to the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    pub state: u32,
    pub what: u32,
    pub process: u32,
    pub thread: u32,
    pub word: u64,
    pub descriptor: i32,
    pub reserved: u32,
}

/// A counter on a cache line of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LostCounter {
    pub lost: u64,
    pub pad: [u64; 7],
}

/// The header of a region.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Region {
    pub version: u32,
    pub chunk_count: u32,
    pub state_offset: u64,
    pub chunk_offset: u64,
    pub when_full: u32,
    pub tool_gone: u32,
    pub heartbeat: u32,
    pub bell: u32,
    pub threads_untraced: u32,
    pub stacks_unmirrored: u32,
    pub threads_muted: u64,
    pub head: u64,
    pub tool: u32,
    pub guardian: u32,
    pub lost: [LostCounter; LOST_COUNTERS],
    pub requests: [Request; REQUESTS],
    pub first_free: u32,
    pub freed: u32,
    pub waited_in_vain: u32,
    pub unanswered_executions: u32,
    pub unanswered_libraries: u32,
    pub reserved: u32,
}
