//! Memory of a file that the traced processes have mapped too.

use anyhow::{Result, ensure};
use std::os::fd::{AsRawFd, BorrowedFd};

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
    let (file, bytes) = (file.as_raw_fd(), bytes as libc::off_t);
    // SAFETY: system calls on an open descriptor.
    let done = unsafe {
        match nopal_process::counts_memory() {
            true => libc::fallocate(file, 0, 0, bytes),
            false => libc::ftruncate(file, bytes),
        }
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl SharedMemory {
    /// `file` is `bytes` long at least.
    pub fn map(file: BorrowedFd, bytes: usize) -> Result<SharedMemory> {
        // SAFETY: a new mapping of a file that others own; nothing is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(
            base != libc::MAP_FAILED,
            "no shared memory: {}",
            std::io::Error::last_os_error()
        );
        Ok(SharedMemory {
            base: base.cast(),
            bytes,
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and with the value its address goes.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
