//! The way back of a thread that makes system calls for us, if we are killed meanwhile.
//!
//! When its tracer dies, the kernel resumes a thread at once, with its current registers and mask. So behind the
//! borrowed `syscall` stands a `ret`, the stack pointer leads to the code by which signal handlers end, and above that
//! lies a frame as the kernel makes it for a handler: `rt_sigreturn` gives the thread back all its registers and its
//! mask at once. The frame lies in a part of the thread's own stack that was never used.

use std::arch::x86_64::__cpuid_count;

use anyhow::Result;

use crate::call::Gadget;
use crate::{Mapping, Memory, Registers, Thread};

const PAGE: u64 = 4096;
/// Room below the frame, for handlers of signals that come before the thread is back.
const FOR_HANDLERS: u64 = 16 << 10;
/// How many places are tried.
const PLACES: u64 = 16;
/// Distance between the frame and the used stack.
const DISTANCE: u64 = 2 * PAGE;

/// Offsets in the extended state, as ptrace and signal frames have it.
const SOFTWARE: usize = 464;
const FEATURES: usize = 512;
const EXTENSIONS: usize = 576;
const FRAME_BEGINS: u32 = 0x4650_5853;
const FRAME_ENDS: u32 = 0x4650_5845;
/// x87 and SSE, which have their places before the extensions.
const LEGACY: u64 = 0b11;

