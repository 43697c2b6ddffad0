//! The functions and markers that processes have loaded, for control to look up by the names in commands.

use crate::sites::choose::{Loaded, reached};
use crate::sites::files::Files;
use crate::sites::fitting::{names_of_markers, nearest_markers};
use crate::sites::markers;
use crate::sites::modules::extent;
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_control::{
    Facts, FileAddress, FoundSite, Function, Location, Lookup, Missing, Part, Probe, SiteKey,
};
use nopal_symbols::Selection;
use std::collections::{HashMap, HashSet};

/// The functions and markers that processes have loaded, for control to look up.
pub struct Catalog<'a> {
    files: &'a Files,
    modules: Vec<Listed<'a>>,
    facts: Facts<'a>,
}

/// A module in a catalog.
pub struct Listed<'a> {
    pub module: &'a Loaded,
    /// The library functions of its process that are called from outside of their library.
    pub boundary: Boundary<'a>,
}

#[derive(Clone, Copy)]
pub enum Boundary<'a> {
    Known(&'a HashSet<u64>),
    /// To be found out.
    Of(&'a Tracee),
    /// The same, once these are loaded as well.
    With(&'a Tracee, &'a [Loaded]),
}

impl<'a> Listed<'a> {
    pub fn all(modules: &'a [Loaded], boundary: Boundary<'a>) -> Vec<Listed<'a>> {
        let listed = modules.iter().map(|module| Listed { module, boundary });
        listed.collect()
    }
}

impl<'a> Catalog<'a> {
    /// `modules`: each file once.
    pub fn new(files: &'a Files, modules: Vec<Listed<'a>>, facts: Facts<'a>) -> Catalog<'a> {
        Catalog {
            files,
            modules,
            facts,
        }
    }

    fn loaded(&self) -> impl Iterator<Item = &'a Loaded> + Clone {
        self.modules.iter().map(|listed| listed.module)
    }

    fn function(&self, key: SiteKey) -> Option<Function> {
        let (file, address) = self.files.site(key)?;
        let mut loaded = self.loaded();
        let loaded = loaded.find(|module| module.file.index == file.index);
        let name = match file.image.function_at(address) {
            Ok(Some(function)) => function.name.clone(),
            _ => format!("{}+{address:#x}", file.image.file_name()),
        };
        let refused = &file.plan.refused;
        let at = refused.binary_search_by_key(&address, |refused| refused.address);
        let tracees = self.modules.iter().filter_map(|listed| listed.tracee());
        let mut changes = tracees.filter_map(|tracee| tracee.inserted(file.index, address));
        Some(Function {
            name,
            module: match loaded {
                Some(module) => module.file_name().to_owned(),
                None => file.image.file_name().to_owned(),
            },
            executable: loaded.is_some_and(|module| module.executable),
            refused: at.ok().map(|at| refused[at].reason.text().to_string()),
            thunk: changes.next().map(|change| change.entry),
        })
    }
}

impl Listed<'_> {
    fn tracee(&self) -> Option<&Tracee> {
        match self.boundary {
            Boundary::Of(tracee) => Some(tracee),
            Boundary::Known(_) | Boundary::With(..) => None,
        }
    }
}

impl Lookup for Catalog<'_> {
    fn find(&mut self, location: &Location) -> Result<Vec<FoundSite>> {
        let names = match location {
            Location::Names(pattern) => Some((
                Selection::new(std::slice::from_ref(pattern), &[])?,
                plain_name(pattern),
            )),
            _ => None,
        };
        let mut found = Vec::new();
        let mut boundaries = HashMap::new();
        for listed in &self.modules {
            let module = listed.module;
            let of_module = |name: &str| name == module.file_name();
            let within = |address: u64| address.wrapping_sub(module.base);
            let means = match location {
                Location::Address(address) if extent(module).contains(address) => {
                    function_with(module, within(*address))
                }
                Location::Range { start, end } => {
                    let low = start.saturating_sub(module.base);
                    Means::Between(low, end.saturating_sub(module.base))
                }
                Location::InModule {
                    module: name,
                    address,
                } if of_module(name) => function_with(module, *address),
                Location::RangeInModule {
                    module: name,
                    start,
                    end,
                } if of_module(name) => Means::Between(*start, *end),
                Location::Names(_) => match &names {
                    Some((selection, plain)) => {
                        let candidates = plain.map(|name| module.file.named(name));
                        if candidates.is_some_and(<[u64]>::is_empty) {
                            continue;
                        }
                        // All functions of the executable are selected anyway.
                        let is_whole =
                            module.executable || selection.names_module(module.file_name());
                        let boundary = match listed.boundary {
                            _ if is_whole => None,
                            Boundary::Known(boundary) => Some(boundary),
                            Boundary::Of(tracee) => {
                                let known = boundaries.entry(tracee.process);
                                Some(&*known.or_insert_with(|| tracee.boundary(&[])))
                            }
                            Boundary::With(tracee, new) => {
                                let known = boundaries.entry(tracee.process);
                                Some(&*known.or_insert_with(|| tracee.boundary(new)))
                            }
                        };
                        let chooses = choosing(selection, module, boundary);
                        match candidates {
                            Some(candidates) => {
                                let chosen = candidates.iter().copied();
                                Means::Some(chosen.filter(|one| chooses(*one)).collect())
                            }
                            None => Means::Chosen(chooses),
                        }
                    }
                    None => Means::Nothing,
                },
                Location::Line { file, line } => {
                    Means::Some(module.file.functions_at(file, *line)?)
                }
                _ => Means::Nothing,
            };
            if matches!(means, Means::Nothing) {
                continue;
            }
            if let Some(addresses) = means.few() {
                let mut few: Vec<FoundSite> = addresses
                    .into_iter()
                    .filter_map(|address| {
                        let (key, is_refused) = module.file.key_of(address)?;
                        let address = module.base.wrapping_add(address);
                        Some(FoundSite {
                            key,
                            address,
                            is_refused,
                        })
                    })
                    .collect();
                few.sort_by_key(|site| site.address);
                found.extend(few);
                continue;
            }
            let plan = &module.file.plan;
            let sites = plan.sites.iter().map(|site| (site.address, false));
            let refused = plan.refused.iter().map(|refused| (refused.address, true));
            let first = found.len();
            for (key, (address, is_refused)) in module.file.keys().zip(sites.chain(refused)) {
                if means.has(address) {
                    found.push(FoundSite {
                        key,
                        address: module.base.wrapping_add(address),
                        is_refused,
                    });
                }
            }
            // Two runs that are in order.
            found[first..].sort_by_key(|site: &FoundSite| site.address);
        }
        Ok(found)
    }

    fn describe(&mut self, sites: &[SiteKey]) -> Vec<Function> {
        let functions = sites.iter().map(|key| self.function(*key));
        functions.map(Option::unwrap_or_default).collect()
    }

    fn markers(&mut self, glob: &str) -> Result<Vec<String>> {
        let wanted = markers::Wanted::new([(glob, true)])?;
        let names = names_of_markers(self.loaded(), &wanted);
        Ok(names.into_iter().collect())
    }

    fn place(&mut self, probe: &Probe) -> Result<()> {
        let modules: Vec<Loaded> = self.loaded().cloned().collect();
        self.files.have_place(probe, &modules)
    }

    fn nearest(&mut self, missing: Missing) -> Vec<String> {
        match missing {
            Missing::Functions(Location::Names(pattern)) => self.files.nearest(pattern),
            Missing::Functions(location) => Vec::from_iter(self.in_file(location)),
            Missing::Marker(name) => nearest_markers(self.loaded(), name),
        }
    }

    fn locate(&mut self, address: u64) -> Option<FileAddress> {
        let mut modules = self.loaded();
        let module = modules.find(|module| extent(module).contains(&address))?;
        Some(FileAddress {
            module: module.file_name().to_owned(),
            address: address.wrapping_sub(module.base),
        })
    }

    fn facts(&self) -> Facts<'_> {
        self.facts.clone()
    }
}

