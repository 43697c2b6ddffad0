//! Records: 8-byte words, described in the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
pub const KIND_NONE: u32 = 0;
pub const KIND_ENTRY: u32 = 1;
pub const KIND_EXIT: u32 = 2;
pub const KIND_TAIL: u32 = 3;
pub const KIND_ONLY: u32 = 4;
pub const KIND_ENTRY_ARGS: u32 = 5;
pub const KIND_TAIL_ARGS: u32 = 6;
pub const KIND_ONLY_ARGS: u32 = 7;
pub const KIND_EXIT_RESULT: u32 = 8;
pub const KIND_UNWIND: u32 = 9;
pub const KIND_PENDING_ARGS: u32 = 10;
pub const KIND_PENDING_RESULT: u32 = 11;
pub const KIND_HOLE: u32 = 12;
pub const KIND_EXTENDED: u32 = 15;

pub const SITE_LIMIT: u32 = 0x10_0000;
pub const ARGUMENTS: usize = 6;

pub const EVENT_RESYNC: u32 = 16;
pub const EVENT_DEFINED: u32 = 32;
pub const EVENT_LIMIT: u32 = 0x10_0000;
pub const EVENT_WORDS_SHIFT: u32 = 20;
pub const EVENT_VARIABLE: u32 = 255;

pub const TEXT_LIMIT: usize = 4096;
pub const TEXT_COUNTED: usize = 65536;

pub const RESYNC_CHUNK: u32 = 1;
pub const RESYNC_CLOCK: u32 = 2;
pub const RESYNC_STACK: u32 = 3;
pub const RESYNC_JUMP: u32 = 4;
pub const RESYNC_PART: u32 = 5;

pub const RESYNC_BYTES: usize = 48;

/// A RESYNC record.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Resync {
    pub clock_low: u32,
    pub kind_and_event: u32,
    pub clock: u64,
    pub slot: u64,
    pub stack: u64,
    pub process: u32,
    pub thread: u32,
    pub reason: u32,
    pub reserved: u32,
}
