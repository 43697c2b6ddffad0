//! Selects the functions of a process to trace: those of the executable and the library functions that it imports, or
//! by patterns.

use crate::sites::files::File;
use nopal_abi::Capture;
use nopal_plan::{Refused, Site};
use nopal_process::Memory;
use nopal_symbols::{Exports, Selection};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A file as it is loaded in a process. Addresses in the file plus `base` are addresses in the process.
#[derive(Clone)]
pub struct Loaded {
    pub file: Arc<File>,
    pub base: u64,
    /// As the process calls it.
    pub name: String,
    pub executable: bool,
}

impl Loaded {
    /// Without the directories.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// The user's selection.
pub struct Wanted {
    /// None but markers, if false.
    pub functions: bool,
    pub selection: Selection,
    pub libraries: bool,
    /// The additional needs of tracers.
    pub needs: Vec<Needed>,
}

/// Functions in all modules, and what is to be recorded of their calls.
pub struct Needed {
    pub selection: Selection,
    pub capture: Capture,
}

impl Wanted {
    /// The sites of `module` to trace, and what to record of each: `usual`, and what is needed beside. `imports` are
    /// the addresses, in the process, that the executable calls.
    pub fn sites<'a>(
        &self,
        module: &'a Loaded,
        imports: &HashSet<u64>,
        usual: Capture,
    ) -> Vec<(&'a Site, Capture)> {
        let chooses = self.chooser(module, imports);
        let needed = self.needed(module);
        let capture = |address: u64| {
            let chosen = chooses(address).then_some(usual);
            let needed = needed.get(&address).copied();
            match (chosen, needed) {
                (Some(one), Some(other)) => Some(one.and(other)),
                (one, other) => one.or(other),
            }
        };
        let sites = &module.file.plan.sites;
        // As a rule all of a program's, and few of a library's: room that is not used costs nothing.
        let mut chosen = Vec::with_capacity(sites.len());
        chosen.extend(
            sites
                .iter()
                .filter_map(|site| Some((site, capture(site.address)?))),
        );
        chosen
    }

    /// Whether there is a site in `module` that is chosen for its own sake.
    pub fn has_site(&self, module: &Loaded, imports: &HashSet<u64>) -> bool {
        let chooses = self.chooser(module, imports);
        let mut sites = module.file.plan.sites.iter();
        sites.any(|site| chooses(site.address))
    }

    /// By address in the file: what tracers need of it.
    fn needed(&self, module: &Loaded) -> HashMap<u64, Capture> {
        let mut needed: HashMap<u64, Capture> = HashMap::new();
        let file_name = module.file_name();
        if self.needs.is_empty() {
            return needed;
        }
        for site in &module.file.plan.sites {
            let of = self.needs.iter();
            for one in of.filter(|one| matches(&one.selection, module, site.address, file_name)) {
                let capture = needed.entry(site.address).or_default();
                *capture = capture.and(one.capture);
            }
        }
        needed
    }

    /// The selected functions that cannot be traced.
    pub fn refused<'a>(&self, module: &'a Loaded, imports: &HashSet<u64>) -> Vec<&'a Refused> {
        let chooses = self.chooser(module, imports);
        let refused = module.file.plan.refused.iter();
        refused.filter(|refused| chooses(refused.address)).collect()
    }

    /// The addresses in the file of all of these: sites, and functions that are refused. Only `candidates` are looked
    /// at, if they are given.
    pub fn functions(
        &self,
        module: &Loaded,
        imports: &HashSet<u64>,
        candidates: Option<&[u64]>,
    ) -> HashSet<u64> {
        let chooses = self.chooser(module, imports);
        let plan = &module.file.plan;
        let sites = plan.sites.iter().map(|site| site.address);
        let refused = plan.refused.iter().map(|refused| refused.address);
        match candidates {
            Some(candidates) => {
                let candidates = candidates.iter().copied();
                candidates.filter(|address| chooses(*address)).collect()
            }
            None => sites
                .chain(refused)
                .filter(|address| chooses(*address))
                .collect(),
        }
    }

    /// Tells of an address in the file whether the function there is chosen.
    fn chooser(&self, module: &Loaded, imports: &HashSet<u64>) -> impl Fn(u64) -> bool {
        let file_name = module.file_name();
        let all = module.executable || self.libraries || self.selection.names_module(file_name);
        let everything = self.selection.is_everything();
        move |address| {
            let reached =
                self.functions && (all || imports.contains(&module.base.wrapping_add(address)));
            reached && (everything || matches(&self.selection, module, address, file_name))
        }
    }
}

fn matches(selection: &Selection, module: &Loaded, address: u64, file_name: &str) -> bool {
    let Ok(Some(function)) = module.file.image.function_at(address) else {
        return selection.chooses(&[], file_name);
    };
    let names = std::iter::once(&function.name).chain(&function.aliases);
    let names: Vec<&str> = names.map(String::as_str).collect();
    selection.chooses(&names, file_name)
}

/// Where the functions are that the executable among `modules` imports; these are in the loader's order.
pub fn imported(modules: &[Loaded], memory: &Memory) -> HashSet<u64> {
    let Some(executable) = modules.iter().find(|module| module.executable) else {
        return HashSet::new();
    };
    let exports = modules.iter().map(|module| module.file.image.exports());
    let exports: Vec<_> = modules.iter().zip(exports).collect();
    let mut words = Words::new(memory);
    let mut found = HashSet::new();
    let mut names = HashSet::new();
    for import in executable.file.imports() {
        // What every C program begins with tells nothing of this one.
        if import.name == "__libc_start_main" {
            continue;
        }
        // A word that is not bound yet points back into the executable's own PLT.
        found.extend(words.at(executable.base.wrapping_add(import.slot)));
        if !import.name.is_empty() && names.insert(&import.name) {
            found.extend(defined(&import.name, &exports, &mut words));
        }
    }
    found
}

/// Words of a process, which are read a page at a time: those that are asked for are close together.
struct Words<'a> {
    memory: &'a Memory,
    page: Option<u64>,
    bytes: Box<[u8; PAGE]>,
}

const PAGE: usize = 4096;

impl<'a> Words<'a> {
    fn new(memory: &'a Memory) -> Words<'a> {
        Words {
            memory,
            page: None,
            bytes: Box::new([0; PAGE]),
        }
    }

    fn at(&mut self, address: u64) -> Option<u64> {
        let offset = (address % PAGE as u64) as usize;
        let page = address - offset as u64;
        if self.page != Some(page) {
            self.page = None;
            self.memory.read(page, &mut *self.bytes).ok()?;
            self.page = Some(page);
        }
        match self.bytes.get(offset..offset + 8) {
            Some(word) => Some(u64::from_le_bytes(word.try_into().ok()?)),
            None => self.across_pages(address),
        }
    }

    fn across_pages(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read(address, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }
}

/// The function that the loader binds a name to; for one that is chosen at run time, what the library itself has
/// chosen.
fn defined(name: &str, exports: &[(&Loaded, Exports)], words: &mut Words) -> Option<u64> {
    let mut found = exports.iter();
    let (module, export) = found.find_map(|(module, names)| Some((module, names.find(name)?)))?;
    let address = match export.chooses {
        false => return Some(module.base.wrapping_add(export.address)),
        true => module.file.slot_of(export.address)?,
    };
    words.at(module.base.wrapping_add(address))
}
