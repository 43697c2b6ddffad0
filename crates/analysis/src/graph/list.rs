//! A list of calls, each with those made in it.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, ensure};
use nopal_trace::ThreadInfo;

use super::tree::{Grower, Tree};
use crate::calls::{Ending, Frame, Plain, Sink, Style};
use crate::worker::Worker;

/// In a function: the call is an outermost one.
const OUTERMOST: u32 = 1 << 31;
/// In a function: only the entry of the call is known.
const ONLY: u32 = 1 << 30;
/// In a function: the call is left out.
const LEFT_OUT: u32 = 1 << 29;
const FUNCTION: u32 = LEFT_OUT - 1;

/// Ticks that are told elsewhere.
const LONG: u32 = u32::MAX;

/// Number 0 is not a call: the outermost calls are made in it.
#[derive(Clone, Copy, Default)]
struct Call {
    function: u32,
    /// The call made before it in its caller, 0 for the first.
    before: u32,
    /// The last call made in it; 0 if there is none.
    callee: u32,
    ticks: u32,
    own: u32,
}

/// What a call adds to its node. Calls of which only the entry is known have the time of those made in them.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub calls: u64,
    pub ticks: u64,
    pub own: u64,
}

/// A call of one of several lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    list: u32,
    call: u32,
}

impl Member {
    /// That in which the outermost calls of a list are made.
    pub fn root(list: usize) -> Member {
        Member {
            list: list as u32,
            call: 0,
        }
    }

    /// Nothing for an outermost call, except the time of those made in it: the rest is in [`CallList::outermost`].
    pub fn of(self, lists: &[CallList]) -> Sum {
        lists[self.list as usize].of(self.call)
    }

    /// The calls made in it, their functions, and whether they are left out.
    pub fn callees(self, lists: &[CallList]) -> impl Iterator<Item = (Member, u32, bool)> {
        let calls = &lists[self.list as usize].calls;
        let mut next = calls[self.call as usize].callee;
        std::iter::from_fn(move || {
            let number = (next != 0).then_some(next)?;
            let call = &calls[number as usize];
            next = call.before;
            let is_left_out = call.function & LEFT_OUT != 0;
            let member = Member {
                call: number,
                ..self
            };
            Some((member, call.function & FUNCTION, is_left_out))
        })
    }

    /// The time of the calls made in it.
    pub fn inside(self, lists: &[CallList]) -> u64 {
        let list = &lists[self.list as usize];
        let ticks = self
            .callees(lists)
            .map(|(callee, ..)| list.times(callee.call).0);
        ticks.fold(0, u64::saturating_add)
    }

    pub fn is_left_out(self, lists: &[CallList]) -> bool {
        lists[self.list as usize].calls[self.call as usize].function & LEFT_OUT != 0
    }
}

/// Lists calls. A frame's note is its call.
pub struct CallList<'a> {
    calls: Vec<Call>,
    /// Ticks and own ticks, by call.
    long: HashMap<u32, (u64, u64)>,
    left_out: u64,
    /// A tree of the outermost calls alone.
    outermost: Grower<'a>,
    most: usize,
    has_only: bool,
    /// Functions of exits whose entries are not known.
    strays: HashSet<u32>,
    /// There are more calls, or the time of one is not all of those made in it.
    is_full: bool,
}

