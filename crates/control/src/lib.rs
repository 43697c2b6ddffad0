//! Control of a session by text: its state, the commands that change it, and the files that show it.
//!
//! `engine` is all that it asks of a recording. `syntax` takes a line apart, and `grammar` makes a command of it: `what`
//! are the places in it, `probe` what is fetched at one. `state` obeys, with `sites` counting which traces want which
//! functions, `probes` for those, and `triggers` saying what happens at an event; `tracers` run tracers of latency;
//! `text` shows the state as commands. `files` are `ctl`, `trace` and those of `tracing`, all of them listed in `table`,
//! from which `manual` tells of them; `stream` makes the text of a trace while it is read.

mod engine;
mod event_tracers;
mod files;
mod grammar;
mod manual;
mod probe;
mod probes;
mod selection;
mod sites;
mod state;
mod stream;
mod syntax;
mod table;
mod text;
mod tracers;
mod tracing;
mod triggers;

pub use engine::{Calls, Counts, Engine, FileAddress, FoundSite, Mark, Mode, Refused, SiteKey};
pub use files::File;
pub use grammar::probe;
pub use manual::manual;
pub use nopal_abi::Capture;
pub use nopal_serve::{Access, Content, Entry, Failure};
pub use probe::{Fetched, MOST_FETCHED, MOST_LOADS, Probe, Shown, Source, Spot, Way};
pub use selection::{FunctionSelection, Location, Part};
pub use state::Control;
pub use triggers::{marker_awaited, needed};
