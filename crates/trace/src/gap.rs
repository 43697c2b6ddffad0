/// The reason why records of a thread are missing before one of its packets. In the time between, open calls may have
/// ended, and others begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Events that the thread lost.
    pub events: u64,
    /// Packets that are not in the file.
    pub packets: u64,
    /// A part of the file is invalid.
    pub damaged: bool,
}
