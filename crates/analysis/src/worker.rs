//! Workers, which take the calls of a trace's threads.

use anyhow::Result;
use nopal_trace::ThreadInfo;

use crate::calls::{CallRebuilder, Sink};

/// The calls, or parts of them, that a worker gets if a filter selects by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Their parts within the selected time: a call that goes on outside of it is lost there.
    Parts,
    /// The whole calls.
    Whole,
    /// All calls of all threads: it selects by these and by time itself, with a [`crate::filter::Sieve`].
    Own,
    /// As [`Times::Own`], but calls that are in no part within the selected time, and those of other threads, may be
    /// missing.
    Near,
}

/// Takes the calls of threads, one thread after the other.
pub trait Worker: Sink + Send {
    /// Which calls, or parts of them, it gets if a filter selects by time.
    fn times(&self) -> Times {
        Times::Parts
    }
    /// Whether it needs the ends of calls of a site that were open in the selected time, if it gets whole calls.
    fn awaits(&self, _site: u32) -> bool {
        true
    }
    /// Whether it is told how long calls waited.
    fn takes_waits(&self) -> bool {
        false
    }
    /// Called before a thread's records; `stream` is the thread's place in the trace.
    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {}
    /// Called between some packets of a thread, for a worker that gets all of its calls, with the number of packets
    /// before.
    fn pass(&mut self, _packets: usize, _rebuilder: &CallRebuilder) {}
    /// Called after some of a thread's packets, and after its last one.
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }
}
