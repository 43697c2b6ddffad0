//! What is asked for of a call.

/// What is recorded of a call, beside that it was entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// The integer arguments, and the result where the end is recorded.
    pub arguments: bool,
    pub ends: bool,
}

impl Capture {
    /// As much as either.
    pub fn and(self, other: Capture) -> Capture {
        Capture {
            arguments: self.arguments || other.arguments,
            ends: self.ends || other.ends,
        }
    }

    /// Whether this is as much as `other`, or more.
    pub fn has(self, other: Capture) -> bool {
        self.and(other) == self
    }
}
