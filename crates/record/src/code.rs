//! Generated code that runs in processes, as the tool sees it: the same memory, which only the tool may write.

use anyhow::{Result, ensure};
use nopal_agent::EntryOnly;
use std::fs::File;
use std::os::fd::AsRawFd;

/// A block of thunks. A mapping, not a descriptor: there may be more blocks than a process may have files open.
#[derive(Debug)]
pub struct Code {
    base: *mut u8,
    bytes: usize,
    changes: Vec<EntryOnly>,
}

impl Code {
    /// `changes` lie within the block, the first `bytes` of the file.
    pub fn map(file: &File, bytes: usize, changes: Vec<EntryOnly>) -> Result<Code> {
        let within = |change: &EntryOnly| change.offset + change.bytes.len() <= bytes;
        ensure!(changes.iter().all(within), "a change outside of its block");
        // SAFETY: a new mapping of a file that is `bytes` long at least.
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
            "generated code cannot be mapped: {}",
            std::io::Error::last_os_error()
        );
        Ok(Code {
            base: base.cast(),
            bytes,
            changes,
        })
    }

    /// From now on the thunks wrap no call. Nothing may run in them meanwhile.
    pub fn record_entries_only(&self) {
        for change in &self.changes {
            let (from, count) = (change.bytes.as_ptr(), change.bytes.len());
            // SAFETY: within the mapping, as `map` has made sure; no reference to it exists.
            unsafe { std::ptr::copy_nonoverlapping(from, self.base.add(change.offset), count) };
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
