//! From the buffers that processes fill to the trace.

pub mod chunk_reader;
pub mod collect;
pub mod cost;
pub mod drain;
pub mod kernel_events;
pub mod kernel_functions;
pub mod kernel_probes;
pub mod meter;
pub mod naming;
pub mod notes;
pub mod open_calls;
pub mod progress;
pub mod snapshot;
pub mod subscription;
pub mod tasks;
pub mod tracepoints;
