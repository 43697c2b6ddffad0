//! Control of a session by text: its state, the commands that change it, and the files that show it.
//!
//! Each file knows those before it in this list.
//! - The language: `syntax` takes a line apart, and `command` makes a command of it, a plain value. `selection` has the
//!   locations in a command, and `probe` a probe's place and the values that it fetches.
//! - `engine` is all that control asks of a recording: queries, and changes.
//! - `state` is the wanted state, in plain values. It becomes a `setup` of the engine; of two setups, `reconcile` makes
//!   the changes from one to the other.
//! - `budget` has the functions that may be spared, so that tracing takes less processor time.
//! - `draft` is a copy of the state that commands change: `triggers` has the commands of triggers, and `tracers` those
//!   of tracers. A draft looks things up and touches no process.
//!   `begin` makes the first commands of a session from its options.
//! - `control` takes a draft for the state and has the engine make the changes, as a whole or not at all. `obey`
//!   carries out each command.
//! - `text` shows the state as commands. `files` are `ctl`, `trace` and those of `tracing`. All are listed in `table`,
//!   of which `manual` makes the manual; a `file` is an open one, and `stream` makes the text of a trace while it is
//!   read.

pub mod begin;
mod budget;
mod command;
mod control;
mod draft;
mod engine;
mod file;
mod files;
mod manual;
mod metrics;
mod obey;
mod probe;
mod selection;
mod setup;
mod site_key;
mod state;
mod stream;
mod syntax;
mod table;
mod text;
mod tracers;
mod tracing;
mod triggers;
mod written;

pub use budget::{Share, Spared};
pub use command::{Command, probe};
pub use control::Control;
pub use engine::{
    Act, Applied, Calls, Change, Counts, Engine, Facts, FileAddress, FoundSite, Function, Lookup,
    Mark, Missing, Mode, Refused, Watch,
};
pub use file::File;
pub use manual::manual;
pub use metrics::{Kind, Metric, Value, escaped};
pub use nopal_abi::Capture;
pub use nopal_serve::{Access, Content, Entry, Failure};
pub use probe::{Fetched, MOST_FETCHED, MOST_LOADS, Probe, Shown, Source, Spot, Way};
pub use selection::{FunctionSelection, Location, Part, word};
pub use setup::Setup;
pub use site_key::SiteKey;
