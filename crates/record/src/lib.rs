//! Recording: makes a program and its children traced, from its start or while it runs, and writes the trace.
//!
//! `record` is the whole from start to end; `session` serves the traced processes (`questions` of theirs, `steer` for
//! what other threads of the tool want). `launch` brings a program to its first instruction, `attach` finds a process
//! that runs; `traced` gives it nopal's memory (`choose` says which functions, `space` where memory goes, `inject` gets
//! it, `arena` holds the generated code), `insert` puts jumps into its text, `traps` has breakpoints lead to probes, `switch`
//! says whose calls are recorded. `drain` and `collect` empty the buffers
//! that the runtime fills, `remove` takes everything out again, and `guardian` does so when the tool is killed.

mod arena;
mod attach;
mod change;
mod choose;
mod chosen;
mod code;
mod collect;
mod control_block;
mod cost;
mod desk;
mod drain;
mod engine;
mod files;
mod finish;
mod fitting;
mod generate;
mod guardian;
mod hear;
mod hooks;
mod inject;
mod insert;
mod journal;
mod launch;
mod lock;
mod mark;
mod markers;
mod modules;
mod notes;
mod options;
mod own_memory;
mod probes;
mod questions;
mod record;
mod region;
mod remove;
mod restore;
mod serve;
mod session;
mod shared_memory;
mod signals;
mod sites;
mod snapshot;
mod space;
mod statics;
mod steer;
mod switch;
mod system;
mod traced;
mod traps;
mod trigger;
mod unwrap;
mod values;

pub use attach::clean_up;
pub use collect::{Collector, Keep};
pub use nopal_system::{Allowed, Kinds, allowed};
pub use notes::counter;
pub use options::{Ended, Options, Outcome, Target, WhenFull};
pub use record::{record, watch};
pub use region::Region;
pub use session::Session;
pub use steer::Handle;
pub use system::kinds_of;
