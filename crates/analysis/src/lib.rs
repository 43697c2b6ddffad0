//! What a trace says: reports, replay, call graphs and dumps.
//!
//! Every part takes a [`nopal_trace::Trace`], gives values or writes text, and leaves printing and exiting to its
//! caller.

mod addresses;
pub mod calls;
pub mod drive;
pub mod dump;
pub mod filter;
pub mod graph;
pub mod hist;
pub mod info;
pub mod kernel_events;
mod live_notes;
pub mod losses;
pub mod markers;
pub mod names;
mod net;
pub mod ongoing;
pub mod replay;
pub mod report;
pub mod text;
mod timeline;
pub mod tracers;
pub mod triggers;
pub mod values;
