//! Finds the longest calls of functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nopal_trace::ThreadInfo;

use super::SlowCall;
use super::checkpoints::{Checkpoints, Maker};
use crate::calls::{Arguments, CallRebuilder, Ending, Frame, Plain, Sink};
use crate::drive::{Times, Worker};
use crate::names::Names;

/// The most callers that are kept of a path, from the call outwards.
const PATH_LIMIT: usize = 256;

/// A frame's note is that of its arguments.
pub struct Finder<'a> {
    names: &'a Names,
    /// By site.
    wanted: Vec<bool>,
    number: usize,
    stream: usize,
    arguments: Arguments,
    /// The longest so far, the shortest of them on top: ticks, and where the call is.
    longest: BinaryHeap<Reverse<(u64, usize)>>,
    /// Shorter calls are not among them.
    least: u64,
    calls: Vec<SlowCall>,
    checkpoints: Maker,
}

impl<'a> Finder<'a> {
    /// `functions`: those wanted, by number.
    pub fn new(names: &'a Names, functions: &[u32], number: usize) -> Finder<'a> {
        let sites = 0..names.sites() as u32;
        Finder {
            names,
            wanted: sites
                .map(|site| functions.contains(&names.number(site)))
                .collect(),
            number: number.max(1),
            stream: 0,
            arguments: Arguments::default(),
            longest: BinaryHeap::new(),
            least: 0,
            calls: Vec::new(),
            checkpoints: Maker::new(names.sites()),
        }
    }

    pub fn finish(self) -> (Vec<SlowCall>, Checkpoints) {
        (self.calls, self.checkpoints.finish())
    }

    fn is_wanted(&self, site: u32) -> bool {
        self.wanted.get(site as usize).copied().unwrap_or(false)
    }

    fn ended(&mut self, frame: &Frame, ending: Ending, is_least: bool, under: Option<&[Frame]>) {
        let arguments = self.arguments.take(frame.note);
        if self.is_wanted(frame.site()) {
            self.add(
                SlowCall {
                    stream: self.stream,
                    function: self.names.number(frame.site()),
                    begin: frame.clock,
                    end: ending.clock,
                    is_least,
                    arguments,
                    result: ending.result,
                    path: None,
                    spent: Vec::new(),
                    waited: None,
                },
                under,
            );
        }
    }

    fn count(&mut self, frame: &Frame, clock: u64) {
        let ticks = clock.saturating_sub(frame.clock);
        self.checkpoints
            .add(frame.site(), ticks.saturating_sub(frame.child));
    }

    /// Keeps a call that is one of the longest so far.
    fn add(&mut self, call: SlowCall, under: Option<&[Frame]>) {
        let ticks = call.end.saturating_sub(call.begin);
        if ticks < self.least {
            return;
        }
        let path = under.map(|frames| {
            let kept = &frames[frames.len().saturating_sub(PATH_LIMIT)..];
            kept.iter()
                .map(|frame| self.names.number(frame.site()))
                .collect()
        });
        let call = SlowCall { path, ..call };
        let place = match self.longest.len() < self.number {
            true => {
                self.calls.push(call);
                self.calls.len() - 1
            }
            false => {
                let Some(Reverse((_, place))) = self.longest.pop() else {
                    return;
                };
                self.calls[place] = call;
                place
            }
        };
        self.longest.push(Reverse((ticks, place)));
        if self.longest.len() == self.number
            && let Some(Reverse((shortest, _))) = self.longest.peek()
        {
            self.least = shortest.saturating_add(1);
        }
    }

    #[cold]
    fn ended_plainly(&mut self, call: Plain) {
        let arguments = self.arguments.take(call.note);
        self.add(
            SlowCall {
                stream: self.stream,
                function: self.names.number(call.site),
                begin: call.clock.saturating_sub(call.ticks),
                end: call.clock,
                is_least: false,
                arguments,
                result: None,
                path: None,
                spent: Vec::new(),
                waited: None,
            },
            Some(call.under),
        );
    }
}

impl Sink for Finder<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let is_exit = 0u64.wrapping_sub(call.exit);
        self.checkpoints.add(call.site, call.own & is_exit);
        let concerns = u64::from(call.ticks >= self.least) | u64::from(call.note);
        if call.exit & u64::from(concerns != 0) != 0 && self.is_wanted(call.site) {
            self.ended_plainly(call);
        }
        0
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        match (frames.last(), arguments) {
            (Some(frame), Some(arguments)) if self.is_wanted(frame.site()) => {
                self.arguments.keep(arguments)
            }
            _ => 0,
        }
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.count(frame, ending.clock);
        self.ended(frame, ending, false, Some(frames));
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        self.arguments.take(frame.note);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.count(frame, clock);
        let ending = Ending {
            clock,
            result: None,
            unwound: false,
        };
        self.ended(frame, ending, true, None);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.ended(frame, ending, true, None);
    }

    fn aside(&mut self, _frames: &[Frame]) {
        self.checkpoints.change_stack();
    }
}

impl Worker for Finder<'_> {
    fn times(&self) -> Times {
        Times::Whole
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.stream = stream;
        self.checkpoints.begin(stream);
    }

    fn pass(&mut self, packets: usize, rebuilder: &CallRebuilder) {
        self.checkpoints.pass(packets, rebuilder);
    }
}
