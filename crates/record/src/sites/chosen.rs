//! The sites to trace in a module, and the room that they take.

use crate::patch::change::Change;
use crate::patch::stored::Stored;
use crate::sites::choose::Loaded;
use crate::sites::probes::Placed;
use crate::tracee::PatchContext;
use nopal_abi::Capture;
use nopal_agent::{BLOCK_BOUND, Stub, detour_bound, thunk_bound};
use nopal_control::{Control, Mode, SiteKey};
use nopal_plan::{Refused, Site};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

/// The sites to trace and to hook in a module.
#[derive(Default)]
pub struct Chosen<'a> {
    /// Each with the data to record of it.
    pub sites: Vec<(&'a Site, Capture)>,
    /// The functions that are wanted and can never be traced.
    pub refused: Vec<&'a Refused>,
    /// Not all of `sites` are to be on.
    pub are_off: bool,
    pub hooks: Vec<(&'a Site, Stub)>,
    pub probes: Vec<Arc<Placed>>,
    /// The changes that switch its markers on.
    pub markers: Vec<Change>,
    /// The words of data that the markers' code looks at, with the addresses that they will hold once these are known.
    pub marker_words: Vec<Change>,
    /// See [`Chosen::bound`].
    pub bound: OnceCell<u64>,
}

impl Chosen<'_> {
    /// Room that it takes in an arena, at most. Sites that are left out after the first call still count.
    pub fn bound(&self) -> u64 {
        *self.bound.get_or_init(|| self.count_bound())
    }

    fn count_bound(&self) -> u64 {
        let hooks = self.hooks.iter().map(|(site, _)| *site);
        let sites = self.sites.iter().map(|(site, _)| *site).chain(hooks);
        let bound = |site: &Site| {
            let stored = (1 + usize::from(site.hole.is_some())) * size_of::<Stored>();
            thunk_bound(site.body.code().len(), site.body.rows().len()) + stored
        };
        let markers = (self.markers.len() + self.marker_words.len()) * size_of::<Stored>();
        let probe = |probe: &Arc<Placed>| {
            let body = &probe.site.body;
            2 * detour_bound(body.code().len(), body.rows().len()) + size_of::<Stored>()
        };
        let probes = self.probes.iter().map(probe).sum::<usize>();
        (BLOCK_BOUND + markers + probes + sites.map(bound).sum::<usize>()) as u64
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
            && self.hooks.is_empty()
            && self.probes.is_empty()
            && self.markers.is_empty()
    }
}

/// The sites of `module` that are to be traced.
pub fn choose<'a>(module: &'a Loaded, control: &Control, context: &PatchContext) -> Chosen<'a> {
    let settings = &context.settings;
    let setup = control.setup();
    let plan = &module.file.plan;
    // As a rule all sites of a program are chosen, and few of a library: room that is not used costs nothing.
    let mut sites = Vec::with_capacity(plan.sites.len());
    let mut are_on = true;
    for (site, key) in plan.sites.iter().zip(module.file.keys()) {
        if let Some((capture, mode)) = setup.of(key) {
            sites.push((site, capture));
            are_on &= mode == Mode::On;
        }
    }
    let never: HashSet<SiteKey> = control.refused().collect();
    let refused = module.file.refused();
    let refused = refused.filter(|(key, _)| never.contains(key));
    Chosen {
        refused: refused.map(|(_, refused)| refused).collect(),
        probes: context.files.probes.of(&module.file),
        sites,
        are_off: !are_on,
        hooks: module.file.hooks(),
        markers: settings.markers.changes(module),
        marker_words: settings.markers.words(module, 0),
        bound: OnceCell::new(),
    }
}
