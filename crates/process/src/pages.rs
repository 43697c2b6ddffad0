//! The page map of a process: which pages of its memory are present.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

use crate::information::directory;

const PAGE: u64 = 4096;

/// Bits of an entry of the map: the page is in memory, it is swapped out, it is a file's or shared.
const IN_MEMORY: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// The page map of a process. Pages that are not present are zero; reading them would not create them, but takes time.
#[derive(Debug)]
pub struct Pages {
    map: File,
}

impl Pages {
    pub fn of(pid: i32) -> Result<Pages> {
        let path = format!("{}/pagemap", directory(pid));
        let map = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        Ok(Pages { map })
    }

    /// The pieces of a range that have pages, in memory or swapped out.
    pub fn present(&self, part: Range<u64>) -> Result<Vec<Range<u64>>> {
        let mut runs = Vec::<Range<u64>>::new();
        self.each(part.clone(), |page, word| {
            if word & (IN_MEMORY | SWAPPED) == 0 {
                return;
            }
            let start = (page * PAGE).max(part.start);
            let end = ((page + 1) * PAGE).min(part.end);
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        })?;
        Ok(runs)
    }

    /// For each page of a private file mapping whether it may be the process's own copy by now.
    pub fn are_own(&self, part: Range<u64>) -> Result<Vec<bool>> {
        let mut own = Vec::new();
        self.each(part, |_, word| {
            own.push(word & SWAPPED != 0 || word & IN_MEMORY != 0 && word & OF_FILE == 0);
        })?;
        Ok(own)
    }

    /// Calls `with` for each page, with its number and its entry.
    fn each(&self, part: Range<u64>, mut with: impl FnMut(u64, u64)) -> Result<()> {
        const AT_ONCE: u64 = 4096;
        let (first, end) = (part.start / PAGE, part.end.div_ceil(PAGE));
        let mut entries = vec![0; (end - first).min(AT_ONCE) as usize * 8];
        for page in (first..end).step_by(AT_ONCE as usize) {
            let count = (end - page).min(AT_ONCE) as usize;
            let entries = &mut entries[..count * 8];
            self.map
                .read_exact_at(entries, page * 8)
                .context("cannot see which pages a process has")?;
            let words = entries
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_ne_bytes(*word));
            (page..)
                .zip(words)
                .for_each(|(page, word)| with(page, word));
        }
        Ok(())
    }
}
