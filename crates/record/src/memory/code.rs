//! Generated code that runs in processes, as the tool sees it: the same memory, which only the tool may write.

use crate::memory::shared_memory::SharedMemory;
use anyhow::{Result, bail};
use rustix::mm::{Advice, madvise};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU16, Ordering};

/// A piece of memory with generated code. A mapping, not a descriptor: there may be more pieces than a process may have
/// files open.
#[derive(Debug)]
pub struct Code {
    memory: SharedMemory,
    /// Its address in the processes.
    at: u64,
}

impl Code {
    /// `file` is `bytes` long, and mapped at `at` in the processes.
    pub fn map(file: &File, at: u64, bytes: u64) -> Result<Code> {
        let bytes = usize::try_from(bytes)?;
        let memory = SharedMemory::map(file.as_fd(), bytes)?;
        Ok(Code { memory, at })
    }

    /// Whether it holds all of `bytes` at `address`.
    pub fn contains(&self, address: u64, bytes: usize) -> bool {
        self.offset(address, bytes).is_some()
    }

    fn offset(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.at)?).ok()?;
        (offset.checked_add(bytes)? <= self.memory.bytes).then_some(offset)
    }

    /// Writes code at `address`, as the processes call it. Nothing may run in it meanwhile.
    pub fn write(&self, address: u64, code: &[u8]) -> Result<()> {
        let offset = self.offset(address, code.len());
        let Some(offset) = offset else {
            bail!("generated code outside of its memory");
        };
        // SAFETY: within the mapping, as `offset` has made sure; no reference to it exists.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.memory.base.add(offset), code.len())
        };
        Ok(())
    }

    /// Has this mapping hold all pages before address `end`, in one call. A kernel that cannot does so at the first store
    /// to each.
    pub fn make_ready(&self, end: u64) {
        let bytes = usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let bytes = bytes.min(self.memory.bytes);
        // SAFETY: within the mapping; what the pages hold stays.
        let _ = unsafe { madvise(self.memory.base.cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Changes two bytes at an even address at once. Threads may run there. `false`: there is no such address here.
    pub fn store_pair(&self, address: u64, pair: [u8; 2]) -> bool {
        let offset = self.offset(address, pair.len());
        let Some(offset) = offset.filter(|_| address.is_multiple_of(2)) else {
            return false;
        };
        // SAFETY: aligned, within the mapping, and only accessed as an atomic while threads may run there.
        let place = unsafe { AtomicU16::from_ptr(self.memory.base.add(offset).cast()) };
        place.store(u16::from_ne_bytes(pair), Ordering::Release);
        true
    }
}
