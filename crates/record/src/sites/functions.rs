//! Sites of a running process that come, go, and are switched, each on its own.

use crate::filters::thread_has_added_filter;
use crate::memory::arena::Arena;
use crate::memory::space::reaches;
use crate::patch::change::{Change, Patches};
use crate::patch::remove::PATIENCE;
use crate::sites::choose::Loaded;
use crate::sites::chosen::Chosen;
use crate::sites::generate::fill;
use crate::sites::modules::extent;
use crate::tracee::{PatchContext, Settings, Tracee};
use anyhow::{Context, Result};
use nopal_abi::Capture;
use nopal_agent::Switched;
use nopal_control::SiteKey;
use nopal_plan::Site;
use nopal_process::Stopped;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of attempts at sites into whose windows a thread is about to return, and the time that it gets for that.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(5);

/// Addresses in files, by the files' numbers in the trace, sorted.
pub type ByFile = BTreeMap<u32, Vec<u64>>;

impl Tracee {
    /// The jump of a site that is in the text.
    pub fn inserted(&self, file: u32, address: u64) -> Option<&Change> {
        let mut modules = self.modules.iter();
        let module = modules.find(|module| module.file.index == file)?;
        let address = module.base.wrapping_add(address);
        self.changes
            .binary_search_by_key(&address, |change| change.address)
            .ok()
            .map(|index| &self.changes[index])
    }

    /// Puts jumps at sites, switched off. Sites that have one and record as much as `capture` stay as they are. Returns
    /// the functions that got none, and why.
    pub fn insert_sites(
        &mut self,
        files: &ByFile,
        capture: Capture,
        context: &mut PatchContext,
    ) -> Result<Vec<(SiteKey, String)>> {
        let mut refused = Vec::new();
        self.remove_lesser(files, capture, context)?;
        let mut changes = Vec::new();
        let probes = self.changes.iter().filter(|change| change.is_probe());
        let probes: Vec<Change> = probes.copied().collect();
        for module in self.modules.clone() {
            let Some(addresses) = files.get(&module.file.index) else {
                continue;
            };
            let mut sites: Vec<(&Site, Capture)> = Vec::new();
            let mut known = Vec::new();
            for &address in addresses {
                let here = module.base.wrapping_add(address);
                let find = |changes: &[Change]| {
                    changes.binary_search_by_key(&here, |change| change.address)
                };
                let site = module.file.plan.site(address);
                let needs = |probe: &Change| {
                    let theirs = probe.window();
                    let theirs = theirs.start.wrapping_sub(module.base)
                        ..theirs.end.wrapping_sub(module.base);
                    site.as_ref().is_ok_and(|site| site.needs(&theirs))
                };
                if probes.iter().any(needs) {
                    let reason = "a probe needs the same bytes".to_owned();
                    refused.extend(module.file.key_at(address).map(|key| (key, reason)));
                    continue;
                }
                if find(&self.changes).is_ok() {
                    continue;
                }
                if let Ok(place) = find(&self.taken_out) {
                    let change = self.taken_out[place];
                    known.push(here);
                    if self.records(&change, capture, &context.settings) {
                        if change.hole().is_some() {
                            changes.push(fill(&module, &change)?);
                        }
                        changes.push(change);
                        continue;
                    }
                }
                match site {
                    Ok(site) => sites.push((site, capture)),
                    Err(reason) => {
                        refused.extend(module.file.key_at(address).map(|key| (key, reason)))
                    }
                }
            }
            // Both are in the order of addresses.
            let mut known = known.into_iter().peekable();
            self.taken_out
                .retain(|change| known.next_if_eq(&change.address).is_none());
            // Displaced, they are on from the beginning.
            let mut markers = context.settings.markers.changes(&module);
            markers.retain(|change| self.knows_marker(change));
            let new = Chosen {
                sites,
                markers,
                ..Chosen::default()
            };
            self.have_room(&module, &new)?;
            changes.extend(self.add_sites(&module, &new, false, context)?);
        }
        self.switch_changes(changes.iter(), Switched::Off)?;
        let wanted = changes.clone();
        self.insert(changes, context)?;
        for change in wanted {
            let there = |other: &Change| other.address.cmp(&change.address);
            if change.is_hole() || self.changes.binary_search_by(there).is_ok() {
                continue;
            }
            if let Some(module) = self.module_at(change.address) {
                let address = change.address.wrapping_sub(module.base);
                let reason =
                    "its code in memory differs from the file, or a thread will return into it";
                let key = module.file.key_at(address);
                refused.extend(key.map(|key| (key, reason.to_owned())));
            }
            self.taken_out.push(change);
        }
        self.taken_out.sort_by_key(|change| change.address);
        self.prepare_switches();
        Ok(refused)
    }

    /// Whether the thunk of a change records as much.
    fn records(&self, change: &Change, capture: Capture, settings: &Settings) -> bool {
        let own = self.captures.get(&change.entry);
        own.copied().unwrap_or(settings.capture).has(capture)
    }

