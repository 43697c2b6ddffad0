//! Finds the program among the files that a process has mapped. Where the kernel starts the loader and the loader a
//! program, that program is meant: `ld-linux-x86-64.so.2 PROGRAM`, as AppImages, Nix and some containers do.

use crate::sites::modules::openable;
use nopal_process::{Auxiliary, Memory, Module};
use nopal_symbols::Image;
use std::path::Path;

/// Offsets of the first module in the loader's `struct r_debug`, and of `r_state`.
const MODULES: u64 = 8;
const STATE: u64 = 24;
/// Offset of a module's dynamic section in the loader's `struct link_map`.
const DYNAMIC: u64 = 16;

/// Whether a file that the kernel runs is a loader.
pub fn is_loader(image: &Image) -> bool {
    image.interpreter().is_none() && image.exported(LOADED).is_some()
}

/// The function that a loader calls when it has loaded a library.
pub const LOADED: &str = "_dl_debug_state";

/// Where a loader tells that it is changing its list of libraries: a 32-bit word that is not 0 then. musl's has none of
/// that name, and calls [`LOADED`] only when it has changed the list.
pub fn loader_state(image: &Image, base: u64) -> Option<u64> {
    let debug = image.symbol(LOADED).and(image.symbol("_r_debug"))?;
    Some(base.wrapping_add(debug).wrapping_add(STATE))
}

/// The index of the program. While a loader has not loaded it yet, that of the loader.
pub fn among(process: i32, modules: &[Module]) -> Option<usize> {
    let auxiliary = nopal_process::auxiliary(process).unwrap_or_default();
    let executed = executed(process, &auxiliary, modules)?;
    let loaded = match auxiliary.loader_base {
        None => loaded_by(process, &modules[executed], modules),
        Some(_) => None,
    };
    loaded.or(Some(executed))
}

/// The file that the kernel has executed.
pub fn executed(process: i32, auxiliary: &Auxiliary, modules: &[Module]) -> Option<usize> {
    let path = nopal_process::executable(process).unwrap_or_default();
    let is_it = |module: &Module| is_called(&module.path, module.deleted, &path);
    let called = modules.iter().position(is_it);
    called.or_else(|| with(modules, auxiliary.program_headers?))
}

/// Whether the kernel's link names it so.
fn is_called(path: &Path, deleted: bool, link: &Path) -> bool {
    let mut called = path.as_os_str().to_owned();
    if deleted {
        called.push(" (deleted)");
    }
    called == link.as_os_str()
}

/// The module with an address.
fn with(modules: &[Module], address: u64) -> Option<usize> {
    modules.iter().position(|module| {
        let mut mappings = module.mappings.iter();
        mappings.any(|mapping| (mapping.start..mapping.end).contains(&address))
    })
}

/// The first module that a loader which the kernel was asked to run has loaded.
fn loaded_by(process: i32, loader: &Module, modules: &[Module]) -> Option<usize> {
    let image = Image::open(&openable(process, loader)).ok()?;
    if !is_loader(&image) {
        return None;
    }
    let memory = Memory::open(process).ok()?;
    let at = |name: &str| Some(loader.base + image.exported(name)?);
    let debug = match (at("_r_debug"), at("_dl_debug_addr")) {
        (Some(debug), _) => debug,
        // musl's has a pointer to it.
        (None, pointer) => memory.read_word(pointer?).ok()?,
    };
    let first = memory.read_word(debug + MODULES).ok()?;
    let dynamic = memory.read_word(first + DYNAMIC).ok()?;
    with(modules, dynamic)
}
