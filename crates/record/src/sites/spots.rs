//! Finds the place of a spot that a user names, in the files that a process has loaded.

use crate::sites::choose::Loaded;
use crate::sites::files::File;
use crate::sites::modules::extent;
use crate::sites::values::Surroundings;
use anyhow::{Result, bail, ensure};
use nopal_analysis::sort;
use nopal_control::Spot;
use nopal_symbols::{Variable, VariablePath};

/// A place in a file.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    pub module: &'a Loaded,
    pub address: u64,
}

impl Found<'_> {
    /// `FUNCTION+0xOFFSET@MODULE`
    pub fn describe(&self) -> String {
        format!(
            "{}@{}",
            named(&self.module.file, self.address),
            self.module.file_name()
        )
    }
}

impl Surroundings for Found<'_> {
    fn address(&self) -> u64 {
        self.address
    }

    fn begins_function(&self) -> Result<bool> {
        let function = self.module.file.image.function_at(self.address)?;
        Ok(function.is_some_and(|function| function.address == self.address))
    }

    fn variable(&self, path: &VariablePath) -> Result<Variable> {
        self.module.file.image.variable(self.address, path)
    }
}

/// `FUNCTION+0xOFFSET`
pub fn named(file: &File, address: u64) -> String {
    match file.image.function_at(address) {
        Ok(Some(function)) if function.address == address => function.name.clone(),
        Ok(Some(function)) => format!("{}+{:#x}", function.name, address - function.address),
        _ => format!("{address:#x}"),
    }
}

/// Whether a module is selected: by its file name, complete or up to `.so`.
fn is_called(module: &Loaded, wanted: &str) -> bool {
    let rest = module.file_name().strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".so"))
}

/// The places that may be meant; none where no loaded file has one.
pub fn find<'a>(spot: &Spot, modules: &'a [Loaded]) -> Result<Vec<Found<'a>>> {
    let mut found = Vec::new();
    match spot {
        Spot::Address(address) => {
            let loaded = modules
                .iter()
                .find(|module| extent(module).contains(address));
            found.extend(loaded.map(|module| Found {
                module,
                address: address.wrapping_sub(module.base),
            }));
            // Nobody knows beforehand where a program will be: the address in the file.
            let executable = modules.iter().find(|module| module.executable);
            if let Some(module) = executable.filter(|it| it.file.extent().contains(address))
                && found.is_empty()
            {
                found.push(Found {
                    module,
                    address: *address,
                });
            }
        }
        Spot::Line { file, line } => {
            let mut next = None;
            for module in modules {
                let (at, addresses) = module.file.image.places_of_line(file, *line)?;
                if at != *line {
                    next = next.or(Some(at).filter(|_| !addresses.is_empty()));
                    continue;
                }
                found.extend(
                    addresses
                        .into_iter()
                        .map(|address| Found { module, address }),
                );
            }
            if let Some(next) = next.filter(|_| found.is_empty()) {
                bail!("there is no code of {file}:{line}: the next line with code is {next}");
            }
        }
        Spot::Named {
            name,
            module,
            offset,
        } => {
            let meant = |it: &&Loaded| module.as_ref().is_none_or(|wanted| is_called(it, wanted));
            for module in modules.iter().filter(meant) {
                let functions = module.file.named(name);
                found.extend(functions.iter().map(|address| Found {
                    module,
                    address: *address,
                }));
                if module.executable && !found.is_empty() {
                    break;
                }
            }
            if found.is_empty() && *offset > 0 {
                let named = modules.iter().find(|module| is_called(module, name));
                found.extend(named.map(|module| Found {
                    module,
                    address: *offset,
                }));
                return Ok(found);
            }
            for place in &mut found {
                let function = place.module.file.image.function_at(place.address)?;
                let size = function.map_or(0, |function| function.size);
                ensure!(
                    *offset == 0 || *offset < size.max(1),
                    "{name} is {size} bytes long"
                );
                place.address += offset;
            }
        }
    }
    sort::by_key(&mut found, |place| (place.module.file.index, place.address));
    found.dedup_by_key(|place| (place.module.file.index, place.address));
    Ok(found)
}

/// Whether a place may come with a module that is not loaded yet.
pub fn may_come(spot: &Spot, modules: &[Loaded]) -> bool {
    match spot {
        Spot::Named {
            module: Some(wanted),
            ..
        } => !modules.iter().any(|module| is_called(module, wanted)),
        _ => false,
    }
}
