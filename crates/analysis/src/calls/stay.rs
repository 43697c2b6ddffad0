//! Calls of a thread in the kernel have frames above those of its program.

use serde::{Deserialize, Serialize};

/// A thread's stay in the kernel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stay {
    /// The number of frames of the program.
    pub from: usize,
    /// All of its records are there since.
    pub since: u64,
}

impl Stay {
    /// One of which no call is known, nor of the program.
    pub fn unknown() -> Stay {
        Stay {
            from: 0,
            since: u64::MAX,
        }
    }
}
