//! What is to be traced in a module, with the room that it takes.

use crate::patch::change::Change;
use crate::patch::stored::Stored;
use crate::sites::choose::Loaded;
use crate::sites::probes::Placed;
use crate::tracee::PatchContext;
use nopal_abi::Capture;
use nopal_agent::{BLOCK_BOUND, Stub, detour_bound, thunk_bound};
use nopal_plan::Site;
use std::collections::HashSet;
use std::sync::Arc;

/// What is to be traced in a module, and hooked.
#[derive(Default)]
pub struct Chosen<'a> {
    /// With what is recorded of each.
    pub sites: Vec<(&'a Site, Capture)>,
    pub hooks: Vec<(&'a Site, Stub)>,
    pub probes: Vec<Arc<Placed>>,
    /// What switches its markers on.
    pub markers: Vec<Change>,
    /// And the words of data that their code looks at, with the addresses that they will hold once these are known.
    pub marker_words: Vec<Change>,
}

impl Chosen<'_> {
    /// Room that it takes in an arena, at most.
    pub fn bound(&self) -> u64 {
        let hooks = self.hooks.iter().map(|(site, _)| *site);
        let sites = self.sites.iter().map(|(site, _)| *site).chain(hooks);
        let bound = |site: &Site| {
            thunk_bound(site.body.code().len(), site.body.rows().len()) + size_of::<Stored>()
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

/// What is to be traced in `module`. `imports` are the addresses that the executable calls.
pub fn choose<'a>(
    module: &'a Loaded,
    imports: &HashSet<u64>,
    context: &PatchContext,
) -> Chosen<'a> {
    let settings = context.settings;
    let wanted = settings.wanted.as_ref();
    Chosen {
        probes: context.files.probes.of(&module.file),
        sites: wanted.map_or_else(Vec::new, |wanted| {
            wanted.sites(module, imports, settings.capture)
        }),
        hooks: module.file.hooks(),
        markers: settings.markers.changes(module),
        marker_words: settings.markers.words(module, 0),
    }
}
