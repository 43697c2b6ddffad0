//! The modules that a process has loaded, and the files behind them.

use crate::patch::journal::is_nopals_code;
use crate::sites::choose::Loaded;
use crate::sites::files::Files;
use crate::sites::program;
use crate::sites::signs::{Runtime, named_runtime};
use crate::tracee::PatchContext;
use anyhow::{Context, Result};
use nopal_analysis::sort;
use nopal_process::{Memory, Module};
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn extent(module: &Loaded) -> Range<u64> {
    let extent = module.file.extent();
    module.base.wrapping_add(extent.start)..module.base.wrapping_add(extent.end)
}

/// The runtime among them that copies or walks stacks, known by the name of its library.
pub fn named_runtime_among(modules: &[Module]) -> Option<&'static Runtime> {
    let mut names = modules.iter().map(|module| module.path.to_string_lossy());
    names.find_map(|name| named_runtime(&name))
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

/// The mappings of a process with code, by base, each with its file; `None`: a file that cannot be planned. A mapping
/// that is as it was needs no second look: between two looks the loader has told of each library that it unloads.
#[derive(Clone, Default)]
pub struct Known(HashMap<u64, (Identity, Option<Loaded>)>);

impl Known {
    /// Whether these are the mappings of `modules`, each as it was.
    pub fn are(&self, modules: &[Module]) -> bool {
        modules.len() == self.0.len() && modules.iter().all(|module| self.has(module))
    }

    fn has(&self, module: &Module) -> bool {
        let same = self.0.get(&module.base);
        same.is_some_and(|(known, _)| *known == identity(module))
    }
}

/// Device, inode and path of a file.
type Identity = (u64, u64, PathBuf);

fn identity(module: &Module) -> Identity {
    (module.device, module.inode, module.path.clone())
}

/// A path by which the tool opens the file that a process executes.
pub fn executed(process: i32) -> PathBuf {
    Path::new(&nopal_process::directory(process)).join("exe")
}

/// The files with code among `modules` of a process, opened and planned; its executable first. The trace knows them.
pub fn loaded(
    process: i32,
    modules: &[Module],
    known: &mut Known,
    context: &mut PatchContext,
) -> Result<Vec<Loaded>> {
    let modules = program_first(process, modules.to_vec())?;
    let program = modules[0].base;
    let (old, new): (Vec<Module>, Vec<Module>) = modules.into_iter().partition(|it| known.has(it));
    let mut now = HashMap::with_capacity(old.len() + new.len());
    for module in old {
        now.extend(known.0.remove_entry(&module.base));
    }
    if !new.is_empty() {
        let planned = plan(process, &new, program, &mut context.files);
        for (module, loaded) in new.iter().zip(planned) {
            now.insert(module.base, (identity(module), loaded));
        }
        context.files.write_notes(&context.shared.writer)?;
    }
    known.0 = now;
    let loaded = known.0.values().filter_map(|(_, loaded)| loaded.clone());
    let mut loaded: Vec<Loaded> = loaded.collect();
    sort::by_key(&mut loaded, |module| (!module.executable, module.base));
    Ok(loaded)
}

/// All modules that a process has mapped, for no trace yet. Nothing is touched.
pub fn planned(process: i32, files: &mut Files) -> Result<Vec<Loaded>> {
    let modules = with_code(process)?;
    let planned = plan(process, &modules, modules[0].base, files);
    Ok(planned.into_iter().flatten().collect())
}

/// Plans each of `modules`, all of which have code. `program` is the base of the process's program.
fn plan(process: i32, modules: &[Module], program: u64, files: &mut Files) -> Vec<Option<Loaded>> {
    let paths: Vec<(PathBuf, PathBuf)> = modules
        .iter()
        .map(|module| (openable(process, module), module.path.clone()))
        .collect();
    let opened = files.open(&paths).into_iter().zip(modules);
    let loaded = opened.map(|(file, module)| {
        let Ok(file) = file else {
            if is_elf(process, module) {
                files.unread.insert(module.path.display().to_string());
            }
            return None;
        };
        Some(Loaded {
            executable: module.base == program,
            name: module.path.display().to_string(),
            base: module.base.wrapping_sub(file.extent().start),
            file,
        })
    });
    loaded.collect()
}

/// Whether a program or library is mapped, whatever a file of its name holds.
fn is_elf(process: i32, module: &Module) -> bool {
    let mut magic = [0; 4];
    let first = module.mappings.first();
    first.is_some_and(|first| first.offset == 0)
        && Memory::open(process).is_ok_and(|memory| memory.read(module.base, &mut magic).is_ok())
        && magic == *b"\x7fELF"
}

/// The files with code that a process has mapped, its program first.
pub fn with_code(process: i32) -> Result<Vec<Module>> {
    program_first(process, nopal_process::modules(process)?)
}

/// The modules that have code, at least one, without nopal's own.
fn program_first(process: i32, mut modules: Vec<Module>) -> Result<Vec<Module>> {
    let is_nopals = |module: &Module| module.mappings.iter().all(is_nopals_code);
    modules.retain(|module| module.executable() && !is_nopals(module));
    let program = program::among(process, &modules).context("the program is not mapped")?;
    modules[..=program].rotate_right(1);
    Ok(modules)
}

/// A path by which the tool opens the very file that is mapped, also in another mount namespace, and one that was
/// deleted or replaced. Where it cannot, there is nothing at this path.
pub fn openable(process: i32, module: &Module) -> PathBuf {
    nopal_process::module_file(process, module).unwrap_or_default()
}
