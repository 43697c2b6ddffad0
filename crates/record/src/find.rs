//! Which functions a place of the control language means, in all that the session's processes have loaded.

use crate::choose::{Loaded, Wanted, imported};
use crate::modules::extent;
use crate::session::Session;
use crate::traced::Traced;
use anyhow::Result;
use nopal_control::{FoundSite, Location, Place, SiteKey};
use nopal_symbols::{Function, Kind, Selection};
use std::collections::HashSet;

/// The file's number is above the address, which no process can have above this.
const ADDRESS_BITS: u32 = 47;

/// The site at an address of a file.
fn key(file: u32, address: u64) -> SiteKey {
    SiteKey(u64::from(file) << ADDRESS_BITS | address & ((1 << ADDRESS_BITS) - 1))
}

impl Session {
    /// The session's processes, the first of them first.
    fn processes(&self) -> Vec<&Traced> {
        let mut processes: Vec<&Traced> = self.traced.values().collect();
        processes.sort_by_key(|traced| (Some(traced.process) != self.attached, traced.process));
        processes
    }

    /// The functions that a place means, each once.
    pub fn find_sites(&self, place: &Place) -> Result<Vec<FoundSite>> {
        let wanted = match place {
            Place::Names(names) => Some(Wanted {
                selection: Selection::new(std::slice::from_ref(names), &[])?,
                libraries: false,
            }),
            _ => None,
        };
        let mut found = Vec::new();
        let mut known = HashSet::new();
        for traced in self.processes() {
            let imports = match place {
                Place::Names(names) if !names.contains('@') => imports(traced),
                _ => HashSet::new(),
            };
            for module in &traced.modules {
                let sites = match &wanted {
                    Some(wanted) => by_name(module, wanted, &imports),
                    None => by_address(module, place)?,
                };
                found.extend(sites.into_iter().filter(|site| known.insert(site.key)));
            }
        }
        Ok(found)
    }

    /// Names close to those that a place asks for.
    pub fn nearest_names(&self, place: &Place) -> Vec<String> {
        let Place::Names(names) = place else {
            return Vec::new();
        };
        let name = names.split_once('@').map_or(&**names, |(name, _)| name);
        self.files.nearest(name)
    }

    /// The file that an address of the first process is in, unless it is always loaded at the same place.
    pub fn locate_address(&self, address: u64) -> Option<Location> {
        let processes = self.processes();
        let module = processes.first()?.module_at(address)?;
        (module.file.image.kind() != Kind::Executable).then(|| Location {
            module: file_name(module).to_owned(),
            address: address.wrapping_sub(module.base),
        })
    }
}

fn imports(traced: &Traced) -> HashSet<u64> {
    let executable = traced.modules.iter().find(|module| module.executable);
    executable.map_or_else(HashSet::new, |executable| {
        imported(executable, &traced.modules, &traced.memory)
    })
}

fn file_name(module: &Loaded) -> &str {
    module.name.rsplit('/').next().unwrap_or(&module.name)
}

fn by_name(module: &Loaded, wanted: &Wanted, imports: &HashSet<u64>) -> Vec<FoundSite> {
    let sites = wanted.sites(module, imports);
    let refused = wanted.refused(module, imports);
    let mut found: Vec<FoundSite> = sites
        .into_iter()
        .map(|site| found(module, site.address, site.size, None))
        .chain(refused.into_iter().map(|refused| {
            let reason = refused.reason.text().to_owned();
            found(module, refused.address, refused.size, Some(reason))
        }))
        .collect();
    found.sort_by_key(|site| site.address);
    found
}

fn by_address(module: &Loaded, place: &Place) -> Result<Vec<FoundSite>> {
    let image = &module.file.image;
    let of_module = |name: &String| name == file_name(module);
    let functions: Vec<&Function> = match place {
        Place::Address(address) if extent(module).contains(address) => {
            let function = image.function_at(address.wrapping_sub(module.base))?;
            function.into_iter().collect()
        }
        Place::InModule {
            module: name,
            address,
        } if of_module(name) => image.function_at(*address)?.into_iter().collect(),
        Place::Range { start, end } => {
            let begins = |function: &&Function| {
                let address = module.base.wrapping_add(function.address);
                (*start..*end).contains(&address)
            };
            image.functions()?.iter().filter(begins).collect()
        }
        Place::RangeInModule {
            module: name,
            start,
            end,
        } if of_module(name) => {
            let begins = |function: &&Function| (*start..*end).contains(&function.address);
            image.functions()?.iter().filter(begins).collect()
        }
        Place::Line { file, line } => image.functions_at_line(file, *line)?,
        _ => Vec::new(),
    };
    let found = functions.into_iter().map(|function| {
        let plan = &module.file.plan;
        let site = plan
            .sites
            .binary_search_by_key(&function.address, |site| site.address);
        let refused = plan
            .refused
            .binary_search_by_key(&function.address, |refused| refused.address);
        let reason = match (site, refused) {
            (Ok(_), _) => None,
            (_, Ok(at)) => Some(plan.refused[at].reason.text().to_owned()),
            _ => Some("it is not in the plan of its file".to_owned()),
        };
        found(module, function.address, function.size, reason)
    });
    Ok(found.collect())
}

/// `address` is in the file.
fn found(module: &Loaded, address: u64, size: u64, refused: Option<String>) -> FoundSite {
    let name = match module.file.image.function_at(address) {
        Ok(Some(function)) => function.name.clone(),
        _ => format!("{}+{address:#x}", file_name(module)),
    };
    FoundSite {
        key: key(module.file.index, address),
        address: module.base.wrapping_add(address),
        size,
        name,
        module: file_name(module).to_owned(),
        executable: module.executable,
        refused,
    }
}
