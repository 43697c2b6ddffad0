//! The functions that the runtime must hear of.

use crate::places::files::File;
use nopal_agent::Stub;
use nopal_plan::Plan;
use nopal_symbols::Image;
use std::collections::HashSet;

const HOOKS: [(&str, Stub); 17] = [
    ("_dl_debug_state", Stub::Libraries),
    ("_dl_find_object", Stub::FindObject),
    ("dl_iterate_phdr", Stub::IterateObjects),
    ("longjmp", Stub::Jump),
    ("_longjmp", Stub::Jump),
    ("siglongjmp", Stub::Jump),
    ("__longjmp_chk", Stub::Jump),
    ("swapcontext", Stub::Jump),
    ("setcontext", Stub::Jump),
    ("execve", Stub::Exec),
    ("execveat", Stub::ExecAt),
    ("fexecve", Stub::ExecDescriptor),
    ("mlockall", Stub::LockAll),
    ("prctl", Stub::Prctl),
    ("seccomp", Stub::Seccomp),
    // Where all that libc has for it leads.
    ("__libc_sigaction", Stub::SignalAction),
    ("syscall", Stub::SystemCall),
];

/// The hooks to put into a file: only the C library and the loader have such functions under these names, and programs
/// that a C library is linked into.
pub fn of(image: &Image, plan: &Plan) -> Vec<(u64, Stub)> {
    if !is_libc(image) && !image.is_static() {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    HOOKS
        .iter()
        .filter_map(|(name, stub)| {
            let address = image.symbol(name)?;
            plan.hook(address).ok()?;
            seen.insert(address).then_some((address, *stub))
        })
        .collect()
}

/// Whether a file is the C library, or its loader.
pub fn is_libc(image: &Image) -> bool {
    let name = image
        .soname()
        .map_or_else(|| image.file_name(), str::to_owned);
    ["libc.so", "ld-linux", "ld-musl", "libc.musl"]
        .iter()
        .any(|libc| name.starts_with(libc))
}

/// Whether nothing can be told to the unwinder of a static program: it may have one, and be without symbols.
pub fn unwinds_alone(file: &File) -> bool {
    if !file.image.is_static() {
        return false;
    }
    let has = |name: &str| file.image.symbol(name).is_some();
    if has("_Unwind_Resume") || has("_Unwind_Find_FDE") {
        let tells = |stub: &Stub| matches!(stub, Stub::FindObject | Stub::IterateObjects);
        !file.hooks().iter().any(|(_, stub)| tells(stub))
    } else {
        !has("_start") && !has("main")
    }
}
