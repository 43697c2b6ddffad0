//! The thread control block: where a thread's context and its id are found.

use crate::traced::Places;
use anyhow::{Context, Result, ensure};
use nopal_agent::Immediates;
use nopal_process::{Memory, Stopped};
use std::ops::Range;

/// Offsets from the thread pointer of the word that nopal uses, and of the thread id; the pointer and the id are one
/// thread's. Refuses a control block of another kind than glibc's and musl's.
pub fn thread_words(memory: &Memory, pointer: u64, thread: i32) -> Result<(i32, i32)> {
    musl_words(memory, pointer, thread)
        .or_else(|| glibc_words(memory, pointer, thread))
        .context(
            "the thread control block is not as glibc and musl have it, or another tracer uses it",
        )
}

/// Where musl stores the thread id behind the call that gives it, this stores it before. glibc's control block has its
/// own address at its third word by then, musl's has nothing there, or a list of one thread in its third and fourth.
pub fn store_musl_id(memory: &Memory, pointer: u64, thread: i32) -> Result<()> {
    let word = |index: u64| memory.read_word(pointer + index * 8);
    let is_glibcs = word(2)? == pointer && word(3)? != pointer;
    if !is_glibcs && musl_words(memory, pointer, 0).is_some() {
        memory.write(pointer + MUSL_ID as u64, &thread.to_le_bytes())?;
    }
    Ok(())
}

/// Of the thread id, in musl's control block.
const MUSL_ID: i32 = 0x30;

/// struct pthread of musl on x86-64 has begun like this since 1.1.23: itself, dtv, two links, sysinfo, a canary, the
/// thread id. sysinfo, which only 32-bit code reads, is 0 in every thread, and copied to threads that it makes, which
/// their ids tell apart.
fn musl_words(memory: &Memory, pointer: u64, thread: i32) -> Option<(i32, i32)> {
    const SYSINFO: i32 = 0x20;
    let word = |at: i32| {
        memory
            .read_word(pointer.wrapping_add_signed(at.into()))
            .ok()
    };
    let is_musl =
        word(0)? == pointer && word(SYSINFO)? == 0 && word(MUSL_ID)? as u32 == thread as u32;
    is_musl.then_some((SYSINFO, MUSL_ID))
}

/// tcbhead_t of glibc on x86-64 keeps 512 bytes at 0x80 that it has not used since 2.22 and keeps for sanitizers that
/// rely on the size; the last word of them, 0 in every thread, is ours.
fn glibc_words(memory: &Memory, pointer: u64, thread: i32) -> Option<(i32, i32)> {
    const CONTEXT_SLOT: usize = 0x278;
    const IDS: Range<usize> = 0x280..0x400;
    let mut block = [0; IDS.end];
    memory.read(pointer, &mut block).ok()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| block[at + i]));
    let is_free = word(CONTEXT_SLOT) == 0 && word(CONTEXT_SLOT + 4) == 0;
    let id = IDS.step_by(4).find(|at| word(*at) == thread as u32)?;
    is_free.then_some((CONTEXT_SLOT as i32, id as i32))
}

/// What a thread is called in its own PID namespace, and in its control block.
pub fn own_number(process: i32, thread: i32) -> Result<i32> {
    let status = nopal_process::thread_status(process, thread)?;
    Ok(status.namespace_ids.last().copied().unwrap_or(thread))
}

/// Refuses a process whose threads are not all as the first one was, before anything is recorded: their contexts would
/// not be told apart.
pub fn verify(stopped: &Stopped, memory: &Memory, places: &Places) -> Result<()> {
    let Immediates {
        context_slot,
        thread_slot,
        ..
    } = places.immediates;
    let outer = own_number(stopped.pid(), stopped.pid())? == stopped.pid();
    for thread in stopped.threads() {
        // The child of a vfork has its parent's control block.
        if thread.pid() != stopped.pid() {
            continue;
        }
        let pointer = thread.fs_base()?;
        let word = |slot: i32| memory.read_word(pointer.wrapping_add_signed(slot.into()));
        let number = if outer {
            thread.tid()
        } else {
            own_number(thread.pid(), thread.tid())?
        };
        ensure!(
            word(context_slot)? == 0 && word(thread_slot)? as u32 == number as u32,
            "thread {} has no control block like the others",
            thread.tid()
        );
    }
    Ok(())
}
