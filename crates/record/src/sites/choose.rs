//! The functions of a process that are traced unless a selection names others: those of the executable, those of
//! libraries that are called from outside of their library, and those in which these spend their time.

use crate::sites::files::File;
use crate::sites::modules::extent;
use nopal_analysis::sort;
use nopal_process::Memory;
use nopal_symbols::{Exports, calls, has_system_call};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A file as it is loaded in a process. Addresses in the file plus `base` are addresses in the process.
#[derive(Clone)]
pub struct Loaded {
    pub file: Arc<File>,
    pub base: u64,
    /// The name by which the process calls it.
    pub name: String,
    pub executable: bool,
}

impl PartialEq for Loaded {
    fn eq(&self, other: &Loaded) -> bool {
        let names = [self, other].map(|loaded| (loaded.base, &loaded.name, loaded.executable));
        names[0] == names[1] && Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Loaded {
    /// Without the directories.
    pub fn file_name(&self) -> &str {
        last_component(&self.name)
    }
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The most functions of a library that is traced whole.
const MOST_OF_LIBRARY: usize = 10_000;

/// The most functions of a library that are searched for calls, and the most bytes of all of them: a file may claim that
/// each of its functions is as long as all of its code.
const MOST_SEARCHED: usize = 2_000;
const MOST_BYTES: usize = 8 << 20;
/// From the first to the last function of a library that is searched, in bytes.
const MOST_TEXT: usize = 256 << 20;

/// The most boundaries of a file of which a session knows where they lead.
const MOST_KNOWN: usize = 16;

/// The bytes of a large function.
const LARGE: usize = 256;

/// A program is thin if it has no more functions than this, and its library at least `THIN_RATIO` times as many.
const THIN: usize = 500;
const THIN_RATIO: usize = 4;

/// Libraries of languages, which a program has whatever it does.
const LANGUAGE_LIBRARIES: &[&str] = &[
    "ld-",
    "libasan.",
    "libatomic.",
    "libc++.",
    "libc++abi.",
    "libc.",
    "libdl.",
    "libgcc_s.",
    "libgfortran.",
    "libgomp.",
    "libm.",
    "libpthread.",
    "librt.",
    "libstd-",
    "libstdc++.",
    "libubsan.",
    "linux-vdso.",
];

/// The addresses of the library functions that are called from outside of their library: those that other modules
/// import, as far as the files and the loader's words tell. Libraries that are called by pointers are in it whole:
/// those that the program opens by `dlopen`, with those that only these need, and the one that a thin program wraps.
/// `modules` are in the loader's order.
pub fn boundary(modules: &[Loaded], memory: &Memory) -> HashSet<u64> {
    let mut words = Words::new(memory);
    let mut found = HashSet::new();
    let mut names = HashSet::new();
    let exports = modules.iter().map(|module| module.file.image.exports());
    let exports: Vec<_> = modules.iter().zip(exports).collect();
    // The number of each module's functions that the executable calls.
    let mut called = vec![0; modules.len()];
    for module in modules {
        let extent = extent(module);
        for import in module.file.imports() {
            // The function that every C program begins with tells nothing of this one.
            if import.name == "__libc_start_main" {
                continue;
            }
            // A library's own choices of its own functions.
            if import.name.is_empty() && !module.executable {
                continue;
            }
            // A word that is not bound yet points back into the importer's own PLT.
            let word = words.at(module.base.wrapping_add(import.slot));
            let bound =
                word.filter(|word| *word != 0 && (module.executable || !extent.contains(word)));
            found.extend(bound);
            if !import.name.is_empty()
                && names.insert(&import.name)
                && let Some((definer, address)) = defined(&import.name, &exports, &mut words)
            {
                called[definer] += usize::from(module.executable);
                found.extend(address);
            }
        }
    }
    let needed = needed(modules);
    let opened = modules.iter().filter(|module| is_opened(module, &needed));
    for module in opened.chain(wrapped(modules, &called)) {
        let within = |address: u64| module.base.wrapping_add(address);
        if functions(&module.file).count() <= MOST_OF_LIBRARY {
            found.extend(functions(&module.file).map(within));
        } else {
            // `dlsym` finds these.
            let exported = module.file.image.exports().functions();
            found.extend(exported.take(MOST_OF_LIBRARY).map(within));
        }
    }
    found
}

/// The functions, by their addresses in the file, that a module's `boundary` leads to: those in it, and those within the
/// module that these call directly or through others, or that the module's data points to, if they are large or make a
/// system call. The time of a call is spent in these.
pub fn reached(module: &Loaded, boundary: &HashSet<u64>) -> Arc<HashSet<u64>> {
    let file = &module.file;
    let extent = extent(module);
    let own = boundary.iter().filter(|address| extent.contains(address));
    let own = own.map(|address| address.wrapping_sub(module.base));
    let mut own: Vec<u64> = own.filter(|one| file.key_of(*one).is_some()).collect();
    sort::by_key(&mut own, |address| *address);
    let mut known = file.reached.lock();
    if let Some(reached) = known.get(&own) {
        return reached.clone();
    }
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    let reached = Arc::new(search(file, &own));
    known.insert(own, reached.clone());
    reached
}

/// The same from the functions of the file that are in the boundary.
fn search(file: &File, own: &[u64]) -> HashSet<u64> {
    let mut reached: HashSet<u64> = own.iter().copied().collect();
    if own.is_empty() || own.len() == functions(file).count() {
        return reached;
    }
    let first = functions(file).min().unwrap_or(0);
    let last = functions(file).max().unwrap_or(0);
    let room = usize::try_from(last - first).ok();
    let Some(room) = room.filter(|room| *room < MOST_TEXT) else {
        return reached;
    };
    // A bit for each byte of text: a function begins there that is not known yet. Most bytes that look like calls lead to
    // none, or to one that is known.
    let mut unknown = vec![0_u64; room / 64 + 1];
    for begin in functions(file) {
        let at = (begin - first) as usize;
        unknown[at / 64] |= 1 << (at % 64);
    }
    let mut is_new = |address: &u64| {
        let at = address.checked_sub(first).map(usize::try_from);
        let Some(Ok(at)) = at else {
            return false;
        };
        let Some(word) = unknown.get_mut(at / 64) else {
            return false;
        };
        let bit = 1 << (at % 64);
        let is_new = *word & bit != 0;
        *word &= !bit;
        is_new
    };
    let mut all: Vec<u64> = own.iter().copied().filter(&mut is_new).collect();
    let mut pointers = file.image.pointers();
    // Those nearest to the boundary come first, and last those that are called by pointers.
    let (mut next, mut bytes) = (0, 0);
    while next < MOST_SEARCHED {
        if next == all.len() {
            all.extend(pointers.find(&mut is_new));
        }
        let Some(&address) = all.get(next) else {
            break;
        };
        next += 1;
        let Some(code) = file.code_at(address) else {
            continue;
        };
        bytes += code.len();
        if bytes > MOST_BYTES {
            break;
        }
        if code.len() >= LARGE || has_system_call(code) {
            reached.insert(address);
        }
        let called = calls(code, address).map(|(_, called)| called);
        all.extend(called.filter(&mut is_new));
    }
    reached
}

/// The library round which the executable is a thin shell, such as libpython; `called` are the numbers of each module's
/// functions that the executable calls.
fn wrapped<'a>(modules: &'a [Loaded], called: &[usize]) -> Option<&'a Loaded> {
    let executable = modules.iter().find(|module| module.executable)?;
    let own = functions(&executable.file).count();
    let libraries = modules.iter().zip(called);
    let mut libraries = libraries.filter(|(module, _)| !module.executable && !is_language(module));
    let most = libraries.clone().map(|(_, called)| *called).max()?;
    let (library, _) = libraries.find(|(_, called)| **called == most && most > 0)?;
    let least = own.saturating_mul(THIN_RATIO);
    (own <= THIN && least <= functions(&library.file).count()).then_some(library)
}

fn is_language(library: &Loaded) -> bool {
    let mut names = LANGUAGE_LIBRARIES.iter();
    names.any(|name| library.file_name().starts_with(name))
}

/// The names of the libraries that the executable needs, and of those that these need.
fn needed(modules: &[Loaded]) -> HashSet<&str> {
    let by_name: HashMap<&str, &Loaded> = modules
        .iter()
        .map(|module| (name(module), module))
        .collect();
    let mut needed = HashSet::new();
    let mut left: Vec<&Loaded> = modules.iter().filter(|module| module.executable).collect();
    while let Some(module) = left.pop() {
        let names = module.file.image.needed().into_iter().map(last_component);
        for name in names {
            if needed.insert(name) {
                left.extend(by_name.get(name));
            }
        }
    }
    needed
}

/// The name by which others need a library.
fn name(library: &Loaded) -> &str {
    library.file.image.soname().unwrap_or(library.file_name())
}

/// Whether a library came by `dlopen`: it is not among those that the executable needs.
fn is_opened(library: &Loaded, needed: &HashSet<&str>) -> bool {
    !library.executable && !needed.contains(name(library)) && !is_language(library)
}

/// The addresses of a file's functions.
fn functions(file: &File) -> impl Iterator<Item = u64> {
    let plan = &file.plan;
    let refused = plan.refused.iter().map(|refused| refused.address);
    plan.sites.iter().map(|site| site.address).chain(refused)
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

/// The number of the module in which the loader finds a name, and the function's address; for a function that is chosen
/// at run time, the one that the library itself has chosen.
fn defined(
    name: &str,
    exports: &[(&Loaded, Exports)],
    words: &mut Words,
) -> Option<(usize, Option<u64>)> {
    let mut found = exports.iter().enumerate();
    let (number, module, export) =
        found.find_map(|(number, (module, names))| Some((number, module, names.find(name)?)))?;
    let within = |address: u64| module.base.wrapping_add(address);
    let address = match export.chooses {
        false => Some(within(export.address)),
        true => module
            .file
            .slot_of(export.address)
            .and_then(|slot| words.at(within(slot))),
    };
    Some((number, address))
}
