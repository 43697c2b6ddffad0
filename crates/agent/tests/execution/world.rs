//! Makes this process a traced one: with image, blocks, region and process structure, as the tool puts them into
//! another.

use nopal_abi::*;
use nopal_agent::*;
use std::arch::asm;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::machine::caller;

/// A distance far from all mappings of this process, and a different one for each world: mirrors stay mapped.
fn new_mirror() -> i64 {
    static WORLDS: AtomicI64 = AtomicI64::new(0);
    -(1 << 44) - (WORLDS.fetch_add(1, Ordering::Relaxed) << 37)
}

const BLOCKS_AT: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Record {
    pub clock: u64,
    pub kind: u32,
    pub site: u32,
    pub tag: u8,
    /// The words after the first.
    pub words: Vec<u64>,
}

pub struct World {
    arena: u64,
    process: u64,
    mirror: i64,
    counted: u64,
    region: u64,
    chunks: usize,
    used: u64,
    blocks: usize,
}

fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: on x86-64 Linux the word at fs:0 holds the thread pointer.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(readonly, nostack, preserves_flags)) };
    pointer
}

/// The place of the thread id in glibc's control block.
fn thread_slot() -> i32 {
    // SAFETY: a system call without arguments.
    let id = unsafe { libc::gettid() } as u32;
    let found = (0x280..0x400).step_by(4).find(|offset| {
        // SAFETY: glibc's control block is larger than that.
        id == unsafe { std::ptr::read_volatile((thread_pointer() + offset) as *const u32) }
    });
    found.expect("the thread control block is glibc's") as i32
}

/// The bytes from an arena's begin on that hold only generated code.
pub const FIRST_PIECE: u64 = 2 << 20;

/// Zeroed memory, never freed: code in it may still be referred to.
fn memory(bytes: u64, align: u64, protection: i32) -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            (bytes + align) as usize,
            protection,
            flags,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    (at as u64).next_multiple_of(align)
}

/// Memory for an arena whose address has these bits, never freed.
fn arena_memory(mark: u32) -> u64 {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let repeats = u64::from(MARK_MASK) + ARENA_BYTES;
    // Below the present mappings of the kernel.
    let highest = memory(4096, 4096, libc::PROT_NONE) / repeats * repeats;
    let mut places = (0..=highest - repeats).rev().step_by(repeats as usize);
    let found = places.find(|at| {
        let wanted = (at + u64::from(mark)) as *mut libc::c_void;
        // SAFETY: a new mapping where nothing is.
        wanted == unsafe { libc::mmap(wanted, ARENA_BYTES as usize, protection, flags, -1, 0) }
    });
    found.expect("address space is not full") + u64::from(mark)
}

