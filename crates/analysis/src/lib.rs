//! Analyses of traces: reports, replay, call graphs and dumps.
//!
//! Every part takes a [`nopal_trace::Trace`] and returns values or writes text; printing and exiting are left to the
//! caller.

mod addresses;
pub mod blocks;
mod callers;
pub mod calls;
mod constants;
pub mod diff;
pub mod drive;
pub mod dump;
pub mod filter;
pub mod graph;
pub mod hist;
mod images;
pub mod info;
pub mod kernel_events;
mod libc;
mod live_notes;
pub mod losses;
pub mod markers;
pub mod names;
pub mod off;
pub mod ongoing;
mod own_times;
pub mod prototypes;
pub mod range;
mod records;
pub mod replay;
pub mod report;
pub mod requests;
mod retimer;
pub mod selection;
pub mod slow;
pub mod sort;
pub mod sources;
pub mod span;
pub mod text;
mod timeline;
pub mod tracers;
pub mod triggers;
pub mod values;
pub mod waits;
mod worker;
