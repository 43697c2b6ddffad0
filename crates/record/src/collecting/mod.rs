//! From the buffers that processes fill to the trace.

pub mod collect;
pub mod cost;
pub mod drain;
pub mod hear;
pub mod notes;
pub mod snapshot;
pub mod system;
