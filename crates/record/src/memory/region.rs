//! The region as the tool sees it: memory that the traced process writes at the same time, and may write wrongly.
//! Every access is an atomic operation or a copy, within bounds that are the tool's own.

use crate::memory::control_block::has_context;
use crate::memory::groups::Promise;
use crate::memory::lost::{Counts, Lost};
use crate::memory::numbers::{Inside, Members, Numbers};
use crate::memory::occupancy::Occupancy;
use crate::memory::shared_memory::{SharedMemory, lengthen};
use anyhow::{Context, Result, ensure};
use nopal_abi::{
    ABI_VERSION, CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_OWNED, CHUNK_STATE_MASK, COUNT_BITS,
    COUNTER_PAGE_BYTES, COUNTER_PAGES, COUNTER_SITES_SHIFT, COUNTERS_AT, COUNTERS_BYTES,
    ChunkHeader, LOST_COUNTERS, LostCounter, REQUEST_DONE, REQUEST_FREE, REQUEST_GRANTED,
    REQUEST_STATE, REQUEST_WAITING, REQUESTS, RESYNC_BYTES, Region as Layout, Request, SITE_LIMIT,
};
use nopal_agent::ProcessHead;
use nopal_process::Memory;
use nopal_trace::ThreadKey;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fstat};
use rustix::thread::futex;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The owner of a chunk at some moment.
#[derive(Clone, Copy)]
pub struct Owner(u32);

/// Shared memory between the tool and one process image and its forks.
#[derive(Debug)]
pub struct Region {
    memory: SharedMemory,
    /// The number of mapped chunks.
    room: usize,
    /// The number of them that threads use, from the first on.
    in_use: AtomicUsize,
    /// The most ever used: threads may still have them.
    chunks: AtomicUsize,
    chunk_offset: usize,
    file: OwnedFd,
    /// The file of the page behind the region. Only the processes map it, never the tool.
    presence: Option<OwnedFd>,
    inode: u64,
    process: i32,
    numbers: Numbers,
    /// The number of chunks, from the first on, that have pages.
    ready: AtomicUsize,
    /// Of its buffer, if control groups limit the memory of the process.
    _promise: Option<Promise>,
}

const PAGE: usize = 4096;

/// The bytes that are mapped behind the region in the processes.
pub const PRESENCE_BYTES: u64 = PAGE as u64;

/// Offsets from the region's begin, and the number of chunks that it has room for.
pub struct RegionLayout {
    pub state_offset: u64,
    pub chunk_offset: u64,
    pub counter_offset: u64,
    pub chunks: u32,
}

const STATE_OFFSET: usize = size_of::<Layout>().next_multiple_of(64);

/// A thread's request, and its slot in the region.
#[derive(Debug, Clone, Copy)]
pub struct ProgramRequest {
    pub place: usize,
    /// The word of its place while it waits: no other request has the same there.
    pub(crate) waiting: u32,
    pub what: u32,
    pub process: i32,
    pub thread: i32,
    pub word: u64,
    pub descriptor: i32,
}

impl Region {
    /// Makes `file`, new and empty, a region of `process` and its forks, with `buffer` bytes of chunks, at least two,
    /// and room for more up to `room` bytes.
    pub fn create(
        file: OwnedFd,
        buffer: u64,
        room: u64,
        when_full: u32,
        process: i32,
    ) -> Result<Region> {
        let room = chunks_for(room.max(buffer));
        let bytes = (chunk_offset(room) + room * CHUNK_BYTES + COUNTERS_BYTES) as u64;
        lengthen(file.as_fd(), bytes).context("no shared memory")?;
        let region = Self::map(file, bytes as usize, process)?;
        region.chunks.store(0, Ordering::Relaxed);
        region
            .word(offset_of!(Layout, version))
            .store(ABI_VERSION, Ordering::Relaxed);
        region.resize(buffer);
        region
            .word(offset_of!(Layout, freed))
            .store(1, Ordering::Relaxed);
        region
            .long(offset_of!(Layout, state_offset))
            .store(STATE_OFFSET as u64, Ordering::Relaxed);
        region
            .long(offset_of!(Layout, chunk_offset))
            .store(region.chunk_offset as u64, Ordering::Relaxed);
        region
            .word(offset_of!(Layout, when_full))
            .store(when_full, Ordering::Relaxed);
        Ok(region)
    }

