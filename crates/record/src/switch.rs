//! Switches thunks on and off, while threads run.

use crate::session::Session;
use crate::traced::Traced;
use anyhow::{Context, Result};
use nopal_agent::Thunk;
use std::collections::HashSet;

impl Session {
    /// Switches the recording of sites, by their numbers in the trace, on or off in all processes. A call that has begun
    /// is not affected. Those that are not inserted are passed over.
    pub fn switch(&mut self, sites: &[u32], on: bool) -> Result<()> {
        let sites = sites.iter().copied().collect();
        let mut processes = self.traced.values();
        processes.try_for_each(|traced| traced.switch(&sites, on))
    }
}

impl Traced {
    fn switch(&self, sites: &HashSet<u32>, on: bool) -> Result<()> {
        let chosen = |number: &u32| *number != 0 && sites.contains(number);
        for change in self.changes.iter().filter(|change| chosen(&change.number)) {
            let thunk = Thunk {
                entry: change.entry,
                body: change.body,
                after_call: None,
            };
            let mut arenas = self.places.arenas.iter();
            let code = arenas.find_map(|arena| arena.piece(thunk.entry, 2).ok());
            code.context("a thunk is in no arena")?
                .store_pair(thunk.entry, thunk.switch(on))?;
        }
        Ok(())
    }
}
