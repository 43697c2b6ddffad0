//! `nopal report`: functions, with their numbers of calls and times.

mod by_argument;
mod functions;
mod histogram;
mod kernel;
mod objects;
mod order;
mod processes;
mod related;
mod samples;
mod stats;
mod threads;
mod unexplained;

pub use by_argument::{ValueRow, by_argument, write_by_argument, write_by_argument_json};
pub use functions::{Durations, Estimate, Report, Row, Sort, functions, functions_and_durations};
pub use kernel::{KernelRow, kernel, write_kernel};
pub use objects::Objects;
pub use order::{Column, order};
pub use processes::{PROCESSES_BY, ProcessRow, processes, write_processes, write_processes_json};
pub use related::{RELATED_BY, Related, Relation, related, write_related, write_related_json};
pub use threads::{THREADS_BY, ThreadRow, threads, write_threads, write_threads_json};
pub use unexplained::unexplained;

pub(crate) use stats::Stats;
