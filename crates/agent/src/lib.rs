//! The agent: the runtime's image within the tool, and its preparation for a process. This crate only lays out bytes;
//! it does not change processes.

mod arch;
mod block;
mod process;
mod stub;

pub use arch::{BREAKPOINT, jump, reads_pointer, short_jump};

pub use block::{
    BLOCK_BOUND, Block, BlockBuilder, EntryOnly, FETCH_CONSTANT, FETCH_LOADS, FETCHES, Fetch,
    Probe, Recorder, Switched, Thunk, Values, detour_bound, thunk_bound,
};
pub use process::{
    BLOCKS, BREAKPOINTS, BlockEntry, Breakpoint, CONTEXT_BEGIN, CONTEXT_BYTES, CONTEXT_PROCESS,
    CONTEXT_THREAD, CONTEXTS, COUNTED_BYTES, COUNTED_PAGE_SHIFT, NO_THREAD, ProcessHead,
    STACK_PART_BYTES, STACK_PARTS, THREADS, THREADS_BYTES, Traps, UNWINDERS, UnwinderEntry,
    blocks_offset, counted_place, process_bytes, stack_part, thread_place, traps_offset,
    unwinders_offset,
};
pub use stub::Stub;

use headers::{
    PATCH_DEPTH_LIMIT, PATCH_MAPPED, PATCH_MARK, PATCH_MIRROR, PATCH_ORDER, PATCH_POINTER,
    PATCH_THREAD_SLOT, PATCH_THREADS,
};
use std::ops::Range;

mod image {
    include!(concat!(env!("OUT_DIR"), "/image.rs"));
}

/// The constants and structures of the runtime's headers.
#[allow(dead_code)]
mod headers {
    include!(concat!(env!("OUT_DIR"), "/headers.rs"));
}

pub use headers::{DEPTH_LIMIT, MARK_MASK};

/// Arenas begin at multiples of this, and end within it.
pub const ARENA_BYTES: u64 = 1 << headers::ARENA_SHIFT;

/// The values filled into the image for a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Immediates {
    /// Address of the process structure.
    pub process: u64,
    /// Distance from a slot to its mirror.
    pub mirror: i64,
    /// Address of the table of threads.
    pub threads: u64,
    /// Offset from the thread pointer of the thread id in the thread's control block.
    pub thread_slot: i32,
    /// The bits under `MARK_MASK` of every arena's address.
    pub mark: u32,
    /// At most `DEPTH_LIMIT`; 0 without a limit.
    pub depth_limit: u32,
    /// Keep events of several threads in exact order.
    pub ordered: bool,
    /// The result of [`reads_pointer`].
    pub reads_pointer: bool,
}

/// Stands in the unwind rows, little-endian, where `mirror - 8` belongs.
const MIRROR_PLACEHOLDER: [u8; 8] = [0xf7, 0x6e, 0x6f, 0x70, 0x61, 0x6c, 0x2e, 0x6d];

/// The image, ready for the start of an arena, of which the first `mapped` bytes hold nothing but generated code.
pub fn image(immediates: &Immediates, mapped: u64) -> Vec<u8> {
    let mapped = mapped.min(ARENA_BYTES) as u32;
    let mut bytes = image::BYTES.to_vec();
    put(
        &mut bytes,
        image::PROCESS,
        &immediates.process.to_le_bytes(),
    );
    for &(offset, kind) in image::PATCHES {
        match kind {
            PATCH_MIRROR => {
                let held = i64::from_le_bytes(field(&bytes, offset));
                put(
                    &mut bytes,
                    offset,
                    &held.wrapping_add(immediates.mirror).to_le_bytes(),
                );
            }
            PATCH_THREADS => put(&mut bytes, offset, &immediates.threads.to_le_bytes()),
            PATCH_POINTER if immediates.reads_pointer => {
                put(&mut bytes, offset, image::READ_POINTER)
            }
            PATCH_POINTER => {}
            PATCH_THREAD_SLOT => put(&mut bytes, offset, &immediates.thread_slot.to_le_bytes()),
            PATCH_MARK => put(&mut bytes, offset, &immediates.mark.to_le_bytes()),
            PATCH_MAPPED => put(&mut bytes, offset, &mapped.to_le_bytes()),
            PATCH_DEPTH_LIMIT => put(&mut bytes, offset, &immediates.depth_limit.to_le_bytes()),
            PATCH_ORDER if immediates.ordered => put(&mut bytes, offset, image::ORDER),
            PATCH_ORDER => {}
            _ => unreachable!("patch.h names the kinds of fields"),
        }
    }
    put_mirror(&mut bytes[image::EH_FRAME_HEADER..], immediates.mirror);
    bytes
}

/// The ranges of the image with functions that call the program and wait: a thread may return there after any time.
/// From all others it returns at once.
pub fn calls_out() -> [Range<u64>; 3] {
    let range = |start: usize, bytes: usize| start as u64..(start + bytes) as u64;
    [
        range(image::FIND_OBJECT, image::FIND_OBJECT_BYTES),
        range(image::ITERATE_OBJECTS, image::ITERATE_OBJECTS_BYTES),
        range(image::LOCK_ALL, image::LOCK_ALL_BYTES),
    ]
}

/// The code of every thunk at the place where a wrapped function returns, up to the number of the site.
pub fn after_call() -> &'static [u8] {
    &image::BYTES[image::THUNK_RETURN..image::THUNK_EXIT_WORD - arch::IMMEDIATE]
}

/// Offset in the image of its own `.eh_frame_hdr`.
pub const IMAGE_UNWIND_HEADER: u64 = image::EH_FRAME_HEADER as u64;

/// The begin and end of a probe's action in the image, after saving the program's registers and before restoring them.
/// For measurements.
pub const IMAGE_PROBE_ACTION: Range<usize> = image::PROBE_ACTION..image::PROBE_DONE;

/// Offsets in the image of the handler of SIGTRAP, and of its restorer.
pub const IMAGE_TRAP: u64 = image::TRAP as u64;
pub const IMAGE_TRAP_RETURN: u64 = image::TRAP_RETURN as u64;

/// Offset in the image of the function that a marker calls.
pub const IMAGE_MARK: u64 = image::STUB_MARK as u64;

/// Copies of a few bytes, made thousands of times: a call would take longer.
#[inline(always)]
fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
}

fn put_mirror(bytes: &mut [u8], mirror: i64) {
    let mut at = 0;
    while at + MIRROR_PLACEHOLDER.len() <= bytes.len() {
        if bytes[at..].starts_with(&MIRROR_PLACEHOLDER) {
            put(bytes, at, &(mirror - 8).to_le_bytes());
        }
        at += 1;
    }
}
