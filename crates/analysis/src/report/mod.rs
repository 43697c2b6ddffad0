//! `nopal report`: what was called, how often, how long.

mod functions;
mod histogram;
mod stats;

pub use functions::{Report, Row, Sort, functions};
pub use stats::{Stats, Totals};
