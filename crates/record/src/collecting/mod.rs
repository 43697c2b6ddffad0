//! From the buffers that processes fill to the trace.

mod alive;
pub mod chunk_reader;
pub mod collect;
pub mod cost;
pub mod counted;
pub mod drain;
pub mod fair_mutex;
pub mod flight_recorder;
pub mod heartbeat;
pub mod kernel_events;
pub mod kernel_functions;
mod kernel_modules;
pub mod kernel_probes;
pub mod kernel_records;
pub mod meter;
pub mod naming;
pub mod notes;
pub mod open_calls;
pub mod progress;
pub mod slowest;
pub mod snapshot;
pub mod snapshot_results;
pub mod subscription;
pub mod tasks;
pub mod totals;
pub mod trace_end;
pub mod tracepoints;
