//! `mlockall` in the program's name. The kernel compares the size of the whole address space with what a user may lock,
//! nopal's memory included; the program's own may fit.

use crate::memory::inject::Injector;
use crate::tracee::Tracee;
use anyhow::{Context, Result};
use nopal_process::{Mapping, Thread};
use std::ops::Range;

const CURRENT: u64 = libc::MCL_CURRENT as u64;
const FUTURE: u64 = libc::MCL_FUTURE as u64;
const ON_FAULT: u64 = libc::MCL_ONFAULT as u64;

/// The kernel's own page, which belongs to no process, lies above.
const TOP: u64 = 1 << 47;

/// The mappings to lock, if the kernel would lock them were it not for nopal's.
pub fn lockable(tracee: &Tracee, flags: u64) -> Result<Option<Vec<Mapping>>> {
    if flags & CURRENT == 0 || flags & !(CURRENT | FUTURE | ON_FAULT) != 0 {
        return Ok(None);
    }
    let mut mappings = nopal_process::maps(tracee.process)?;
    without(&mut mappings, &tracee.own_memory()?);
    let total: u64 = mappings.iter().map(|map| map.end - map.start).sum();
    Ok((total <= limit(tracee.process)?).then_some(mappings))
}

/// How much the process may lock. Unlike `prlimit`, this may be asked of a process that has changed its user.
fn limit(process: i32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
    locked_limit(&text).context("the limit of locked memory is not known")
}

fn locked_limit(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

fn without(mappings: &mut Vec<Mapping>, own: &[Range<u64>]) {
    let ours = |map: &Mapping| own.iter().any(|range| range.contains(&map.start));
    mappings.retain(|map| map.start < TOP && !ours(map));
}

/// Locks these mappings as `mlockall` does. Those that cannot be locked are left, as the kernel leaves them.
pub fn lock(thread: &mut Thread, mappings: &[Mapping], flags: u64) -> Result<()> {
    let mut injector = Injector::new(thread)?;
    let on_fault = u64::from(flags & ON_FAULT != 0);
    injector.call("munlockall", libc::SYS_munlockall, [0; 6])?;
    for map in mappings {
        let words = [map.start, map.end - map.start, on_fault, 0, 0, 0];
        let _ = injector.call("mlock2", libc::SYS_mlock2, words);
    }
    if flags & FUTURE != 0 {
        let words = [flags & !CURRENT, 0, 0, 0, 0, 0];
        injector.call("mlockall", libc::SYS_mlockall, words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_counts() {
        let line = |soft| format!("Limit  Soft Limit\nMax locked memory   {soft}   99  bytes\n");
        assert_eq!(locked_limit(&line("8388608")), Some(8 << 20));
        assert_eq!(locked_limit(&line("unlimited")), Some(u64::MAX));
        assert_eq!(locked_limit(&line("?")), None);
        assert_eq!(locked_limit("Max processes 5 5\n"), None);
    }

    #[test]
    fn what_is_nopals_is_not_locked() {
        let map = |start, end| Mapping {
            start,
            end,
            readable: true,
            writable: true,
            executable: false,
            shared: false,
            offset: 0,
            device: 0,
            inode: 0,
            path: None,
            label: None,
            deleted: false,
        };
        let program = [map(0x1000, 0x2000), map(0x8000, 0x9000)];
        let mut mappings = program.to_vec();
        mappings.push(map(0x2000, 0x5000));
        mappings.push(map(0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000));
        without(&mut mappings, std::slice::from_ref(&(0x2000..0x5000)));
        assert_eq!(mappings, program);
    }
}
