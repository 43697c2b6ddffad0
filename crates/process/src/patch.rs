//! Changes of a process's text: bytes that are as expected are replaced through `/proc/PID/mem`.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use nopal_beside::both;

use crate::Pages;
use crate::memory::{Memory, in_one_word};

const PAGE: u64 = 4096;
/// Pages that follow one another are read and written together, up to about this many bytes: few enough that the
/// allocator has them at hand.
const RUN: u64 = 1 << 16;

/// The bytes whose pages are looked up at once: as many as a page table has, which takes little longer than one.
const AHEAD: u64 = 512 * PAGE;

/// From this many runs on, two threads patch.
const WORTH_A_THREAD: usize = 8;

/// Bytes to replace.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    pub address: u64,
    pub expected: &'a [u8],
    /// As long as `expected`.
    pub new: &'a [u8],
}

/// Files that a stopped process has mapped privately.
#[derive(Debug, Default)]
pub struct Behind<'a> {
    /// `None` if the kernel does not show pages.
    pages: Option<Pages>,
    /// The start of each mapping, on whole pages, and the bytes of its file from there on.
    files: Vec<(u64, &'a [u8])>,
}

impl<'a> Behind<'a> {
    pub fn new(pid: i32, files: Vec<(u64, &'a [u8])>) -> Behind<'a> {
        let pages = Pages::of(pid).ok();
        Behind { pages, files }
    }

    fn untouched(&self) -> Untouched<'_> {
        Untouched {
            behind: self,
            start: 0,
            own: Vec::new(),
        }
    }
}

/// Text that the process has not written, known without reading memory.
struct Untouched<'a> {
    behind: &'a Behind<'a>,
    /// The pages that were looked at last: where they start, and whether each is the process's own. Pages that have been
    /// patched since are not asked for again.
    start: u64,
    own: Vec<bool>,
}

impl<'a> Untouched<'a> {
    /// The bytes from `start` to `end`, on whole pages. `None` if not known.
    fn bytes(&mut self, start: u64, end: u64) -> Option<&'a [u8]> {
        let (rest, bytes) = self.behind.files.iter().find_map(|(from, bytes)| {
            let rest = bytes.get(start.checked_sub(*from)? as usize..)?;
            Some((rest, rest.get(..(end - start) as usize)?))
        })?;
        if start < self.start || end > self.start + self.own.len() as u64 * PAGE {
            let ahead = (rest.len() as u64).min(AHEAD).max(end - start);
            self.own = self
                .behind
                .pages
                .as_ref()?
                .are_own(start..start + ahead)
                .ok()?;
            self.start = start;
        }
        let from = ((start - self.start) / PAGE) as usize;
        let own = &self.own[from..from + bytes.len().div_ceil(PAGE as usize)];
        (!own.contains(&true)).then_some(bytes)
    }
}

/// The outcome of one [`Patch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// Other bytes were there; nothing was written.
    Differs {
        found: Vec<u8>,
    },
    /// `errno` of the read; nothing was written.
    Unreadable(i32),
    /// `errno` of the write; the old bytes are there.
    Unwritable(i32),
}

/// The place of a patch that was not written, and why.
type Failure = (usize, Outcome);

impl Memory {
    /// Replaces bytes that are as expected, in whole pages. No other process may write to those pages meanwhile. The
    /// outcomes are in the order of the patches. Patches must not overlap.
    pub fn write_patches(&self, patches: &[Patch]) -> Result<Vec<Outcome>> {
        self.write_patches_over(&Behind::default(), patches)
    }

