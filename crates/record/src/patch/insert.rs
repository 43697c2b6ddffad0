//! Puts jumps into the text of a process: where none of its code runs, or with all threads stopped.

use crate::patch::change::{Change, Patches};
use crate::sites::modules::extent;
use crate::tracee::{PatchContext, Tracee};
use anyhow::Result;
use nopal_analysis::text::several;
use nopal_process::{Behind, Mapping, Outcome, Stopped};
use std::collections::{BTreeMap, HashSet};
use std::io::Error;

impl Tracee {
    /// Puts jumps into text that nobody runs or will return into. A site whose bytes differ from the file's is left
    /// alone. `maps`: the mappings of the process if all of it stands still, and none otherwise. Pages of theirs that the
    /// process has not written are not read.
    pub fn insert_at_rest(
        &mut self,
        mut changes: Vec<Change>,
        maps: &[Mapping],
        context: &mut PatchContext,
    ) -> Result<()> {
        let modules = self.modules.clone();
        let texts = maps.iter().filter_map(|map| {
            let image = &modules
                .iter()
                .find(|module| extent(module).contains(&map.start))?
                .file
                .image;
            let file = Some((map.device, map.inode));
            let is_its = !map.shared && !map.writable && file == image.device_and_inode();
            let bytes = image.file_bytes(map.offset, map.end - map.start);
            Some((map.start, bytes.filter(|_| is_its)?))
        });
        let behind = &Behind::new(self.process, texts.collect());
        let writable: Vec<Change> = changes
            .extract_if(.., |change| self.is_writable(change))
            .collect();
        self.uncover(&changes)?;
        self.list_breakpoints(&changes)?;
        let holes = changes.extract_if(.., |change| change.is_hole());
        self.fill_holes(behind, holes.collect())?;
        // A short jump leads nowhere else.
        let is_lost = |change: &mut Change| change.hole().is_some() && !self.is_served(change);
        let lost: Vec<Change> = changes.extract_if(.., is_lost).collect();
        let outcomes = self
            .memory
            .write_patches_over(behind, &Patches::of(&changes).insertion())?;
        let mut left = BTreeMap::<(&str, String), u64>::new();
        let writable = writable.iter().filter(|change| !change.is_hole());
        let writable = writable.map(|change| (change, WRITABLE.to_owned()));
        let lost = lost.iter().map(|change| (change, DIFFERS.to_owned()));
        let unwritten = changes.iter().zip(&outcomes);
        let unwritten =
            unwritten.filter_map(|(change, outcome)| Some((change, why_unwritten(outcome)?)));
        for (change, why) in unwritten.chain(lost).chain(writable) {
            let module = self.module_at(change.address);
            let module = module.map_or("?", |module| &module.name);
            *left.entry((module, why)).or_default() += 1;
        }
        for ((module, why), count) in left {
            context.warnings.push(format!(
                "{module}: {} not traced: {why}",
                several(count, "function is", "functions are")
            ));
        }
        let mut outcomes = outcomes.into_iter();
        changes.retain(|_| outcomes.next() == Some(Outcome::Written));
        self.changes.add(changes);
        self.settle_markers(context)
    }

    /// Whether the program has made the place of a jump writable, or that of the jump in its hole.
    fn is_writable(&self, change: &Change) -> bool {
        let mut texts = self.writable_text.iter();
        texts.any(|text| change.touches(text))
    }

    /// Writes the jumps in holes, over earlier ones to other thunks. Nothing runs that could be in one of them.
    fn fill_holes(&mut self, behind: &Behind, holes: Vec<Change>) -> Result<()> {
        let there = |hole: &Change| {
            let found = self
                .changes
                .binary_search_by_key(&hole.address, |change| change.address);
            found.ok().map(|index| self.changes[index])
        };
        let (old, new): (Vec<Change>, Vec<Change>) =
            holes.into_iter().partition(|hole| there(hole).is_some());
        let former: Vec<Change> = old.iter().filter_map(there).collect();
        let (patches, before) = (Patches::of(&old), Patches::of(&former));
        let mut written = Vec::new();
        let mut keep = |changes: &[Change], outcomes: Vec<Outcome>| {
            let pairs = changes.iter().zip(outcomes);
            let done = pairs.filter(|(_, outcome)| *outcome == Outcome::Written);
            written.extend(done.map(|(change, _)| *change));
        };
        keep(
            &old,
            self.memory.write_patches(&patches.redirection(&before))?,
        );
        let insertion = Patches::of(&new);
        keep(
            &new,
            self.memory
                .write_patches_over(behind, &insertion.insertion())?,
        );
        let is_rewritten = |change: &mut Change| {
            let mut rewritten = written.iter().filter(|_| change.is_hole());
            rewritten.any(|new| new.address == change.address)
        };
        self.changes.take(is_rewritten).for_each(drop);
        self.changes.add(written);
        Ok(())
    }

