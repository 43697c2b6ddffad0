//! Calls of a thread in the kernel have frames above those of its program.

use serde::{Deserialize, Serialize};

/// A thread's stay in the kernel.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stay {
    /// The number of frames of the program.
    pub from: usize,
    /// Its records are complete since then. The greatest value: some are missing.
    pub since: u64,
}

impl Stay {
    /// A stay without any known call, of the kernel or of the program.
    pub fn unknown() -> Stay {
        Stay {
            from: 0,
            since: u64::MAX,
        }
    }

    /// Some of its records are missing.
    pub fn lose(&mut self) {
        self.since = u64::MAX;
    }

    pub fn is_complete(&self) -> bool {
        self.since < u64::MAX
    }
}
