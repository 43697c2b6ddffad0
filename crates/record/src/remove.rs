//! Takes nopal out of a running process: the text is what it was, and no frame returns into generated code.

use crate::change::{Change, Patches};
use crate::region::Region;
use crate::traced::Traced;
use anyhow::{Context, Result};
use nopal_agent::{STACK_PART_BYTES, STACK_PARTS};
use nopal_process::{Memory, Stopped};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// All that must be known of a process to take nopal out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    pub process: i32,
    /// Address of the table of mirrored stack parts.
    pub stack_parts: u64,
    pub mirror: i64,
    /// Where generated code may be.
    pub arenas: Vec<Range<u64>>,
    pub changes: Vec<Change>,
}

/// A stack part's word in the runtime's table is its number times the count of states, plus its state, as
/// `runtime/core/stack.c` has them.
const PART_STATES: u64 = 4;
const PART_MIRRORED: u64 = 2;

/// lea -8(%rsp), %rsp: where a wrapped function returns to in its thunk.
const AFTER_CALL: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0xf8];

/// How long threads may take to stop.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Steps after which a thread that has not left generated code is left in it.
const MOST_STEPS: usize = 20_000;

pub fn remove(traced: &mut Traced) -> Result<()> {
    remove_by(&traced.journal(), &traced.region)
}

/// 1. stop all threads
/// 2. let those in generated code run out of it, instruction by instruction
/// 3. put the text back; no new frame is wrapped from here on
/// 4. unwrap the frames that are: `*slot = mirror[slot]`
/// 5. let go
///
/// The generated code stays mapped, for what cannot be found: an address of it in a signal frame, or in data.
pub fn remove_by(journal: &Journal, region: &Region) -> Result<()> {
    let mut stopped = Stopped::stop(journal.process, PATIENCE)?;
    let memory = Memory::open(journal.process)?;
    step_out(journal, &mut stopped, &[])?;
    region.say_gone();
    memory.write_patches(&Patches::of(&journal.changes).removal())?;
    journal.unwrap_frames(&memory)?;
    stopped.detach_all();
    Ok(())
}

/// Lets threads that are in generated code run out of it, but for those that are `waiting` in the runtime. Whether all
/// have.
pub fn step_out(journal: &Journal, stopped: &mut Stopped, waiting: &[i32]) -> Result<bool> {
    let mut all_out = true;
    for thread in stopped.threads_mut() {
        if waiting.contains(&thread.tid()) {
            continue;
        }
        let mut out = false;
        for _ in 0..MOST_STEPS {
            out = !journal.is_generated(thread.registers()?.rip);
            if out || thread.step().is_err() {
                break;
            }
        }
        all_out &= out;
    }
    Ok(all_out)
}

/// The stack parts that were ever mirrored, by the runtime's table at `table`.
pub fn mirrored_parts(memory: &Memory, table: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; STACK_PARTS * 8];
    memory
        .read(table, &mut bytes)
        .context("the table of stacks cannot be read")?;
    Ok(words(&bytes)
        .filter(|word| word % PART_STATES == PART_MIRRORED)
        .map(|word| (word / PART_STATES).wrapping_mul(STACK_PART_BYTES))
        .collect())
}

impl Journal {
    fn is_generated(&self, address: u64) -> bool {
        self.arenas.iter().any(|arena| arena.contains(&address))
    }

    /// Looks through all stacks that were ever mirrored. A slot is known by what it holds: the address behind the call
    /// in a thunk. Its mirror must hold an address too, of code that is not ours.
    pub fn unwrap_frames(&self, memory: &Memory) -> Result<()> {
        let mut stack = vec![0; STACK_PART_BYTES as usize];
        let mut mirror = vec![0; STACK_PART_BYTES as usize];
        for at in mirrored_parts(memory, self.stack_parts)? {
            // A part may be half mapped: page by page.
            for page in (0..STACK_PART_BYTES).step_by(4096) {
                let range = page as usize..page as usize + 4096;
                let (stack, mirror) = (&mut stack[range.clone()], &mut mirror[range]);
                let there = at.wrapping_add(page).wrapping_add_signed(self.mirror);
                if memory.read(at.wrapping_add(page), stack).is_err()
                    || memory.read(there, mirror).is_err()
                {
                    continue;
                }
                for (index, (held, kept)) in words(stack).zip(words(mirror)).enumerate() {
                    let slot = at + page + index as u64 * 8;
                    if self.is_generated(held)
                        && self.is_after_call(memory, held)
                        && !self.is_generated(kept)
                        && kept != 0
                    {
                        memory.write(slot, &kept.to_le_bytes())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_after_call(&self, memory: &Memory, address: u64) -> bool {
        let mut code = [0; AFTER_CALL.len()];
        memory.read(address, &mut code).is_ok() && code == AFTER_CALL
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

/// Living processes that have one of these regions mapped: forks of traced ones, which nobody else may know of.
/// `ours` have them mapped to collect from.
pub fn processes_with(regions: &[Arc<Region>], ours: &[i32]) -> Vec<i32> {
    let inodes: Vec<u64> = regions.iter().map(|region| region.inode()).collect();
    let Ok(entries) = Path::new("/proc").read_dir() else {
        return Vec::new();
    };
    // To list what a process has mapped costs ten times as much as to see that it is older than we are, and so no fork
    // of a process that we trace.
    let since = nopal_process::start_time(std::process::id() as i32).unwrap_or(0);
    let possible = |process: &i32| {
        regions.iter().any(|region| region.process() == *process)
            || nopal_process::start_time(*process).is_ok_and(|time| time >= since)
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| !ours.contains(process) && possible(process))
        .filter(|process| nopal_process::alive(*process))
        .filter(|process| {
            nopal_process::maps(*process)
                .is_ok_and(|maps| maps.iter().any(|map| is_region(map, &inodes)))
        })
        .collect()
}

pub fn has_mapped(process: i32, region: &Region) -> bool {
    nopal_process::maps(process)
        .is_ok_and(|maps| maps.iter().any(|map| is_region(map, &[region.inode()])))
}

fn is_region(map: &nopal_process::Mapping, inodes: &[u64]) -> bool {
    map.shared && map.writable && inodes.contains(&map.inode)
}
