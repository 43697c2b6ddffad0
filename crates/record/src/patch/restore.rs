//! Frees memory of a process when nopal detaches: copies of text that equal the file, and nopal's own memory.

use crate::memory::inject::Injector;
use crate::patch::change::{Change, Patches};
use crate::patch::journal::Journal;
use anyhow::Result;
use nopal_process::{Mapping, Memory, Module};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;

/// Takes changes back that are still as they were made. Changes of unloaded libraries may overlap those of later ones.
pub fn take_back(changes: &[Change], memory: &Memory) -> Result<()> {
    let mut left = changes.to_vec();
    left.sort_by_key(|change| change.address);
    while !left.is_empty() {
        let mut end = 0;
        let (now, later): (Vec<Change>, Vec<Change>) = left.into_iter().partition(|change| {
            let free = end <= change.window().start;
            end = if free { change.window().end } else { end };
            free
        });
        memory.write_patches(&Patches::of(&now).removal())?;
        left = later;
    }
    Ok(())
}

/// The present state of text that had jumps in it.
#[derive(Default)]
pub struct Text {
    /// The ranges that are as in their file: the kernel may drop the process's own copies.
    pub unchanged: Vec<Range<u64>>,
    /// Where the program itself has written over a jump. It may have kept the former bytes.
    pub patched: Vec<Change>,
}

pub fn examine_text(journal: &Journal, memory: &Memory) -> Result<Text> {
    let mut changed: Vec<u64> = Vec::with_capacity(journal.changes.len());
    for change in &journal.changes {
        let window = change.window();
        changed.extend([window.start / PAGE, (window.end - 1) / PAGE]);
    }
    changed.sort_unstable();
    changed.dedup();
    let mut found = Text::default();
    for module in nopal_process::modules(journal.process)? {
        for text in module
            .mappings
            .iter()
            .filter(|map| map.executable && !map.shared)
        {
            let pages = text.start / PAGE..text.end / PAGE;
            let from = changed.partition_point(|page| *page < pages.start);
            let to = changed.partition_point(|page| *page < pages.end);
            if from < to {
                let _ = compare(journal, &module, text, memory, &mut found);
            }
        }
    }
    Ok(found)
}

/// Adds the state of `text`, compared with its file.
fn compare(
    journal: &Journal,
    module: &Module,
    text: &Mapping,
    memory: &Memory,
    found: &mut Text,
) -> Result<()> {
    let file = nopal_process::open_module(journal.process, module)?;
    // The process may have mapped any length behind the end of the file.
    let bytes = file.metadata()?.len().saturating_sub(text.offset);
    let length = (text.end - text.start).min(bytes.next_multiple_of(PAGE)) as usize;
    let (mut held, mut original) = (vec![0; length], vec![0; length]);
    memory.read(text.start, &mut held)?;
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut original[filled..], text.offset + filled as u64)? {
            // The rest of the last page is zero.
            0 => break,
            count => filled += count,
        }
    }
    // Code that the process has copied to memory without a file has no other copy.
    let of_file = (text.device, text.inode) == (module.device, module.inode);
    let pages = held
        .chunks(PAGE as usize)
        .zip(original.chunks(PAGE as usize));
    for (page, (held, original)) in (text.start..).step_by(PAGE as usize).zip(pages) {
        if held != original || !of_file {
            continue;
        }
        match found.unchanged.last_mut() {
            Some(last) if last.end == page => last.end += PAGE,
            _ => found.unchanged.push(page..page + PAGE),
        }
    }
    let is_patched = |change: &&Change| {
        let window = change.window();
        if window.start < text.start || window.end > text.start + length as u64 {
            return false;
        }
        let window = (window.start - text.start) as usize..(window.end - text.start) as usize;
        original[window.clone()] == *change.before() && held[window] != *change.before()
    };
    found
        .patched
        .extend(journal.changes.iter().filter(is_patched));
    Ok(())
}

/// Makes code that stays lead past all recording. It is shared memory that the process may not write, and so nobody may
/// by way of it: for this moment it may.
pub fn lead_past<'a>(
    mut changes: impl Iterator<Item = &'a Change>,
    journal: &Journal,
    injector: &mut Injector,
    memory: &Memory,
) -> Result<()> {
    injector.let_write(&journal.code, true)?;
    let led = changes.try_for_each(|change| match change.way_past() {
        Some(code) => memory.write(change.entry, &code),
        None => Ok(()),
    });
    injector.let_write(&journal.code, false)?;
    led
}

/// Sorted ranges, those that touch as one. The process may map memory between them at any moment.
pub fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one() {
        assert_eq!(joined(vec![1..4, 2..3, 4..5, 6..7]), [1..5, 6..7]);
    }
}
