//! Switches markers of processes that run.
//!
//! Where a marker's NOP lies in the window of a traced function, it runs among the displaced instructions. While the
//! function's jump is in the text, the marker is on there only, and its place in the text is as in the file: so a
//! window always holds the bytes that generated code has for it.

use crate::patch::change::{Change, Patches};
use crate::patch::remove::PATIENCE;
use crate::processes::Processes;
use crate::sites::chosen::Chosen;
use crate::sites::markers::{Wanted, place_in_body};
use crate::tracee::{PatchContext, Tracee};
use anyhow::Result;
use nopal_analysis::text::several;
use nopal_control::Mark;
use nopal_process::{Outcome, Stopped};
use std::collections::HashSet;

/// The place of a marker, of which generated code tells how to undo it.
#[derive(Clone, Copy)]
pub struct Marked {
    pub change: Change,
    pub in_text: bool,
}

impl Processes {
    /// Has the markers on that `marks` choose, in all processes.
    pub fn switch_markers(&mut self, marks: &[Mark], context: &mut PatchContext) -> Result<()> {
        context.settings.markers = Wanted::new(marks.iter().map(|mark| (&*mark.name, mark.on)))?;
        self.settle_statics(context)?;
        self.in_all(context, Tracee::know_markers)?;
        // Forks have their generated code in common: nobody may run the displaced instructions.
        let mut stopped = Vec::new();
        self.in_all(context, |tracee, _| {
            stopped.push(Stopped::stop(tracee.process, PATIENCE)?);
            Ok(())
        })?;
        self.in_all(context, |tracee, context| {
            tracee.settle_displaced(context)?;
            tracee.settle_markers(context)
        })?;
        for process in stopped {
            process.detach_all();
        }
        Ok(())
    }
}

impl Tracee {
    /// Makes the trace, and generated code, know of all markers that are wanted now.
    fn know_markers(&mut self, context: &mut PatchContext) -> Result<()> {
        for module in self.modules.clone() {
            let mut markers = context.settings.markers.changes(&module);
            markers.retain(|change| !self.knows_marker(change));
            let words = self.number_markers(&module, context)?;
            if markers.is_empty() {
                continue;
            }
            let chosen = Chosen {
                markers,
                marker_words: words,
                ..Chosen::default()
            };
            self.have_room(&module, &chosen)?;
            self.add_sites(&module, &chosen, true, context)?;
        }
        Ok(())
    }

    /// Whether generated code tells how to undo it.
    pub fn knows_marker(&self, change: &Change) -> bool {
        let known = self.markers.get(&change.address);
        known.is_some_and(|marked| marked.change == *change)
    }

    /// Generated code tells now how to undo these.
    pub fn add_markers(&mut self, markers: &[Change], words: &[Change]) {
        for &change in markers {
            if !self.knows_marker(&change) {
                let in_text = false;
                self.markers
                    .insert(change.address, Marked { change, in_text });
            }
        }
        self.marker_words
            .extend(words.iter().map(|change| change.address));
    }

    /// Forgets that the text of a library that is gone had markers.
    pub fn forget_text_of_markers(&mut self, range: &std::ops::Range<u64>) {
        for (_, marked) in self.markers.range_mut(range.clone()) {
            marked.in_text = false;
        }
    }

    /// Switches off the markers in the text where jumps of `changes` are about to be put in. Nothing may run the text
    /// meanwhile.
    pub fn uncover(&mut self, changes: &[Change]) -> Result<()> {
        let mut out = Vec::new();
        for change in changes {
            let inside = self.markers.range(change.window());
            let inside = inside.filter(|(_, marked)| marked.in_text);
            out.extend(inside.map(|(_, marked)| marked.change));
        }
        self.put_in_text(&out, false)?;
        Ok(())
    }

    /// Brings the data and the text of markers to the wanted state, but for those that are displaced. Nothing may run
    /// them meanwhile.
    pub fn settle_markers(&mut self, context: &mut PatchContext) -> Result<()> {
        if self.markers.is_empty() {
            return Ok(());
        }
        for module in &self.modules {
            self.fill_in_markers(module, context)?;
        }
        let wanted = self.wanted_markers(context);
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for marked in self.markers.values() {
            let place = marked.change;
            let displaced = displacing(&self.changes, &place).is_some();
            let wants = wanted.contains(&place.address) && !displaced;
            if wants && !marked.in_text {
                on.push(place);
            } else if !wants && marked.in_text {
                off.push(place);
            }
        }
        self.put_in_text(&off, false)?;
        let left = self.put_in_text(&on, true)?;
        if left > 0 {
            context.warnings.push(format!(
                "{} not traced: the code in memory differs from the file",
                several(left as u64, "marker is", "markers are")
            ));
        }
        Ok(())
    }

    fn wanted_markers(&self, context: &PatchContext) -> HashSet<u64> {
        let modules = self.modules.iter();
        let changes = modules.flat_map(|module| context.settings.markers.changes(module));
        changes.map(|change| change.address).collect()
    }

    /// The number of markers that could not be changed.
    fn put_in_text(&mut self, markers: &[Change], on: bool) -> Result<usize> {
        if markers.is_empty() {
            return Ok(0);
        }
        let patches = Patches::of(markers);
        let patches = match on {
            true => patches.insertion(),
            false => patches.removal(),
        };
        let outcomes = self.memory.write_patches(&patches)?;
        let written = outcomes.iter().map(|outcome| *outcome == Outcome::Written);
        let mut left = 0;
        for (marker, written) in markers.iter().zip(written) {
            left += usize::from(!written);
            if let Some(marked) = self.markers.get_mut(&marker.address) {
                // A marker that somebody else has changed meanwhile is not ours any more.
                marked.in_text = on && written;
            }
        }
        Ok(left)
    }

    /// The same of markers among displaced instructions, also of functions whose jumps were taken out: threads may
    /// still be there.
    fn settle_displaced(&self, context: &PatchContext) -> Result<()> {
        let wanted = self.wanted_markers(context);
        for marker in self.markers.values().map(|marked| &marked.change) {
            let all = [&*self.changes, &*self.taken_out];
            for change in all.into_iter().filter_map(|all| displacing(all, marker)) {
                let Some((site, module)) = self.site_of(change).zip(self.module_at(change.address))
                else {
                    continue;
                };
                if let Some(at) = place_in_body(site, module.base, marker.address) {
                    let at = change.body + at as u64;
                    let bytes = marker.moved_to(at, wanted.contains(&marker.address))?;
                    self.piece(at)?.write(at, &bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// The change, of some in the order of addresses, that has the marker in its window.
fn displacing<'a>(changes: &'a [Change], marker: &Change) -> Option<&'a Change> {
    let after = changes.partition_point(|change| change.address <= marker.address);
    let change = changes.get(after.checked_sub(1)?)?;
    change.displaces(marker).then_some(change)
}
