//! The events of a thread between two moments.

use std::collections::{HashSet, VecDeque};

use super::linux::{AT_ENTRY, Entry, Flags, LineContent, SOMEWHERE};
use crate::calls::{Ending, Frame, Sink};
use crate::markers::{kernel_flags, push_marker};
use crate::names::Names;
use crate::timeline::EventSource;
use crate::tracers::{Roles, State, Watcher};

/// The begin and the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A call of a function, which began then.
    Call { begin: u64, end: u64, function: u32 },
    /// From one record to another, which may be of different threads.
    Time { begin: u64, end: u64 },
}

pub struct Line {
    pub content: LineContent,
    pub flags: Flags,
    /// The span is complete.
    pub is_end: bool,
}

/// Reports begins of calls, and markers; returns only at the ends of the span.
pub struct Inside<'a> {
    names: &'a Names,
    span: Span,
    /// The depth of the call's frame, while it lives.
    depth: Option<usize>,
    ended: bool,
    /// Sites that are signal handlers in the thread's process.
    handlers: &'a HashSet<u32>,
    lines: VecDeque<(u64, Line)>,
    watcher: Watcher<'a>,
}

impl<'a> Inside<'a> {
    /// `roles`: the functions that change the state of a thread.
    pub fn new(
        names: &'a Names,
        roles: &'a Roles,
        handlers: &'a HashSet<u32>,
        span: Span,
    ) -> Inside<'a> {
        Inside {
            handlers,
            names,
            span,
            depth: None,
            ended: false,
            lines: VecDeque::new(),
            watcher: Watcher::new(roles, State::default()),
        }
    }

    fn is_the_call(&self, frame: &Frame) -> bool {
        matches!(self.span, Span::Call { begin, function, .. }
            if frame.clock == begin && self.names.number(frame.site()) == function)
    }

    fn is_inside(&self, clock: u64) -> bool {
        match self.span {
            Span::Call { .. } => self.depth.is_some(),
            Span::Time { begin, end } => (begin..=end).contains(&clock),
        }
    }

    fn push(&mut self, clock: u64, content: LineContent, is_handler: bool, is_end: bool) {
        let known = self.watcher.roles.knows_locks();
        let flags = Flags {
            processor: None,
            locks: known.then(|| self.watcher.state.locks()),
            signals: self.watcher.state.blocks_signals(),
            is_handler,
            kernel: None,
        };
        let is_last = matches!(self.span, Span::Time { end, .. } if end == clock);
        let line = Line {
            content,
            flags,
            is_end: is_end || is_last,
        };
        self.lines.push_back((clock, line));
    }
}

/// In a frame's note, beside the watcher's: the call is one of a signal handler, or was made in one.
const IN_HANDLER: u32 = 1 << 31;

fn is_in_handler(frames: &[Frame]) -> bool {
    frames.last().is_some_and(|top| top.note & IN_HANDLER != 0)
}

/// A frame with the note that the watcher gave it.
fn watched(frame: &Frame) -> Frame {
    let mut watched = *frame;
    watched.note &= !IN_HANDLER;
    watched
}

fn call(frame: &Frame, under: &[Frame], offset: &'static str) -> LineContent {
    let entry = Entry {
        site: frame.site(),
        caller: under.last().map(Frame::site),
    };
    LineContent::Call(entry, offset)
}

impl Sink for Inside<'_> {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let note = self.watcher.enter(frames, arguments);
        self.watcher.latency_events.clear();
        let [under @ .., frame] = frames else {
            return note;
        };
        if self.depth.is_none() && !self.ended && self.is_the_call(frame) {
            self.depth = Some(under.len());
        }
        let in_handler = self.handlers.contains(&frame.site()) || is_in_handler(under);
        if self.is_inside(frame.clock) {
            let content = call(frame, under, AT_ENTRY);
            self.push(frame.clock, content, in_handler, false);
        }
        match in_handler {
            true => note | IN_HANDLER,
            false => note,
        }
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.watcher.leave(&watched(frame), ending, frames);
        self.watcher.latency_events.clear();
        let in_handler = is_in_handler(frames);
        if self.depth == Some(frames.len()) && self.is_the_call(frame) {
            self.push(
                ending.clock,
                call(frame, frames, SOMEWHERE),
                in_handler,
                true,
            );
            self.depth = None;
            self.ended = true;
        }
        if let Span::Time { begin, end } = self.span
            && [begin, end].contains(&ending.clock)
        {
            self.push(
                ending.clock,
                call(frame, frames, SOMEWHERE),
                in_handler,
                false,
            );
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.watcher.mark(clock, event, payload, frames);
        self.watcher.latency_events.clear();
        if self.is_inside(clock) {
            let mut text = Vec::new();
            let marker = self.watcher.roles.marker(event);
            push_marker(&mut text, marker, payload);
            let kernel = kernel_flags(marker, payload);
            self.push(clock, LineContent::Text(text), is_in_handler(frames), false);
            if let Some((_, line)) = self.lines.back_mut() {
                line.flags.kernel = kernel;
            }
        }
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        self.watcher.missing(clock, ticks);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        self.watcher.lose(&watched(frame), clock, counted);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}
}

impl EventSource for Inside<'_> {
    type Moment = Line;

    fn take(&mut self) -> Option<(u64, Line)> {
        self.lines.pop_front()
    }
}
