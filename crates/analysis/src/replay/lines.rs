//! One thread's calls as lines to come.

use std::collections::VecDeque;

use nopal_trace::Clocks;

use crate::calls::{Ending, Frame, Sink, Style};
use crate::filter::{Choice, Filter};
use crate::kernel_events::Turn;
use crate::timeline::EventSource;

/// The form of a call's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub what: LineKind,
    pub site: u32,
    /// Calls under this one.
    pub depth: usize,
    pub arguments: Option<[u64; 6]>,
    pub result: Option<u64>,
}

/// With durations in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineKind {
    Open,
    /// A call without nested calls.
    Leaf {
        duration: u64,
        unwound: bool,
    },
    Close {
        duration: u64,
        unwound: bool,
    },
    /// An entry-only call.
    Only,
    /// Calls at this depth seem to be in an entry-only one, which may have ended before.
    Estimated,
    /// The end of a call without an exit, and the time in which it is known to have run.
    Unfinished {
        least: u64,
    },
    /// The exit of a call without an entry, likewise.
    Stray {
        least: u64,
    },
    /// Records of the thread are missing, for so long.
    Missing(u64),
    /// A marker: its event, and its record behind the clock.
    Mark(u32, Box<[u64]>),
    /// A scheduling event of the thread.
    Turn(Turn),
}

/// The selection of calls.
pub struct Shown<'a> {
    pub filter: &'a Filter,
    pub clocks: &'a Clocks,
}

impl Shown<'_> {
    /// The depth at which a call is shown in one that is shown: the frames' notes.
    fn note(&self, site: u32, caller: Option<u32>) -> u32 {
        match (self.filter.choice(site), caller) {
            (Choice::No, _) | (_, Some(NEVER)) => NEVER,
            (Choice::Inside, None | Some(NOT_YET)) => NOT_YET,
            (Choice::Yes, None | Some(NOT_YET)) => 0,
            (_, Some(depth)) => (depth + 1).min(NOT_YET - 1),
        }
    }

    /// The depth at which a marker is shown in a call, or outside of all calls.
    fn depth_in(&self, caller: Option<u32>) -> Option<usize> {
        match caller {
            None => self.filter.has_outside().then_some(0),
            Some(NEVER | NOT_YET) => None,
            Some(depth) => Some(depth as usize + 1),
        }
    }

    fn is_long(&self, ticks: u64) -> bool {
        self.filter.least_ns == 0 || self.clocks.duration_ns(ticks) >= self.filter.least_ns
    }
}

/// Notes of frames that are not shown, nor any in them.
const NEVER: u32 = u32::MAX;
/// Notes of frames that are not shown, while those in them may be.
const NOT_YET: u32 = u32::MAX - 1;

/// The most calls without an end that are shown for a thread.
const LOST_LIMIT: usize = 1 << 16;

/// Holds entries back until it can tell whether they are shown, and whether the exit of the last comes next.
pub struct Lines<'a> {
    shown: &'a Shown<'a>,
    lines: VecDeque<(u64, Line)>,
    /// The innermost calls, outermost first.
    held: Vec<(u64, Line)>,
    lost: Vec<Line>,
    /// The clock of the last event.
    clock: u64,
    /// It has been told that callers are estimated.
    has_told: bool,
    /// Scheduling events of the thread that have not been shown.
    turns: &'a [(u64, Turn)],
}

