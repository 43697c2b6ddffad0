//! What to do at the functions of a file, worked out from the file alone before anything is touched.
//!
//! A function is traced by a jump over its first bytes. The instructions that lie there, whole ones, are its
//! window: they run elsewhere, from a `Body`, which ends with a jump back behind them. A plan says for each function of
//! a file how that is done, or why it cannot be.

mod arch;
mod body;
mod cache;
mod code;
mod exceptions;
mod frames;
mod judge;
mod loader;
mod plan;
mod probe;
mod reason;
mod sequences;
mod special;
mod stored;

pub use body::{Body, Fixup, FrameChange, PlaceError};
pub use plan::{EntriesOnly, How, Plan, Refused, Site};
pub use probe::{Judged, Probes, Unprobed, probes};
pub use reason::Reason;

pub use arch::{JUMP, LONGEST_WINDOW};

#[cfg(test)]
mod tests;