impl<'a> CallList<'a> {
    /// At most `most` calls.
    pub fn new(outermost: Grower<'a>, most: usize) -> CallList<'a> {
        CallList {
            calls: vec![Call::default()],
            long: HashMap::new(),
            left_out: 0,
            outermost,
            most: most.min(FUNCTION as usize),
            has_only: false,
            strays: HashSet::new(),
            is_full: false,
        }
    }

    /// Whether the list is of no use.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The number of calls that are not left out.
    pub fn calls(&self) -> u64 {
        self.calls.len() as u64 - 1 - self.left_out
    }

    /// Whether there were exits of a function without entries: their times overlap those of its outermost calls.
    pub fn has_strays(&self, function: u32) -> bool {
        self.strays.contains(&function)
    }

    pub fn outermost(&self) -> &Tree {
        self.outermost.tree()
    }

    /// Gives the calls of which only the entry is known their times, once all calls are there.
    pub fn sum_up_untimed(&mut self) {
        if !self.has_only {
            return;
        }
        // A call comes behind the one that it is made in.
        for number in (1..self.calls.len()).rev() {
            if self.calls[number].function & ONLY == 0 {
                continue;
            }
            let mut ticks = 0u64;
            let mut callee = self.calls[number].callee;
            while callee != 0 {
                ticks = ticks.saturating_add(self.times(callee).0);
                callee = self.calls[callee as usize].before;
            }
            self.put(number as u32, ticks, 0);
        }
    }

    fn times(&self, number: u32) -> (u64, u64) {
        let call = &self.calls[number as usize];
        match call.ticks {
            LONG => self.long.get(&number).copied().unwrap_or_default(),
            ticks => (ticks.into(), call.own.into()),
        }
    }

    #[inline(always)]
    fn put(&mut self, number: u32, ticks: u64, own: u64) {
        let call = &mut self.calls[number as usize];
        match ticks.max(own) < LONG.into() {
            true => (call.ticks, call.own) = (ticks as u32, own as u32),
            false => {
                call.ticks = LONG;
                self.long.insert(number, (ticks, own));
            }
        }
    }

    fn of(&self, number: u32) -> Sum {
        let function = self.calls[number as usize].function;
        let (ticks, own) = self.times(number);
        match function & (OUTERMOST | ONLY) {
            OUTERMOST => Sum::default(),
            0 | ONLY => Sum {
                calls: u64::from(function & LEFT_OUT == 0),
                ticks,
                own,
            },
            _ => Sum {
                ticks,
                ..Sum::default()
            },
        }
    }

    #[inline(always)]
    fn begin(&mut self, caller: u32, function: u32) -> u32 {
        let number = self.calls.len();
        if number > self.most || function > FUNCTION {
            self.is_full = true;
            return 0;
        }
        let number = number as u32;
        let before = std::mem::replace(&mut self.calls[caller as usize].callee, number);
        let mark = match caller {
            0 => {
                self.outermost.begin(0, function);
                OUTERMOST
            }
            _ => 0,
        };
        self.calls.push(Call {
            function: function | mark,
            before,
            ..Call::default()
        });
        number
    }

    #[inline(always)]
    fn time(&mut self, number: u32, ticks: u64, own: u64) {
        self.put(number, ticks, own);
        let function = self.calls[number as usize].function;
        if function & OUTERMOST != 0 {
            let node = self.outermost.outermost(function & FUNCTION);
            self.outermost.time(node, ticks, own);
        }
    }

    fn time_until(&mut self, frame: &Frame, clock: u64) {
        let ticks = clock.saturating_sub(frame.clock);
        self.is_full |= ticks < frame.child;
        self.time(frame.note, ticks, ticks.saturating_sub(frame.child));
    }
}

impl Sink for CallList<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        if call.exit == 0 {
            return self.begin(call.note, self.outermost.number(call.site));
        }
        self.time(call.note, call.ticks, call.own);
        0
    }

    fn call_site(&mut self, return_address: u64) {
        self.outermost.call_site(return_address);
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let [under @ .., frame] = frames else {
            return 0;
        };
        let function = self.outermost.number_of_call(frame);
        let number = self.begin(under.last().map_or(0, |frame| frame.note), function);
        if frame.style() == Style::Only {
            self.has_only = true;
            self.calls[number as usize].function |= ONLY;
        }
        number
    }

    /// The list has no place for calls that have ended before.
    fn note_of_caller(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        self.is_full = true;
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.time_until(frame, ending.clock);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.time_until(frame, clock);
    }

    fn dismiss(&mut self, frame: &Frame, _counted: bool) {
        let function = &mut self.calls[frame.note as usize].function;
        *function |= LEFT_OUT;
        self.left_out += 1;
        if *function & OUTERMOST != 0 {
            let node = self.outermost.outermost(*function & FUNCTION);
            self.outermost.dismiss_one(node);
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.strays.insert(self.outermost.number(frame.site()));
        self.outermost.stray(frame, ending);
    }

    fn missing(&mut self, clock: u64, ticks: u64) {
        self.outermost.missing(clock, ticks);
    }
}

impl Worker for CallList<'_> {
    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        Worker::begin(&mut self.outermost, stream, thread);
    }

    fn pause(&mut self) -> Result<()> {
        ensure!(!self.is_full, "too many calls for a list");
        Ok(())
    }
}
