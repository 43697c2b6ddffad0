//! Reads nopal's changes from a process, so that any nopal can undo them. It trusts only what the kernel's list of
//! mappings or the text confirms.

use crate::memory::own_memory::wiped_bytes;
use crate::patch::change::{Change, Kind};
use crate::patch::stored::Stored;
use anyhow::{Context, Result, anyhow, ensure};
use nopal_abi::{ABI_VERSION, Region as Layout};
use nopal_agent::{
    ARENA_BYTES, BLOCKS, BlockEntry, ProcessHead, STACK_PART_BYTES, STACK_PARTS, THREADS_BYTES,
    UNWINDERS, UnwinderEntry, stack_part,
};
use nopal_process::{Mapping, Memory};
use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

/// The kernel's name of memory made by nopal.
const NAME: &str = "/memfd:nopal";

/// All that a tool must know of a process to take nopal out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub process: i32,
    pub region: Range<u64>,
    /// The page behind it.
    presence: Option<Range<u64>>,
    /// The region's.
    pub inode: u64,
    /// The tool of the session that made it, and its guardian, as the region has them.
    owners: [i32; 2],
    /// The address of the process structure.
    head: u64,
    /// That with the table of stack parts, and the contexts.
    private: Vec<Range<u64>>,
    stack_parts: u64,
    /// The address at which the process structure says what is done at a SIGTRAP.
    pub traps: u64,
    pub mirror: i64,
    /// The ranges of generated code. Each agent's image stands at the beginning of one.
    pub code: Vec<Range<u64>>,
    pub changes: Vec<Change>,
    /// The same and the jumps in holes, at which a thread may be on its way there; sorted.
    pub ways: Vec<Range<u64>>,
    /// The program may have addresses of generated code.
    pub code_stays: bool,
    /// Code that unwinds, sorted.
    pub unwinders: Vec<Range<u64>>,
}

impl Journal {
    /// The changes in a process, of each present or former session.
    pub fn read_all(process: i32) -> Result<Vec<Journal>> {
        let maps = nopal_process::maps(process)?;
        let memory = Memory::open(process)?;
        let regions = maps
            .iter()
            .filter(|map| is_nopals(map) && map.shared && map.writable);
        let journals = regions.filter_map(|region| read(process, region, &maps, &memory).ok());
        Ok(journals.collect())
    }

    /// The changes in a process by the session with the region `inode`.
    pub fn read(process: i32, inode: u64) -> Result<Journal> {
        let all = Journal::read_all(process)?;
        let own = all.into_iter().find(|journal| journal.inode == inode);
        own.context("nopal's memory in the process is damaged")
    }

    /// The tool of the session that made it, while that lives.
    pub fn tool(&self) -> Option<i32> {
        self.living(self.owners[0])
    }

    /// Its guardian, likewise.
    pub fn guardian(&self) -> Option<i32> {
        self.living(self.owners[1])
    }

    fn living(&self, owner: i32) -> Option<i32> {
        let holds = |map: &Mapping| map.inode == self.inode && map.shared;
        (owner > 0 && owner != self.process && nopal_process::has_mapping(owner, holds))
            .then_some(owner)
    }

    pub fn is_generated(&self, address: u64) -> bool {
        let way = self.ways.partition_point(|way| way.end <= address);
        self.ways.get(way).is_some_and(|way| way.contains(&address))
    }

    pub fn is_unwinder(&self, address: u64) -> bool {
        self.unwinders.iter().any(|one| one.contains(&address))
    }

    /// The stack parts that were ever mirrored.
    pub fn mirrored_parts(&self, memory: &Memory) -> Result<Vec<u64>> {
        mirrored_parts(memory, self.stack_parts)
    }

    /// All memory of nopal's, mirrors included.
    pub fn memory(&self, memory: &Memory) -> Result<Vec<Range<u64>>> {
        let mut all = self.private.clone();
        all.push(self.region.clone());
        all.extend(self.presence.clone());
        all.extend(self.code.iter().cloned());
        for part in self.mirrored_parts(memory)? {
            let mirror = part.wrapping_add_signed(self.mirror);
            all.push(mirror..mirror.saturating_add(STACK_PART_BYTES));
        }
        all.sort_unstable_by_key(|range| range.start);
        Ok(all)
    }

    /// Whether functions of the program still lead to the session's code: it could not be removed.
    pub fn has_hooks(&self, memory: &Memory) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| change.kind == Kind::Hook && change.is_made(memory))
    }

    /// Shows the runtime that there is no collector any more.
    pub fn mark_gone(&self, memory: &Memory) -> Result<()> {
        let word = self.region.start + offset_of!(Layout, tool_gone) as u64;
        memory.write(word, &1u32.to_le_bytes())
    }

    /// Lets threads go on that are about to make text writable, and waited until nopal's jumps are out.
    pub fn mark_text_back(&self, memory: &Memory) -> Result<()> {
        let word = self.head + offset_of!(ProcessHead, text_is_back) as u64;
        memory.write(word, &1u32.to_le_bytes())
    }
}

/// The stack parts that were ever mirrored, by the runtime's table at `table`.
pub fn mirrored_parts(memory: &Memory, table: u64) -> Result<Vec<u64>> {
    let mut bytes = vec![0; STACK_PARTS * 8];
    memory
        .read(table, &mut bytes)
        .context("the table of stacks cannot be read")?;
    Ok(mirrored(words(&bytes)).collect())
}

/// The same, by the table's entries.
pub fn mirrored(table: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    const STATES: u64 = stack_part::STATES as u64;
    table
        .filter(|word| word % STATES == u64::from(stack_part::MIRRORED))
        .map(|word| (word / STATES).wrapping_mul(STACK_PART_BYTES))
}

pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

fn is_nopals(map: &Mapping) -> bool {
    map.path.as_deref() == Some(Path::new(NAME)) && map.deleted
}

/// Whether generated code is mapped there.
pub fn is_nopals_code(map: &Mapping) -> bool {
    is_nopals(map) && map.executable && !map.shared
}

fn read(process: i32, region: &Mapping, maps: &[Mapping], memory: &Memory) -> Result<Journal> {
    let word = |offset: usize| memory.read_word(region.start + offset as u64);
    ensure!(
        word(offset_of!(Layout, version))? as u32 == ABI_VERSION,
        "another version of nopal"
    );
    let head_at = word(offset_of!(Layout, head))?;
    let owners = word(offset_of!(Layout, tool))?;
    let mut head = ProcessHead::default();
    memory.read(head_at, head.as_mut_bytes())?;
    let contexts = head.contexts;
    let private = vec![
        head_at..head.threads.saturating_add(THREADS_BYTES),
        contexts..contexts.saturating_add(wiped_bytes()),
    ];
    let is_private = |range: &Range<u64>| {
        let inside = |map: &&Mapping| map.start <= range.start && range.end <= map.end;
        let map = maps.iter().find(inside);
        map.is_some_and(|map| !map.shared && map.writable && map.inode == 0)
    };
    ensure!(
        head.region == region.start && private.iter().all(is_private),
        "the process structure is damaged"
    );
    let mut table = vec![BlockEntry::default(); (head.block_count as usize).min(BLOCKS)];
    for (index, entry) in table.iter_mut().enumerate() {
        let at = nopal_agent::blocks_offset() + (index * size_of::<BlockEntry>()) as u64;
        memory.read(head_at + at, entry.as_mut_bytes())?;
    }
    let mut code: Vec<Range<u64>> = Vec::new();
    let mut changes = Vec::new();
    // By addresses, so that the piece with an arena's image comes first. Pieces behind it may have nothing in them yet.
    for map in maps.iter().filter(|map| is_nopals_code(map)) {
        let within = |entry: &&BlockEntry| map.start <= entry.low && entry.header < map.end;
        let blocks: Vec<&BlockEntry> = table.iter().filter(within).collect();
        let in_arena = |one: &Range<u64>| one.start / ARENA_BYTES == map.start / ARENA_BYTES;
        if blocks.is_empty() && !code.iter().any(in_arena) {
            continue;
        }
        code.push(map.start..map.end);
        for block in blocks {
            changes.extend(undo(block, memory)?);
        }
    }
    let holes = changes.iter().filter(|change| change.is_hole());
    let holes = holes.map(|hole| hole.address..hole.address + 1);
    let mut ways: Vec<Range<u64>> = code.iter().cloned().chain(holes).collect();
    ways.sort_unstable_by_key(|way| way.start);
    ways.dedup();
    Ok(Journal {
        process,
        region: region.start..region.end,
        presence: maps
            .iter()
            .find(|map| is_nopals(map) && map.start == region.end)
            .map(|map| map.start..map.end),
        inode: region.inode,
        owners: [owners as i32, (owners >> 32) as i32],
        head: head_at,
        private,
        stack_parts: head.stack_parts,
        traps: head_at + nopal_agent::traps_offset(),
        mirror: head.mirror,
        code,
        ways,
        changes,
        code_stays: head.code_stays != 0,
        unwinders: unwinders(head_at, head.unwinder_count, memory, maps)?,
    })
}

/// The ranges of the process's unwinders: the code around their known functions, which a linker has put beside the
/// others of the same files.
fn unwinders(
    head_at: u64,
    count: u32,
    memory: &Memory,
    maps: &[Mapping],
) -> Result<Vec<Range<u64>>> {
    const AROUND: u64 = 16 << 10;
    let mut found = Vec::new();
    for index in 0..(count as usize).min(UNWINDERS) {
        let mut entry = UnwinderEntry::default();
        let at = nopal_agent::unwinders_offset() + (index * size_of::<UnwinderEntry>()) as u64;
        memory.read(head_at + at, entry.as_mut_bytes())?;
        let functions = [
            entry.set_register,
            entry.set_address,
            entry.resume,
            entry.get_address,
        ];
        let low = functions.into_iter().min().unwrap_or(entry.low);
        let high = functions.into_iter().max().unwrap_or(entry.high);
        let around = low.saturating_sub(AROUND)..high.saturating_add(AROUND);
        let own = around.start.max(entry.low)..around.end.min(entry.high);
        let code = maps.iter().filter(|map| map.executable);
        found.extend(code.map(|map| own.start.max(map.start)..own.end.min(map.end)));
    }
    found.retain(|range| range.start < range.end);
    found.sort_unstable_by_key(|range| range.start);
    Ok(found)
}

/// The sites of a block. The agent's image has none.
fn undo(block: &BlockEntry, memory: &Memory) -> Result<Vec<Change>> {
    let end = block.header.wrapping_sub(8);
    let length = memory.read_word(end)?;
    let fits = length.is_multiple_of(size_of::<Stored>() as u64)
        && block.high <= end
        && length <= end - block.high;
    if !fits {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; length as usize];
    memory.read(end - length, &mut bytes)?;
    let stored = <[Stored]>::ref_from_bytes(&bytes).map_err(|_| anyhow!("no changes"))?;
    let changes = stored.iter().filter_map(Stored::change);
    let generated = block.low..block.high;
    Ok(changes
        .filter(|change| change.leads_into(&generated))
        .collect())
}