impl Catalog<'_> {
    /// Addresses as `nm` prints them mean nothing in a process that has its program elsewhere: the same ones in the first
    /// file that has functions there.
    fn in_file(&mut self, location: &Location) -> Option<String> {
        let mut names: Vec<String> = self
            .loaded()
            .map(|one| one.file_name().to_owned())
            .collect();
        names.dedup();
        let in_module = |module: String| match *location {
            Location::Address(address) => Some(Location::InModule { module, address }),
            Location::Range { start, end } => Some(Location::RangeInModule { module, start, end }),
            _ => None,
        };
        let mut locations = names.into_iter().filter_map(in_module);
        let location = locations.find(|one| self.find(one).is_ok_and(|found| !found.is_empty()))?;
        let excluded = false;
        Some(Part { location, excluded }.to_string())
    }
}

/// Tells of an address in a module's file whether a location means the function there.
enum Means<Chooses> {
    Nothing,
    One(u64),
    Between(u64, u64),
    Some(HashSet<u64>),
    Chosen(Chooses),
}

impl<Chooses: Fn(u64) -> bool> Means<Chooses> {
    /// The addresses that may be meant, where these are known.
    fn few(&self) -> Option<Vec<u64>> {
        match self {
            Means::One(one) => Some(vec![*one]),
            Means::Some(all) => Some(all.iter().copied().collect()),
            _ => None,
        }
    }

    fn has(&self, address: u64) -> bool {
        match self {
            Means::Nothing => false,
            Means::One(one) => *one == address,
            Means::Between(start, end) => (*start..*end).contains(&address),
            Means::Some(all) => all.contains(&address),
            Means::Chosen(chooses) => chooses(address),
        }
    }
}

/// Tells of an address in the file whether the function there is selected. Without a `boundary`, all of the module is.
fn choosing<'a>(
    selection: &'a Selection,
    module: &'a Loaded,
    boundary: Option<&'a HashSet<u64>>,
) -> impl Fn(u64) -> bool + 'a {
    let file_name = module.file_name();
    let reached = boundary.map(|boundary| reached(module, boundary));
    let everything = selection.chooses_all_of(file_name);
    move |address| {
        let is_reached = reached.as_ref().is_none_or(|all| all.contains(&address));
        is_reached && (everything || matches(selection, module, address))
    }
}

fn matches(selection: &Selection, module: &Loaded, address: u64) -> bool {
    let file_name = module.file_name();
    let Ok(Some(function)) = module.file.image.function_at(address) else {
        return selection.chooses(&[], file_name);
    };
    let names = std::iter::once(&function.name).chain(&function.aliases);
    let names: Vec<&str> = names.map(String::as_str).collect();
    selection.chooses(&names, file_name)
}

/// The address of the function that an address in the file is in.
fn function_with<Chooses>(module: &Loaded, address: u64) -> Means<Chooses> {
    let function = module.file.image.function_at(address);
    match function {
        Ok(Some(function)) => Means::One(function.address),
        _ => Means::Nothing,
    }
}

/// The name in a pattern that matches no other.
fn plain_name(pattern: &str) -> Option<&str> {
    let name = pattern.split('@').next()?;
    (!name.is_empty() && !name.contains(['*', '?', '[', '{', '\\'])).then_some(name)
}
