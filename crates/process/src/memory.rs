use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use crate::information::{directory, threads};
use crate::ptrace;

const WORD: usize = 8;

/// The memory of a process, through `/proc/PID/mem`. It belongs to the program that ran when it was opened; after
/// `execve` a new one is needed.
///
/// Protection of pages does not matter to writes, unless the kernel was built or started so
/// (`proc_mem.force_override`): then protected pages are written only by the thread that traces the process's first
/// thread, or by ptrace alone, so that a thread has to be stopped.
#[derive(Debug)]
pub struct Memory {
    process: i32,
    file: File,
}

impl Memory {
    pub fn open(pid: i32) -> Result<Memory> {
        let path = format!("{}/mem", directory(pid));
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Memory {
            process: pid,
            file: file.with_context(|| format!("cannot open {path}"))?,
        })
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len();
        self.read_bytes(address, into)
            .with_context(|| format!("cannot read {length} bytes of memory at {address:#x}"))
    }

    pub fn read_word(&self, address: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = self.write_bytes(address, bytes);
        let written = written.or_else(|error| self.poke(address, bytes).map_err(|_| error));
        written.with_context(|| {
            format!(
                "cannot write {} bytes of memory at {address:#x}",
                bytes.len()
            )
        })
    }

    pub(crate) fn read_bytes(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, address)
    }

    /// Through the file alone.
    pub(crate) fn write_bytes(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }

    /// Writes the words that are to change by ptrace: this thread must trace a thread that it has stopped. A word is
    /// written whole, also if the tool is killed.
    pub(crate) fn poke(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let start = address & !(WORD as u64 - 1);
        let before = (address - start) as usize;
        let mut old = vec![0; (before + bytes.len()).next_multiple_of(WORD)];
        self.read_bytes(start, &mut old)?;
        let mut new = old.clone();
        new[before..before + bytes.len()].copy_from_slice(bytes);
        let words = old.chunks_exact(WORD).zip(new.chunks_exact(WORD));
        let changed = words.enumerate().filter(|(_, (old, new))| old != new);
        let mut stopped = self.process;
        for (index, (_, new)) in changed {
            let at = start + (index * WORD) as u64;
            let word = u64::from_le_bytes(new.try_into().expect("a word"));
            if let Err(error) = ptrace::poke(stopped, at, word) {
                let threads = threads(self.process).unwrap_or_default();
                let mut others = threads.into_iter().filter(|tid| *tid != stopped);
                let other = others.find(|tid| ptrace::poke(*tid, at, word).is_ok());
                stopped = other.ok_or(error)?;
            }
        }
        Ok(())
    }
}

/// Whether so many bytes are in one word.
pub(crate) fn in_one_word(address: u64, length: usize) -> bool {
    address as usize % WORD + length <= WORD
}
