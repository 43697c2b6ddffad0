//! Calls as rows of a table, the same in each format of tables.

use anyhow::Result;
use nopal_analysis::calls::{Ending, Frame, Plain, Sink, Style};
use nopal_analysis::drive::{Times, Worker};
use nopal_analysis::names::Names;
use nopal_trace::{ThreadInfo, Trace};

use crate::requests::{RequestBegin, Requests};

/// The names of columns, in their order.
pub const COLUMNS: [&str; 12] = [
    "trace",
    "pid",
    "tid",
    "module",
    "function",
    "start_ns",
    "duration_ns",
    "self_ns",
    "depth",
    "request",
    "state",
    "thread",
];

/// How far a call's times are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Begin and end are known.
    Complete,
    /// The same; part of the self time is not known.
    SelfLeast,
    /// It was left by an exception or cancellation.
    Unwound,
    /// The end is not known: duration and self time are the least possible ones.
    Unfinished,
    /// It had begun before the records: likewise, from the first time at which it is known to have run.
    BeganBefore,
    /// Only its entry was recorded: it has no duration and no self time.
    Entry,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Complete,
        State::SelfLeast,
        State::Unwound,
        State::Unfinished,
        State::BeganBefore,
        State::Entry,
    ];

    pub fn name(self) -> &'static str {
        match self {
            State::Complete => "complete",
            State::SelfLeast => "self_least",
            State::Unwound => "unwound",
            State::Unfinished => "unfinished",
            State::BeganBefore => "began_before",
            State::Entry => "entry",
        }
    }
}

/// A call; times are of the counter.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub begin: u64,
    pub ticks: u64,
    pub own: u64,
    pub function: u32,
    /// The number of the thread in the trace.
    pub thread: u32,
    pub depth: u32,
    /// A number of [`Requests`]; 0: none.
    pub request: u32,
    pub state: State,
}

/// Takes rows. The calls of a thread come in the order of their ends.
pub trait Rows: Send {
    fn row(&mut self, call: Call);
    /// Called after some rows, and after the last of a thread.
    fn pause(&mut self, requests: &Requests) -> Result<()>;
    /// Called after the last row of all.
    fn end(&mut self, _requests: &Requests) -> Result<()> {
        Ok(())
    }
}

/// Makes the rows of one thread after the other.
pub struct Table<'a, R> {
    names: &'a Names,
    requests: Requests<'a>,
    thread: u32,
    pub rows: R,
}

impl<'a, R: Rows> Table<'a, R> {
    pub fn new(
        trace: &'a Trace,
        names: &'a Names,
        begin: Option<&'a RequestBegin>,
        rows: R,
    ) -> Table<'a, R> {
        Table {
            names,
            requests: Requests::new(trace, names, begin),
            thread: 0,
            rows,
        }
    }

    /// Called when all workers have ended.
    pub fn end(&mut self) -> Result<()> {
        self.rows.end(&self.requests)
    }

    #[inline(always)]
    fn push(&mut self, frame: &Frame, clock: u64, depth: usize, state: State) {
        let function = self.names.number(frame.site());
        let ticks = clock.saturating_sub(frame.clock);
        self.rows.row(Call {
            begin: frame.clock,
            ticks,
            own: ticks.saturating_sub(frame.child),
            function,
            thread: self.thread,
            depth: depth as u32,
            request: self.requests.of(frame),
            state,
        });
    }
}

impl<R: Rows> Sink for Table<'_, R> {
    fn enter_left_out(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.requests.enter(frames, arguments)
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let note = self.requests.enter(frames, arguments);
        if let [under @ .., frame] = frames
            && frame.style() == Style::Only
        {
            let mut frame = *frame;
            frame.note = note;
            self.push(&frame, frame.clock, under.len(), State::Entry);
        }
        note
    }

    fn note_of_caller(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.requests.enter(frames, arguments)
    }

    #[inline(always)]
    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        let state = match ending.unwound {
            true => State::Unwound,
            false if frame.is_bounded() => State::SelfLeast,
            false => State::Complete,
        };
        self.push(frame, ending.clock, frames.len(), state);
        self.requests.leave(frame);
    }

    #[inline(always)]
    fn takes_runs(&self) -> bool {
        self.requests.are_none()
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit == 1 {
            let state = match call.top.is_bounded() {
                true => State::SelfLeast,
                false => State::Complete,
            };
            self.push(call.top, call.clock, call.under.len(), state);
        }
        0
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.push(frame, clock, 0, State::Unfinished);
        self.requests.leave(frame);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.push(frame, ending.clock, 0, State::BeganBefore);
    }

    fn mark(&mut self, _clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.requests.mark(event, payload, frames);
    }
}

impl<R: Rows> Worker for Table<'_, R> {
    fn times(&self) -> Times {
        Times::Whole
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.thread = stream as u32;
        self.requests.begin();
    }

    fn pause(&mut self) -> Result<()> {
        self.rows.pause(&self.requests)
    }
}
