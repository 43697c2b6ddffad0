//! Frees memory of a process when nopal detaches: copies of text that equal the file, and nopal's own memory.

use crate::patch::change::{Change, Patches};
use crate::patch::journal::Journal;
use crate::sites::files::{Facts, facts_of};
use anyhow::Result;
use nopal_beside::Mutex;
use nopal_process::{Mapping, Memory, Module};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

const PAGE: u64 = 4096;

/// Pages that are this near are compared, and dropped, together: each call of the process takes time.
const BETWEEN: u64 = 16 * PAGE;

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

/// Looks at the pages that had jumps, and those between them. No thread runs that could write to text.
pub fn examine_text(journal: &Journal, memory: &Memory) -> Result<Text> {
    let mut changes: Vec<&Change> = journal.changes.iter().collect();
    changes.sort_unstable_by_key(|change| change.address);
    let mut look = Look {
        journal,
        memory,
        held: Vec::new(),
        found: Text::default(),
    };
    for module in nopal_process::modules(journal.process)? {
        let is_text = |map: &&Mapping| map.executable && !map.shared;
        for text in module.mappings.iter().filter(is_text) {
            let from = changes.partition_point(|change| change.address < text.start);
            let to = changes.partition_point(|change| change.address < text.end);
            if from < to {
                let _ = look.compare(&module, text, &changes[from..to]);
            }
        }
    }
    Ok(look.found)
}

struct Look<'a> {
    journal: &'a Journal,
    memory: &'a Memory,
    held: Vec<u8>,
    found: Text,
}

impl Look<'_> {
    /// Adds the state of `text`, compared with its file where it has these `changes`.
    fn compare(&mut self, module: &Module, text: &Mapping, changes: &[&Change]) -> Result<()> {
        let file = nopal_process::open_module(self.journal.process, module)?;
        let facts = facts_of(&file.metadata()?);
        // The process may have mapped any length behind the end of the file.
        let (_, _, bytes, _) = facts;
        let bytes = bytes.saturating_sub(text.offset);
        let end = text.start + (text.end - text.start).min(bytes.next_multiple_of(PAGE));
        // Code that the process has copied to memory without a file has no other copy.
        let of_file = (text.device, text.inode) == (module.device, module.inode);
        let mut left = changes;
        while let Some(first) = left.first() {
            let mut run = pages(first);
            let together = left.iter().take_while(|change| {
                let near = pages(change).start <= run.end + BETWEEN;
                run.end = run.end.max(if near { pages(change).end } else { 0 });
                near
            });
            let (changes, later) = left.split_at(together.count());
            left = later;
            run.end = run.end.min(end);
            if run.start >= run.end {
                break;
            }
            let length = (run.end - run.start) as usize;
            let original = original(
                &file,
                Part(facts, text.offset + (run.start - text.start), length),
            )?;
            self.held.resize(length, 0);
            let held = &mut self.held[..];
            self.memory.read(run.start, held)?;
            let pages = held
                .chunks(PAGE as usize)
                .zip(original.chunks(PAGE as usize));
            let found = &mut self.found;
            for (page, (held, original)) in (run.start..).step_by(PAGE as usize).zip(pages) {
                if held != original || !of_file {
                    continue;
                }
                match found.unchanged.last_mut() {
                    Some(last) if last.end == page => last.end += PAGE,
                    _ => found.unchanged.push(page..page + PAGE),
                }
            }
            let is_patched = |change: &&&Change| {
                let window = change.window();
                if window.end > run.end {
                    return false;
                }
                let window = (window.start - run.start) as usize..(window.end - run.start) as usize;
                original[window.clone()] == *change.before() && held[window] != *change.before()
            };
            let patched = changes.iter().filter(is_patched);
            found.patched.extend(patched.copied().copied());
        }
        Ok(())
    }
}

/// The whole pages of a change.
fn pages(change: &Change) -> Range<u64> {
    let window = change.window();
    window.start / PAGE * PAGE..window.end.next_multiple_of(PAGE)
}

/// A part of a file that is as these facts say: its offset and its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Part(Facts, u64, usize);

/// Parts that were read, for other processes with the same file.
static KNOWN: LazyLock<Mutex<HashMap<Part, Arc<[u8]>>>> = LazyLock::new(Mutex::default);

/// The most bytes of these, and of one.
const MOST_KNOWN: usize = 16 << 20;
const LONGEST_KNOWN: usize = 4 << 20;

fn original(file: &File, part: Part) -> Result<Arc<[u8]>> {
    let Part(_, offset, length) = part;
    if let Some(known) = KNOWN.lock().get(&part) {
        return Ok(known.clone());
    }
    let mut bytes = vec![0; length];
    read_file(file, offset, &mut bytes)?;
    let bytes = Arc::from(bytes);
    let mut known = KNOWN.lock();
    let total: usize = known.keys().map(|Part(.., length)| length).sum();
    if length <= LONGEST_KNOWN && total + length <= MOST_KNOWN {
        known.insert(part, Arc::clone(&bytes));
    }
    Ok(bytes)
}

/// The rest behind the end of the file stays zero.
fn read_file(file: &File, offset: u64, into: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(())
}

/// Makes code that stays lead past all recording. From now on these pages are the process's own, and do not show what is
/// written to the file behind them.
pub fn lead_past<'a>(mut changes: impl Iterator<Item = &'a Change>, memory: &Memory) -> Result<()> {
    changes.try_for_each(|change| match change.way_past() {
        Some(code) => memory.write(change.entry, &code),
        None => Ok(()),
    })
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
