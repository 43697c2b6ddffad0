//! Plans how to trace the functions of a file, from the file alone, before any process is changed.
//!
//! A function is traced by a `jmp rel32` over its first bytes. The whole instructions there are its window: they run
//! elsewhere, in a `Body`, which ends with a jump back behind them. A plan describes this for each function of a file,
//! or says why it is impossible.

mod body;
mod cache;
mod code;
mod exceptions;
mod flags;
mod frames;
mod how;
mod judge;
mod kind;
mod loader;
mod plan;
mod probe;
mod reason;
mod relocate;
mod sequences;
mod special;
mod stack;
mod stored;
mod sweep;
mod tables;
mod track;
mod walks;
mod window;

pub use body::{Body, Fixup, FrameChange, PlaceError};
pub use plan::{EntriesOnly, How, Plan, Refused, Site};
pub use probe::{Judged, Probes, Unprobed, probes};
pub use reason::Reason;

/// Bytes of `jmp rel32`.
pub const JUMP: usize = 5;

/// The longest window: four bytes of short instructions, then one of the longest instructions.
pub const LONGEST_WINDOW: usize = JUMP - 1 + 15;

#[cfg(test)]
mod tests;
