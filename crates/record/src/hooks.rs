//! The functions that the runtime must hear of.

use crate::files::File;
use nopal_agent::Stub;
use nopal_plan::Site;
use std::collections::HashSet;

const HOOKS: [(&str, Stub); 16] = [
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
    ("syscall", Stub::SystemCall),
];

/// The hooks to put into a file: only the C library and the loader have such functions under these names.
pub fn of(file: &File) -> Vec<(&Site, Stub)> {
    let name = file
        .image
        .soname()
        .map_or_else(|| file.image.file_name(), str::to_owned);
    if !["libc.so", "ld-linux", "ld-musl", "libc.musl"]
        .iter()
        .any(|libc| name.starts_with(libc))
    {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    HOOKS
        .iter()
        .filter_map(|(name, stub)| {
            let address = file.image.symbol(name)?;
            let site = file.plan.hook(address).ok()?;
            seen.insert(address).then_some((site, *stub))
        })
        .collect()
}
