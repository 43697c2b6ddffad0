//! `nopal replay`: the calls of all threads in order of time.

mod lines;
mod write;

pub use write::{Look, replay};
