//! The facts about each processor that laying out code needs. Each processor has a file with the same names. The code
//! that is laid out is in `runtime/arch/`.

#[cfg(target_arch = "x86_64")]
mod x86_64;

// Code that the tool writes into a program's text, and into a thunk.
#[cfg(target_arch = "x86_64")]
pub use x86_64::{BREAKPOINT, SWITCHED_ON, jump, short_jump, switched_over};
// Code and sizes for filling in templates.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{DISTANCE, IMMEDIATE, NEVER_RUN, RED_ZONE, distance, pushes};
// Numbers of DWARF.
#[cfg(target_arch = "x86_64")]
pub use x86_64::reads_pointer;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{RETURN_ADDRESS, STACK_POINTER};