    /// Whether the hole of a function holds the jump to its thunk.
    fn is_served(&self, function: &Change) -> bool {
        let hole = function.hole().unwrap_or_default();
        let found = self
            .changes
            .binary_search_by_key(&hole, |change| change.address);
        found.is_ok_and(|index| self.changes[index].serves(function))
    }

    /// Puts jumps into the text while all threads stand still. A thread that stands in a window goes on in the
    /// displaced instructions. `maps`: the mappings of the process, as they are now. Returns the changes that must wait: a thread will return into their windows, most of all
    /// from a signal handler.
    pub fn insert_stopped(
        &mut self,
        stopped: &mut Stopped,
        mut changes: Vec<Change>,
        maps: &[Mapping],
        context: &mut PatchContext,
    ) -> Result<Vec<Change>> {
        // They are ordered within each module.
        changes.sort_by_key(|change| change.address);
        let windows: Vec<_> = changes.iter().map(Change::window).collect();
        let remain = stopped.move_threads(&windows, |address| self.displaced(&changes, address))?;
        let mut waiting: HashSet<usize> = remain.into_iter().collect();
        // A return to the first byte is a new call.
        let behind: Vec<_> = windows.iter().map(|one| one.start + 1..one.end).collect();
        let search = stopped.search_stacks(&behind, 0)?;
        for (_, word) in search.found {
            waiting.extend(enclosing(&changes, word));
        }
        if search.hidden {
            waiting.extend(0..changes.len());
        }
        // A short jump waits with the one that it leads to.
        let late = waiting.iter().map(|index| changes[*index]);
        let late: Vec<Change> = late.filter(Change::is_hole).collect();
        let waits = |change: &Change| late.iter().any(|hole| hole.serves(change));
        waiting.extend((0..changes.len()).filter(|index| waits(&changes[*index])));
        let mut now = Vec::with_capacity(changes.len());
        let mut later = Vec::new();
        for (index, change) in changes.into_iter().enumerate() {
            let wait = waiting.contains(&index);
            if wait { &mut later } else { &mut now }.push(change);
        }
        self.insert_at_rest(now, maps, context)?;
        Ok(later)
    }

    /// The displaced copy of the instruction at `address`, in a window or right behind it.
    fn displaced(&self, changes: &[Change], address: u64) -> Option<u64> {
        let change = changes.get(enclosing(changes, address)?)?;
        let offset = u8::try_from(address - change.address).ok()?;
        let mut map = self.site_of(change)?.body.map();
        let (_, to) = map.find(|(from, _)| *from == offset)?;
        Some(change.body + u64::from(to))
    }
}

const WRITABLE: &str = "the program may change its code, which is or was writable, or moves it";
const DIFFERS: &str = "the code in memory differs from the file";

/// `None` if the change was written.
fn why_unwritten(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Written => None,
        Outcome::Differs { .. } => Some(DIFFERS.into()),
        Outcome::Unreadable(number) | Outcome::Unwritable(number) => Some(format!(
            "the code in memory cannot be changed: {}",
            Error::from_raw_os_error(*number)
        )),
    }
}

/// The change whose window begins before `address` and reaches to it at least. `changes` are in the order of addresses.
fn enclosing(changes: &[Change], address: u64) -> Option<usize> {
    let after = changes.partition_point(|change| change.address < address);
    let index = after.checked_sub(1)?;
    (address <= changes[index].window().end).then_some(index)
}
