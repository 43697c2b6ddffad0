//! The thread control block: where a thread's context and its id are found.

use crate::traced::Places;
use anyhow::{Context, Result, ensure};
use nopal_process::{Memory, Stopped};
use std::ops::Range;

/// The word of glibc's thread control block that nopal uses, and where the thread id is.
///
/// tcbhead_t of glibc on x86-64 keeps 512 bytes at 0x80 that it has not used since 2.22 and keeps for sanitizers that
/// rely on the size; the last word of them, 0 in every thread, is ours.
pub fn thread_words(memory: &Memory, pointer: u64, thread: i32) -> Result<(i32, i32)> {
    const CONTEXT_SLOT: u64 = 0x278;
    const IDS: Range<u64> = 0x280..0x400;
    let mut block = [0; IDS.end as usize];
    memory
        .read(pointer, &mut block)
        .context("no thread control block")?;
    let word = |at: u64| u32::from_le_bytes(std::array::from_fn(|i| block[at as usize + i]));
    ensure!(
        word(CONTEXT_SLOT) == 0 && word(CONTEXT_SLOT + 4) == 0,
        "the thread control block is not glibc's, or another tracer uses it"
    );
    let id = IDS.step_by(4).find(|at| word(*at) == thread as u32);
    Ok((
        CONTEXT_SLOT as i32,
        id.context("the thread control block is not glibc's")? as i32,
    ))
}

/// Refuses a process whose threads are not all as the first one was: their contexts would not be told apart.
pub fn verify(stopped: &Stopped, memory: &Memory, places: &Places) -> Result<()> {
    let (context_slot, thread_slot) = (
        i64::from(places.immediates.context_slot),
        i64::from(places.immediates.thread_slot),
    );
    for thread in stopped.threads() {
        let pointer = thread.fs_base()?;
        let context = memory.read_word(pointer.wrapping_add_signed(context_slot))?;
        let id = memory.read_word(pointer.wrapping_add_signed(thread_slot))? as u32;
        ensure!(
            context == 0 && id == thread.tid() as u32,
            "the control block of thread {} is not like that of the others",
            thread.tid()
        );
    }
    Ok(())
}
