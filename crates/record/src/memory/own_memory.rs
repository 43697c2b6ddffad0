//! Nopal's memory in a process, before anything is in it: the process structure, the contexts, the tables by which calls
//! are counted, and the region.

use crate::memory::groups::Left;
use crate::memory::inject::Injector;
use crate::memory::region::{PRESENCE_BYTES, Region};
use crate::memory::space::Space;
use crate::tracee::Settings;
use anyhow::{Result, bail};
use nopal_abi::{COUNTER_GROUPS, COUNTERS_BYTES};
use nopal_agent::{CONTEXT_BYTES, CONTEXTS, COUNTED_BYTES, STACK_PARTS, THREADS_BYTES};
use nopal_process::{Gadget, Mapping, Memory, Thread};
use std::ops::Range;

const PAGE: u64 = 4096;

pub struct OwnMemory {
    pub memory: Memory,
    pub region: Region,
    pub region_at: u64,
    pub head: u64,
    pub contexts: u64,
    /// The tables by which calls are counted.
    pub counted: u64,
    pub gadget: Gadget,
}

impl OwnMemory {
    /// Gives a process this memory. `thread`, one of its threads, is stopped; `maps` are its mappings.
    pub fn give(thread: &mut Thread, maps: &[Mapping], settings: &Settings) -> Result<OwnMemory> {
        let process = thread.pid();
        let left = Left::of(process);
        left.map_or(Ok(()), |left| left.ensure(LEAST_BYTES))?;
        let memory = Memory::open(process)?;
        let mut space = Space::new(maps);
        let mut injector = Injector::among(thread, maps)?;
        let head = injector.private_memory(&mut space, head_end(), wiped_bytes())?;
        let shared = memory
            .write(head + nopal_agent::process_bytes(), MEMORY_NAME)
            .and_then(|()| {
                injector.name = head + nopal_agent::process_bytes();
                let wanted = affordable(process, left, settings);
                let given = injector
                    .with_others_stopped(|thread| give_region(thread, &mut space, wanted))?;
                Ok(match left {
                    Some(_) => (given.0.with_promise(), given.1),
                    None => given,
                })
            });
        let (region, region_at) = match shared {
            Ok(shared) => shared,
            Err(error) => {
                injector.unmap(&[private_range(head)])?;
                return Err(error);
            }
        };
        Ok(OwnMemory {
            memory,
            region,
            region_at,
            head,
            contexts: head + head_end(),
            counted: head + head_end() + contexts_bytes(),
            gadget: injector.gadget,
        })
    }
}

/// The region of a process, and its address.
fn give_region(
    injector: &mut Injector,
    space: &mut Space,
    (buffer, room, when_full): (u64, u64, u32),
) -> Result<(Region, u64)> {
    let process = injector.process();
    let [(number, file), (presence_number, presence)] = injector.memory_files()?;
    let made = Region::create(file.into(), buffer, room, when_full, process);
    let region = match made {
        Ok(region) => region.with_presence(presence.into()),
        Err(error) => {
            injector.close(&[number, presence_number])?;
            return Err(error);
        }
    };
    let at = injector.map_region(space, (number, region.bytes()), presence_number)?;
    Ok((region, at))
}

impl OwnMemory {
    pub fn ranges(&self) -> [Range<u64>; 2] {
        let region_end = self.region_at + self.region.bytes() + PRESENCE_BYTES;
        [private_range(self.head), self.region_at..region_end]
    }
}

/// Takes the memory of these ranges back from a process that does not use it yet.
pub fn take_back(thread: &mut Thread, ranges: &[Range<u64>]) -> Result<()> {
    Injector::new(thread)?.unmap(ranges)
}

/// The process structure, and behind it the memory that is wiped on fork.
fn private_range(head: u64) -> Range<u64> {
    head..head + head_end() + wiped_bytes()
}

/// The process structure, and the name of our memory behind it.
pub const fn head_bytes() -> u64 {
    (nopal_agent::process_bytes() + NAME_BYTES).next_multiple_of(PAGE)
}

/// The table of stack parts.
pub const fn parts_bytes() -> u64 {
    (STACK_PARTS * 8) as u64
}

/// The bytes of all of these.
const fn head_end() -> u64 {
    (head_bytes() + parts_bytes() + THREADS_BYTES).next_multiple_of(PAGE)
}

const fn contexts_bytes() -> u64 {
    ((CONTEXTS * CONTEXT_BYTES) as u64).next_multiple_of(PAGE)
}

/// The contexts, and the tables by which calls are counted.
pub const fn wiped_bytes() -> u64 {
    contexts_bytes() + COUNTER_GROUPS as u64 * COUNTED_BYTES
}

const MEMORY_NAME: &[u8] = b"nopal\0";
const NAME_BYTES: u64 = 8;

const MIB: u64 = 1 << 20;

/// What a process uses of it at once.
const LEAST_BYTES: u64 = MIB;

/// Code for as many functions as most programs have.
const CODE_BYTES: u64 = 16 * MIB;

/// An error where memory is counted and not enough is left.
pub fn refuse_without_memory(settings: &Settings) -> Result<()> {
    let wanted = head_end() + wiped_bytes() + CODE_BYTES + settings.buffer + COUNTERS_BYTES as u64;
    let left = match nopal_process::counts_memory() {
        true => nopal_process::memory_that_may_be_asked_for(),
        false => None,
    };
    if let Some(left) = left.filter(|left| *left < wanted) {
        bail!(
            "vm.overcommit_memory is 2, which limits memory to what there is: {} MiB are left, and nopal needs {}, of which {} are its --buffer; use a smaller one, end other programs, or set `sysctl \
             vm.overcommit_memory=0` as root",
            left / MIB,
            wanted.div_ceil(MIB),
            settings.buffer.div_ceil(MIB)
        );
    }
    Ok(())
}

/// Bytes of chunks that a process gets, and bytes for which there is room: less than asked where it may not use much
/// address space, or where its control groups limit its memory (`left`), and no room that may never be used where all it maps is
/// locked into memory, or memory is counted. The third value says what is done when the buffer is full.
fn affordable(process: i32, left: Option<Left>, settings: &Settings) -> (u64, u64, u32) {
    // SAFETY: the kernel fills the structure in; a failure leaves the limits at 0, which is tested.
    let limit = unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::prlimit(process, libc::RLIMIT_AS, std::ptr::null(), &mut limit);
        limit.rlim_cur
    };
    let limit = Some(limit).filter(|limit| ![libc::RLIM_INFINITY, 0].contains(limit));
    let of_addresses = limit.map(|limit| limit / 16);
    let limits = [of_addresses, left.map(Left::most_for_buffer)];
    let most = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
    let locks = || nopal_process::status(process).map_or(true, |status| status.locked > 0);
    let room = match most == u64::MAX && locks() || nopal_process::counts_memory() {
        true => settings.buffer,
        false => settings.room,
    };
    (
        settings.buffer.min(most),
        room.min(most),
        settings.when_full,
    )
}
