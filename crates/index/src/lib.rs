//! The index of a trace: sums of its calls at every scale of time, which allow a picture of any part of it in
//! milliseconds, and states of its threads, which allow a reader to begin anywhere.
//!
//! The calls of a thread are drawn as *pieces*: a call at its depth, from the event that put it on the stack to the one
//! that took it off, or to the last event before, if it was left without an exit. A call that goes on after its thread
//! was on another stack has several pieces. A call of which only the entry is known is a piece without length.
//!
//! A *block* consists of successive packets of a thread, with some thousand events. Blocks follow each other without a
//! gap in time; a block ends at its last event. A [`Cell`] sums up the pieces at one depth within a block; the levels
//! above sum up eight blocks each, eight of those, and so on. Every sum is exact.
//!
//! [`Index::open`] keeps the index beside the trace. [`ThreadIndex::grid`] makes pictures of it, and reads the records
//! of blocks that are wider than a column; [`find`] finds the call at a point.

mod block;
mod builder;
mod cell;
mod chart;
pub mod find;
mod grid;
mod index;
mod lost;
mod packed;
mod part;
mod store;
#[cfg(test)]
mod tests;
mod thread_index;

pub use cell::{Cell, DEPTHS, FAN_OUT, Level};
pub use grid::{Grid, GridCell};
pub use index::Index;
pub use thread_index::ThreadIndex;
