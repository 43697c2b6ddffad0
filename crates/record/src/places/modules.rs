//! The modules of a process: what it has loaded, and the files behind them.

use crate::places::choose::Loaded;
use crate::places::files::Files;
use crate::places::hooks;
use crate::traced::Workshop;
use anyhow::Result;
use nopal_process::Module;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn extent(module: &Loaded) -> Range<u64> {
    let extent = module.file.extent();
    module.base.wrapping_add(extent.start)..module.base.wrapping_add(extent.end)
}

pub const HANDLES_STACKS: &str =
    "this program copies or walks its stacks itself: its entries only are recorded";

/// Whether one of them is a library of which the name tells that it does.
pub fn some_handle_stacks(modules: &[Module]) -> bool {
    let mut names = modules.iter().map(|module| module.path.to_string_lossy());
    names.any(|name| name_tells(&name))
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
    let mapped = identity(Path::new(&format!("/proc/{process}/exe")));
    if mapped.is_some() && identity(&path) == mapped {
        files.expect(path);
    }
}

/// What a process has mapped with code in it, by base, and what it is; `None`: it is no file that can be planned.
/// What is mapped as it was before need not be looked at again: between two such looks the loader has said what it
/// unloads.
#[derive(Clone, Default)]
pub struct Known(HashMap<u64, (Identity, Option<Loaded>)>);

/// Device, inode and path of a file.
type Identity = (u64, u64, PathBuf);

fn identity(module: &Module) -> Identity {
    (module.device, module.inode, module.path.clone())
}

/// The files with code among `modules` of a process, opened and planned; its executable first. The trace knows them.
pub fn loaded(
    process: i32,
    modules: &[Module],
    known: &mut Known,
    workshop: &mut Workshop,
) -> Result<Vec<Loaded>> {
    let modules = modules.iter().filter(|module| module.executable());
    let is_known = |module: &&Module| {
        let same = known.0.get(&module.base);
        same.is_some_and(|(known, _)| *known == identity(module))
    };
    let (old, new): (Vec<&Module>, Vec<&Module>) = modules.partition(is_known);
    let mut now = HashMap::with_capacity(old.len() + new.len());
    for module in old {
        now.extend(known.0.remove_entry(&module.base));
    }
    if !new.is_empty() {
        for (module, loaded) in new.iter().zip(plan(process, &new, workshop.files)?) {
            now.insert(module.base, (identity(module), loaded));
        }
        workshop.files.tell(workshop.writer)?;
    }
    known.0 = now;
    let loaded = known.0.values().filter_map(|(_, loaded)| loaded.clone());
    let mut loaded: Vec<Loaded> = loaded.collect();
    loaded.sort_by_key(|module| (!module.executable, module.base));
    Ok(loaded)
}

/// All that a process has mapped, for no trace yet. Nothing is touched.
pub fn planned(process: i32, files: &mut Files) -> Result<Vec<Loaded>> {
    let modules = nopal_process::modules(process)?;
    let modules: Vec<&Module> = modules.iter().filter(|it| it.executable()).collect();
    let planned = plan(process, &modules, files)?.into_iter();
    let mut loaded: Vec<Loaded> = planned.flatten().collect();
    loaded.sort_by_key(|module| !module.executable);
    Ok(loaded)
}

/// Of each of `modules`, which have code.
fn plan(process: i32, modules: &[&Module], files: &mut Files) -> Result<Vec<Option<Loaded>>> {
    let executable = nopal_process::executable(process)?;
    let paths: Vec<(PathBuf, PathBuf)> = modules
        .iter()
        .map(|module| (openable(process, module), module.path.clone()))
        .collect();
    let loaded = files.open(&paths).into_iter().zip(modules);
    let loaded = loaded.map(|(file, module)| {
        let file = file.ok()?;
        Some(Loaded {
            executable: module.path == executable,
            name: module.path.display().to_string(),
            base: module.base.wrapping_sub(file.extent().start),
            file,
        })
    });
    Ok(loaded.collect())
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
