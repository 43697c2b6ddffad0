//! By what it is known that calls may not be wrapped, in a whole process or in a file.

use crate::sites::choose::Loaded;
use crate::sites::hooks;
use nopal_plan::Plan;
use nopal_symbols::{Image, Import};

pub const HANDLES_STACKS: &str =
    "this program copies or walks its stacks itself: only entries are recorded";

const UNWINDS_ALONE: &str =
    "this static program has no symbols to find its unwinder by: only entries are recorded";

pub const HIDES_THUNKS: &str = "this program has an unwinding function of its own that nopal cannot hook: only entries are recorded";

const SANITIZED: &str =
    "this program's sanitizer leaves no room for return addresses: only entries are recorded";

/// What libraries export that move live frames, whose wrapped return addresses would come back to other calls' mirrors,
/// or look for return addresses where calls leave them, for each exception and each collection of garbage.
const EXPORTED: &[&str] = &[
    // V8.
    "_ZN2v87Isolate10GetCurrentEv",
    // Guile copies the C stack for each continuation.
    "scm_c_with_continuation_barrier",
    "PyInit__greenlet",
    // PyPy copies stacks for its greenlets.
    "rpython_startup_code",
    // HotSpot, Mono and .NET look below the stack pointer of the last call out of their code.
    "JNI_CreateJavaVM",
    "mono_jit_init_version",
    "coreclr_initialize",
    // MoarVM (Raku) learns from the return address of a call where its compiled code has come to.
    "MVM_vm_create_instance",
];

/// The same, by what they import. Ruby loads its continuations when a script asks for them, and copies no stack before.
const IMPORTED: &[&str] = &["ruby_Init_Continuation_body"];

/// What libraries export whose compiled code calls where the jump at the start of a function leads: PyPy's.
const FOLLOW_JUMPS: &[&str] = &["rpython_startup_code"];

/// Parts of names of files that are such libraries.
const NAMES: &[&str] = &["greenlet", "libnode", "libv8"];

/// Why nothing may be wrapped in a process with this module, if so.
pub fn entries_only(module: &Loaded) -> Option<&'static str> {
    if name_handles_stacks(&module.name)
        || handles_stacks(&module.file.image, module.file.imports())
        || module.file.plan.copies_stacks
    {
        Some(HANDLES_STACKS)
    } else if hooks::unwinds_alone(&module.file) {
        Some(UNWINDS_ALONE)
    } else if hooks::hides_thunks(&module.file) {
        Some(HIDES_THUNKS)
    } else {
        let exports = |name| module.file.image.exported(name).is_some();
        (exports("__tsan_init") || exports("__msan_init")).then_some(SANITIZED)
    }
}

/// Whether a file's interface tells that a process with it copies or walks its stacks.
pub fn handles_stacks(image: &Image, imports: &[Import]) -> bool {
    let exports = image.exports();
    let is_sign = |import: &Import| IMPORTED.contains(&import.name.as_str());
    EXPORTED.iter().any(|name| exports.find(name).is_some()) || imports.iter().any(is_sign)
}

/// Whether a process with this module may keep addresses of generated code.
pub fn follows_jumps(module: &Loaded) -> bool {
    let exports = module.file.image.exports();
    FOLLOW_JUMPS.iter().any(|name| exports.find(name).is_some())
}

pub fn name_handles_stacks(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    NAMES.iter().any(|part| file.contains(part))
}

/// What is to be told of a file of which entries only are recorded while other files' calls are wrapped.
pub fn describe(name: &str, plan: &Plan) -> Option<String> {
    plan.finds_frames.then(|| {
        format!(
            "{name} finds its frames by a table of return addresses: only entries of it are recorded"
        )
    })
}

pub const FRAMES_ARE_WALKED_NOW: &str = "a library was loaded that follows frame pointers to return addresses: only entries are recorded from then on";

pub const FRAMES_ARE_WALKED: &str = "a function of this program follows frame pointers to its callers' return addresses (`nopal list` says which): only entries are recorded of functions that keep a frame pointer";
