//! Text that the program may write to, or moves: it gets it without jumps.

use crate::patch::change::Change;
use crate::patch::remove::without_threads;
use crate::patch::restore::joined;
use crate::sites::choose::Loaded;
use crate::tracee::{PatchContext, Tracee};
use anyhow::Result;
use nopal_process::Mapping;
use std::ops::Range;

/// A jump to a hole leads no farther, and no window is longer.
const REACH: u64 = 256;

impl Tracee {
    /// The program makes text writable or moves it: takes its jumps out for good, but for those of hooks, without which
    /// calls that are wrapped could not end. Returns the numbers of functions and of probes that are not recorded any
    /// more.
    pub fn leave_text(
        &mut self,
        text: Range<u64>,
        context: &mut PatchContext,
    ) -> Result<(usize, usize)> {
        self.add_writable_text([text.clone()]);
        // Programs change the same text again and again: only what may still have jumps is looked at.
        let from = text.start.saturating_sub(REACH);
        let from = self.changes.partition_point(|change| change.address < from);
        let to = text.end.saturating_add(REACH);
        let to = self.changes.partition_point(|change| change.address < to);
        let near = &self.changes[from..to];
        let leaves = |change: &Change| change.function().is_some() || change.is_probe();
        let sites = near.iter().filter(|change| leaves(change));
        let sites: Vec<Change> = sites.filter(|it| it.touches(&text)).copied().collect();
        if sites.is_empty() {
            return Ok((0, 0));
        }
        let holes = near.iter().filter(|it| it.is_hole());
        let serves = |hole: &&Change| sites.iter().any(|site| hole.serves(site));
        let holes: Vec<Change> = holes.filter(serves).copied().collect();
        let mut stopped = self.stop()?;
        let mut out = [&sites[..], &without_threads(&mut stopped, &holes)?].concat();
        out.sort_unstable_by_key(|change| change.address);
        self.take_out_at_rest(&out, context)?;
        self.held = stopped.let_go();
        for change in &out {
            self.probe_sites.remove(&change.address);
        }
        self.left_text.extend(out);
        self.changes.switches(&self.modules);
        let probes = sites.iter().filter(|site| site.is_probe()).count();
        Ok((sites.len() - probes, probes))
    }

    /// The text of its modules that is writable by these mappings, now that no thread runs, gets no jumps.
    pub fn leave_out_writable_text<'a>(&mut self, maps: impl IntoIterator<Item = &'a Mapping>) {
        let text = writable_text(maps, &self.modules);
        self.add_writable_text(text);
    }

    pub fn add_writable_text(&mut self, more: impl IntoIterator<Item = Range<u64>>) {
        let known = |text: &Range<u64>| {
            let mut known = self.writable_text.iter();
            known.any(|known| known.start <= text.start && text.end <= known.end)
        };
        let new: Vec<Range<u64>> = more.into_iter().filter(|text| !known(text)).collect();
        if new.is_empty() {
            return;
        }
        self.writable_text.extend(new);
        self.writable_text.sort_unstable_by_key(|text| text.start);
        self.writable_text = joined(std::mem::take(&mut self.writable_text));
    }

    /// A module is gone, with its text.
    pub fn forget_writable_text(&mut self, module: &Range<u64>) {
        let around = |text: Range<u64>| {
            let before = text.start..text.end.min(module.start);
            let behind = text.start.max(module.end)..text.end;
            [before, behind].into_iter().filter(|it| it.start < it.end)
        };
        let text = std::mem::take(&mut self.writable_text);
        self.writable_text = text.into_iter().flat_map(around).collect();
    }

    /// The process was forked when some jumps were still in that have been taken out of the one that it is taken for.
    pub fn take_up_left_text(&mut self) {
        let is_in = |change: &Change| {
            let found = self
                .changes
                .binary_search_by_key(&change.address, |it| it.address);
            found.is_err() && change.is_made(&self.memory)
        };
        let (still, left): (Vec<Change>, Vec<Change>) =
            self.left_text.iter().copied().partition(is_in);
        self.left_text = left;
        self.changes.add(still);
    }
}

/// The code of modules that the program may write to. Memory without a file has been made writable to move code there,
/// as to huge pages.
pub fn writable_text<'a>(
    maps: impl IntoIterator<Item = &'a Mapping>,
    modules: &[Loaded],
) -> Vec<Range<u64>> {
    let has_code = |map: &Mapping, module: &Loaded| {
        let mut segments = module.file.image.segments().iter();
        segments.any(|segment| {
            let begin = module.base.wrapping_add(segment.address);
            let end = begin.saturating_add(segment.memory_size);
            segment.executable && map.start < end && begin < map.end
        })
    };
    let is_text = |map: &&Mapping| {
        map.writable && map.inode != 0 && modules.iter().any(|module| has_code(map, module))
    };
    let text = maps.into_iter().filter(is_text);
    text.map(|map| map.start..map.end).collect()
}
