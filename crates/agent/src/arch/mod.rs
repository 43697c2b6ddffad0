//! What laying out code has to know of a processor. A file for each has the same names, beside `runtime/arch/`, where the
//! code itself is that is laid out.

#[cfg(target_arch = "x86_64")]
mod x86_64;

// What the tool writes into a program's text, and into a thunk.
#[cfg(target_arch = "x86_64")]
pub use x86_64::{BREAKPOINT, SWITCHED_ON, jump, switched_over};
// How templates are filled in.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{DISTANCE, IMMEDIATE, NEVER_RUN, RED_ZONE, distance, pushes};
// Numbers of DWARF.
#[cfg(target_arch = "x86_64")]
pub use x86_64::reads_pointer;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{RETURN_ADDRESS, STACK_POINTER};
