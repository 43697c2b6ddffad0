//! Selects the functions of a process to trace: those of the executable and the library functions that it imports, or
//! by patterns.

use crate::sites::files::File;
use nopal_process::Memory;
use nopal_symbols::Exports;
use std::collections::HashSet;
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
