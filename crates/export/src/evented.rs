//! Begins and ends of calls, for formats that have only these: each begin has its end, and times do not go back.

use anyhow::Result;
use nopal_analysis::calls::{Ending, Frame, Sink, Style};
use nopal_analysis::drive::{Drive, Worker};
use nopal_analysis::names::Names;
use nopal_analysis::span::begin;
use nopal_trace::{Clocks, ThreadInfo, Trace};

use crate::LeftOut;
use crate::pending::Pending;

/// Takes events of one thread after the other. Times are nanoseconds since the trace's begin.
pub trait Events: Send {
    fn begin_thread(&mut self, thread: &ThreadInfo, begin_ns: u64, end_ns: u64);
    fn begin_call(&mut self, function: u32, ns: u64);
    /// Ends the last call that has begun and not ended.
    fn end_call(&mut self, function: u32, ns: u64);
    fn end_thread(&mut self);
    /// Called after some events.
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }
    /// The bytes that are written after the end of the last thread.
    fn rest(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// Makes events of calls. It is one type for all formats, since each sink has a rebuilder of calls compiled for it.
pub struct Evented<'a> {
    events: Box<dyn Events + 'a>,
    pub left_out: LeftOut,
    names: &'a Names,
    clocks: &'a Clocks,
    begin_ns: u64,
    /// The begin of the selected time.
    from: u64,
    /// Functions of the calls whose begins have been passed on, and whose ends have not.
    open: Vec<u32>,
    pending: Vec<Pending>,
    is_in_thread: bool,
    /// The end of the present thread, and the time of its last event.
    end_ns: u64,
    at_ns: u64,
}

impl<'a> Evented<'a> {
    pub fn new(
        trace: &'a Trace,
        names: &'a Names,
        drive: &Drive,
        events: impl Events + 'a,
    ) -> Evented<'a> {
        Evented {
            events: Box::new(events),
            left_out: LeftOut::default(),
            names,
            clocks: trace.clocks(),
            begin_ns: trace.clocks().monotonic_ns(begin(trace)),
            from: drive.filter.and_then(|filter| filter.from).unwrap_or(0),
            open: Vec::new(),
            pending: Vec::new(),
            is_in_thread: false,
            end_ns: 0,
            at_ns: 0,
        }
    }

    /// The bytes that are written after the last thread.
    pub fn end(&mut self) -> Vec<u8> {
        self.end_thread();
        self.events.rest()
    }

    fn end_thread(&mut self) {
        if !std::mem::take(&mut self.is_in_thread) {
            return;
        }
        while let Some(function) = self.open.pop() {
            self.events.end_call(function, self.at_ns);
        }
        self.events.end_thread();
    }

    fn ns(&self, clock: u64) -> u64 {
        let ns = self.clocks.monotonic_ns(clock);
        ns.saturating_sub(self.begin_ns)
    }

    /// Moves on to a clock, but not back, and not behind the thread's end.
    fn go_to(&mut self, clock: u64) -> u64 {
        self.at_ns = self.ns(clock).min(self.end_ns).max(self.at_ns);
        self.at_ns
    }

    fn begin_call(&mut self, site: u32, clock: u64) {
        let function = self.names.number(site);
        let ns = self.go_to(clock);
        self.events.begin_call(function, ns);
        self.open.push(function);
    }

    fn end_call(&mut self, clock: u64) {
        if let Some(function) = self.open.pop() {
            let ns = self.go_to(clock);
            self.events.end_call(function, ns);
        }
    }

    /// Writes the begins of pending frames, before an event at `clock`.
    fn begin_pending(&mut self, clock: u64) {
        for pending in std::mem::take(&mut self.pending) {
            self.begin_call(pending.frame.site(), pending.begin(clock));
        }
    }

    /// Drops the frame if it is pending, and returns whether it was.
    fn drop_pending(&mut self) -> bool {
        self.pending.pop().is_some()
    }
}

impl Sink for Evented<'_> {
    fn enter_left_out(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    #[inline(always)]
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let Some(frame) = frames.last() else {
            return 0;
        };
        if frame.style() == Style::Only {
            self.left_out.entries += 1;
        } else if frame.clock <= self.from {
            self.pending.push(Pending::open(frame, self.from));
        } else {
            self.begin_pending(frame.clock);
            self.begin_call(frame.site(), frame.clock);
        }
        0
    }

    #[inline(always)]
    fn leave(&mut self, _frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.begin_pending(ending.clock);
        self.end_call(ending.clock);
    }

    fn lose(&mut self, _frame: &Frame, clock: u64, counted: bool) {
        if Pending::goes_on(&self.pending, clock) {
            self.begin_pending(clock);
        }
        if counted && !self.drop_pending() {
            self.end_call(clock);
        }
    }

    fn dismiss(&mut self, frame: &Frame, counted: bool) {
        if counted && frame.style() != Style::Only {
            self.drop_pending();
        }
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {
        self.left_out.began_before += 1;
    }

    fn mark(&mut self, _clock: u64, _event: u32, _payload: &[u64], _frames: &[Frame]) {
        self.left_out.markers += 1;
    }

    fn missing(&mut self, _clock: u64, _ticks: u64) {
        self.pending.clear();
    }

    fn aside(&mut self, frames: &[Frame]) {
        for _ in frames.iter().filter(|frame| frame.style() != Style::Only) {
            if !self.drop_pending()
                && let Some(function) = self.open.pop()
            {
                self.events.end_call(function, self.at_ns);
            }
        }
    }

    fn resume(&mut self, frames: &[Frame]) {
        let timed = frames.iter().filter(|frame| frame.style() != Style::Only);
        self.pending.extend(timed.map(Pending::resumed));
    }
}

impl Worker for Evented<'_> {
    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        self.end_thread();
        self.pending.clear();
        let first = thread.packets().next();
        self.at_ns = self.ns(first.map_or(0, |packet| packet.clock_begin()));
        self.end_ns = self.ns(thread.clock_end());
        self.is_in_thread = true;
        self.events.begin_thread(thread, self.at_ns, self.end_ns);
    }

    fn pause(&mut self) -> Result<()> {
        self.events.pause()
    }
}
