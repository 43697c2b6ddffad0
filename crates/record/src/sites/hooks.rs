//! The functions that nopal hooks.

use crate::sites::choose::Loaded;
use crate::sites::files::File;
use crate::sites::modules::extent;
use nopal_agent::Stub;
use nopal_plan::Plan;
use nopal_process::Memory;
use nopal_symbols::Image;
use std::collections::HashSet;

const HOOKS: [(&str, Stub); 20] = [
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
    // All functions that libc has for it lead there.
    ("__libc_sigaction", Stub::SignalAction),
    ("mprotect", Stub::Protect),
    ("pkey_mprotect", Stub::Protect),
    ("mremap", Stub::Move),
    ("syscall", Stub::SystemCall),
];

/// The functions of a file that nopal hooks, or would hook.
pub struct Hooks {
    /// By their addresses.
    pub placed: Vec<(u64, Stub)>,
    /// Where no jump is possible.
    pub refused: Vec<(&'static str, Stub)>,
}

impl Hooks {
    /// Only the C library and the loader have such functions under these names, and programs that a C library is linked
    /// into. But the functions that unwinders call may be in any file: it takes libc's place then.
    pub fn of(image: &Image, plan: &Plan) -> Hooks {
        let all = is_libc(image) || image.is_static();
        let mut seen = HashSet::new();
        let mut hooks = Hooks {
            placed: Vec::new(),
            refused: Vec::new(),
        };
        let wanted = HOOKS
            .iter()
            .filter(|(_, stub)| all || is_for_unwinders(stub));
        for (name, stub) in wanted {
            let Some(address) = image.symbol(name) else {
                continue;
            };
            if plan.hook(address).is_err() {
                hooks.refused.push((name, *stub));
            } else if seen.insert(address) {
                hooks.placed.push((address, *stub));
            }
        }
        hooks
    }
}

/// Messages about the functions of a file that nopal does not follow. [`hides_thunks`] is for those that unwinders call.
pub fn describe_refused(file: &File) -> impl Iterator<Item = String> {
    let refused = file.hooks_refused().iter();
    let refused = refused.filter(|(_, stub)| !is_for_unwinders(stub));
    refused.map(|(name, stub)| {
        let result = match stub {
            Stub::Libraries => "libraries that are loaded later are not traced",
            _ => "what its calls do is not followed",
        };
        format!(
            "{name} of {} cannot be hooked: {result}",
            file.image.file_name()
        )
    })
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

/// Whether the unwinder of a static program cannot be found: it may have one, and no symbols.
pub fn unwinds_alone(file: &File) -> bool {
    if !file.image.is_static() {
        return false;
    }
    let has = |name: &str| file.image.symbol(name).is_some();
    if has("_Unwind_Resume") || has("_Unwind_Find_FDE") {
        !file.hooks().iter().any(|(_, stub)| is_for_unwinders(stub))
    } else {
        !has("_start") && !has("main")
    }
}

/// Whether unwinders call the function.
fn is_for_unwinders(stub: &Stub) -> bool {
    matches!(stub, Stub::FindObject | Stub::IterateObjects)
}

/// The functions that unwinders call, in order: an unwinder that has the first needs no second.
const ASKED: [&str; 2] = ["_dl_find_object", "dl_iterate_phdr"];

/// Whether a file takes the place of the functions that unwinders call, and cannot be hooked; or that of unwinders
/// themselves.
pub fn hides_thunks(file: &File) -> bool {
    let hooks = || file.hooks().into_iter().map(|(site, _)| site.address);
    let unhooked = |name: &&str| {
        let address = file.image.exported(name);
        address.is_some_and(|address| !hooks().any(|hooked| hooked == address))
    };
    ASKED.iter().any(unhooked)
        || (file.unwinder().is_none() && file.image.exported("_Unwind_Find_FDE").is_some())
}

/// Whether an unwinder among `modules` asks a function that is not hooked, by the words with which it is bound. Words
/// that are not bound yet lead back into its own file, and are as in that where the loader has not come to it.
pub fn asks_elsewhere(modules: &[&Loaded], memory: &Memory) -> bool {
    let hooked = modules.iter().flat_map(|module| {
        let hooks = module.file.hooks().into_iter();
        let hooks = hooks.filter(|(_, stub)| is_for_unwinders(stub));
        hooks.map(|(site, _)| module.base.wrapping_add(site.address))
    });
    let hooked: HashSet<u64> = hooked.collect();
    let unwinders = modules.iter().filter(|it| it.file.unwinder().is_some());
    unwinders.into_iter().any(|module| {
        let imports = module.file.imports();
        let bound = ASKED.map(|name| {
            let words = imports.iter().filter(|import| import.name == name);
            words.collect::<Vec<_>>()
        });
        let asked = bound.iter().find(|words| !words.is_empty());
        asked.into_iter().flatten().any(|import| {
            let word = memory.read_word(module.base.wrapping_add(import.slot));
            word.is_ok_and(|word| {
                let of_file = module.file.extent().contains(&word);
                let unbound = word == 0 || of_file || extent(module).contains(&word);
                !unbound && !hooked.contains(&word)
            })
        })
    })
}
