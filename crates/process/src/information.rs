use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The auxiliary vector that the kernel passed to the program at `execve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Auxiliary {
    /// `AT_ENTRY`: entry point of the program, not of its loader.
    pub entry: Option<u64>,
    /// `AT_PHDR`: program headers of the program.
    pub program_headers: Option<u64>,
    /// `AT_PHNUM`.
    pub program_header_count: Option<u64>,
    /// `AT_BASE`: where the loader is; absent for static programs.
    pub loader_base: Option<u64>,
    /// `AT_SYSINFO_EHDR`: the vDSO.
    pub vdso: Option<u64>,
}

/// The fields of `/proc/PID/status` that a tracer needs. Signal sets have bit `signal - 1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub state: char,
    /// Process to which the thread belongs.
    pub process: i32,
    pub tracer: i32,
    /// Real, effective, saved, file system.
    pub users: [u32; 4],
    /// Permitted ones, bit `CAP_…`.
    pub capabilities: u64,
    /// 0 off, 1 strict, 2 filters.
    pub seccomp: u32,
    /// Unknown before Linux 5.9.
    pub seccomp_filters: Option<u32>,
    /// In every namespace from ours inwards.
    pub namespace_ids: Vec<i32>,
    pub blocked: u64,
    /// Signals pending for the thread itself, not for its process.
    pub pending: u64,
    /// The same for its process.
    pub pending_for_all: u64,
    pub ignored: u64,
    pub caught: u64,
    /// KiB of memory that are locked.
    pub locked: u64,
}

impl Status {
    /// Ended: a zombie, or about to vanish.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads a file of `/proc`. These show no size, so `fs::read` would read them in many small parts.
pub(crate) fn read(path: &str) -> Result<Vec<u8>> {
    contents(path).with_context(|| format!("cannot read {path}"))
}

/// The same for a file that may be gone, without an `anyhow` error, which would make a backtrace if the environment
/// requests them.
pub(crate) fn contents(path: &str) -> io::Result<Vec<u8>> {
    const MOST: usize = 16 << 10;
    let mut text = Vec::with_capacity(MOST);
    // `File::read_to_end` would query the size first.
    File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The path below which `/proc` shows the memory and files of a process: if its first thread has ended, only other
/// threads show them.
pub fn directory(pid: i32) -> String {
    let others = || {
        threads(pid)
            .ok()?
            .into_iter()
            .find(|&tid| thread_alive(pid, tid))
    };
    // A process without memory has no program.
    let has_memory = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    match (!has_memory && !thread_alive(pid, pid))
        .then(others)
        .flatten()
    {
        // The kernel finds every thread there, though it lists first ones only.
        Some(tid) => format!("/proc/{tid}"),
        None => format!("/proc/{pid}"),
    }
}

pub fn auxiliary(pid: i32) -> Result<Auxiliary> {
    let words = read(&format!("{}/auxv", directory(pid)))?;
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
    };
    let mut found = Auxiliary::default();
    for pair in words.chunks_exact(16) {
        let value = Some(word(&pair[8..])).filter(|&value| value != 0);
        match word(&pair[..8]) {
            libc::AT_ENTRY => found.entry = value,
            libc::AT_PHDR => found.program_headers = value,
            libc::AT_PHNUM => found.program_header_count = value,
            libc::AT_BASE => found.loader_base = value,
            libc::AT_SYSINFO_EHDR => found.vdso = value,
            libc::AT_NULL => break,
            _ => {}
        }
    }
    Ok(found)
}

/// All processes, zombies among them.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// How often a thread has got a processor. `None`: it has ended, or the kernel does not count.
pub(crate) fn times_scheduled(pid: i32, tid: i32) -> Option<u64> {
    scheduling(pid, tid, 2)
}

/// The time that a thread has had a processor. `None`: it has ended, or the kernel does not count.
pub(crate) fn time_on_processor(pid: i32, tid: i32) -> Option<Duration> {
    scheduling(pid, tid, 0).map(Duration::from_nanos)
}

/// The time that a thread has had a processor, or waited for one: 0 where the kernel does not count.
pub fn time_awake(pid: i32, tid: i32) -> Duration {
    let numbers = [0, 1].map(|which| scheduling(pid, tid, which).unwrap_or_default());
    Duration::from_nanos(numbers[0].saturating_add(numbers[1]))
}

/// The kernel's numbers: nanoseconds with a processor, and in which it waited for one; how often it has got one.
fn scheduling(pid: i32, tid: i32, which: usize) -> Option<u64> {
    let text = contents(&format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let number = std::str::from_utf8(&text)
        .ok()?
        .split_whitespace()
        .nth(which)?;
    number.parse().ok().filter(|number| *number > 0)
}

/// The threads of a process, zombies among them.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task");
    let mut found = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| format!("cannot list {path}"))? {
        // The process may end between two entries.
        let Ok(entry) = entry else { break };
        found.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok()),
        );
    }
    found.sort_unstable();
    Ok(found)
}

pub fn status(pid: i32) -> Result<Status> {
    parse_status(&read(&format!("/proc/{pid}/status"))?)
}

pub fn thread_status(pid: i32, tid: i32) -> Result<Status> {
    parse_status(&read(&format!("/proc/{pid}/task/{tid}/status"))?)
}

