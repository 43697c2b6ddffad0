//! Puts jumps into the text of a process: where none of its code runs, or with all threads stopped.

use crate::change::{Change, Patches};
use crate::remove::words;
use crate::traced::{Traced, Workshop};
use anyhow::Result;
use nopal_process::{Memory, Outcome, Stopped};
use std::collections::{BTreeMap, HashSet};

impl Traced {
    /// Puts jumps into text that nobody runs or will return into. A site whose bytes are not what the file says is left
    /// alone.
    pub fn insert_at_rest(&mut self, changes: Vec<Change>, workshop: &mut Workshop) -> Result<()> {
        let outcomes = self
            .memory
            .write_patches(&Patches::of(&changes).insertion())?;
        let mut different = BTreeMap::<&str, u32>::new();
        for (change, outcome) in changes.iter().zip(&outcomes) {
            if *outcome != Outcome::Written {
                let module = self.module_at(change.address);
                *different
                    .entry(module.map_or("?", |module| &module.name))
                    .or_default() += 1;
            }
        }
        for (module, count) in different {
            workshop.warnings.push(format!(
                "{module}: {count} functions not traced: their code in memory is not the file's"
            ));
        }
        let written = changes.into_iter().zip(outcomes);
        let written = written.filter(|(_, outcome)| *outcome == Outcome::Written);
        self.changes.extend(written.map(|(change, _)| change));
        Ok(())
    }

    /// Puts jumps into the text while all threads stand still. A thread that stands in a window goes on in the displaced
    /// instructions. Returns the changes that must wait: a thread will return into their windows.
    pub fn insert_stopped(
        &mut self,
        stopped: &mut Stopped,
        mut changes: Vec<Change>,
        workshop: &mut Workshop,
    ) -> Result<Vec<Change>> {
        changes.sort_unstable_by_key(|change| change.address);
        let windows = Windows(&changes);
        let mut waiting = windows.returned_into(stopped, &self.memory)?;
        let mut moves = Vec::new();
        for (index, thread) in stopped.threads().iter().enumerate() {
            let at = thread.registers()?.rip;
            // A system call that is to be repeated begins two bytes before: the end of a window belongs to it.
            let Some(entered) = windows.entered(at) else {
                continue;
            };
            let change = &changes[entered];
            let map = self.site_of(change).map(|site| &site.body.map[..]);
            let offset = (at - change.address) as u8;
            let place = map
                .unwrap_or_default()
                .iter()
                .find(|(from, _)| *from == offset);
            match place {
                Some((_, to)) => moves.push((index, entered, change.body + u64::from(*to))),
                None if at == change.window().end => {}
                None => {
                    waiting.insert(entered);
                }
            }
        }
        let (mut now, mut later) = (Vec::with_capacity(changes.len()), Vec::new());
        for (index, change) in changes.iter().enumerate() {
            if waiting.contains(&index) {
                later.push(*change);
            } else {
                now.push(*change);
            }
        }
        self.insert_at_rest(now, workshop)?;
        for (thread, entered, to) in moves {
            let inserted = |change: &Change| change.address == changes[entered].address;
            if waiting.contains(&entered) || !self.changes.iter().any(inserted) {
                continue;
            }
            let thread = &mut stopped.threads_mut()[thread];
            let mut registers = thread.registers()?;
            registers.rip = to;
            thread.set_registers(&registers)?;
        }
        Ok(later)
    }
}

/// The windows of changes that are sorted by address.
struct Windows<'a>(&'a [Change]);

impl Windows<'_> {
    /// Whose window `address` lies in behind its first byte, or ends.
    fn entered(&self, address: u64) -> Option<usize> {
        let index = self.0.partition_point(|change| change.address < address);
        let change = self.0.get(index.checked_sub(1)?)?;
        (address <= change.window().end).then_some(index - 1)
    }

    /// Whose windows a word on a stack points into, behind the first byte: most of all a signal handler's return.
    fn returned_into(&self, stopped: &Stopped, memory: &Memory) -> Result<HashSet<usize>> {
        let mut found = HashSet::new();
        let maps = nopal_process::maps(stopped.pid())?;
        let mut piece = vec![0; 64 << 10];
        for thread in stopped.threads() {
            let low = thread.registers()?.rsp & !7;
            let stack = maps.iter().find(|map| (map.start..map.end).contains(&low));
            let Some(stack) = stack.filter(|map| map.readable) else {
                continue;
            };
            let mut at = low;
            while at < stack.end {
                let length = piece.len().min((stack.end - at) as usize);
                memory.read(at, &mut piece[..length])?;
                for word in words(&piece[..length]) {
                    let inside = |index: &usize| word < self.0[*index].window().end;
                    found.extend(self.entered(word).filter(inside));
                }
                at += length as u64;
            }
        }
        Ok(found)
    }
}
