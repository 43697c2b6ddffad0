//! Gives a stopped process memory, by system calls that one of its threads makes for us.

use crate::memory::code::Code;
use crate::memory::region::PRESENCE_BYTES;
use crate::memory::shared_memory::lengthen;
use crate::memory::space::Space;
use crate::patch::remove::PATIENCE;
use anyhow::{Context, Result, anyhow, bail};
use nopal_process::{Gadget, Lent, Mapping, Memory, Stopped, SystemCall, Thread};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{null, null_mut};

const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const EXECUTE: u64 = libc::PROT_EXEC as u64;

const NO_FILE: u64 = u64::MAX;

pub struct Injector<'a> {
    thread: Lent<'a>,
    pub gadget: Gadget,
    /// Address of a string in the process, with the name of nopal's memory.
    pub name: u64,
}

impl<'a> Injector<'a> {
    pub fn new(thread: &'a mut Thread) -> Result<Injector<'a>> {
        let maps = nopal_process::maps(thread.pid())?;
        Injector::among(thread, &maps)
    }

    /// The same for a process with these mappings.
    pub fn among(thread: &'a mut Thread, maps: &[Mapping]) -> Result<Injector<'a>> {
        let modules = nopal_process::modules_among(maps.to_vec());
        let gadget = nopal_process::find_system_call_gadget_in(thread.pid(), modules)?;
        Ok(Injector {
            thread: thread.lend(gadget),
            gadget,
            name: 0,
        })
    }

    /// The same, with a gadget that was found before, if that is still there.
    pub fn again(
        thread: &'a mut Thread,
        memory: &Memory,
        gadget: Gadget,
        name: u64,
    ) -> Result<Injector<'a>> {
        if !gadget.is_in(memory) {
            let found = Injector::new(thread)?;
            return Ok(Injector { name, ..found });
        }
        Ok(Injector {
            thread: thread.lend(gadget),
            gadget,
            name,
        })
    }

    pub fn call(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64> {
        self.calls(&[call(what, number, arguments)], &[])
    }

    pub fn process(&self) -> i32 {
        self.thread.pid()
    }

    /// Closes descriptors of the process.
    pub fn close(&mut self, files: &[u64]) -> Result<()> {
        self.calls(&[], files).map(|_| ())
    }

    /// Makes the process call the kernel, and close `files`, also where a call has failed: then the memory that `calls`
    /// have mapped is unmapped. Returns the result of the last of `calls`.
    fn calls(&mut self, calls: &[Call], files: &[u64]) -> Result<u64> {
        let closes = files.iter().map(|number| close(*number));
        let all: Vec<Call> = calls.iter().copied().chain(closes).collect();
        let made: Vec<SystemCall> = all.iter().map(|call| call.made).collect();
        let answers = self.thread.calls(&made)?;
        let last = all.iter().zip(&answers).next_back();
        if let Some((failed, answer)) = last
            && failed.made.has_failed(*answer)
        {
            let unclosed = match answers.len() <= calls.len() {
                true => files,
                false => &[],
            };
            let mapped: Vec<Range<u64>> = calls
                .iter()
                .zip(&answers)
                .filter_map(|(call, answer)| call.has_mapped(*answer))
                .collect();
            if !(mapped.is_empty() && unclosed.is_empty()) {
                let unmaps: Vec<Call> = mapped.iter().map(unmap).collect();
                self.calls(&unmaps, unclosed)?;
            }
            if failed.what == "mmap" && *answer == -i64::from(libc::EAGAIN) {
                bail!(LOCKED);
            }
            bail!("{} in the process failed: {}", failed.what, reason(*answer));
        }
        let last = calls
            .len()
            .checked_sub(1)
            .and_then(|last| answers.get(last));
        Ok(last.map_or(0, |answer| *answer as u64))
    }

    /// Private memory of the process, left out of core dumps. The first `kept` bytes are copied to forked children, the
    /// `wiped` ones behind them are zeroes there.
    pub fn private_memory(&mut self, space: &mut Space, kept: u64, wiped: u64) -> Result<u64> {
        let bytes = kept + wiped;
        let at = space
            .own_memory(bytes, 4096)
            .context("the address space is full")?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let calls = [
            map(at, bytes, READ | WRITE, flags, NO_FILE),
            advise(at, bytes, libc::MADV_DONTDUMP),
            advise(at + kept, wiped, libc::MADV_WIPEONFORK),
        ];
        self.calls(&calls, &[])?;
        space.take(at..at + bytes);
        Ok(at)
    }

    /// Has the other threads of the process stand still. While it has a descriptor of ours, they would see that: what
    /// they open gets another number, and what they fork keeps it.
    pub fn with_others_stopped<T>(
        &mut self,
        with: impl FnOnce(&mut Injector<'a>) -> Result<T>,
    ) -> Result<T> {
        self.thread.stop_others(PATIENCE)?;
        let result = with(self);
        self.thread.let_others_go();
        result
    }

    /// The same for others that stand still already.
    pub fn with_others<T>(
        &mut self,
        others: Stopped,
        with: impl FnOnce(&mut Injector<'a>) -> Result<T>,
    ) -> Result<T> {
        self.thread.keep_others(others);
        let result = with(self);
        self.thread.let_others_go();
        result
    }

    /// All others stand still, and must until the calls are made: a call that needs one of them fails soon.
    pub fn without_others(mut self) -> Injector<'a> {
        self.thread.without_others();
        self
    }

    /// New pieces of shared memory, which may be sealed: of each the process's descriptor, and ours. The other threads
    /// stand still until they are mapped.
    pub fn memory_files<const N: usize>(&mut self) -> Result<[(u64, File); N]> {
        let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        let words = [self.name, flags, 0, 0, 0, 0];
        let made = call("memfd_create", libc::SYS_memfd_create, words).made;
        let successes = |answers: &[i64]| -> Vec<u64> {
            let numbers = answers.iter().filter(|answer| !made.has_failed(**answer));
            numbers.map(|number| *number as u64).collect()
        };
        let process = self.thread.pid();
        let mut answers = self.thread.calls(&[made; N])?;
        if answers.last() == Some(&i64::from(-libc::EMFILE)) {
            self.calls(&[], &successes(&answers))?;
            let given = more_descriptors(process).context(NO_DESCRIPTORS)?;
            let made = self.thread.calls(&[made; N]);
            // Restoring fails only if the permission has changed since.
            let _ = limit_descriptors(process, given);
            answers = made?;
        }
        let numbers = successes(&answers);
        // A thread may have descriptors of its own: to others, the number may be that of a file of the program.
        let thread = self.thread.tid();
        let open = |number: &u64| {
            let path = format!("/proc/{process}/task/{thread}/fd/{number}");
            let opened = File::options().read(true).write(true).open(&path);
            opened.with_context(|| format!("cannot open {path}"))
        };
        let opened: Result<Vec<(u64, File)>> = numbers
            .iter()
            .map(|number| Ok((*number, open(number)?)))
            .collect();
        let failure = match opened.map(<[(u64, File); N]>::try_from) {
            Ok(Ok(files)) => return Ok(files),
            Ok(Err(_)) => {
                let refusal = answers.last().copied().unwrap_or_default();
                anyhow!("memfd_create in the process failed: {}", reason(refusal))
            }
            Err(error) => error,
        };
        self.calls(&[], &numbers)?;
        Err(failure)
    }

    /// Drops the process's own copies of pages of a file. Those in memory that is locked stay.
    pub fn give_back(&mut self, pages: &[Range<u64>]) -> Result<()> {
        let advice = |range: &Range<u64>| {
            advise(range.start, range.end - range.start, libc::MADV_DONTNEED).made
        };
        let calls: Vec<SystemCall> = pages.iter().map(advice).collect();
        let mut left = &calls[..];
        while !left.is_empty() {
            // The calls end with the first that is refused.
            let answers = self.thread.calls(left)?;
            left = &left[answers.len().clamp(1, left.len())..];
        }
        Ok(())
    }

    pub fn unmap(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        let calls: Vec<Call> = ranges.iter().map(unmap).collect();
        self.calls(&calls, &[]).map(|_| ())
    }

    /// Maps shared files, aligned like a chunk: the region, and behind it the page that is mapped wherever the region
    /// is. Closes both.
    pub fn map_region(
        &mut self,
        space: &mut Space,
        (region, bytes): (u64, u64),
        presence: u64,
    ) -> Result<u64> {
        let whole = bytes + PRESENCE_BYTES;
        let at = space
            .own_memory(whole, nopal_abi::CHUNK_BYTES as u64)
            .context("the address space is full")?;
        let calls = [
            map(at, bytes, READ | WRITE, libc::MAP_SHARED, region),
            map(at + bytes, PRESENCE_BYTES, READ, libc::MAP_SHARED, presence),
            advise(at, whole, libc::MADV_DONTDUMP),
        ];
        self.calls(&calls, &[region, presence])?;
        space.take(at..at + whole);
        Ok(at)
    }

    /// Maps `bytes` at `at`, which the process may run and read; only we write them, through the file behind. The mapping
    /// is a private one, which shows what the file has: a process that made it writable would change its own copies, and
    /// nothing of what its parent runs, which may have more rights. The other threads stand still.
    pub fn map_code(&mut self, at: u64, bytes: u64) -> Result<(Code, File)> {
        let [(number, file)] = self.memory_files()?;
        let length = lengthen(file.as_fd(), bytes);
        let calls = [
            map(at, bytes, READ | EXECUTE, libc::MAP_PRIVATE, number),
            advise(at, bytes, libc::MADV_DONTDUMP),
        ];
        self.calls(&calls, &[number])?;
        length.context("no memory for generated code")?;
        Ok((Code::map(&file, at, bytes)?, file))
    }
}

/// `mmap` fails with EAGAIN for this alone.
const LOCKED: &str = "the process locks all memory that it maps (mlockall), and nopal's would exceed its limit (`ulimit -l`)";

const NO_DESCRIPTORS: &str =
    "the process has no free file descriptor: `prlimit --nofile` as root raises its hard limit";

/// Lets a process have more descriptors than its limit is, and gives that.
fn more_descriptors(process: i32) -> std::io::Result<libc::rlimit> {
    /// More than are needed at once, where root raises the hard limit.
    const MORE: u64 = 16;
    let mut given = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the structure in.
    match unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, null(), &raw mut given) } {
        0 => {}
        _ => return Err(std::io::Error::last_os_error()),
    }
    let most = match given.rlim_cur < given.rlim_max {
        true => given.rlim_max,
        false => given.rlim_max.saturating_add(MORE),
    };
    let more = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    limit_descriptors(process, more).map(|()| given)
}

fn limit_descriptors(process: i32, limit: libc::rlimit) -> std::io::Result<()> {
    // SAFETY: the structure lives through the call.
    match unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, &raw const limit, null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[derive(Clone, Copy)]
struct Call {
    what: &'static str,
    made: SystemCall,
}

fn call(what: &'static str, number: i64, arguments: [u64; 6]) -> Call {
    Call {
        what,
        made: SystemCall {
            number,
            arguments,
            expected: None,
        },
    }
}

impl Call {
    /// The range that the call has mapped, wherever that is, by the kernel's answer.
    fn has_mapped(&self, answer: i64) -> Option<Range<u64>> {
        let is_error = (-4095..0).contains(&answer);
        let [_, bytes, ..] = self.made.arguments;
        let at = answer as u64;
        (self.made.number == libc::SYS_mmap && !is_error).then(|| at..at.saturating_add(bytes))
    }
}

fn unmap(range: &Range<u64>) -> Call {
    let words = [range.start, range.end - range.start, 0, 0, 0, 0];
    call("munmap", libc::SYS_munmap, words)
}

/// At this address, or not at all.
fn map(at: u64, bytes: u64, protection: u64, flags: i32, file: u64) -> Call {
    let flags = (flags | libc::MAP_FIXED_NOREPLACE) as u64;
    let mut call = call(
        "mmap",
        libc::SYS_mmap,
        [at, bytes, protection, flags, file, 0],
    );
    call.made.expected = Some(at as i64);
    call
}

fn advise(at: u64, bytes: u64, advice: i32) -> Call {
    let words = [at, bytes, advice as u64, 0, 0, 0];
    call("madvise", libc::SYS_madvise, words)
}

fn close(number: u64) -> Call {
    call("close", libc::SYS_close, [number, 0, 0, 0, 0, 0])
}

fn reason(answer: i64) -> String {
    match answer {
        -4095..0 => std::io::Error::from_raw_os_error(-answer as i32).to_string(),
        _ => "it chose another address".to_owned(),
    }
}
