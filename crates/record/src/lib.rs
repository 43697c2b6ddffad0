//! Recording: makes a program and its children traced, from its start or while it runs, and writes the trace.
//!
//! - `record` is the whole from start to end: `launch` brings a program to its first instruction, `attach` finds a
//!   process that runs, and `tracee` is one that is traced.
//! - `places`: which functions, markers and instructions are meant in its files, and the code that is generated for
//!   them.
//! - `memory`: where nopal has its own memory in it, how it gets that, and what tool and process share.
//! - `text`: jumps are put into its text, switched, and taken out again.
//! - `collecting`: the buffers that the runtime fills are emptied into the trace.
//! - `session` serves the traced processes and whoever steers.
//! - `guardian` takes everything out when the tool is killed.
//! - `heap` is the tool's own memory.

mod attach;
mod collecting;
mod guardian;
mod heap;
mod launch;
mod memory;
mod options;
mod patch;
mod processes;
mod program;
mod record;
mod refusal;
mod session;
mod sites;
mod tracee;

pub use attach::clean_up;
pub use collecting::collect::{Collector, Keep, Limit};
pub use collecting::kernel_events::kinds_of;
pub use collecting::kernel_probes::KernelProbe;
pub use collecting::notes::counter;
pub use collecting::progress::Progress;
pub use launch::ensure_not_go;
pub use memory::region::Region;
pub use nopal_kernel_events::{Allowed, Kinds, allowed, check_tracepoint, missing_for_functions};
pub use options::{Ended, Options, Outcome, Target, WhenFull};
pub use record::{record, watch};
pub use refusal::{run_alone, status_of};
pub use session::Session;
pub use session::handle::Handle;
pub use sites::modules::{openable, with_code};
pub use sites::signs::{HANDLES_STACKS, handles_stacks};