    /// The same with the files `behind` the memory: pages that equal their file are not read. Reading would map a page,
    /// and the copy that writing makes would then have to be announced to all processors.
    pub fn write_patches_over(&self, behind: &Behind, patches: &[Patch]) -> Result<Vec<Outcome>> {
        let mut order = patches.iter().enumerate().collect::<Vec<_>>();
        order.sort_unstable_by_key(|(_, patch)| patch.address);
        let mut free = 0;
        for (_, patch) in &order {
            if patch.expected.len() != patch.new.len() || patch.new.is_empty() {
                bail!(
                    "patch at {:#x}: {} bytes for {}",
                    patch.address,
                    patch.new.len(),
                    patch.expected.len()
                );
            }
            if patch.address < free {
                bail!("patches overlap at {:#x}", patch.address);
            }
            free = end_of(patch)?;
        }
        let runs = runs(&order)?;
        let next = AtomicUsize::new(0);
        // Each thread takes the next run when it has finished one: runs differ in length.
        let patch = |may_write: &dyn Fn(&[Failure]) -> bool| {
            let mut failures = Vec::new();
            let mut untouched = behind.untouched();
            while may_write(&failures)
                && let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let before = untouched.bytes(run.start, run.end);
                self.patch_run(run.start, run.end, before, run.patches, &mut failures);
            }
            failures
        };
        let is_unwritable = |(_, outcome): &Failure| matches!(outcome, Outcome::Unwritable(_));
        let always = |_: &[_]| true;
        let failures = if runs.len() < WORTH_A_THREAD {
            patch(&always)
        } else {
            // Most of the time goes into the process's own copies of its pages, which the kernel makes one by one. The
            // kernel may let nobody write but the thread that traces the process, which is this one.
            let until_refused = |failures: &[_]| !failures.iter().any(is_unwritable);
            let (mut failures, others) = both(|| patch(&always), || patch(&until_refused));
            let (refused, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_unwritable);
            failures.extend(others);
            for (index, _) in refused {
                self.patch_one((index, &patches[index]), &mut failures);
            }
            failures
        };
        let mut outcomes = vec![Outcome::Written; patches.len()];
        for (index, failure) in failures {
            outcomes[index] = failure;
        }
        Ok(outcomes)
    }

    /// `before`: the current bytes, if known.
    fn patch_run(
        &self,
        start: u64,
        end: u64,
        before: Option<&[u8]>,
        run: &[(usize, &Patch)],
        failures: &mut Vec<(usize, Outcome)>,
    ) {
        let known = failures.len();
        let mut read;
        let before = match before {
            Some(before) => before,
            None => {
                read = vec![0; (end - start) as usize];
                if let Err(error) = self.read_bytes(start, &mut read) {
                    return self.patch_singly(run, failures, Outcome::Unreadable(number(&error)));
                }
                &read[..]
            }
        };
        let mut after = before.to_vec();
        for (index, patch) in run {
            let from = (patch.address - start) as usize;
            let range = from..from + patch.new.len();
            if before[range.clone()] == *patch.expected {
                after[range].copy_from_slice(patch.new);
            } else {
                let found = before[range].to_vec();
                failures.push((*index, Outcome::Differs { found }));
            }
        }
        if before == after {
            return;
        }
        if let Err(error) = self.write_bytes(start, &after) {
            // Some pages may have been written. If that cannot be undone, none had been.
            for (index, page) in before.chunks(PAGE as usize).enumerate() {
                let _ = self.write_bytes(start + index as u64 * PAGE, page);
            }
            failures.truncate(known);
            // A thread must never run half a jump, which it could if the tool were killed between two words.
            if let [(_, patch)] = run
                && in_one_word(patch.address, patch.new.len())
                && self.poke(patch.address, patch.new).is_ok()
            {
                return;
            }
            self.patch_singly(run, failures, Outcome::Unwritable(number(&error)));
        }
    }

    /// One page of a run cannot be accessed: still patch the others.
    fn patch_singly(
        &self,
        run: &[(usize, &Patch)],
        failures: &mut Vec<(usize, Outcome)>,
        failure: Outcome,
    ) {
        if let [(index, _)] = run {
            failures.push((*index, failure));
            return;
        }
        for one in run {
            self.patch_one(*one, failures);
        }
    }

    fn patch_one(&self, one: (usize, &Patch), failures: &mut Vec<(usize, Outcome)>) {
        let patch = one.1;
        if let Ok(end) = page_end(patch) {
            self.patch_run(patch.address & !(PAGE - 1), end, None, &[one], failures);
        }
    }
}

/// Pages that follow one another, with the patches in them, each with its number.
struct Run<'a> {
    start: u64,
    end: u64,
    patches: &'a [(usize, &'a Patch<'a>)],
}

fn runs<'a>(mut rest: &'a [(usize, &'a Patch<'a>)]) -> Result<Vec<Run<'a>>> {
    let mut runs = Vec::new();
    while let Some((_, first)) = rest.first() {
        let start = first.address & !(PAGE - 1);
        let mut end = page_end(first)?;
        let mut count = 1;
        for (_, patch) in &rest[1..] {
            if patch.address >= end && (patch.address >= end + PAGE || end - start >= RUN) {
                break;
            }
            end = end.max(page_end(patch)?);
            count += 1;
        }
        let (patches, after) = rest.split_at(count);
        runs.push(Run {
            start,
            end,
            patches,
        });
        rest = after;
    }
    Ok(runs)
}

fn end_of(patch: &Patch) -> Result<u64> {
    // The last page is excluded, so that the end of a page is an address, too.
    let end = patch.address.checked_add(patch.new.len() as u64);
    end.filter(|&end| end < u64::MAX - 2 * PAGE)
        .context("patch beyond the address space")
}

fn page_end(patch: &Patch) -> Result<u64> {
    Ok(end_of(patch)?.next_multiple_of(PAGE))
}

fn number(error: &io::Error) -> i32 {
    // A mapping that ends early reads as end of file, without an error of the kernel.
    error.raw_os_error().unwrap_or(libc::EFAULT)
}
