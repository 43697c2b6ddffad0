//! Recording: makes a program and its children traced, from its start or while it runs, and writes the trace.
//!
//! - `record` is the whole from start to end, of a program that it starts (`program`) or of processes that run
//!   (`running`). `launch` brings a program to its first instruction, `attach` finds a process, and `tracee` is one that
//!   is traced.
//! - `sites`: the functions, markers and instructions of its files, and the code that is generated for them.
//! - `memory`: where nopal has its own memory in it, how it gets that, and what tool and process share.
//! - `patch`: jumps are put into its text, switched, and taken out again.
//! - `budget`: which functions are recorded within a budget of processor time.
//! - `collecting`: the buffers that the runtime fills are emptied into the trace.
//! - `ends`: when and how processes end that others wait for.
//! - `filters`: whether a seccomp filter may forbid what nopal does in a process.
//! - `session` serves the traced processes and the clients that control it.
//! - `guardian` takes everything out when the tool is killed.
//! - `heap` is the tool's own memory.

mod assemble;
mod attach;
mod budget;
mod collecting;
mod ends;
mod filters;
mod guardian;
mod heap;
mod launch;
mod members;
mod memory;
mod options;
mod patch;
mod processes;
mod program;
mod record;
mod refusal;
mod running;
mod session;
mod sites;
mod tracee;

pub use attach::{clean_up, is_followed};
pub use collecting::collect::{Collector, Keep};
pub use collecting::kernel_events::kinds_of;
pub use collecting::kernel_probes::KernelProbe;
pub use collecting::notes::counter;
pub use collecting::progress::Progress;
pub use collecting::trace_end::Limit;
pub use members::Membership;
pub use memory::region::Region;
pub use nopal_control::{Share, Way};
pub use nopal_kernel_events::{Allowed, Kinds, allowed, check_tracepoint, missing_for_functions};
pub use options::{Ended, Options, Outcome, Target, WhenFull};
pub use record::{Beginning, record, watch};
pub use refusal::{run_alone, status_of};
pub use session::Session;
pub use session::handle::Handle;
pub use session::watchdog::{End, end_by};
pub use sites::go::ensure_not_go;
pub use sites::modules::{openable, with_code};
pub use sites::signs::{handles_stacks_because, runtime_of};
