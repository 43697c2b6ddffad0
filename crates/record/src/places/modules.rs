//! The modules of a process: what it has loaded, and the files behind them.

use crate::places::choose::Loaded;
use crate::places::files::Files;
use crate::places::hooks;
use crate::places::program;
use crate::traced::Workshop;
use anyhow::{Context, Result};
use nopal_process::{Memory, Module};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn extent(module: &Loaded) -> Range<u64> {
    let extent = module.file.extent();
    module.base.wrapping_add(extent.start)..module.base.wrapping_add(extent.end)
}

pub const HANDLES_STACKS: &str =
    "this program copies or walks its stacks itself: its entries only are recorded";

/// Whether a process has loaded a library of which the name tells that it does.
pub fn process_handles_stacks(process: i32) -> Result<bool> {
    let modules = nopal_process::modules(process)?;
    let mut names = modules.iter().map(|module| module.path.to_string_lossy());
    Ok(names.any(|name| name_tells(&name)))
}

const UNWINDS_ALONE: &str = "this static program has no symbols by which its unwinder could be found: its entries only are recorded";

const SANITIZED: &str =
    "this program's sanitizer leaves no room for return addresses: its entries only are recorded";

/// Why nothing may be wrapped in a process with this module, if so: its code moves live frames, whose wrapped return
/// addresses would come back to other calls' mirrors; or looks for return addresses where calls leave them, as V8 does
/// for each exception and each collection of garbage; or takes nearly the whole address space for its shadow.
pub fn entries_only(module: &Loaded) -> Option<&'static str> {
    const OF_V8: &str = "_ZN2v87Isolate10GetCurrentEv";
    let exports = |name| module.file.image.exported(name).is_some();
    if name_tells(&module.name) || exports(OF_V8) {
        Some(HANDLES_STACKS)
    } else if hooks::unwinds_alone(&module.file) {
        Some(UNWINDS_ALONE)
    } else {
        (exports("__tsan_init") || exports("__msan_init")).then_some(SANITIZED)
    }
}

fn name_tells(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    ["greenlet", "libnode", "libv8"]
        .iter()
        .any(|part| file.contains(part))
}

/// Expects the executable of a process that is on the way to its first code.
pub fn expect(process: i32, files: &mut Files) {
    let Ok(path) = nopal_process::executable(process) else {
        return;
    };
    let identity = |path: &Path| Some(path.metadata().ok()?).map(|it| (it.dev(), it.ino()));
    let mapped = identity(&executed(process));
    if mapped.is_some() && identity(&path) == mapped {
        files.expect(path);
    }
}

/// A path by which the tool opens the file that a process executes.
pub fn executed(process: i32) -> PathBuf {
    Path::new(&nopal_process::directory(process)).join("exe")
}

/// The files with code that a process has mapped, opened and planned; its executable first. The trace knows them.
pub fn loaded(process: i32, workshop: &mut Workshop) -> Result<Vec<Loaded>> {
    let modules = planned(process, workshop.files)?;
    workshop.files.tell(workshop.writer)?;
    Ok(modules)
}

/// The same, for no trace yet. Nothing is touched.
pub fn planned(process: i32, files: &mut Files) -> Result<Vec<Loaded>> {
    let modules = with_code(process)?;
    let paths: Vec<(PathBuf, PathBuf)> = modules
        .iter()
        .map(|module| (openable(process, module), module.path.clone()))
        .collect();
    let mut loaded = Vec::new();
    let opened = files.open(&paths).into_iter().zip(&modules);
    for (index, (file, module)) in opened.enumerate() {
        let Ok(file) = file else {
            if is_elf(process, module) {
                files.unread.insert(module.path.display().to_string());
            }
            continue;
        };
        let base = module.base.wrapping_sub(file.extent().start);
        loaded.push(Loaded {
            executable: index == 0,
            name: module.path.display().to_string(),
            base,
            file,
        });
    }
    Ok(loaded)
}

/// Whether a program or library is mapped, whatever stands in a file of its name.
fn is_elf(process: i32, module: &Module) -> bool {
    let mut magic = [0; 4];
    let first = module.mappings.first();
    first.is_some_and(|first| first.offset == 0)
        && Memory::open(process).is_ok_and(|memory| memory.read(module.base, &mut magic).is_ok())
        && magic == *b"\x7fELF"
}

/// The files with code that a process has mapped, its program first.
pub fn with_code(process: i32) -> Result<Vec<Module>> {
    let mut modules = nopal_process::modules(process)?;
    modules.retain(Module::executable);
    let program = program::among(process, &modules).context("the program is not mapped")?;
    modules[..=program].rotate_right(1);
    Ok(modules)
}

/// A path by which the tool opens the very file that is mapped, also in another mount namespace, and one that was
/// deleted or replaced. Nothing is there where it cannot.
pub fn openable(process: i32, module: &Module) -> PathBuf {
    nopal_process::module_file(process, module).unwrap_or_default()
}
