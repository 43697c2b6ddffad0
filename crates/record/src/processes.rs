//! The traced processes of a session.

use crate::memory::region::Region;
use crate::sites::choose::Loaded;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct Processes {
    /// The process that was begun with.
    pub main: i32,
    pub tracees: HashMap<i32, Tracee>,
}

impl Processes {
    pub fn new(main: i32) -> Processes {
        let tracees = HashMap::new();
        Processes { main, tracees }
    }

    /// The first one first.
    pub fn in_order(&self) -> impl Iterator<Item = &Tracee> {
        let first = self.tracees.get(&self.main);
        let mut others: Vec<&Tracee> = self.tracees.values().collect();
        others.retain(|tracee| tracee.process != self.main);
        others.sort_unstable_by_key(|tracee| tracee.process);
        first.into_iter().chain(others)
    }

    /// All modules, each file once.
    pub fn modules(&self) -> impl Iterator<Item = (&Tracee, &Loaded)> {
        let mut seen = HashSet::new();
        let all = self
            .in_order()
            .flat_map(|tracee| tracee.modules.iter().map(move |module| (tracee, module)));
        all.filter(move |(_, module)| seen.insert(module.file.index))
    }

    /// Does something to all processes, which may end meanwhile.
    pub fn in_all(
        &mut self,
        context: &mut PatchContext,
        mut with: impl FnMut(&mut Tracee, &mut PatchContext) -> Result<()>,
    ) -> Result<()> {
        for tracee in self.tracees.values_mut() {
            match with(tracee, context) {
                Err(error) if nopal_process::has_memory(tracee.process) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The process that asks: known, or a forked child of one that is.
    pub fn known_or_forked(&mut self, region: &Arc<Region>, process: i32) -> Result<&mut Tracee> {
        if !self.tracees.contains_key(&process) {
            let known = self.tracees.values();
            let related = known.filter(|tracee| Arc::ptr_eq(&tracee.region, region));
            // Most like its parent, where that lives.
            let parent = nopal_process::parent(process).unwrap_or_default();
            let nearest = related
                .max_by_key(|tracee| tracee.process == parent)
                .context("its memory belongs to no traced process")?;
            let child = nearest.fork(process)?;
            self.tracees.insert(process, child);
        }
        self.tracees.get_mut(&process).context("unknown process")
    }

    /// Those that are no more, but for some.
    pub fn gone(&self, not: Option<i32>) -> Vec<i32> {
        let processes = self.tracees.keys().copied();
        let processes = processes.filter(|process| Some(*process) != not);
        let gone = processes.filter(|process| !nopal_process::alive(*process));
        gone.collect()
    }
}
