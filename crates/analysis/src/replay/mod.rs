//! `nopal replay`: the calls of all threads in order of time.

mod teller;
mod write;

pub use write::{Look, replay};
