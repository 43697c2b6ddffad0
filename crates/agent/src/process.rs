//! The fields of the process structure of `runtime/core/process.h` that the tool writes. `tests/layout.rs` compares it
//! with the header.

use crate::headers::{Context, Counted, Process, Threads};
use std::mem::offset_of;

pub use crate::headers::COUNTED_PAGE_SHIFT;
pub use crate::headers::{
    BLOCKS, BREAKPOINTS, BlockEntry, Breakpoint, CONTEXTS, ProcessHead, STACK_PARTS, THREADS,
    Traps, UNWINDERS, UnwinderEntry, stack_part,
};
use crate::headers::{COUNTED_SHIFT, STACK_PART_SHIFT, THREAD_HASH, THREAD_NONE, THREAD_SHIFT};

/// The table of threads: as many thread pointers, and then the addresses of their contexts.
pub const THREADS_BYTES: u64 = size_of::<Threads>() as u64;

/// The table by which the calls of a group of sites are counted.
pub const COUNTED_BYTES: u64 = size_of::<Counted>() as u64;

/// The first pointer in the table of threads.
pub const NO_THREAD: u64 = THREAD_NONE;

pub const CONTEXT_BYTES: usize = size_of::<Context>();
pub const CONTEXT_PROCESS: usize = offset_of!(Context, process);
pub const CONTEXT_THREAD: usize = offset_of!(Context, thread);
pub const CONTEXT_BEGIN: usize = offset_of!(Context, begin);

pub const STACK_PART_BYTES: u64 = 1 << STACK_PART_SHIFT;

/// The first place of a page of a stack, by its address >> [`COUNTED_PAGE_SHIFT`], in a table by which calls are counted.
pub const fn counted_place(page: u64) -> usize {
    ((page as u32).wrapping_mul(THREAD_HASH) >> COUNTED_SHIFT) as usize
}

/// The first place of a thread pointer in the table.
pub const fn thread_place(pointer: u64) -> usize {
    ((pointer as u32).wrapping_mul(THREAD_HASH) >> THREAD_SHIFT) as usize
}

impl Default for Traps {
    fn default() -> Traps {
        zerocopy::FromZeros::new_zeroed()
    }
}

/// The offset of the table of blocks in the structure.
pub const fn blocks_offset() -> u64 {
    offset_of!(Process, blocks) as u64
}

pub const fn unwinders_offset() -> u64 {
    offset_of!(Process, unwinders) as u64
}

pub const fn traps_offset() -> u64 {
    offset_of!(Process, traps) as u64
}

pub const fn process_bytes() -> u64 {
    size_of::<Process>() as u64
}
