//! The events of a thread between two moments.

use std::collections::{HashSet, VecDeque};

use super::linux::{AT_ENTRY, Entry, Flags, LineContent, SOMEWHERE};
use crate::calls::{Ending, Frame, Sink};
use crate::markers::{processor_state, push_marker};
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
    /// Of the call that begins next; 0 where it is not known.
    return_address: u64,
    /// By depth, of the calls that are open: when they began, and the return address.
    open: Vec<(u64, u64)>,
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
            return_address: 0,
            open: Vec::new(),
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

    /// The return of a call in others. What was open at its depth is another call, perhaps, if the thread has changed stacks.
    fn returned(&self, frame: &Frame, under: &[Frame]) -> LineContent {
        let open = self.open.get(under.len());
        let open = open.filter(|(begin, _)| *begin == frame.clock);
        let return_address = open.map_or(0, |(_, return_address)| *return_address);
        LineContent::Call(Entry::of(frame, under, return_address), SOMEWHERE)
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

impl Sink for Inside<'_> {
    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let return_address = std::mem::take(&mut self.return_address);
        let note = self.watcher.enter(frames, arguments);
        self.watcher.latency_events.clear();
        let [under @ .., frame] = frames else {
            return note;
        };
        self.open.resize(under.len(), (0, 0));
        self.open.push((frame.clock, return_address));
        if self.depth.is_none() && !self.ended && self.is_the_call(frame) {
            self.depth = Some(under.len());
        }
        let in_handler = self.handlers.contains(&frame.site()) || is_in_handler(under);
        if self.is_inside(frame.clock) {
            let entry = Entry::of(frame, under, return_address);
            let content = LineContent::Call(entry, AT_ENTRY);
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
            let content = self.returned(frame, frames);
            self.push(ending.clock, content, in_handler, true);
            self.depth = None;
            self.ended = true;
        }
        if let Span::Time { begin, end } = self.span
            && [begin, end].contains(&ending.clock)
        {
            let content = self.returned(frame, frames);
            self.push(ending.clock, content, in_handler, false);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.watcher.mark(clock, event, payload, frames);
        self.watcher.latency_events.clear();
        if self.is_inside(clock) {
            let mut text = Vec::new();
            let marker = self.watcher.roles.marker(event);
            push_marker(&mut text, marker, payload);
            let (processor, kernel) = processor_state(marker, payload);
            self.push(clock, LineContent::Text(text), is_in_handler(frames), false);
            if let Some((_, line)) = self.lines.back_mut() {
                (line.flags.processor, line.flags.kernel) = (processor, kernel);
            }
        }
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        self.watcher.missing(clock, ticks);
        self.watcher.latency_events.clear();
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
