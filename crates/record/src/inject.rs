//! Gives a stopped process memory, by system calls that one of its threads makes for us.

use crate::code::Code;
use crate::space::Space;
use anyhow::{Context, Result, ensure};
use nopal_process::Thread;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;

const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXECUTE: u64 = libc::PROT_EXEC as u64;

pub struct Injector<'a> {
    thread: &'a mut Thread,
    gadget: u64,
    /// Address of a string in the process, for what nopal's memory is called.
    pub name: u64,
}

impl<'a> Injector<'a> {
    pub fn new(thread: &'a mut Thread) -> Result<Injector<'a>> {
        let gadget = nopal_process::find_system_call_gadget(thread.pid())?;
        Ok(Injector {
            thread,
            gadget,
            name: 0,
        })
    }

    pub fn call(&mut self, what: &str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        let answer = self
            .thread
            .remote_system_call(self.gadget, number, arguments)?;
        ensure!(
            !(-4095..0).contains(&answer),
            "{what} in the process failed: {}",
            std::io::Error::from_raw_os_error(-answer as i32)
        );
        Ok(answer as u64)
    }

    fn map(&mut self, at: u64, bytes: u64, protection: u64, flags: i32, file: i64) -> Result<u64> {
        let flags = (flags | libc::MAP_FIXED_NOREPLACE) as u64;
        let mapped = self.call(
            "mmap",
            libc::SYS_mmap,
            [at, bytes, protection, flags, file as u64, 0],
        )?;
        ensure!(mapped == at, "mmap in the process chose another address");
        Ok(mapped)
    }

    fn advise(&mut self, at: u64, bytes: u64, advice: i32) -> Result<()> {
        self.call(
            "madvise",
            libc::SYS_madvise,
            [at, bytes, advice as u64, 0, 0, 0],
        )
        .map(|_| ())
    }

    /// Private memory of the process, left out of core dumps, and wiped in forked children if asked.
    pub fn private_memory(&mut self, space: &mut Space, bytes: u64, wiped: bool) -> Result<u64> {
        let at = space
            .own_memory(bytes, 4096)
            .context("the address space is full")?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.map(at, bytes, READ | WRITE, flags, -1)?;
        self.advise(at, bytes, libc::MADV_DONTDUMP)?;
        if wiped {
            self.advise(at, bytes, libc::MADV_WIPEONFORK)?;
        }
        space.take(at..at + bytes);
        Ok(at)
    }

    /// New shared memory: the process's descriptor, and ours.
    pub fn memory_file(&mut self) -> Result<(u64, OwnedFd)> {
        let number = self.call(
            "memfd_create",
            libc::SYS_memfd_create,
            [self.name, 1, 0, 0, 0, 0],
        )?;
        let path = format!("/proc/{}/fd/{number}", self.thread.pid());
        let opened = File::options().read(true).write(true).open(&path);
        match opened {
            Ok(file) => Ok((number, file.into())),
            Err(error) => {
                self.close(number)?;
                Err(error).with_context(|| format!("cannot open {path}"))
            }
        }
    }

    /// Drops the process's own copies of pages of a file.
    pub fn give_back(&mut self, pages: &Range<u64>) -> Result<()> {
        self.advise(pages.start, pages.end - pages.start, libc::MADV_DONTNEED)
    }

    pub fn unmap(&mut self, range: &Range<u64>) -> Result<()> {
        let words = [range.start, range.end - range.start, 0, 0, 0, 0];
        self.call("munmap", libc::SYS_munmap, words).map(|_| ())
    }

    pub fn close(&mut self, number: u64) -> Result<()> {
        self.call("close", libc::SYS_close, [number, 0, 0, 0, 0, 0])
            .map(|_| ())
    }

    /// Maps a shared file, aligned like a chunk.
    pub fn map_shared(&mut self, space: &mut Space, number: u64, bytes: u64) -> Result<u64> {
        let at = space
            .own_memory(bytes, nopal_abi::CHUNK_BYTES as u64)
            .context("the address space is full")?;
        self.map(at, bytes, READ | WRITE, libc::MAP_SHARED, number as i64)?;
        self.advise(at, bytes, libc::MADV_DONTDUMP)?;
        space.take(at..at + bytes);
        Ok(at)
    }

    /// Maps `bytes` at `at`, which the process may run and read; only we write them, through the file behind.
    pub fn map_code(&mut self, at: u64, bytes: u64) -> Result<Code> {
        let (number, file) = self.memory_file()?;
        let file = File::from(file);
        let mapped = file
            .set_len(bytes)
            .context("no memory for generated code")
            .and_then(|()| self.map(at, bytes, READ | EXECUTE, libc::MAP_SHARED, number as i64))
            .and_then(|_| self.advise(at, bytes, libc::MADV_DONTDUMP));
        self.close(number)?;
        mapped.and_then(|()| Code::map(&file, at, bytes))
    }
}
