//! One thread's calls as lines to come.

use std::collections::VecDeque;

use crate::calls::{Ending, Frame, Sink, Style, site_of};
use crate::timeline::Teller;

/// How a call is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub what: What,
    pub site: u32,
    /// Calls under this one.
    pub depth: usize,
    pub arguments: Option<[u64; 6]>,
    pub result: Option<u64>,
}

/// With durations in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Open,
    /// A call in which nothing was called.
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
    /// The end of a call whose exit was not seen.
    Unfinished,
    /// The exit of a call that began before tracing.
    Stray,
    /// A marker: its event, and its record behind the clock.
    Mark(u32, Box<[u64]>),
}

/// Calls without an end that are shown, a thread.
const LOST_LIMIT: usize = 1 << 16;

/// Holds an entry back until it is known whether its exit is next.
#[derive(Default)]
pub struct Lines {
    lines: VecDeque<(u64, Line)>,
    held: Option<(u64, Line)>,
    lost: Vec<Line>,
}

impl Lines {
    fn let_go(&mut self) {
        self.lines.extend(self.held.take());
    }
}

impl Sink for Lines {
    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.let_go();
        let Some(frame) = frames.last() else {
            return 0;
        };
        let depth = frames.len() - 1;
        let line = Line {
            what: What::Open,
            site: frame.site(),
            depth,
            arguments,
            result: None,
        };
        match frame.style() {
            Style::Only => self.lines.push_back((
                frame.clock,
                Line {
                    what: What::Only,
                    ..line
                },
            )),
            Style::Wrapped | Style::Tail => self.held = Some((frame.clock, line)),
        }
        u32::try_from(depth).unwrap_or(u32::MAX)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        let duration = ending.clock.saturating_sub(frame.clock);
        let (site, depth, result, unwound) =
            (frame.site(), frames.len(), ending.result, ending.unwound);
        match self.held.take() {
            Some((clock, open)) if (clock, open.site, open.depth) == (frame.clock, site, depth) => {
                self.lines.push_back((
                    clock,
                    Line {
                        what: What::Leaf { duration, unwound },
                        result,
                        ..open
                    },
                ));
            }
            held => {
                self.lines.extend(held);
                let what = What::Close { duration, unwound };
                self.lines.push_back((
                    ending.clock,
                    Line {
                        what,
                        site,
                        depth,
                        arguments: None,
                        result,
                    },
                ));
            }
        }
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        let depth = frame.note as usize;
        if self.lost.len() == LOST_LIMIT {
            return;
        }
        self.lost.push(Line {
            what: What::Unfinished,
            site: frame.site(),
            depth,
            arguments: None,
            result: None,
        });
    }

    fn stray(&mut self, key: u32, ending: Ending) {
        self.let_go();
        let (site, result) = (site_of(key), ending.result);
        self.lines.push_back((
            ending.clock,
            Line {
                what: What::Stray,
                site,
                depth: 0,
                arguments: None,
                result,
            },
        ));
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.let_go();
        let line = Line {
            what: What::Mark(event, payload.into()),
            site: 0,
            depth: frames.len(),
            arguments: None,
            result: None,
        };
        self.lines.push_back((clock, line));
    }

    fn aside(&mut self, _frames: &[Frame]) {
        self.let_go();
    }
}

impl Teller for Lines {
    type Moment = Line;

    fn take(&mut self) -> Option<(u64, Line)> {
        self.lines.pop_front()
    }

    fn finish(&mut self, clock: u64) {
        self.let_go();
        self.lines
            .extend(self.lost.drain(..).map(|line| (clock, line)));
    }
}
