//! The calls that are open where a reader begins amid a thread's records.

use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::callers::{CallerTree, Callers};
use super::frame::{Ending, Frame, Plain, Sink};

/// A sink that keeps the arguments of open calls and the callers of stacks, and drops all else.
/// [`super::CallRebuilder::reopen`] gives the calls to another sink.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    arguments: Arguments,
    pub(super) callers: CallerTree,
}

impl Past {
    pub(super) fn is_sound(&self) -> bool {
        self.arguments.is_sound() && self.callers.is_sound()
    }

    /// The arguments of an open call, if they are known.
    pub fn arguments(&self, frame: &Frame) -> Option<[u64; 6]> {
        self.arguments.get(frame.note)
    }

    pub(super) fn take(&mut self, frame: &Frame) -> Option<[u64; 6]> {
        self.arguments.take(frame.note)
    }
}

impl Sink for Past {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit == 1 && call.note != 0 {
            self.arguments.take(call.note);
        }
        0
    }

    fn enter(&mut self, _frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        arguments.map_or(0, |arguments| self.arguments.keep(arguments))
    }

    fn leave(&mut self, frame: &Frame, _ending: Ending, _frames: &[Frame]) {
        self.take(frame);
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        self.take(frame);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}

    fn callers(&mut self, callers: Callers, frames: &[Frame]) -> Callers {
        let arguments = |frame: &Frame| self.arguments.get(frame.note);
        self.callers.add(callers, frames, arguments)
    }
}
