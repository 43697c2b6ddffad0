//! Functions that are refused by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::{Reason, arch};

/// A name, or with a star at its end a prefix.
const NAMES: &[(&str, Reason)] = &[
    ("_start", Reason::ProgramEntry),
    ("_dl_start", Reason::ProgramEntry),
    ("_dl_start_user", Reason::ProgramEntry),
    ("_dl_relocate_static_pie", Reason::ProgramEntry),
    ("setjmp", Reason::ReturnsTwice),
    ("_setjmp", Reason::ReturnsTwice),
    ("__setjmp", Reason::ReturnsTwice),
    ("sigsetjmp", Reason::ReturnsTwice),
    ("__sigsetjmp*", Reason::ReturnsTwice),
    ("vfork", Reason::SharesStack),
    ("__vfork", Reason::SharesStack),
    ("__libc_vfork", Reason::SharesStack),
    ("clone", Reason::SharesStack),
    ("clone3", Reason::SharesStack),
    ("__clone*", Reason::SharesStack),
    ("getcontext", Reason::ReturnsTwice),
    ("__getcontext", Reason::ReturnsTwice),
    ("makecontext", Reason::SwitchesStack),
    ("__makecontext", Reason::SwitchesStack),
    ("setcontext", Reason::SwitchesStack),
    ("__setcontext", Reason::SwitchesStack),
    ("swapcontext", Reason::SwitchesStack),
    ("__swapcontext", Reason::SwitchesStack),
    ("__start_context", Reason::SwitchesStack),
    ("__push___start_context", Reason::SwitchesStack),
    ("longjmp", Reason::LeavesFrames),
    ("_longjmp", Reason::LeavesFrames),
    ("__longjmp*", Reason::LeavesFrames),
    ("____longjmp_chk", Reason::LeavesFrames),
    ("siglongjmp", Reason::LeavesFrames),
    ("__libc_longjmp", Reason::LeavesFrames),
    ("__libc_siglongjmp", Reason::LeavesFrames),
    ("__restore", Reason::SignalReturn),
    ("__restore_rt", Reason::SignalReturn),
    ("dlsym", Reason::LooksAtCaller),
    ("__dlsym", Reason::LooksAtCaller),
    ("___dlsym", Reason::LooksAtCaller),
    ("dlvsym", Reason::LooksAtCaller),
    ("__dlvsym", Reason::LooksAtCaller),
    ("___dlvsym", Reason::LooksAtCaller),
    ("dlopen", Reason::LooksAtCaller),
    ("__dlopen", Reason::LooksAtCaller),
    ("___dlopen", Reason::LooksAtCaller),
    ("dlmopen", Reason::LooksAtCaller),
    ("__dlmopen", Reason::LooksAtCaller),
    ("___dlmopen", Reason::LooksAtCaller),
    ("__libc_dl*", Reason::LooksAtCaller),
    ("_dl_runtime_resolve*", Reason::LinksLazily),
    ("_dl_runtime_profile*", Reason::LinksLazily),
    ("_dl_tlsdesc*", Reason::ThreadLocal),
    ("__tlsdesc_*", Reason::ThreadLocal),
    ("__tls_get_addr*", Reason::ThreadLocal),
    ("___tls_get_addr*", Reason::ThreadLocal),
    ("_dl_debug_state", Reason::LoaderHook),
    ("_dl_find_object", Reason::LoaderHook),
    ("dl_iterate_phdr", Reason::LoaderHook),
    ("__dl_iterate_phdr", Reason::LoaderHook),
    ("_Unwind_*", Reason::Unwinder),
    ("uw_*", Reason::Unwinder),
    ("execve", Reason::ReplacesProgram),
    ("__execve", Reason::ReplacesProgram),
    ("execveat", Reason::ReplacesProgram),
    ("fexecve", Reason::ReplacesProgram),
    ("prctl", Reason::RestrictsCalls),
    ("__prctl", Reason::RestrictsCalls),
    ("seccomp", Reason::RestrictsCalls),
    ("syscall", Reason::RawSystemCall),
    ("mlockall", Reason::LocksMemory),
    ("__libc_sigaction", Reason::SetsSignals),
    ("mprotect", Reason::ChangesText),
    ("__mprotect", Reason::ChangesText),
    ("pkey_mprotect", Reason::ChangesText),
    ("mremap", Reason::ChangesText),
    ("__mremap", Reason::ChangesText),
    ("__morestack*", Reason::GrowsStack),
    ("mcount", Reason::ProfilerHook),
    ("_mcount", Reason::ProfilerHook),
    ("__mcount_internal", Reason::ProfilerHook),
    ("__fentry__", Reason::ProfilerHook),
    ("__cyg_profile_func_*", Reason::ProfilerHook),
];

/// The reason why a function of this name is special, if it is. A version (`name@VERSION`) and the prefix that glibc
/// gives its own copies (`__GI_`) do not matter.
pub(crate) fn by_name(name: &str) -> Option<Reason> {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let exact = || EXACT.get(name).copied();
    let starts = || BEGINNINGS.iter().find(|(start, _)| name.starts_with(start));
    exact().or_else(|| starts().map(|&(_, reason)| reason))
}

fn names() -> impl Iterator<Item = &'static (&'static str, Reason)> {
    NAMES.iter().chain(arch::SPECIAL)
}

static EXACT: LazyLock<HashMap<&str, Reason>> = LazyLock::new(|| {
    names()
        .filter(|(name, _)| !name.ends_with('*'))
        .copied()
        .collect()
});

static BEGINNINGS: LazyLock<Vec<(&str, Reason)>> = LazyLock::new(|| {
    names()
        .filter_map(|&(name, reason)| Some((name.strip_suffix('*')?, reason)))
        .collect()
});

/// Whether the name is that of a part split off a function, by compilers or by BOLT.
pub(crate) fn is_part(name: &str) -> bool {
    name.contains(".warm") || name.contains(".cold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_versions_and_prefixes_are_known() {
        assert_eq!(by_name("vfork@@GLIBC_2.2.5"), Some(Reason::SharesStack));
        assert_eq!(by_name("__GI___sigsetjmp"), Some(Reason::ReturnsTwice));
        assert_eq!(by_name("_Unwind_RaiseException"), Some(Reason::Unwinder));
        assert_eq!(by_name("setjmp_like"), None);
        assert_eq!(by_name("__gcov_flush"), None);
        assert_eq!(by_name(""), None);
    }

    #[test]
    fn every_reason_in_the_table_is_by_name() {
        assert!(names().all(|(_, reason)| reason.is_by_name()));
    }
}
