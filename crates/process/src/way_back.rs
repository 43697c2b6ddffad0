//! The way back of a thread that makes system calls for us, if we are killed meanwhile.
//!
//! When its tracer dies, the kernel resumes a thread at once, with its current registers and mask. So behind the
//! borrowed `syscall` stands a `ret`, the stack pointer leads to the code by which signal handlers end, and above that
//! lies a frame as the kernel makes it for a handler: `rt_sigreturn` gives the thread back all its registers and its
//! mask at once. The frame lies in a part of the thread's own stack that was never used, also where the first thread runs
//! on another one, as of a coroutine.

use std::ops::Range;

use anyhow::Result;

use crate::arch::SignalFrame;
use crate::gadget::Gadget;
use crate::pages::Pages;
use crate::{Mapping, Memory, Registers, Thread};

const PAGE: u64 = 4096;
/// Room below the frame, for handlers of signals that come before the thread is back: most, and on small stacks.
const FOR_HANDLERS: [u64; 2] = [64 << 10, 16 << 10];
/// The number of places that are tried.
const PLACES: u64 = 16;
/// Distance between the frame and the used stack.
const DISTANCE: u64 = 2 * PAGE;

/// A frame on the stack of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WayBack {
    /// The stack pointer from which a `ret` leads back.
    pub start: u64,
    bytes: usize,
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
        let frame = SignalFrame::new(thread.extended_state()?);
        let bytes = frame.bytes();
        let memory = Memory::open(thread.pid())?;
        let Some(start) = place(thread, &memory, saved, bytes)? else {
            return Ok(None);
        };
        memory.write(start, &frame.at(start, restorer, saved, mask))?;
        Ok(Some(WayBack { start, bytes }))
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
        let mark = SignalFrame::mark(start).to_le_bytes();
        memory.read(start, &mut found).is_ok()
            && (found.iter().all(|byte| *byte == 0)
                || found.chunks_exact(8).any(|word| word == mark))
    };
    if let Some(known) = thread.place.filter(|place| is_free(*place)) {
        return Ok(Some(known));
    }
    let maps = crate::maps(thread.pid())?;
    let Some(unused) = unused(thread, &maps, saved) else {
        return Ok(None);
    };
    let end = unused.end.saturating_sub(DISTANCE + bytes as u64);
    let lowest = [0, PAGE, 2 * PAGE];
    let places = |room: u64| (0..PLACES).map(move |page| room + page * PAGE);
    thread.place = FOR_HANDLERS
        .into_iter()
        .flat_map(places)
        .chain(lowest)
        .map(|offset| unused.start + offset)
        .find(|start| *start <= end && is_free(*start));
    Ok(thread.place)
}

/// The unused part of a stopped thread's own stack: below its stack pointer; of the first thread, where that is elsewhere,
/// the pages that were never there.
pub(crate) fn unused(thread: &Thread, maps: &[Mapping], saved: &Registers) -> Option<Range<u64>> {
    if let Some(stack) = own_stack(maps, saved) {
        return Some(stack.start..saved.stack_pointer());
    }
    let mut stacks = maps.iter().filter(|map| is_kernels(map));
    let stack = stacks.find(|_| thread.tid() == thread.pid())?;
    let pages = Pages::of(thread.pid()).ok()?;
    let used = pages.present(stack.start..stack.end).ok()?;
    Some(stack.start..used.first()?.start)
}

fn is_kernels(map: &Mapping) -> bool {
    is_private(map) && map.label.as_deref() == Some("[stack]")
}

fn is_private(map: &Mapping) -> bool {
    map.writable && !map.shared && map.inode == 0
}

/// The mapping that holds only the thread's stack: the kernel's stack, or one of libc with the control block above and
/// a guard below.
pub(crate) fn own_stack<'a>(maps: &'a [Mapping], saved: &Registers) -> Option<&'a Mapping> {
    let index = maps
        .iter()
        .position(|map| (map.start..map.end).contains(&saved.stack_pointer()))?;
    let stack = &maps[index];
    let has_guard = || {
        let below = index.checked_sub(1).map(|below| &maps[below]);
        below.is_some_and(|map| map.end == stack.start && !map.readable && !map.writable)
    };
    let is_librarys =
        (saved.stack_pointer()..stack.end).contains(&saved.thread_pointer()) && has_guard();
    (is_kernels(stack) || is_private(stack) && is_librarys).then_some(stack)
}
