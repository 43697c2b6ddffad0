//! The calls that are open where a reader begins amid a thread's records.

use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::frame::{Ending, Frame, Plain, Sink};

/// A sink that keeps the arguments of open calls, and drops all else. [`super::CallRebuilder::reopen`] gives the calls to
/// another sink.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Past {
    arguments: Arguments,
}

impl Past {
    pub(super) fn is_sound(&self) -> bool {
        self.arguments.is_sound()
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
}