    /// The layout of its parts.
    pub fn layout(&self) -> RegionLayout {
        RegionLayout {
            state_offset: STATE_OFFSET as u64,
            chunk_offset: self.chunk_offset as u64,
            counter_offset: self.counter_offset() as u64,
            chunks: self.room as u32,
        }
    }

    /// Maps a region of `process` that the tool made, in the guardian.
    pub fn open(file: OwnedFd, process: i32) -> Result<Region> {
        let bytes = fstat(&file)?.st_size as usize;
        Self::map(file, bytes, process)
    }

    /// Maps the region of the kernel's module. All that it says of itself is checked.
    pub fn of_kernel(file: OwnedFd) -> Result<Region> {
        let head = SharedMemory::map(file.as_fd(), size_of::<Layout>())?;
        // SAFETY: within the mapping; any bytes are a valid Layout.
        let said: Layout = unsafe { std::ptr::read_volatile(head.base.cast()) };
        let (offset, chunks) = (said.chunk_offset, said.chunk_count as usize);
        ensure!(
            said.version == ABI_VERSION,
            "the module in the kernel is of another version of nopal"
        );
        ensure!(
            said.state_offset == STATE_OFFSET as u64
                && offset.is_multiple_of(PAGE as u64)
                && (2..=1 << 20).contains(&chunks)
                && (chunk_offset(chunks) as u64..=1 << 32)
                    .contains(&offset.next_multiple_of(CHUNK_BYTES as u64)),
            "the module's region cannot be read"
        );
        let memory = SharedMemory::map(file.as_fd(), offset as usize + chunks * CHUNK_BYTES)?;
        Ok(Region {
            memory,
            room: chunks,
            in_use: AtomicUsize::new(chunks),
            chunks: AtomicUsize::new(chunks),
            chunk_offset: offset as usize,
            file,
            presence: None,
            inode: 0,
            process: 0,
            numbers: Numbers::new(0),
            ready: AtomicUsize::new(chunks),
            _promise: None,
        })
    }

    fn map(file: OwnedFd, bytes: usize, process: i32) -> Result<Region> {
        let smallest = chunk_offset(1) + CHUNK_BYTES + COUNTERS_BYTES;
        ensure!(bytes >= smallest, "the region is too small");
        let before_counters = bytes - COUNTERS_BYTES;
        let mut chunks = (before_counters - STATE_OFFSET) / (CHUNK_BYTES + 4);
        while chunk_offset(chunks) + chunks * CHUNK_BYTES > before_counters {
            chunks -= 1;
        }
        let inode = fstat(&file)?.st_ino;
        let memory = SharedMemory::map(file.as_fd(), bytes)?;
        Ok(Region {
            memory,
            room: chunks,
            in_use: AtomicUsize::new(chunks),
            chunks: AtomicUsize::new(chunks),
            chunk_offset: chunk_offset(chunks),
            file,
            presence: None,
            inode,
            process,
            numbers: Numbers::new(process),
            ready: AtomicUsize::new(0),
            _promise: None,
        })
    }

    /// `presence` is another file, which processes map wherever they have the region, and nobody else.
    pub fn with_presence(self, presence: OwnedFd) -> Region {
        Region {
            presence: Some(presence),
            ..self
        }
    }

    /// Control groups limit the memory of its processes.
    pub fn with_promise(self) -> Region {
        Region {
            _promise: Some(Promise::of(self.buffer())),
            ..self
        }
    }

