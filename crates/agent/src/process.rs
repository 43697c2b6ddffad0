//! The fields of the process structure of `runtime/core/process.h` that the tool writes. `tests/layout.rs` compares it
//! with the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The begin of the process structure.
#[derive(Debug, Clone, Copy, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct ProcessHead {
    pub region: u64,
    pub contexts: u64,
    pub stack_parts: u64,
    pub threads: u64,
    pub mirror: i64,
    pub threads_noted: u32,
    pub thread_slot: i32,
    pub quiet: u32,
    pub process: u32,
    pub depth_limit: u32,
    pub tracer: u32,
    pub block_count: u32,
    pub unwinder_count: u32,
}

/// Generated code at [low, high), described by the `.eh_frame_hdr` at `header`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct BlockEntry {
    pub low: u64,
    pub high: u64,
    pub header: u64,
}

/// The table of threads: as many thread pointers, and then the addresses of their contexts.
pub const THREADS_BYTES: u64 = (THREADS * 16) as u64;

/// Its begin.
pub const NO_THREAD: u64 = u64::MAX;

/// The first place of a thread pointer in the table.
pub const fn thread_place(pointer: u64) -> usize {
    ((pointer as u32).wrapping_mul(THREAD_HASH) >> THREAD_SHIFT) as usize
}

/// A module that unwinds, and the addresses of `_Unwind_SetGR`, `_Unwind_SetIP`, `_Unwind_Resume` and
/// `_Unwind_GetIP` in it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct UnwinderEntry {
    pub low: u64,
    pub high: u64,
    pub set_register: u64,
    pub set_address: u64,
    pub resume: u64,
    pub get_address: u64,
}

/// A breakpoint at `address`, which leads to `detour`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Breakpoint {
    pub address: u64,
    pub detour: u64,
}

/// The breakpoints of a process. Actions have the kernel's layout: handler, flags, restorer, mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Traps {
    pub count: u64,
    pub ours: [u64; 4],
    pub before: [u64; 4],
    pub breakpoints: [Breakpoint; BREAKPOINTS],
}

impl Default for Traps {
    fn default() -> Traps {
        Traps {
            count: 0,
            ours: [0; 4],
            before: [0; 4],
            breakpoints: [Breakpoint::default(); BREAKPOINTS],
        }
    }
}

pub const BLOCKS: usize = 1024;
pub const UNWINDERS: usize = 64;
pub const BREAKPOINTS: usize = 256;
pub const CONTEXTS: usize = 8192;
pub const CONTEXT_BYTES: usize = 2144;
pub const THREADS: usize = 16384;
const THREAD_HASH: u32 = 0x9e37_79b1;
const THREAD_SHIFT: u32 = 18;
pub const STACK_PARTS: usize = 65536;
pub const STACK_PART_BYTES: u64 = 1 << 16;

/// The offset of the table of blocks in the structure.
pub const fn blocks_offset() -> u64 {
    size_of::<ProcessHead>() as u64
}

pub const fn unwinders_offset() -> u64 {
    blocks_offset() + (BLOCKS * size_of::<BlockEntry>()) as u64
}

pub const fn traps_offset() -> u64 {
    unwinders_offset() + (UNWINDERS * size_of::<UnwinderEntry>()) as u64
}

pub const fn process_bytes() -> u64 {
    traps_offset() + size_of::<Traps>() as u64
}
