//! What a trace says: reports, replay, call graphs and dumps.
//!
//! Every part takes a [`nopal_trace::Trace`], gives values or writes text, and leaves printing and exiting to its
//! caller.

pub mod calls;
pub mod drive;
pub mod names;
pub mod report;
pub mod text;