    /// Whether it is certain that no process has the region any more but those that collect from it.
    pub fn is_deserted(&self) -> bool {
        // The kernel seals no memory that is mapped shared, of a file that was opened for writing.
        let seal = |file: &OwnedFd| fcntl_add_seals(file, SealFlags::WRITE).is_ok();
        self.presence.as_ref().is_some_and(seal)
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn bytes(&self) -> u64 {
        self.memory.bytes as u64
    }

    /// The memory's inode, by which processes that have it mapped are found.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The process that it was made for. Others that have it are forked from that one.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Gives pages to the chunks that threads will take next. A thread that takes one without pages spends more time
    /// on getting them than on its records.
    pub fn make_ready(&self, now: Occupancy) {
        const AHEAD: usize = 16;
        let ready = self.ready.load(Ordering::Relaxed);
        let wanted = (now.end + AHEAD).min(self.in_use());
        if wanted > ready {
            // If it fails, threads get the pages.
            let _ = fallocate(
                &self.file,
                FallocateFlags::empty(),
                (self.chunk_offset + ready * CHUNK_BYTES) as u64,
                ((wanted - ready) * CHUNK_BYTES) as u64,
            );
            self.ready.store(wanted, Ordering::Relaxed);
        }
    }

    /// The chunks that threads may have, from the first on.
    pub fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// The chunks that threads take, from the first on.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The bytes of the chunks that threads take.
    pub fn buffer(&self) -> u64 {
        (self.in_use() * CHUNK_BYTES) as u64
    }

    /// The bytes of chunks for which there is room.
    pub fn room(&self) -> u64 {
        (self.room * CHUNK_BYTES) as u64
    }

    /// From now on threads take chunks of `buffer` bytes together, within the room that there is. Those beyond that
    /// they have are collected as ever; the memory of the others is given back, unless the system counts memory.
    pub fn resize(&self, buffer: u64) {
        let count = chunks_for(buffer).min(self.room);
        self.chunks.fetch_max(count, Ordering::Relaxed);
        self.in_use.store(count, Ordering::Relaxed);
        self.word(offset_of!(Layout, chunk_count))
            .store(count as u32, Ordering::Relaxed);
        self.announce_freed(0);
        if nopal_process::counts_memory() {
            // A thread that is late might not get it again.
            return;
        }
        self.ready.fetch_min(count, Ordering::Relaxed);
        for chunk in count..self.chunks() {
            self.give_back(chunk);
        }
    }

    /// Drops the pages of a chunk that is free. A thread that still takes it afterwards finds the zeroes that it
    /// expects.
    fn give_back(&self, chunk: usize) {
        let state = self.state(chunk);
        // Acquire pairs with the release by which it was freed. The tool owns it, so that no thread takes it meanwhile.
        let taken = state.compare_exchange(
            CHUNK_FREE,
            CHUNK_OWNED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return;
        }
        // The bytes are zero, and stay so. A failure leaves the memory.
        let _ = fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            (self.chunk_offset + chunk * CHUNK_BYTES) as u64,
            CHUNK_BYTES as u64,
        );
        // Release pairs with the acquire of the thread that takes the chunk.
        state.store(CHUNK_FREE, Ordering::Release);
        self.announce_freed(chunk);
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.memory.bytes);
        // SAFETY: aligned, within the mapping, and only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(self.memory.base.add(offset).cast()) }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.memory.bytes);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.memory.base.add(offset).cast()) }
    }

    pub fn beat(&self) {
        self.word(offset_of!(Layout, heartbeat))
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the runtime that collection has ended.
    pub fn mark_gone(&self) {
        self.word(offset_of!(Layout, tool_gone))
            .store(1, Ordering::Relaxed);
    }

    pub fn lost(&self) -> Lost {
        let lost = offset_of!(Layout, lost);
        let count = |counter: usize, reason: usize| {
            let place = lost + counter * size_of::<LostCounter>() + reason * size_of::<u64>();
            self.long(place).load(Ordering::Relaxed)
        };
        Lost(std::array::from_fn(|reason| {
            let counters = 0..LOST_COUNTERS;
            counters.fold(0, |sum: u64, counter| {
                sum.wrapping_add(count(counter, reason))
            })
        }))
    }

    pub fn counts(&self) -> Counts {
        let word = |offset| u64::from(self.word(offset).load(Ordering::Relaxed));
        Counts {
            lost: self.lost(),
            threads_untraced: word(offset_of!(Layout, threads_untraced)),
            threads_muted: self
                .long(offset_of!(Layout, threads_muted))
                .load(Ordering::Relaxed),
            stacks_unmirrored: word(offset_of!(Layout, stacks_unmirrored)),
            executions_unanswered: word(offset_of!(Layout, unanswered_executions)),
            libraries_unanswered: word(offset_of!(Layout, unanswered_libraries)),
        }
    }

    /// The offset of the counters, behind the chunks. The region of the kernel's module has none.
    fn counter_offset(&self) -> usize {
        self.chunk_offset + self.room * CHUNK_BYTES
    }

    /// The counts of these sites so far, without the calls that were sampled, but for those that were never counted.
    pub fn counted(&self, sites: &BTreeSet<u32>) -> Vec<(u32, u64)> {
        const SITES: usize = 1 << COUNTER_SITES_SHIFT;
        const CALLS: u64 = (1 << COUNT_BITS) - 1;
        let sites = || sites.range(..SITE_LIMIT).copied();
        let mut groups: BTreeMap<usize, [u64; SITES]> = BTreeMap::new();
        for site in sites() {
            groups.entry(site as usize / SITES).or_insert([0; SITES]);
        }
        let taken = self.word(offset_of!(Layout, counter_pages));
        let taken = (taken.load(Ordering::Relaxed) as usize).min(COUNTER_PAGES);
        let at = self.counter_offset();
        if groups.is_empty() || taken == 0 || at + COUNTERS_BYTES > self.memory.bytes {
            return Vec::new();
        }
        let shared: Vec<usize> = groups.keys().map(|group| COUNTER_PAGES + group).collect();
        for page in (0..taken).chain(shared) {
            // Acquire pairs with the release of the thread that has taken the page.
            let group = self.word(at + page * 4).load(Ordering::Acquire) as usize;
            let group = group.checked_sub(1);
            let Some(sums) = group.and_then(|group| groups.get_mut(&group)) else {
                continue;
            };
            let page = at + COUNTERS_AT + page * COUNTER_PAGE_BYTES;
            for (sum, counter) in sums.iter_mut().zip((page..).step_by(8)) {
                let word = self.long(counter).load(Ordering::Relaxed);
                // The last call may be one that is to be sampled, and was not taken back yet.
                let is_over = word > 0 && word <= CALLS;
                *sum = sum.wrapping_add((word & CALLS) - u64::from(is_over));
            }
        }
        let counted = sites().map(|site| {
            (
                site,
                groups[&(site as usize / SITES)][site as usize % SITES],
            )
        });
        counted.filter(|(_, calls)| *calls > 0).collect()
    }

    fn request(&self, place: usize, field: usize) -> usize {
        offset_of!(Layout, requests) + place * size_of::<Request>() + field
    }

    pub fn requests(&self) -> Vec<ProgramRequest> {
        (0..REQUESTS)
            .filter_map(|place| {
                // Acquire pairs with the runtime's release: the other fields are seen.
                let waiting = self.request_state(place).load(Ordering::Acquire);
                (waiting & REQUEST_STATE == REQUEST_WAITING).then_some((place, waiting))
            })
            .map(|(place, waiting)| {
                let field = |field| {
                    self.word(self.request(place, field))
                        .load(Ordering::Relaxed)
                };
                ProgramRequest {
                    place,
                    waiting,
                    what: field(offset_of!(Request, what)),
                    process: field(offset_of!(Request, process)) as i32,
                    thread: field(offset_of!(Request, thread)) as i32,
                    word: self
                        .long(self.request(place, offset_of!(Request, word)))
                        .load(Ordering::Relaxed),
                    descriptor: field(offset_of!(Request, descriptor)) as i32,
                }
            })
            // The fields of another one which has the place by now may be among those that were read.
            .filter(|request| self.is_waiting(request))
            .collect()
    }

    fn request_state(&self, place: usize) -> &AtomicU32 {
        self.word(self.request(place, offset_of!(Request, state)))
    }

    /// Answers a request, and wakes the thread. A request that the thread has withdrawn is left alone, and so is another
    /// one which has its place by now. Whether it was still open.
    pub fn answer(&self, request: &ProgramRequest) -> bool {
        self.answer_by(request, REQUEST_DONE)
    }

    /// The same, for a request that the tool has met.
    pub fn grant(&self, request: &ProgramRequest) -> bool {
        self.answer_by(request, REQUEST_GRANTED)
    }

    fn answer_by(&self, request: &ProgramRequest, answer: u32) -> bool {
        let state = self.request_state(request.place);
        let answered = request.waiting - REQUEST_WAITING + answer;
        let done = state.compare_exchange(
            request.waiting,
            answered,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if done.is_ok() {
            wake(state, 64);
        }
        done.is_ok()
    }

    /// Whether a request is still open: its thread may have withdrawn it, or been killed.
    pub fn is_waiting(&self, request: &ProgramRequest) -> bool {
        // The fence keeps reads of the other fields before it.
        fence(Ordering::Acquire);
        self.request_state(request.place).load(Ordering::Acquire) == request.waiting
    }

    /// Frees the places of threads that have ended before they could take their answers. `ended` is asked of a process
    /// and thread.
    pub fn free_answered(&self, ended: impl Fn(i32, i32) -> bool) {
        for place in 0..REQUESTS {
            let field = |field| self.word(self.request(place, field));
            let state = self.request_state(place);
            let answered = state.load(Ordering::Acquire);
            if !matches!(answered & REQUEST_STATE, REQUEST_DONE | REQUEST_GRANTED) {
                continue;
            }
            let process = field(offset_of!(Request, process)).load(Ordering::Relaxed);
            let thread = field(offset_of!(Request, thread)).load(Ordering::Relaxed);
            if thread != 0 && ended(process as i32, thread as i32) {
                let _ = state.compare_exchange(
                    answered,
                    answered & !REQUEST_STATE | REQUEST_FREE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// Stores the address of the process structure, for cleaning up.
    pub fn set_head(&self, head: u64) {
        self.long(offset_of!(Layout, head))
            .store(head, Ordering::Relaxed);
    }

    fn head(&self) -> u64 {
        self.long(offset_of!(Layout, head)).load(Ordering::Relaxed)
    }

    /// Whether a thread waits for the answer to a request.
    pub fn waits(&self, request: &ProgramRequest, process: i32, thread: i32) -> bool {
        let state = self.request(request.place, offset_of!(Request, state)) as u64;
        let region = self
            .head()
            .wrapping_add(offset_of!(ProcessHead, region) as u64);
        let begin = Memory::open(process).and_then(|memory| memory.read_word(region));
        let waits_at = nopal_process::waits_at(process, thread);
        begin.is_ok_and(|begin| waits_at == Some(begin.wrapping_add(state)))
    }

    /// Notes the tool that collects, and the guardian.
    pub fn set_owners(&self, tool: i32, guardian: i32) {
        let set = |offset, process: i32| self.word(offset).store(process as u32, Ordering::Relaxed);
        set(offset_of!(Layout, tool), tool);
        set(offset_of!(Layout, guardian), guardian);
    }

    pub fn bell_word(&self) -> &AtomicU32 {
        self.word(offset_of!(Layout, bell))
    }

    pub fn bell(&self) -> u32 {
        self.bell_word().load(Ordering::Acquire)
    }

    /// Those of all chunks.
    fn states(&self) -> &[AtomicU32] {
        let chunks = self.chunks();
        assert!(STATE_OFFSET + chunks * 4 <= self.memory.bytes);
        // SAFETY: as in `word`.
        unsafe { std::slice::from_raw_parts(self.memory.base.add(STATE_OFFSET).cast(), chunks) }
    }

    fn state(&self, chunk: usize) -> &AtomicU32 {
        self.word(STATE_OFFSET + chunk * 4)
    }

    pub fn chunk_state(&self, chunk: usize) -> u32 {
        // Acquire pairs with the release of the thread that handed the chunk over.
        self.state(chunk).load(Ordering::Acquire) & CHUNK_STATE_MASK
    }

    /// Looks at all chunks at once.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy::of(self.states())
    }

    /// The owner of a chunk that a thread writes into.
    pub fn owner(&self, chunk: usize) -> Option<Owner> {
        let owned = self.state(chunk).load(Ordering::Acquire);
        (owned & CHUNK_STATE_MASK == CHUNK_OWNED).then_some(Owner(owned))
    }

    /// Takes over a chunk whose owner has ended. False: it is another's by now, or nobody's.
    pub fn take_over(&self, chunk: usize, owner: Owner) -> bool {
        self.state(chunk)
            .compare_exchange(owner.0, CHUNK_FULL, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// What a chunk begins with. Process and thread are named as they are called here.
    pub fn header(&self, chunk: usize) -> ChunkHeader {
        // SAFETY: within the mapping; any bytes are a valid ChunkHeader.
        let header: ChunkHeader = unsafe { std::ptr::read_volatile(self.chunk(chunk).cast()) };
        let here = self.numbers.here(ThreadKey::of(&header), self);
        ChunkHeader {
            process: here.process,
            thread: here.thread,
            ..header
        }
    }

    /// What is known of a thread in a PID namespace of its own, by what it is called here.
    pub fn inside(&self, here: ThreadKey) -> Option<Inside> {
        self.numbers.inside(here)
    }

    /// What is known of a thread that may have ended.
    pub fn remember(&self, here: ThreadKey, inside: Inside) {
        self.numbers.remember(here, inside);
    }

    /// The processes with the region and their threads that call themselves so, by what they are called here.
    pub fn called(&self, process: i32, thread: i32) -> Vec<(i32, i32)> {
        self.numbers.called(process, thread, self)
    }

    /// Whether any process with the region is known to have another number than it has here.
    pub fn has_other_numbers(&self) -> bool {
        self.numbers.has_any()
    }

    /// Finds out what the threads are called here that hold chunks, while they may be asked.
    pub fn meet_threads(&self) {
        for chunk in (0..self.chunks()).filter(|chunk| self.chunk_state(*chunk) != CHUNK_FREE) {
            let _ = self.header(chunk);
        }
    }

    fn chunk(&self, chunk: usize) -> *mut u8 {
        assert!(chunk < self.room);
        // SAFETY: within the mapping, by the assertion and `map`.
        unsafe {
            self.memory
                .base
                .add(self.chunk_offset + chunk * CHUNK_BYTES)
        }
    }

    /// Copies a chunk up to its first page of zeroes: a chunk is zeroed
    /// before it is filled, and then has no gaps of that size. Returns how much that is.
    pub fn copy(&self, chunk: usize, into: &mut [u8; CHUNK_BYTES]) -> usize {
        let reserved = (self.header(chunk).content_bits / 8).min(CHUNK_BYTES as u64) as usize;
        let mut used = 0;
        for page in into.chunks_exact_mut(PAGE) {
            // SAFETY: within the chunk; a torn copy is only wrong data, which the writer checks.
            unsafe {
                std::ptr::copy_nonoverlapping(self.chunk(chunk).add(used), page.as_mut_ptr(), PAGE)
            };
            if used > 0 && used >= reserved && page.iter().all(|byte| *byte == 0) {
                break;
            }
            used += PAGE;
        }
        self.name_thread(chunk, into);
        used
    }

    /// Names the thread in the copy of a chunk as it is called here.
    fn name_thread(&self, chunk: usize, copy: &mut [u8; CHUNK_BYTES]) {
        let header = self.header(chunk);
        let names = [
            (offset_of!(ChunkHeader, process), header.process),
            (offset_of!(ChunkHeader, thread), header.thread),
        ];
        for (at, number) in names {
            copy[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
    }

    /// Whether anything is written in a chunk at this offset in it.
    pub fn has_more(&self, chunk: usize, offset: usize) -> bool {
        let word = |offset| self.long(self.chunk_offset + chunk * CHUNK_BYTES + offset);
        offset < CHUNK_BYTES
            && offset.is_multiple_of(8)
            && word(offset).load(Ordering::Relaxed) != 0
    }

    /// Whether the thread of a chunk, whose header this is, has jumped since its last record: calls that have no end there may
    /// have been left.
    pub fn has_jumped(&self, chunk: usize, header: &ChunkHeader) -> bool {
        header.clock_end != 0 && !self.has_more(chunk, header.clock_end as usize)
    }

    /// Copies a chunk that its thread still fills, up to the first page of zeroes. Words are read in the order in which
    /// threads store them, so that a record that is seen complete lacks nothing. `known`: how much of it need not be
    /// copied again, but for its header and first record.
    pub fn copy_growing(&self, chunk: usize, known: usize, into: &mut [u8; CHUNK_BYTES]) -> usize {
        let skipped = known / PAGE;
        let from = self.chunk_offset + chunk * CHUNK_BYTES;
        let load = |words: &mut [[u8; 8]], from: usize| {
            let mut any = 0;
            for (index, word) in words.iter_mut().enumerate() {
                // Acquire pairs with the releases of words that complete a record.
                let value = self.long(from + index * 8).load(Ordering::Acquire);
                *word = value.to_ne_bytes();
                any |= value;
            }
            any != 0
        };
        let used = into
            .chunks_exact_mut(PAGE)
            .enumerate()
            .skip(skipped)
            .position(|(page, bytes)| !load(bytes.as_chunks_mut().0, from + page * PAGE))
            .map_or(CHUNK_BYTES, |pages| (skipped + pages).max(1) * PAGE);
        // The header and the first record are stored in any order, but before there is a second record.
        let first = size_of::<ChunkHeader>() + RESYNC_BYTES;
        load(into[..first].as_chunks_mut().0, from);
        self.name_thread(chunk, into);
        used
    }

    /// Zeroes the used part of a chunk and gives it back to the threads.
    pub fn free(&self, chunk: usize, used: usize) {
        assert!(used <= CHUNK_BYTES);
        // SAFETY: within the chunk, which is in nobody's hands but the tool's.
        unsafe { std::ptr::write_bytes(self.chunk(chunk), 0, used) };
        // Release pairs with the acquire of the thread that takes the chunk: it sees the zeroes.
        self.state(chunk).store(CHUNK_FREE, Ordering::Release);
        self.announce_freed(chunk);
    }

    /// Has threads search for a chunk that is free now, and wakes one that waits for it.
    fn announce_freed(&self, chunk: usize) {
        self.word(offset_of!(Layout, first_free))
            .fetch_min(chunk as u32, Ordering::Relaxed);
        let freed = self.word(offset_of!(Layout, freed));
        // Release pairs with the acquire of the thread that finds it changed: that finds the chunk, too.
        freed.fetch_add(1, Ordering::Release);
        wake(freed, 1);
    }
}

impl Members for Region {
    fn has(&self, process: i32) -> Option<bool> {
        let word = |offset| self.word(offset).load(Ordering::Relaxed) as i32;
        let owners = [offset_of!(Layout, tool), offset_of!(Layout, guardian)].map(word);
        if owners.contains(&process) {
            return Some(false);
        }
        let maps = nopal_process::maps(process).ok()?;
        Some(maps.iter().any(|map| map.inode == self.inode && map.shared))
    }

    fn has_thread(&self, process: i32, key: ThreadKey) -> bool {
        has_context(process, self.head(), key).unwrap_or(false)
    }
}

/// The number of chunks that hold `buffer` bytes, at least two.
fn chunks_for(buffer: u64) -> usize {
    buffer.div_ceil(CHUNK_BYTES as u64).clamp(2, 1 << 20) as usize
}

fn chunk_offset(chunks: usize) -> usize {
    (STATE_OFFSET + chunks * 4).next_multiple_of(CHUNK_BYTES)
}

/// Threads of processes that have the region wait for it, too.
fn wake(word: &AtomicU32, waiters: u32) {
    // A thread that waits looks again by itself.
    let _ = futex::wake(word, futex::Flags::empty(), waiters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_abi::REQUEST_TAKEN;

    #[test]
    fn who_has_the_place_of_a_withdrawn_request_is_not_answered_in_its_stead() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let region = Region::create(file, 1 << 20, 0, 0, 0).unwrap();
        let word = |field| region.word(region.request(3, field));
        // By the same thread, or by one with the same ids in another PID namespace.
        let make = |taken| {
            word(offset_of!(Request, process)).store(1, Ordering::Relaxed);
            word(offset_of!(Request, thread)).store(1, Ordering::Relaxed);
            let state = taken * REQUEST_TAKEN + REQUEST_WAITING;
            word(offset_of!(Request, state)).store(state, Ordering::Release);
            region.requests()[0]
        };
        let withdrawn = make(1);
        let made = make(2);
        assert!(!region.is_waiting(&withdrawn));
        assert!(!region.answer(&withdrawn));
        assert!(!region.grant(&withdrawn));
        assert!(region.is_waiting(&made));
        assert!(region.answer(&made));
        assert!(region.requests().is_empty());
    }
}
