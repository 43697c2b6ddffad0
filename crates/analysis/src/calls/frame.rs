//! A call that has begun, and who is told of it.

use super::words::{site_of, tag_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// An exit follows.
    Wrapped,
    /// Entered by a jump: ends with the wrapped frame of the same slot.
    Tail,
    /// No exit follows.
    Only,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Counter at the entry.
    pub clock: u64,
    /// Ticks spent in frames called from this one, or away on other stacks.
    pub child: u64,
    /// Address of the return slot in units of 16 bytes: exact or too high.
    pub slot: u64,
    /// Site and tag as in a record's upper half.
    pub key: u32,
    pub style: Style,
}

impl Frame {
    pub fn site(&self) -> u32 {
        site_of(self.key)
    }

    pub fn tag(&self) -> u32 {
        tag_of(self.key)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub clock: u64,
    pub result: Option<u64>,
    /// By exception, forced unwinding or cancellation.
    pub unwound: bool,
}

/// Is told of calls. `frames` are those alive on the thread's present stack, outermost first.
pub trait Sink {
    /// The last of `frames` has begun.
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>);
    /// `frame` has ended; `frames` are those under it.
    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]);
    /// `frame` will not end any more; `counted` unless it was set aside.
    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool);
    /// An exit of a call that began before tracing.
    fn stray(&mut self, key: u32, ending: Ending);
    /// The thread has left these frames, perhaps for good.
    fn aside(&mut self, _frames: &[Frame]) {}
    /// The thread is back in these frames.
    fn resume(&mut self, _frames: &[Frame]) {}
}

/// Keeps the machine going without an audience.
impl Sink for () {
    fn enter(&mut self, _: &[Frame], _: Option<[u64; 6]>) {}
    fn leave(&mut self, _: &Frame, _: Ending, _: &[Frame]) {}
    fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
    fn stray(&mut self, _: u32, _: Ending) {}
}
