//! The jumps that are in the text of a process.

use crate::places::choose::Loaded;
use crate::places::modules::extent;
use crate::places::sites::key;
use crate::text::change::Change;
use nopal_control::SiteKey;
use std::cell::OnceCell;
use std::ops::Deref;

/// By address.
#[derive(Clone, Default)]
pub struct Inserted {
    changes: Vec<Change>,
    switches: OnceCell<Vec<Switch>>,
}

/// What there is to know of a function to switch it: 24 bytes, where a change has twice as many.
#[derive(Clone, Copy)]
pub struct Switch {
    pub key: SiteKey,
    /// Of its thunk.
    pub entry: u64,
    /// With which the thunk begins where it is off, and where it is on.
    pub pairs: [[u8; 2]; 2],
}

impl Switch {
    pub fn pair(&self, on: bool) -> [u8; 2] {
        self.pairs[usize::from(on)]
    }
}

impl Deref for Inserted {
    type Target = [Change];

    fn deref(&self) -> &[Change] {
        &self.changes
    }
}

impl Inserted {
    pub fn add(&mut self, new: impl IntoIterator<Item = Change>) {
        self.changes.extend(new);
        self.changes.sort_by_key(|change| change.address);
        self.switches.take();
    }

    /// They are not in the text any more. They are taken as the iterator goes on.
    pub fn take(
        &mut self,
        is_out: impl FnMut(&mut Change) -> bool,
    ) -> impl Iterator<Item = Change> {
        self.switches.take();
        self.changes.extract_if(.., is_out)
    }

    /// Of all functions, in the order of their keys. `modules` are all that have any. Made when first asked for.
    pub fn switches(&self, modules: &[Loaded]) -> &[Switch] {
        self.switches.get_or_init(|| {
            let mut modules: Vec<&Loaded> = modules.iter().collect();
            modules.sort_by_key(|module| module.file.index);
            let mut switches = Vec::with_capacity(self.changes.len());
            for module in modules {
                let range = extent(module);
                let from = |address| self.partition_point(|change| change.address < address);
                let changes = self[from(range.start)..from(range.end)].iter();
                let functions = changes.filter(|change| change.has_thunk());
                switches.extend(functions.map(|change| Switch {
                    key: key(module, change.address.wrapping_sub(module.base)),
                    entry: change.entry,
                    pairs: [false, true].map(|on| change.switch(on)),
                }));
            }
            // Only of a file that is loaded twice they are not in order.
            switches.sort_by_key(|switch| switch.key);
            switches
        })
    }
}
