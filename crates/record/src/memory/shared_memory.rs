//! Memory of a file that the traced processes have mapped too.

use anyhow::{Result, anyhow};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;

/// The tool's mapping. Its address may be used for atomic operations and raw copies only: the processes may access it
/// at the same time.
#[derive(Debug)]
pub struct SharedMemory {
    pub base: *mut u8,
    pub bytes: usize,
}

// SAFETY: the mapping lives as long as the value, whichever thread has that.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; the value itself does not access it.
unsafe impl Sync for SharedMemory {}

/// Makes a file of memory `bytes` long. Where the system counts memory, it gets all its pages, so that nobody is killed
/// for want of one later.
pub fn lengthen(file: BorrowedFd, bytes: u64) -> std::io::Result<()> {
    match nopal_process::counts_memory() {
        true => rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?,
        false => rustix::fs::ftruncate(file, bytes)?,
    }
    Ok(())
}

impl SharedMemory {
    /// `file` is `bytes` long at least.
    pub fn map(file: BorrowedFd, bytes: usize) -> Result<SharedMemory> {
        // SAFETY: a new mapping of a file that others own; nothing is replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let base = base.map_err(|error| anyhow!("no shared memory: {error}"))?;
        Ok(SharedMemory {
            base: base.cast(),
            bytes,
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and with the value its address goes.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}
