//! Plans how to trace the functions of a file, from the file alone, before any process is changed.
//!
//! A function is traced by a `jmp rel32` over its first bytes. The whole instructions there are its window: they run
//! elsewhere, in a `Body`, which ends with a jump back behind them. A plan describes this for each function of a file,
//! or says why it is impossible.

mod arch;
mod body;
mod cache;
mod code;
mod elements;
mod engine;
mod exceptions;
mod frames;
mod holes;
mod judge;
mod loader;
mod plan;
mod probe;
mod profile;
mod reason;
mod recovery;
mod sequences;
mod special;
mod stored;
mod vectors;

pub use body::{Body, PlaceError};
pub use elements::{Fixup, FrameChange};
pub use plan::{EntriesOnly, How, Plan, Refused, Site};
pub use probe::{Judged, Probes, Unprobed, probes};
pub use profile::{Profile, Untimed, keep_profile, kept_profile};
pub use reason::Reason;
pub use vectors::{VectorUse, vector_use};

pub use arch::{JUMP, LONGEST_WINDOW, SHORT_JUMP, is_tiny_leaf};

#[cfg(test)]
mod tests;
