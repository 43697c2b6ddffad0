//! A file of a trace, mapped to be read.

use crate::directory;
use anyhow::{Context, Result};
use memmap2::{Mmap, UncheckedAdvice};
use std::ops::Range;
use std::path::Path;

/// What the kernel maps at once around a page that is read (its `fault_around_bytes`), and a multiple of any page size.
const AROUND: usize = 1 << 16;

pub struct Mapping {
    /// None when the file is empty.
    map: Option<Mmap>,
}

impl Mapping {
    pub fn open(path: &Path) -> Result<Mapping> {
        let context = || format!("cannot read {}", path.display());
        let file = directory::open(path)?;
        if file.metadata().with_context(context)?.len() == 0 {
            return Ok(Mapping { map: None });
        }
        // SAFETY: a trace is private to its owner, and its writer only appends to what a reader may see.
        let map = unsafe { Mmap::map(&file) }.with_context(context)?;
        Ok(Mapping { map: Some(map) })
    }

    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// The whole words.
    pub fn words(&self) -> &[u64] {
        // SAFETY: any bytes are values of u64.
        let (before, words, _) = unsafe { self.bytes().align_to() };
        if before.is_empty() { words } else { &[] }
    }

    /// Lets the kernel have the memory of these words back, and what it mapped around them, for a reader that goes on
    /// to words behind them. What is read again comes from the file again.
    pub fn release(&self, words: Range<usize>) {
        let begin = (words.start * 8 / AROUND).saturating_sub(1) * AROUND;
        let end = self.bytes().len().min(words.end * 8) / AROUND * AROUND;
        if let Some(map) = &self.map
            && begin < end
        {
            // SAFETY: the file is mapped shared and read-only, so dropping its pages changes nothing that can be read.
            let advised = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, end - begin)
            };
            // The memory stays taken at worst.
            let _ = advised;
        }
    }
}