fn parse_status(text: &[u8]) -> Result<Status> {
    let text = String::from_utf8_lossy(text);
    let mut status = Status {
        state: '?',
        ..Status::default()
    };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        let set = || u64::from_str_radix(value, 16).with_context(|| format!("status: {line}"));
        let number = || {
            value
                .parse::<i32>()
                .with_context(|| format!("status: {line}"))
        };
        match key {
            "State" => status.state = value.chars().next().unwrap_or('?'),
            "Tgid" => status.process = number()?,
            "TracerPid" => status.tracer = number()?,
            "Uid" => {
                let users = value.split_ascii_whitespace().map(str::parse);
                let users = users
                    .collect::<Result<Vec<u32>, _>>()
                    .context("status: users")?;
                status.users = users.try_into().ok().context("status: not four users")?;
            }
            "Seccomp" => status.seccomp = value.parse().context("status: seccomp")?,
            "Seccomp_filters" => status.seccomp_filters = value.parse().ok(),
            "NSpid" => {
                status.namespace_ids = value
                    .split_ascii_whitespace()
                    .filter_map(|id| id.parse().ok())
                    .collect();
            }
            "CapPrm" => status.capabilities = set()?,
            "SigPnd" => status.pending = set()?,
            "ShdPnd" => status.pending_for_all = set()?,
            "SigBlk" => status.blocked = set()?,
            "SigIgn" => status.ignored = set()?,
            "SigCgt" => status.caught = set()?,
            "VmLck" => {
                let number = value.split_ascii_whitespace().next();
                status.locked = number.and_then(|it| it.parse().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    if status.state == '?' || status.process == 0 {
        bail!("status: state or process missing");
    }
    Ok(status)
}

/// The fields of `/proc/…/stat` after the name, which may itself hold spaces and parentheses: `[0]` is field 3, the
/// state.
pub(crate) fn stat_fields(path: &str) -> Result<Vec<String>> {
    let text = read(path)?;
    let after = text
        .iter()
        .rposition(|&byte| byte == b')')
        .context("stat: name missing")?
        + 1;
    let fields = String::from_utf8_lossy(&text[after..]);
    Ok(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

fn stat_field<T: std::str::FromStr>(path: &str, field: usize) -> Result<T> {
    let fields = stat_fields(path)?;
    let value = fields.get(field - 3).and_then(|value| value.parse().ok());
    value.with_context(|| format!("{path}: field {field} missing"))
}

/// The time at which the process started, in clock ticks since boot. It tells processes apart that had the same id.
pub fn start_time(pid: i32) -> Result<u64> {
    stat_field(&format!("/proc/{pid}/stat"), 22)
}

pub fn parent(pid: i32) -> Result<i32> {
    stat_field(&format!("/proc/{pid}/stat"), 4)
}

/// Whether the process exists and has not ended.
pub fn alive(pid: i32) -> bool {
    // The first thread may have ended while others run; the process then looks like a zombie, with threads.
    match state(&format!("/proc/{pid}/stat")) {
        Some('Z' | 'X' | 'x') => threads(pid)
            .is_ok_and(|tids| tids.iter().any(|&tid| tid != pid && thread_alive(pid, tid))),
        state => state.is_some(),
    }
}

pub fn thread_alive(pid: i32, tid: i32) -> bool {
    let state = state(&format!("/proc/{pid}/task/{tid}/stat"));
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

/// The futex that a thread waits at, as far as the kernel tells.
pub fn waits_at(pid: i32, tid: i32) -> Option<u64> {
    let text = contents(&format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_ascii_whitespace();
    let is_futex = words.next()?.parse() == Ok(libc::SYS_futex);
    let address = words.next()?.strip_prefix("0x")?;
    u64::from_str_radix(address, 16).ok().filter(|_| is_futex)
}

fn state(path: &str) -> Option<char> {
    let text = contents(path).ok()?;
    let after = text.iter().rposition(|&byte| byte == b')')? + 2;
    text.get(after).map(|&byte| byte.into())
}

/// Whether a process still has its memory. One that is about to end is alive without it for a moment.
pub fn has_memory(pid: i32) -> bool {
    let has = |tid| thread_has_memory(pid, tid);
    // A thread that executes a program may have taken over the first one's id meanwhile.
    threads(pid).is_ok_and(|tids| tids.into_iter().any(has)) || has(pid)
}

/// The same of one thread: one that has ended has none.
pub(crate) fn thread_has_memory(pid: i32, tid: i32) -> bool {
    let pages = fs::read_to_string(format!("/proc/{pid}/task/{tid}/statm"));
    pages.is_ok_and(|pages| !pages.starts_with("0 "))
}

/// The command name (at most 15 bytes).
pub fn name(pid: i32) -> Result<String> {
    name_in(&format!("/proc/{pid}/comm"))
}

pub fn thread_name(pid: i32, tid: i32) -> Result<String> {
    name_in(&format!("/proc/{pid}/task/{tid}/comm"))
}

fn name_in(path: &str) -> Result<String> {
    let text = read(path)?;
    let name = text.strip_suffix(b"\n").unwrap_or(&text);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The processes that a process has started, and that have not ended, as far as the kernel tells.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("{}/task", directory(pid))).into_iter();
    let texts = threads
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut children = Vec::new();
    for text in texts {
        let ids = text.split_ascii_whitespace();
        children.extend(ids.filter_map(|id| id.parse::<i32>().ok()));
    }
    children.retain(|child| status(*child).is_ok_and(|status| !status.is_dead()));
    children.sort_unstable();
    children
}

pub fn arguments(pid: i32) -> Result<Vec<OsString>> {
    let text = read(&format!("{}/cmdline", directory(pid)))?;
    let Some(text) = text
        .strip_suffix(b"\0")
        .or((!text.is_empty()).then_some(&text[..]))
    else {
        return Ok(Vec::new());
    };
    Ok(text
        .split(|&byte| byte == 0)
        .map(|one| OsString::from_vec(one.to_vec()))
        .collect())
}

/// The file that the process runs, as the process would name it.
pub fn executable(pid: i32) -> Result<PathBuf> {
    let path = format!("{}/exe", directory(pid));
    fs::read_link(&path).with_context(|| format!("cannot read {path}"))
}
