use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use crate::information::directory;

/// The memory of a process, through `/proc/PID/mem`: protection of pages does not matter. It belongs to the program
/// that ran when it was opened; after `execve` a new one is needed.
#[derive(Debug)]
pub struct Memory {
    pub(super) file: File,
}

impl Memory {
    pub fn open(pid: i32) -> Result<Memory> {
        let path = format!("{}/mem", directory(pid));
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Memory {
            file: file.with_context(|| format!("cannot open {path}"))?,
        })
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len();
        self.file
            .read_exact_at(into, address)
            .with_context(|| format!("cannot read {length} bytes of memory at {address:#x}"))
    }

    pub fn read_word(&self, address: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, address).with_context(|| {
            format!(
                "cannot write {} bytes of memory at {address:#x}",
                bytes.len()
            )
        })
    }
}
