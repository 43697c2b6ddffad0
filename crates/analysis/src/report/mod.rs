//! `nopal report`: functions, with their numbers of calls and times.

mod functions;
mod histogram;
mod kernel;
mod objects;
mod processes;
mod related;
mod stats;
mod threads;
mod unexplained;

pub use functions::{Report, Row, Sort, functions};
pub use kernel::{KernelRow, kernel, write_kernel};
pub use objects::Objects;
pub use processes::{ProcessRow, processes, write_processes, write_processes_json};
pub use related::{Related, Relation, related, write_related};
pub use threads::{ThreadRow, threads, write_threads, write_threads_json};
pub use unexplained::unexplained;
