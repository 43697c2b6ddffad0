//! The parts of planning that depend on the processor. Each processor has a folder with the same names. A new one needs
//! all names that are used here. Nothing outside of this folder has an instruction, a register or a relocation of a
//! processor's own.

#[cfg(target_arch = "x86_64")]
mod x86_64;

// Sizes of jumps and of their windows.
#[cfg(target_arch = "x86_64")]
pub use x86_64::{JUMP, LONGEST_WINDOW, SHORT_JUMP, is_tiny_leaf};
// Numbers of DWARF and ELF, and the size of a breakpoint.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{BREAKPOINT, RELATIVE, RETURN_ADDRESS, STACK_POINTER};
// All code of a file, read once: where control goes, and what functions do with their frames and flags.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Flow, Input, Judged, Start, sweep};
// The properties of a function, by its own code.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Frame, SPECIAL, frame, is_restorer, vector_use};
// Tables of return addresses.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{of_distances, of_return_addresses};
// The bytes that a jump displaces, why they are there, and the same instructions elsewhere.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Callee, Displaced, Loops, Window, how, relocate};
// The instructions of a function, and what stands behind it.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Instructions, code_length, ends_flow, is_padding};
