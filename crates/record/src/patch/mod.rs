//! Changes to the text of a process, and back.

pub mod change;
pub mod insert;
pub mod inserted;
pub mod journal;
pub mod remove;
pub mod restore;
pub mod stored;
pub mod switch;
pub mod traps;
pub mod unwrap;
