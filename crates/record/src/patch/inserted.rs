//! The jumps that are in the text of a process.

use crate::patch::change::Change;
use crate::sites::choose::Loaded;
use crate::sites::modules::extent;
use nopal_agent::{Switched, Thunk};
use nopal_analysis::sort;
use nopal_control::SiteKey;
use nopal_plan::{JUMP, LONGEST_WINDOW, SHORT_JUMP};
use std::cell::OnceCell;
use std::ops::{Deref, Range};

/// The changes, by address.
#[derive(Clone, Default)]
pub struct Inserted {
    changes: Vec<Change>,
    switches: OnceCell<Switches>,
}

/// The data of all functions needed to switch them. It is kept small, since a switch reads all of it, uncached.
#[derive(Clone, Default)]
pub struct Switches {
    /// In order.
    pub keys: Vec<SiteKey>,
    /// In the same order.
    pub thunks: Vec<Switch>,
}

/// A thunk's address above the two bytes with which it begins where it is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(u64);

impl Switch {
    const ADDRESS_BITS: u32 = 48;
    const PAIR_BITS: u32 = u64::BITS - Switch::ADDRESS_BITS;

    fn new(change: &Change) -> Switch {
        debug_assert!(change.entry < 1 << Switch::ADDRESS_BITS);
        let off = u16::from_ne_bytes(change.switch(Switched::Off));
        Switch(change.entry << Switch::PAIR_BITS | u64::from(off))
    }

    pub fn entry(self) -> u64 {
        self.0 >> Switch::PAIR_BITS
    }

    /// The code of the thunk up to the end of the displaced instructions, and a jump after them, or a little more.
    pub fn range(self) -> Range<u64> {
        let [_, distance] = (self.0 as u16).to_ne_bytes();
        let body = self.entry() + SHORT_JUMP as u64 + u64::from(distance);
        self.entry()..body + (LONGEST_WINDOW + JUMP) as u64
    }

    pub fn pair(self, to: Switched) -> [u8; 2] {
        match to {
            Switched::On => Thunk::ON,
            Switched::Counting => Thunk::COUNTING,
            Switched::Off => (self.0 as u16).to_ne_bytes(),
        }
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

    /// The switches of all functions. `modules` are all modules with functions. Made at the first call.
    pub fn switches(&self, modules: &[Loaded]) -> &Switches {
        self.switches.get_or_init(|| {
            let mut modules: Vec<&Loaded> = modules.iter().collect();
            sort::by_key(&mut modules, |module| module.file.index);
            let mut switches = Vec::with_capacity(self.changes.len());
            for module in modules {
                let range = extent(module);
                let from = |address| self.partition_point(|change| change.address < address);
                let changes = self[from(range.start)..from(range.end)].iter();
                let functions = changes.filter(|change| change.function().is_some());
                let sites = module.file.plan.sites.iter();
                // Both are in the order of addresses.
                let mut sites = sites.zip(module.file.keys()).peekable();
                for change in functions {
                    let address = change.address.wrapping_sub(module.base);
                    while sites.next_if(|(site, _)| site.address < address).is_some() {}
                    let site = sites.peek().filter(|(site, _)| site.address == address);
                    switches.extend(site.map(|(_, key)| (*key, Switch::new(change))));
                }
            }
            // They are out of order only for a file that is loaded twice.
            switches.sort_by_key(|(key, _)| *key);
            let (keys, thunks) = switches.into_iter().unzip();
            Switches { keys, thunks }
        })
    }
}
