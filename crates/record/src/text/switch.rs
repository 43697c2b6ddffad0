//! Switches thunks on and off, while threads run.

use crate::memory::code::Code;
use crate::places::sites::ByFile;
use crate::session::Session;
use crate::text::change::Change;
use crate::traced::Traced;
use anyhow::{Context, Result};
use std::collections::HashSet;

impl Session {
    /// Switches the recording of sites, by their numbers in the trace, on or off in all processes. A call that has begun
    /// is not affected. Those that are not inserted are passed over.
    pub fn switch_numbers(&mut self, sites: &[u32], on: bool) -> Result<()> {
        let sites = sites.iter().copied().collect();
        let mut processes = self.traced.values();
        processes.try_for_each(|traced| traced.switch_numbers(&sites, on))
    }
}

impl Traced {
    fn switch_numbers(&self, sites: &HashSet<u32>, on: bool) -> Result<()> {
        let chosen = |change: &&Change| change.has_thunk() && sites.contains(&change.number);
        self.switch_changes(self.changes.iter().filter(chosen), on)
    }

    /// The same of these functions.
    pub fn switch(&self, files: &ByFile, on: bool) -> Result<()> {
        let indices = self.indices(files);
        self.switch_changes(indices.iter().map(|index| &self.changes[*index]), on)
    }

    /// In the order of addresses, neighbours are switched soonest.
    pub fn switch_changes<'a>(
        &self,
        changes: impl Iterator<Item = &'a Change>,
        on: bool,
    ) -> Result<()> {
        let mut known: Option<&Code> = None;
        for change in changes {
            let piece = known.filter(|piece| piece.contains(change.entry, 2));
            let piece = match piece {
                Some(piece) => piece,
                None => self.piece(change.entry)?,
            };
            piece.store_pair(change.entry, change.switch(on))?;
            known = Some(piece);
        }
        Ok(())
    }

    pub fn piece(&self, thunk: u64) -> Result<&Code> {
        let mut arenas = self.places.arenas.iter();
        let piece = arenas.find_map(|arena| arena.piece(thunk, 2).ok());
        Ok(piece.context("a thunk is in no arena")?)
    }
}
