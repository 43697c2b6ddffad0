//! The data to record of a call.

/// The data recorded of a call besides its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// The integer arguments, and the result where the end is recorded.
    pub arguments: bool,
    pub ends: bool,
    /// The address that it returns to.
    pub call_sites: bool,
}

impl Capture {
    /// The union of both.
    pub fn and(self, other: Capture) -> Capture {
        Capture {
            arguments: self.arguments || other.arguments,
            ends: self.ends || other.ends,
            call_sites: self.call_sites || other.call_sites,
        }
    }

    /// Whether this includes `other`.
    pub fn has(self, other: Capture) -> bool {
        self.and(other) == self
    }
}