impl<'a> Lines<'a> {
    /// `turns`: scheduling events of the thread, in order of time.
    pub fn new(shown: &'a Shown<'a>, turns: &'a [(u64, Turn)]) -> Lines<'a> {
        Lines {
            shown,
            lines: VecDeque::new(),
            held: Vec::new(),
            lost: Vec::new(),
            clock: 0,
            has_told: false,
            turns,
        }
    }

    /// Shows the scheduling events of the thread until `clock`, in the call with this note.
    fn turns_until(&mut self, clock: u64, note: Option<u32>) {
        while let Some((&(at, turn), rest)) = self.turns.split_first()
            && at <= clock
        {
            self.turns = rest;
            self.push_aside(at, LineKind::Turn(turn), note);
        }
    }

    /// Shows an event that is not a call, in the call with this note or outside of all.
    fn push_aside(&mut self, clock: u64, what: LineKind, note: Option<u32>) {
        let depth = match self.shown.depth_in(note) {
            Some(depth) if self.shown.filter.least_ns == 0 => depth,
            _ => return,
        };
        self.let_go(clock);
        let line = Line {
            what,
            site: 0,
            depth,
            arguments: None,
            result: None,
        };
        self.lines.push_back((clock, line));
    }

    /// Shows the entries of calls that are alive at `clock` and long enough by then.
    fn let_go(&mut self, clock: u64) {
        let shown = self.shown;
        let is_long = |(begin, _): &(u64, Line)| shown.is_long(clock.saturating_sub(*begin));
        let count = self.held.iter().take_while(|held| is_long(held)).count();
        self.lines.extend(self.held.drain(..count));
    }

    fn show_lost(&mut self, clock: u64) {
        self.lines
            .extend(self.lost.drain(..).map(|line| (clock, line)));
    }

    /// Takes the entry of a frame, and those of calls in it, which have not been shown.
    fn take_held(&mut self, frame: &Frame) -> Option<Line> {
        let (clock, site, depth) = (frame.clock, frame.site(), frame.note as usize);
        let at = self
            .held
            .iter()
            .rposition(|(begin, line)| (*begin, line.site, line.depth) == (clock, site, depth))?;
        self.held.drain(at..).next().map(|(_, line)| line)
    }
}

impl Sink for Lines<'_> {
    fn begin_at(&mut self, clock: u64) {
        self.clock = clock;
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return NEVER;
        };
        self.clock = frame.clock;
        self.turns_until(frame.clock, under.last().map(|under| under.note));
        self.let_go(frame.clock);
        let note = self
            .shown
            .note(frame.site(), under.last().map(|under| under.note));
        if note >= NOT_YET {
            return note;
        }
        let caller = under.last().filter(|_| note > 0);
        if caller.is_some_and(|caller| !caller.has_end()) && !self.has_told {
            self.has_told = true;
            self.push_aside(frame.clock, LineKind::Estimated, Some(note - 1));
        }
        let line = Line {
            what: LineKind::Open,
            site: frame.site(),
            depth: note as usize,
            arguments,
            result: None,
        };
        match frame.style() {
            Style::Only if self.shown.filter.least_ns > 0 => {}
            Style::Only => self.lines.push_back((
                frame.clock,
                Line {
                    what: LineKind::Only,
                    ..line
                },
            )),
            Style::Wrapped | Style::Tail => self.held.push((frame.clock, line)),
        }
        note
    }

    fn note_of_caller(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return NEVER;
        };
        let under = under.last().map(|under| under.note);
        self.shown.note(frame.site(), under)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.clock = ending.clock;
        self.turns_until(ending.clock, Some(frame.note));
        if frame.note >= NOT_YET {
            return;
        }
        let duration = ending.clock.saturating_sub(frame.clock);
        let (result, unwound) = (ending.result, ending.unwound);
        let open = self.take_held(frame);
        // The line of its entry would be before the time that is shown.
        let open = open.filter(|_| frame.clock >= self.shown.filter.from.unwrap_or(0));
        match open {
            Some(open) if self.shown.is_long(duration) => {
                self.let_go(ending.clock);
                self.lines.push_back((
                    frame.clock,
                    Line {
                        what: LineKind::Leaf { duration, unwound },
                        result,
                        ..open
                    },
                ));
            }
            Some(_) => {}
            None if self.shown.is_long(duration) => self.lines.push_back((
                ending.clock,
                Line {
                    what: LineKind::Close { duration, unwound },
                    site: frame.site(),
                    depth: frame.note as usize,
                    arguments: None,
                    result,
                },
            )),
            None => {}
        }
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.turns_until(clock, Some(frame.note));
        self.clock = self.clock.max(clock);
        let least = clock.saturating_sub(frame.clock);
        let is_long = self.shown.is_long(least);
        if is_long {
            self.let_go(clock);
        } else {
            self.take_held(frame);
        }
        if !is_long || frame.note >= NOT_YET || self.lost.len() == LOST_LIMIT {
            return;
        }
        self.lost.push(Line {
            what: LineKind::Unfinished { least },
            site: frame.site(),
            depth: frame.note as usize,
            arguments: None,
            result: None,
        });
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.clock = ending.clock;
        self.turns_until(ending.clock, None);
        self.let_go(ending.clock);
        let (site, result) = (frame.site(), ending.result);
        let least = ending.clock.saturating_sub(frame.clock);
        if self.shown.note(site, None) != 0 || !self.shown.is_long(least) {
            return;
        }
        self.lines.push_back((
            ending.clock,
            Line {
                what: LineKind::Stray { least },
                site,
                depth: 0,
                arguments: None,
                result,
            },
        ));
    }

    /// Entries that were open until here come first.
    fn missing(&mut self, _clock: u64, ticks: u64) {
        self.show_lost(self.clock);
        if self.shown.filter.least_ns > 0 || !self.shown.filter.has_outside() || self.clock == 0 {
            return;
        }
        let line = Line {
            what: LineKind::Missing(ticks),
            site: 0,
            depth: 0,
            arguments: None,
            result: None,
        };
        self.lines.push_back((self.clock, line));
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        let note = frames.last().map(|frame| frame.note);
        self.turns_until(clock, note);
        self.push_aside(clock, LineKind::Mark(event, payload.into()), note);
    }

    fn aside(&mut self, frames: &[Frame]) {
        let last = frames.iter().map(|frame| frame.clock).max();
        self.let_go(last.unwrap_or(0));
    }
}

impl EventSource for Lines<'_> {
    type Moment = Line;

    fn take(&mut self) -> Option<(u64, Line)> {
        self.lines.pop_front()
    }

    fn finish(&mut self, clock: u64) {
        // Calls that were open may have been lost later than the last record.
        let clock = clock.max(self.clock);
        self.let_go(clock);
        self.show_lost(clock);
        self.turns_until(u64::MAX, None);
    }
}