pub fn put(at: u64, bytes: &[u8]) {
    // SAFETY: callers pass places in memory of `memory` or `arena_memory`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

fn head_bytes(head: &ProcessHead) -> &[u8] {
    // SAFETY: a structure of integers without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(head).cast(), size_of::<ProcessHead>()) }
}

impl World {
    /// A world for the calling thread, with so many chunks. Callers' addresses do not look like the arena's.
    pub fn new(chunks: usize, depth_limit: u32) -> World {
        let other = (caller() as u32 & MARK_MASK) ^ ARENA_BYTES as u32;
        World::at(arena_memory(other), chunks, depth_limit)
    }

    /// A world with callers whose addresses have the arena's bits.
    pub fn mistakable(chunks: usize) -> World {
        World::at(arena_memory(caller() as u32 & MARK_MASK), chunks, 0)
    }

    fn at(arena: u64, chunks: usize, depth_limit: u32) -> World {
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let process = memory(process_bytes(), 4096, read_write);
        let state_offset = size_of::<Region>().next_multiple_of(64);
        let chunk_offset = (state_offset + chunks * 4).next_multiple_of(CHUNK_BYTES);
        let region = memory(
            (chunk_offset + chunks * CHUNK_BYTES + COUNTERS_BYTES) as u64,
            CHUNK_BYTES as u64,
            read_write,
        );
        put(
            region + offset_of!(Region, chunk_count) as u64,
            &(chunks as u32).to_le_bytes(),
        );
        put(
            region + offset_of!(Region, state_offset) as u64,
            &(state_offset as u64).to_le_bytes(),
        );
        put(
            region + offset_of!(Region, chunk_offset) as u64,
            &(chunk_offset as u64).to_le_bytes(),
        );

        put(
            region + offset_of!(Region, freed) as u64,
            &1u32.to_le_bytes(),
        );

        let (mirror, thread_slot) = (new_mirror(), thread_slot());
        let threads = memory(THREADS_BYTES, 4096, read_write);
        put(threads, &NO_THREAD.to_le_bytes());
        let head = ProcessHead {
            region,
            state_offset: state_offset as u64,
            chunk_offset: chunk_offset as u64,
            chunk_limit: chunks as u32,
            contexts: memory((CONTEXTS * CONTEXT_BYTES) as u64, 4096, read_write),
            stack_parts: memory((STACK_PARTS * 8) as u64, 4096, read_write),
            threads,
            counted: memory(COUNTER_GROUPS as u64 * COUNTED_BYTES, 4096, read_write),
            counter_offset: (chunk_offset + chunks * CHUNK_BYTES) as u64,
            mirror,
            mappings_left: STACK_PARTS as u64,
            thread_slot,
            process: std::process::id(),
            depth_limit,
            ..ProcessHead::default()
        };
        put(process, head_bytes(&head));
        let mark = arena as u32 & MARK_MASK;
        let immediates = Immediates {
            process,
            mirror,
            threads,
            thread_slot,
            mark,
            depth_limit,
            ordered: false,
            reads_pointer: reads_pointer(),
        };
        let image = nopal_agent::image(&immediates, FIRST_PIECE);
        put(arena, &image);
        let mut world = World {
            arena,
            process,
            mirror,
            counted: head.counted,
            region,
            chunks,
            used: BLOCKS_AT,
            blocks: 0,
        };
        world.publish(
            arena,
            arena + image.len() as u64,
            arena + IMAGE_UNWIND_HEADER,
        );
        world
    }

    /// The counters of all pages, by site, except those that are 0.
    pub fn counters(&self) -> BTreeMap<u32, Vec<u64>> {
        let words = |at: u64, count: usize| {
            // SAFETY: within the counters, which nobody writes meanwhile.
            unsafe { std::slice::from_raw_parts(at as *const u64, count) }.to_vec()
        };
        let pages = COUNTER_PAGES + COUNTER_GROUPS;
        let at = self.region + self.counters_at();
        let groups = words(at, pages / 2);
        let groups = groups
            .iter()
            .flat_map(|two| [*two as u32, (two >> 32) as u32]);
        let mut counters: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (page, group) in groups.enumerate().filter(|(_, group)| *group > 0) {
            let at = at + (COUNTERS_AT + page * COUNTER_PAGE_BYTES) as u64;
            let page = words(at, COUNTER_PAGE_BYTES / 8).into_iter();
            let page = page.map(|word| word & ((1 << COUNT_BITS) - 1)).enumerate();
            for (place, count) in page.filter(|(_, count)| *count > 0) {
                let site = (group - 1) << COUNTER_SITES_SHIFT | place as u32;
                counters.entry(site).or_default().push(count);
            }
        }
        counters
    }

    fn counters_at(&self) -> u64 {
        let states = size_of::<Region>().next_multiple_of(64);
        let chunks_at = (states + self.chunks * 4).next_multiple_of(CHUNK_BYTES);
        (chunks_at + self.chunks * CHUNK_BYTES) as u64
    }

    /// The table of the first group of sites, by which counters are found.
    pub fn counted(&self) -> Range<u64> {
        self.counted..self.counted + COUNTED_BYTES
    }

    pub fn wipe_counted(&self) {
        put(self.counted, &[0; COUNTED_BYTES as usize]);
    }

    /// The next call of a site of the first group that is sampled on a known page of a stack is so many calls away.
    pub fn sample_in(&self, site: u32, distance: u64) {
        let taken = self.region + offset_of!(Region, counter_pages) as u64;
        // SAFETY: in the region.
        let taken = unsafe { (taken as *const u32).read() } as usize;
        for page in 0..taken.min(COUNTER_PAGES) {
            let at = self.region + self.counters_at() + COUNTERS_AT as u64;
            let at = at + (page * COUNTER_PAGE_BYTES) as u64 + u64::from(site) * 8;
            // SAFETY: within the counters, which nobody writes meanwhile.
            let calls = unsafe { (at as *const u64).read() } & ((1 << COUNT_BITS) - 1);
            put(
                at,
                &(calls | distance.wrapping_neg() << COUNT_BITS).to_le_bytes(),
            );
        }
    }

    /// Gives out all pages of counters.
    pub fn use_up_counters(&self) {
        let asked = self.region + offset_of!(Region, counter_pages) as u64;
        put(asked, &(COUNTER_PAGES as u32).to_le_bytes());
    }

    fn publish(&mut self, low: u64, high: u64, header: u64) {
        let entry = [low, high, header].map(u64::to_le_bytes).concat();
        put(
            self.process + blocks_offset() + (self.blocks * size_of::<BlockEntry>()) as u64,
            &entry,
        );
        self.blocks += 1;
        put(
            self.process + offset_of!(ProcessHead, block_count) as u64,
            &(self.blocks as u32).to_le_bytes(),
        );
    }

    /// The range of generated code.
    pub fn code(&self) -> Range<u64> {
        self.arena..self.arena + ARENA_BYTES
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        assert!(self.code().contains(&at));
        put(at, bytes);
    }

    fn build(&mut self, fill: impl FnOnce(&mut BlockBuilder) -> Thunk) -> Thunk {
        let at = self.arena + self.used;
        let mut builder = BlockBuilder::new(at, self.arena, self.mirror, self.counted, 1 << 16);
        let thunk = fill(&mut builder);
        let block = builder.finish(&[]).unwrap();
        self.write(block.low, &block.bytes);
        self.used += (block.bytes.len() as u64).next_multiple_of(4096);
        self.publish(block.low, block.high, block.header);
        thunk
    }

    /// A thunk of a function that is displaced completely.
    pub fn thunk(&mut self, site: u32, recorder: Recorder, code: Vec<u8>) -> Thunk {
        let write = |_: u64, out: &mut [u8]| {
            out.copy_from_slice(&code);
            Ok(())
        };
        self.build(|block| block.thunk(site, recorder, code.len(), &[], write).unwrap())
    }

    /// Memory for a function that makes calls: to the runtime, calls from generated code are tail calls.
    pub fn function_memory(&self) -> u64 {
        memory(
            4096,
            4096,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        )
    }

    pub fn hook(&mut self, stub: Stub, code: Vec<u8>) -> Thunk {
        let write = |_: u64, out: &mut [u8]| {
            out.copy_from_slice(&code);
            Ok(())
        };
        self.build(|block| block.hook(stub, code.len(), &[], write).unwrap())
    }

    fn word(&self, at: u64) -> u64 {
        // SAFETY: callers pass places in the region.
        unsafe { std::ptr::read_volatile(at as *const u64) }
    }

    pub fn lost(&self) -> u64 {
        let counters = self.region + offset_of!(Region, lost) as u64;
        (0..LOST_COUNTERS as u64)
            .map(|index| self.word(counters + 64 * index))
            .sum()
    }

    /// All records so far, in order.
    pub fn records(&self) -> Vec<Record> {
        let chunk_offset = self.word(self.region + offset_of!(Region, chunk_offset) as u64);
        let chunk = |index: usize| self.region + chunk_offset + (index * CHUNK_BYTES) as u64;
        let sequence = |at: &u64| self.word(at + offset_of!(ChunkHeader, sequence) as u64);
        let used = |at: &u64| self.word(at + CHUNK_HEADER_BYTES as u64) != 0;
        let mut chunks: Vec<u64> = (0..self.chunks).map(chunk).filter(used).collect();
        chunks.sort_by_key(sequence);
        chunks
            .into_iter()
            .flat_map(|at| self.chunk_records(at))
            .collect()
    }

    fn chunk_records(&self, chunk: u64) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        let mut at = chunk + CHUNK_HEADER_BYTES as u64;
        let end = chunk + CHUNK_BYTES as u64;
        while at < end && self.word(at) >> 32 != 0 {
            let word = self.word(at);
            let kind = (word >> 32) as u32 & 15;
            let more = match kind {
                KIND_ENTRY | KIND_EXIT | KIND_TAIL | KIND_ONLY => 0,
                KIND_ENTRY_ARGS | KIND_TAIL_ARGS | KIND_ONLY_ARGS => ARGUMENTS as u64,
                KIND_EXIT_RESULT | KIND_CALL_SITE => 1,
                KIND_EXTENDED => RESYNC_BYTES as u64 / 8 - 1,
                other => panic!("a record of kind {other}"),
            };
            let words: Vec<u64> = (1..=more).map(|index| self.word(at + 8 * index)).collect();
            let before = records.last().map_or(0, |record| record.clock);
            let wraps = u64::from((before as u32) > word as u32) << 32;
            let clock = if kind == KIND_EXTENDED {
                words[0]
            } else {
                (before >> 32 << 32 | word & 0xffff_ffff) + wraps
            };
            let site = (word >> 36) as u32 & (SITE_LIMIT - 1);
            records.push(Record {
                clock,
                kind,
                site,
                tag: (word >> 56) as u8,
                words,
            });
            at += 8 + 8 * more;
        }
        records
    }
}
