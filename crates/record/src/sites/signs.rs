//! The signs by which calls may not be wrapped, in a whole process or in a file.

use crate::sites::choose::Loaded;
use crate::sites::hooks;
use crate::sites::modules::executed;
use nopal_plan::Plan;
use nopal_process::Mapping;
use nopal_symbols::{Image, Import};
use std::path::Path;

/// The message about a program that copies or walks its stacks, by the runtime that does, if it is known.
pub fn handles_stacks_because(runtime: Option<&Runtime>) -> String {
    match runtime {
        Some(Runtime {
            name,
            unseen: Some(unseen),
        }) => format!(
            "this program runs {name}, which copies or walks its stacks itself: only entries are recorded, none of {unseen}"
        ),
        Some(Runtime { name, unseen: None }) => format!(
            "this program runs {name}, which copies or walks its stacks itself: only entries are recorded"
        ),
        None => "this program copies or walks its stacks itself: only entries are recorded".into(),
    }
}

const UNWINDS_ALONE: &str =
    "this static program has no symbols to find its unwinder by: only entries are recorded";

pub const HIDES_THUNKS: &str = "this program has an unwinding function of its own that nopal cannot hook: only entries are recorded";

const SANITIZED: &str =
    "this program's sanitizer leaves no room for return addresses: only entries are recorded";

/// Functions of sanitizers that want to find most addresses free when they begin: for threads, memory and data flow.
const SANITIZERS: &[&str] = &["__tsan_init", "__msan_init", "dfsan_set_label"];

/// A runtime that moves live frames, whose wrapped return addresses would come back to other calls' mirrors, or looks
/// for return addresses where calls leave them, for each exception and each collection of garbage, or exchanges them.
pub struct Runtime {
    name: &'static str,
    /// The functions that people expect to see and that no file has.
    unseen: Option<&'static str>,
}

const fn runtime(name: &'static str, unseen: &'static str) -> Runtime {
    Runtime {
        name,
        unseen: Some(unseen),
    }
}

const fn copier(name: &'static str) -> Runtime {
    Runtime { name, unseen: None }
}

/// Symbols that libraries export that are such runtimes.
const EXPORTED: &[(&str, Runtime)] = &[
    (
        "_ZN2v87Isolate10GetCurrentEv",
        runtime(
            "V8 or another JavaScript engine with its interface",
            "functions in JavaScript",
        ),
    ),
    // Copies the C stack for each continuation.
    (
        "scm_c_with_continuation_barrier",
        runtime("Guile", "procedures in Scheme"),
    ),
    ("PyInit__greenlet", copier("greenlet")),
    // Copies stacks for its greenlets.
    (
        "rpython_startup_code",
        runtime("PyPy", "functions in Python"),
    ),
    // HotSpot, Mono and .NET look below the stack pointer of the last call out of their code.
    (
        "JNI_CreateJavaVM",
        runtime("a Java virtual machine", "methods in Java"),
    ),
    (
        "mono_jit_init_version",
        runtime("Mono", "methods that it compiles"),
    ),
    (
        "coreclr_initialize",
        runtime(".NET", "methods that it compiles"),
    ),
    // A tracer that exchanges return addresses, as nopal does.
    ("mcount_restore", copier("uftrace")),
    // Learns from the return address of a call where its compiled code has come to.
    (
        "MVM_vm_create_instance",
        runtime("MoarVM", "routines in Raku"),
    ),
];

/// The same, by the symbols that they import. Ruby loads its continuations when a script asks for them, and copies no
/// stack before.
const IMPORTED: &[(&str, Runtime)] = &[(
    "ruby_Init_Continuation_body",
    copier("Ruby's continuations"),
)];

/// Symbols of libraries whose compiled code calls where the jump at the start of a function leads: PyPy's.
const FOLLOW_JUMPS: &[&str] = &["rpython_startup_code"];

/// Parts of names of files that are such libraries.
const NAMES: &[(&str, Runtime)] = &[
    ("greenlet", copier("greenlet")),
    (
        "libnode",
        runtime("V8, a JavaScript engine", "functions in JavaScript"),
    ),
    (
        "libv8",
        runtime("V8, a JavaScript engine", "functions in JavaScript"),
    ),
];

/// The reason why nothing may be wrapped in a process with this module, if there is one.
pub fn entries_only(module: &Loaded) -> Option<String> {
    let file = &module.file;
    let runtime = named_runtime(&module.name).or_else(|| runtime_of(&file.image, file.imports()));
    if runtime.is_some() || file.plan.copies_stacks {
        Some(handles_stacks_because(runtime))
    } else if hooks::unwinds_alone(file) {
        Some(UNWINDS_ALONE.into())
    } else if hooks::hides_thunks(file) {
        Some(HIDES_THUNKS.into())
    } else {
        let exports = |name: &&str| file.image.exported(name).is_some();
        SANITIZERS.iter().any(exports).then(|| SANITIZED.into())
    }
}

/// The runtime with this interface that copies or walks the stacks of a process.
pub fn runtime_of(image: &Image, imports: &[Import]) -> Option<&'static Runtime> {
    let exports = image.exports();
    let exported = EXPORTED
        .iter()
        .find(|(name, _)| exports.find(name).is_some());
    let imported = || {
        IMPORTED
            .iter()
            .find(|(name, _)| imports.iter().any(|import| import.name == *name))
    };
    exported.or_else(imported).map(|(_, runtime)| runtime)
}

/// Whether a process with this module may keep addresses of generated code.
pub fn follows_jumps(module: &Loaded) -> bool {
    let exports = module.file.image.exports();
    FOLLOW_JUMPS.iter().any(|name| exports.find(name).is_some())
}

/// The same, by the name of a file.
pub fn named_runtime(name: &str) -> Option<&'static Runtime> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let named = NAMES.iter().find(|(part, _)| file.contains(part));
    named.map(|(_, runtime)| runtime)
}

/// Whether a process has LeakSanitizer, in its program or in a library: a child that it clones stops the process's threads
/// and looks for addresses on their stacks.
pub fn traces_itself(process: i32) -> bool {
    const LIBRARIES: [&str; 4] = ["/libasan.", "/liblsan.", "/libhwasan.", "/libclang_rt."];
    let is_it = |map: &Mapping| {
        let path = map
            .path
            .as_deref()
            .unwrap_or(Path::new(""))
            .to_string_lossy();
        LIBRARIES.iter().any(|name| path.contains(name))
    };
    let program = Image::open(&executed(process));
    program.is_ok_and(|program| program.exported("__lsan_do_leak_check").is_some())
        || nopal_process::has_mapping(process, is_it)
}

/// The message about a file of which only entries are recorded while other files' calls are wrapped.
pub fn describe(name: &str, plan: &Plan) -> Option<String> {
    plan.finds_frames.then(|| {
        format!(
            "{name} finds its frames by a table of return addresses: only entries of it are recorded"
        )
    })
}

pub const FRAMES_ARE_WALKED_NOW: &str = "a library was loaded that follows frame pointers to return addresses: only entries are recorded from then on";

pub const FRAMES_ARE_WALKED: &str = "a function of this program follows frame pointers to its callers' return addresses (`nopal list` says which): only entries are recorded of functions that keep a frame pointer";
