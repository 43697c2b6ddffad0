//! The thread control block, by which a thread is known.

use crate::tracee::MemoryLayout;
use anyhow::{Context, Result};
use nopal_agent::{
    CONTEXT_BEGIN, CONTEXT_BYTES, CONTEXT_PROCESS, CONTEXT_THREAD, CONTEXTS, Immediates,
    ProcessHead, THREADS, thread_place,
};
use nopal_process::{Memory, Stopped};
use nopal_trace::ThreadKey;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::IntoBytes;

const PAGE: usize = 4096;

/// Offset from a thread pointer of the thread id; both are one thread's. Refuses a control block of another kind than
/// glibc's and musl's.
pub fn thread_slot(memory: &Memory, pointer: u64, thread: i32) -> Result<i32> {
    musl_slot(memory, pointer, thread)
        .or_else(|| glibc_slot(memory, pointer, thread))
        .context("the thread control block is not that of glibc or musl")
}

/// Where musl stores the thread id behind the call that gives it, this stores it before. glibc's control block has its
/// own address at its third word by then, musl's has nothing there, or a list of one thread in its third and fourth.
pub fn store_musl_id(memory: &Memory, pointer: u64, thread: i32) -> Result<()> {
    let word = |index: u64| memory.read_word(pointer + index * 8);
    let is_glibcs = word(2)? == pointer && word(3)? != pointer;
    if !is_glibcs && word(4)? == 0 && musl_slot(memory, pointer, 0).is_some() {
        memory.write(pointer + MUSL_ID as u64, &thread.to_le_bytes())?;
    }
    Ok(())
}

/// Offset of the thread id in musl's control block.
const MUSL_ID: i32 = 0x30;

/// struct pthread of musl on x86-64 has begun like this since 1.1.23: itself, dtv, two links, sysinfo, a canary, the
/// thread id.
fn musl_slot(memory: &Memory, pointer: u64, thread: i32) -> Option<i32> {
    is_at(memory, pointer, MUSL_ID, thread).then_some(MUSL_ID)
}

/// The offsets at which the thread id may be in glibc's control block.
const IDS: Range<usize> = 0x280..0x400;

/// struct pthread of glibc begins with itself, and 704 bytes that are no thread's id.
fn glibc_slot(memory: &Memory, pointer: u64, thread: i32) -> Option<i32> {
    let mut block = [0; IDS.end];
    memory.read(pointer, &mut block).ok()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| block[at + i]));
    let id = IDS.step_by(4).find(|at| word(*at) == thread as u32)? as i32;
    is_at(memory, pointer, id, thread).then_some(id)
}

/// Whether a control block is at `pointer`, as the ABI says where it begins with its own address, with this thread's id
/// at `slot`.
fn is_at(memory: &Memory, pointer: u64, slot: i32, thread: i32) -> bool {
    let mut block = [0; IDS.end];
    let Some(id) = usize::try_from(slot)
        .ok()
        .filter(|slot| slot + 4 <= block.len())
    else {
        return false;
    };
    let block = &mut block[..id + 4];
    memory.read(pointer, block).is_ok()
        && block[..8] == pointer.to_le_bytes()
        && block[id..] == thread.to_le_bytes()
}

/// The number of a thread in its own PID namespace, and in its control block.
pub fn own_number(process: i32, thread: i32) -> Result<i32> {
    let status = nopal_process::thread_status(process, thread)?;
    Ok(status.namespace_ids.last().copied().unwrap_or(thread))
}

/// The thread, in the process, if both have these numbers in their own PID namespace. 0: the thread does not give it.
pub fn thread_with(process: i32, own_process: i32, own_thread: i32) -> Option<i32> {
    let has = |thread: i32, own: i32| own_number(process, thread).is_ok_and(|number| number == own);
    if !has(process, own_process) {
        return None;
    }
    let is_first = own_thread == own_process && process == own_thread;
    if own_thread == 0 || is_first || has(own_thread, own_thread) {
        return Some(own_thread);
    }
    let threads = nopal_process::threads(process).unwrap_or_default();
    threads.into_iter().find(|thread| has(*thread, own_thread))
}

/// Whether a process has the context of a thread, by what they call themselves. `head`: where its process structure is.
pub fn has_context(process: i32, head: u64, key: ThreadKey) -> Result<bool> {
    let memory = Memory::open(process)?;
    let threads = head.wrapping_add(offset_of!(ProcessHead, threads) as u64);
    let mut table = vec![0u64; 2 * THREADS];
    memory.read(memory.read_word(threads)?, table.as_mut_bytes())?;
    let is_its = |context: u64| {
        let word = |at: usize| memory.read_word(context.wrapping_add(at as u64)).ok();
        let number = |at| word(at).map(|word| word as u32);
        number(CONTEXT_PROCESS) == Some(key.process)
            && number(CONTEXT_THREAD) == Some(key.thread)
            && word(CONTEXT_BEGIN) == Some(key.begin)
    };
    let contexts = table.split_off(THREADS).into_iter();
    Ok(contexts.filter(|context| *context != 0).any(is_its))
}

/// Tells the runtime of the threads that there are, before anything is recorded: it may not be able to ask itself whose
/// control block a thread has. Returns the threads that have none of their own, and will not be recorded.
pub fn note_threads(stopped: &Stopped, memory: &Memory, places: &MemoryLayout) -> Result<Vec<i32>> {
    let Immediates {
        threads,
        thread_slot,
        ..
    } = places.immediates;
    let outer = own_number(stopped.pid(), stopped.pid())? == stopped.pid();
    let head = |offset: usize| places.head + offset as u64;
    let contexts = memory.read_word(head(offset_of!(ProcessHead, contexts)))?;
    // The thread's events find that this context is nobody's, and make one of their own.
    let context = contexts + ((CONTEXTS - 1) * CONTEXT_BYTES) as u64;
    let mut strange = Vec::new();
    // Pointers, and behind them the contexts of those who have them.
    let mut table = vec![0u64; 2 * THREADS];
    let mut noted = 0;
    for thread in stopped.threads() {
        // The child of a vfork has its parent's control block.
        if thread.pid() != stopped.pid() {
            continue;
        }
        let pointer = thread.thread_pointer()?;
        let number = if outer {
            thread.tid()
        } else {
            own_number(thread.pid(), thread.tid())?
        };
        if !is_at(memory, pointer, thread_slot, number) {
            strange.push(thread.tid());
            continue;
        }
        let mut free = (0..THREADS).map(|step| (thread_place(pointer) + step) % THREADS);
        // The first place stays free.
        let place = free.find(|place| *place != 0 && table[*place] == 0);
        if let Some(place) = place.filter(|_| noted < CONTEXTS) {
            table[place] = pointer;
            table[THREADS + place] = context;
            noted += 1;
        }
    }
    let page = PAGE / 8;
    for (at, words) in (threads..).step_by(PAGE).zip(table.chunks(page)) {
        if words.iter().any(|word| *word != 0) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            memory.write(at, &bytes)?;
        }
    }
    memory.write(
        head(offset_of!(ProcessHead, threads_noted)),
        &(noted as u32).to_le_bytes(),
    )?;
    Ok(strange)
}
