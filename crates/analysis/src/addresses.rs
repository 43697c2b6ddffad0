//! The addresses of functions in processes.

use std::collections::HashMap;

use nopal_trace::{Note, Trace};

/// Fork chains are followed this far.
pub const GENERATIONS: usize = 64;

/// The bases of images in processes.
pub struct Addresses {
    /// By process and image: since when it was loaded, and its base. In order of time.
    bases: HashMap<(u32, u32), Vec<(u64, u64)>>,
    parents: HashMap<u32, u32>,
    /// By site: image and link-time address.
    sites: HashMap<u32, (u32, u64)>,
}

impl Addresses {
    pub fn new(trace: &Trace) -> Addresses {
        let mut bases: HashMap<(u32, u32), Vec<(u64, u64)>> = HashMap::new();
        for note in trace.notes() {
            if let Note::Module {
                process,
                image,
                counter,
                base,
                ..
            } = *note
            {
                bases
                    .entry((process, image))
                    .or_default()
                    .push((counter, base));
            }
        }
        for loads in bases.values_mut() {
            loads.sort_unstable();
        }
        let parents = trace
            .processes()
            .into_iter()
            .map(|process| (process.process, process.parent))
            .collect();
        let sites = trace
            .sites()
            .map(|site| (site.site, (site.image, site.address)))
            .collect();
        Addresses {
            bases,
            parents,
            sites,
        }
    }

    /// The address of a site in a process: a forked child has its parent's modules. For an unknown module, the
    /// link-time address; for an unknown site, 0.
    pub fn address(&self, mut process: u32, site: u32, clock: u64) -> u64 {
        let Some(&(image, address)) = self.sites.get(&site) else {
            return 0;
        };
        for _ in 0..GENERATIONS {
            if let Some(loads) = self.bases.get(&(process, image)) {
                let before = loads.partition_point(|&(counter, _)| counter <= clock);
                let (_, base) = loads[before.saturating_sub(1)];
                return base.wrapping_add(address);
            }
            match self.parents.get(&process) {
                Some(&parent) => process = parent,
                None => break,
            }
        }
        address
    }
}