/// In the words of the kernel's frame: its flags, the alternate stack, the registers, the mask.
const WORDS: usize = 1 + 2 + 3 + 32 + 1;
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`.
const FLAGS: u64 = 7;
/// No flags of an alternate stack: the kernel leaves the thread's as it is.
const NO_ALTERNATE_STACK: u64 = 0x40;

/// The kernel's internal codes for calls that it will repeat.
const REPEATED: [i64; 4] = [-512, -513, -514, -516];

/// In place of the link of kernel frames, which the kernel ignores: the mark of our frame, which contains its address.
const MARK: u64 = 0x6e6f_7061_6c5f_6261;

/// A frame on the stack of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WayBack {
    start: u64,
    bytes: usize,
    /// The stack pointer from which a `ret` leads back.
    pub stack_pointer: u64,
}

impl WayBack {
    /// Writes a frame that restores the thread's current state. `None`: there is no room for it, or no code that leads
    /// to it.
    pub fn prepare(
        thread: &mut Thread,
        gadget: Gadget,
        saved: &Registers,
        mask: u64,
    ) -> Result<Option<WayBack>> {
        let Some(restorer) = gadget.restorer else {
            return Ok(None);
        };
        let state = signal_state(thread.extended_state()?);
        let stack_offset = state.len().next_multiple_of(16);
        let bytes = stack_offset + (1 + WORDS) * 8;
        let memory = Memory::open(thread.pid())?;
        let Some(start) = place(thread, &memory, saved, bytes)? else {
            return Ok(None);
        };
        let mut frame = state;
        frame.resize(stack_offset, 0);
        let words = std::iter::once(restorer).chain(frame_words(saved, mask, start));
        frame.extend(words.flat_map(u64::to_le_bytes));
        memory.write(start, &frame)?;
        Ok(Some(WayBack {
            start,
            bytes,
            stack_pointer: start + stack_offset as u64,
        }))
    }

    /// Removes the frame, after the thread was restored by other means.
    pub fn forget(self, thread: &Thread) -> Result<()> {
        Memory::open(thread.pid())?.write(self.start, &vec![0; self.bytes])
    }
}

/// Finds zeroes on the thread's own stack, far below its stack pointer, where nothing is in use. A stack within other
/// memory, as of coroutines, may have other data below it. If a thread went back by itself, its frame is still there,
/// and is reused.
fn place(
    thread: &mut Thread,
    memory: &Memory,
    saved: &Registers,
    bytes: usize,
) -> Result<Option<u64>> {
    let mut found = vec![0; bytes];
    let mut is_free = |start: u64| {
        let mark = (MARK ^ start).to_le_bytes();
        memory.read(start, &mut found).is_ok()
            && (found.iter().all(|byte| *byte == 0)
                || found.chunks_exact(8).any(|word| word == mark))
    };
    if let Some(known) = thread.place.filter(|place| is_free(*place)) {
        return Ok(Some(known));
    }
    let maps = crate::maps(thread.pid())?;
    let Some(stack) = own_stack(&maps, saved) else {
        return Ok(None);
    };
    let end = saved.rsp.saturating_sub(DISTANCE + bytes as u64);
    let lowest = [0, PAGE, 2 * PAGE];
    let places = (0..PLACES).map(|page| FOR_HANDLERS + page * PAGE);
    thread.place = places
        .chain(lowest)
        .map(|offset| stack.start + offset)
        .find(|start| *start <= end && is_free(*start));
    Ok(thread.place)
}

/// The mapping that holds only the thread's stack: the kernel's stack, or one of libc with the control block above and
/// a guard below.
fn own_stack<'a>(maps: &'a [Mapping], saved: &Registers) -> Option<&'a Mapping> {
    let index = maps
        .iter()
        .position(|map| (map.start..map.end).contains(&saved.rsp))?;
    let stack = &maps[index];
    let is_stack = stack.writable && !stack.shared && stack.inode == 0;
    let is_kernels = stack.label.as_deref() == Some("[stack]");
    let has_guard = || {
        let below = index.checked_sub(1).map(|below| &maps[below]);
        below.is_some_and(|map| map.end == stack.start && !map.readable && !map.writable)
    };
    let is_librarys = (saved.rsp..stack.end).contains(&saved.fs_base) && has_guard();
    (is_stack && (is_kernels || is_librarys)).then_some(stack)
}

/// The frame for `rt_sigreturn`, without the extended state, which is at `state`.
fn frame_words(saved: &Registers, mask: u64, state: u64) -> [u64; WORDS] {
    let mut registers = *saved;
    // The kernel does not repeat a call after an `rt_sigreturn`: make it start over.
    if registers.orig_rax as i64 >= 0 && REPEATED.contains(&(registers.rax as i64)) {
        registers.rax = registers.orig_rax;
        registers.rip = registers.rip.wrapping_sub(2);
    }
    let mut words = [0; WORDS];
    words[0] = FLAGS;
    words[1] = MARK ^ state;
    words[3] = NO_ALTERNATE_STACK;
    words[5..23].copy_from_slice(&[
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
        registers.rdi,
        registers.rsi,
        registers.rbp,
        registers.rbx,
        registers.rdx,
        registers.rax,
        registers.rcx,
        registers.rsp,
        registers.rip,
        registers.eflags,
    ]);
    words[23] = registers.cs | registers.ss << 48;
    words[28] = state;
    words[WORDS - 2] = mask;
    words
}

/// The extended state in the form of a signal frame, which holds its components and its end.
fn signal_state(mut state: Vec<u8>) -> Vec<u8> {
    let features = u64::from_le_bytes(std::array::from_fn(|byte| {
        state.get(FEATURES + byte).copied().unwrap_or(0)
    }));
    let features = features | LEGACY;
    let end = |feature: u32| {
        let place = __cpuid_count(0xd, feature);
        (place.eax + place.ebx) as usize
    };
    let extensions = (2..63).filter(|feature| features & 1 << feature != 0);
    let size = extensions.map(end).fold(EXTENSIONS, usize::max);
    state.resize(size, 0);
    let mut says = [0; 512 - SOFTWARE];
    says[..4].copy_from_slice(&FRAME_BEGINS.to_le_bytes());
    says[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    says[8..16].copy_from_slice(&features.to_le_bytes());
    says[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    state[SOFTWARE..512].copy_from_slice(&says);
    state.extend(FRAME_ENDS.to_le_bytes());
    state
}
