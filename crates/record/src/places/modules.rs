//! The modules of a process: what it has loaded, and the files behind them.

use crate::places::choose::Loaded;
use crate::places::files::Files;
use crate::places::hooks;
use crate::traced::Workshop;
use anyhow::Result;
use nopal_process::Module;
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

pub const HIDES_THUNKS: &str = "this program's unwinder is led past what nopal can tell it by a function of the program's own: its entries only are recorded";

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
    } else if hooks::hides_thunks(&module.file) {
        Some(HIDES_THUNKS)
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
    let mapped = identity(Path::new(&format!("/proc/{process}/exe")));
    if mapped.is_some() && identity(&path) == mapped {
        files.expect(path);
    }
}

/// The files with code that a process has mapped, opened and planned; its executable first. The trace knows them.
pub fn loaded(process: i32, workshop: &mut Workshop) -> Result<Vec<Loaded>> {
    let modules = planned(process, workshop.files)?;
    workshop.files.tell(workshop.writer)?;
    Ok(modules)
}

/// The same, for no trace yet. Nothing is touched.
pub fn planned(process: i32, files: &mut Files) -> Result<Vec<Loaded>> {
    let executable = nopal_process::executable(process)?;
    let modules: Vec<_> = nopal_process::modules(process)?
        .into_iter()
        .filter(Module::executable)
        .collect();
    let paths: Vec<(PathBuf, PathBuf)> = modules
        .iter()
        .map(|module| (openable(process, module), module.path.clone()))
        .collect();
    let mut loaded = Vec::new();
    for (file, module) in files.open(&paths).into_iter().zip(&modules) {
        let Ok(file) = file else { continue };
        let base = module.base.wrapping_sub(file.extent().start);
        loaded.push(Loaded {
            executable: module.path == executable,
            name: module.path.display().to_string(),
            base,
            file,
        });
    }
    loaded.sort_by_key(|module| !module.executable);
    Ok(loaded)
}

/// A path by which the tool opens the very file that is mapped, also in another mount namespace, and an executable that
/// was deleted or replaced.
pub fn openable(process: i32, module: &Module) -> PathBuf {
    let is_it = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|metadata| metadata.ino() == module.inode)
    };
    let below_root = module.path.strip_prefix("/").unwrap_or(&module.path);
    [
        module.path.clone(),
        PathBuf::from(format!("/proc/{process}/root")).join(below_root),
        PathBuf::from(format!("/proc/{process}/exe")),
    ]
    .into_iter()
    .find(is_it)
    .unwrap_or_else(|| module.path.clone())
}
