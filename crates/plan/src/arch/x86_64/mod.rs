//! x86-64.

mod chains;
mod copies;
mod flags;
mod held;
mod how;
mod implicit;
mod input;
mod instructions;
mod kind;
mod leaves;
mod manners;
mod padding;
mod relocate;
mod special;
mod spread;
mod stack;
mod sweep;
mod tables;
mod track;
mod vectors;
mod walks;
mod window;

pub(crate) use how::{Callee, how};
pub(crate) use input::{Input, Start};
pub(crate) use instructions::Instructions;
pub use leaves::is_tiny_leaf;
pub(crate) use manners::Judged;
pub(crate) use padding::{code_length, ends_flow, is_padding};
pub(crate) use relocate::{Loops, STACK_POINTER, relocate};
pub(crate) use special::{SPECIAL, is_restorer};
pub(crate) use sweep::{Flow, sweep};
pub(crate) use tables::{of_distances, of_return_addresses};
pub(crate) use vectors::vector_use;
pub(crate) use walks::{Frame, frame};
pub(crate) use window::{Displaced, Window};

/// Bytes of `jmp rel32`.
pub const JUMP: usize = 5;

/// Bytes of `jmp rel8`.
pub const SHORT_JUMP: usize = 2;

/// No window is longer: four bytes of short instructions, then one of the longest that there are.
pub const LONGEST_WINDOW: usize = JUMP - 1 + 15;

/// Bytes of `int3`.
pub(crate) const BREAKPOINT: usize = 1;

/// The DWARF number of the return address.
pub(crate) const RETURN_ADDRESS: u16 = gimli::X86_64::RA.0;

/// Relocations by which the loader adds the load address: R_X86_64_RELATIVE and R_X86_64_RELATIVE64.
pub(crate) const RELATIVE: [u64; 2] = [8, 38];
