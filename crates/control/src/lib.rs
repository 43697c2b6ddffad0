//! Control of a session by text: its state, the commands that change it, and the files that show it.
//!
//! [`engine`] is all that it asks of a recording; [`files`] what it shows to whoever serves the files.

pub mod engine;
pub mod files;

pub use engine::{Calls, Counts, Engine, FoundSite, Location, Mode, Place, Refused, SiteKey};
pub use files::{Access, Content, Control, Entry, Error, File};