    /// Takes out sites that record less than `capture`, to be put in again with other thunks.
    fn remove_lesser(
        &mut self,
        files: &ByFile,
        capture: Capture,
        context: &mut PatchContext,
    ) -> Result<()> {
        let mut lesser = ByFile::new();
        for module in &self.modules {
            for &address in files.get(&module.file.index).into_iter().flatten() {
                let Some(change) = self.inserted(module.file.index, address) else {
                    continue;
                };
                if change.function().is_some() && !self.records(change, capture, &context.settings)
                {
                    lesser.entry(module.file.index).or_default().push(address);
                }
            }
        }
        self.remove_sites(&lesser, context)
    }

    /// Prepares the data for switches, before the first one.
    fn prepare_switches(&self) {
        self.changes.switches(&self.modules);
    }

    /// Takes the jumps of sites out of the text. Threads that are in their thunks, or will return there, go on in them.
    pub fn remove_sites(&mut self, files: &ByFile, context: &mut PatchContext) -> Result<()> {
        let indices = self.indices(files);
        if indices.is_empty() {
            return Ok(());
        }
        let out: Vec<Change> = indices.iter().map(|index| self.changes[*index]).collect();
        self.take_out(&out, context)?;
        self.taken_out.extend(out);
        self.taken_out.sort_unstable_by_key(|change| change.address);
        self.prepare_switches();
        Ok(())
    }

    /// Writes back the instructions that these of our jumps, by address, have displaced.
    pub fn take_out(&mut self, out: &[Change], context: &mut PatchContext) -> Result<()> {
        let stopped = self.stop()?;
        self.take_out_at_rest(out, context)?;
        self.held = stopped.let_go();
        Ok(())
    }

    /// The same while all threads stand still.
    pub(crate) fn take_out_at_rest(
        &mut self,
        out: &[Change],
        context: &mut PatchContext,
    ) -> Result<()> {
        self.memory.write_patches(&Patches::of(out).removal())?;
        let is_out = |change: &mut Change| {
            let found = out.binary_search_by_key(&change.address, |out| out.address);
            found.is_ok()
        };
        self.changes.take(is_out).for_each(drop);
        self.settle_markers(context)
    }

    /// The numbers of our changes at these functions, ascending.
    pub fn indices(&self, files: &ByFile) -> Vec<usize> {
        let mut indices = Vec::new();
        for module in &self.modules {
            let Some(addresses) = files.get(&module.file.index) else {
                continue;
            };
            let first = addresses
                .first()
                .map_or(0, |first| module.base.wrapping_add(*first));
            let mut index = self
                .changes
                .partition_point(|change| change.address < first);
            for address in addresses {
                let address = module.base.wrapping_add(*address);
                while self
                    .changes
                    .get(index)
                    .is_some_and(|change| change.address < address)
                {
                    index += 1;
                }
                let at = self.changes.get(index);
                if at.is_some_and(|change| change.address == address && change.function().is_some())
                {
                    indices.push(index);
                }
            }
        }
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    /// Maps memory for the thunks of `new` sites, where there is none left.
    pub fn have_room(&mut self, module: &Loaded, new: &Chosen) -> Result<()> {
        let (bytes, range) = (new.bound(), extent(module));
        let fits = |arena: &Arena| reaches(arena.base, &range) && arena.has_room(bytes);
        if new.is_empty() || self.places.arenas.iter().any(fits) {
            return Ok(());
        }
        let mut stopped = match self.held.take() {
            Some(thread) => Stopped::with_only(thread),
            None => Stopped::stop_one(self.process, 0, PATIENCE)?,
        };
        let thread = stopped
            .keep_one()
            .context("no thread of the process can be stopped")?;
        if thread_has_added_filter(thread) {
            thread.suspend_seccomp(true)?;
        }
        self.map_room(&[(module, bytes)], thread)?;
        self.held = stopped.let_go();
        Ok(())
    }

    /// All threads, standing still. Threads that did before go on doing so when they are let go into `held`.
    pub fn stop(&mut self) -> Result<Stopped> {
        match self.held.take() {
            Some(thread) => Ok(Stopped::with_only(thread)),
            None => Stopped::stop(self.process, PATIENCE),
        }
    }

    /// Stops all threads, writes jumps, and lets go; again for sites into whose windows a thread is about to return.
    /// Returns the sites for which that did not help.
    pub fn insert(
        &mut self,
        mut changes: Vec<Change>,
        context: &mut PatchContext,
    ) -> Result<Vec<Change>> {
        for attempt in 0..ATTEMPTS {
            if changes.is_empty() {
                break;
            }
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            let mut stopped = self.stop()?;
            let maps = nopal_process::maps(self.process)?;
            self.leave_out_writable_text(&maps);
            changes = self.insert_stopped(&mut stopped, changes, &maps, context)?;
            self.held = stopped.let_go();
        }
        Ok(changes)
    }
}
