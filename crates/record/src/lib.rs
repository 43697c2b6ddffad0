//! Recording: launches a program, makes it and its children traced, and writes the trace while they run.
//!
//! `session` is the whole from start to end; `launch` brings a process to its first instruction, `traced` changes it
//! (`choose` says which functions, `space` where memory goes, `inject` gets it), `drain` and `collect` empty the
//! buffers that the runtime fills, `remove` takes everything out again, and `guardian` does so when the tool is killed.

mod choose;
mod code;
mod collect;
mod drain;
mod files;
mod guardian;
mod hooks;
mod inject;
mod launch;
mod lock;
mod notes;
mod options;
mod region;
mod remove;
mod session;
mod signals;
mod space;
mod traced;
mod unwrap;

pub use collect::{Collector, Keep};
pub use options::{Ended, Options, Outcome, WhenFull};
pub use region::Region;
pub use session::record;
