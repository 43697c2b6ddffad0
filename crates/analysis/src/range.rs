//! The places where the reading of a thread's records begins and ends if a time is selected.
//!
//! Records before the time only update the state of the calls, up to the last place where that state says all: see
//! [`CallRebuilder::can_reopen`]. With checkpoints, reading begins near the time and ends behind it. Without, it begins
//! with the thread and goes on to its end, since the exit of a call tells that it was open in all the time before.

use std::collections::HashMap;

use nopal_trace::{Packet, ThreadInfo, ThreadKey};

use crate::calls::{CallRebuilder, Frame, Past, Remaining, Sink};

/// States of a trace's threads, by which readers of a part of it need not read the whole.
pub type Checkpoints = HashMap<ThreadKey, ThreadCheckpoints>;

/// The states of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCheckpoints {
    /// In order of time: the number of the next packet, and the state that [`CallRebuilder::checkpoint`] gave there.
    pub states: Vec<(usize, Vec<u8>)>,
    /// Exits of calls whose entries are not known, which were open since a counter and until some packet before this
    /// one.
    pub strays: Vec<(u64, usize)>,
    /// In order: the calls that were open at a state, and are lost behind it as last known to be open before. All other
    /// calls that are open at a state went on.
    pub lost: Vec<LostCall>,
}

/// A call whose end is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LostCall {
    pub begin: u64,
    pub slot: u64,
    pub site: u32,
    /// The clock at which it was last known to be open.
    pub end: u64,
}

impl LostCall {
    pub fn new(frame: &Frame, end: u64) -> LostCall {
        LostCall {
            begin: frame.clock,
            slot: frame.slot,
            site: frame.site(),
            end,
        }
    }
}

impl ThreadCheckpoints {
    /// The end of a call that is open at a state, if it is lost.
    fn end(&self, frame: &Frame) -> Option<u64> {
        let call = LostCall::new(frame, 0);
        let at = self.lost.partition_point(|lost| *lost < call);
        let found = self.lost.get(at)?;
        (LostCall { end: 0, ..*found } == call).then_some(found.end)
    }

    fn has_state(&self, packet: usize) -> bool {
        let found = self
            .states
            .binary_search_by_key(&packet, |(packet, _)| *packet);
        found.is_ok()
    }
}

/// The place where reading begins.
#[derive(Clone, Default)]
pub struct Start {
    /// The packet that is read first.
    pub packet: usize,
    /// Words of records before it that were read to know the state there.
    pub words_before: usize,
    rebuilder: CallRebuilder,
    past: Past,
}

impl Start {
    /// The last place before `from` where a sink can begin, if that is selected.
    pub fn before(
        from: Option<u64>,
        thread: &ThreadInfo,
        checkpoints: Option<&ThreadCheckpoints>,
    ) -> Start {
        let Some(from) = from else {
            return Start::default();
        };
        let is_before = |number: usize| {
            let packet = thread.packets_in(number..number + 1).next();
            packet.is_some_and(|packet| packet.clock_begin() <= from)
        };
        let states = checkpoints.map_or(&[][..], |checkpoints| &checkpoints.states);
        let near = states.partition_point(|(packet, _)| is_before(*packet));
        let usable = |(packet, state): &(usize, Vec<u8>)| {
            let (rebuilder, past) = CallRebuilder::resume(state).ok()?;
            let is_usable = rebuilder.clock() <= from && rebuilder.can_reopen();
            is_usable.then_some(Start {
                packet: *packet,
                rebuilder,
                past,
                words_before: 0,
            })
        };
        let near = states[..near].iter().rev().find_map(usable);
        let near = near.unwrap_or_default();
        let mut last = near.packet;
        let start = near.clone().follow(thread, |start, packet| {
            if start.rebuilder.can_reopen() {
                last = start.packet;
            }
            packet.clock_end() < from
        });
        match start.rebuilder.can_reopen() {
            true => start,
            false => Start {
                words_before: start.words_before,
                ..near
            }
            .follow(thread, |start, _| start.packet < last),
        }
    }

    /// Takes packets while that is needed.
    fn follow(
        mut self,
        thread: &ThreadInfo,
        mut is_wanted: impl FnMut(&Start, &Packet) -> bool,
    ) -> Start {
        for packet in thread.packets_in(self.packet..usize::MAX) {
            if !is_wanted(&self, &packet) {
                break;
            }
            self.rebuilder.packet(&packet, &mut self.past);
            self.rebuilder.forget_old_callers(&mut self.past);
            self.packet += 1;
            self.words_before += packet.words().len();
            packet.release();
        }
        self
    }

    /// The rebuilder as it is, and the arguments of its open calls.
    pub fn into_parts(self) -> (CallRebuilder, Past) {
        (self.rebuilder, self.past)
    }

    /// The rebuilder, whose open calls are passed to a sink.
    pub fn reopen(mut self, sink: &mut dyn Sink) -> CallRebuilder {
        self.rebuilder.reopen(&mut self.past, sink);
        self.rebuilder
    }
}

/// The place where reading ends: behind the end of the selected time.
#[derive(Clone, Copy, Default)]
pub struct Stop<'c> {
    checkpoints: Option<&'c ThreadCheckpoints>,
    /// The end of the time, by the records' clocks.
    until: u64,
    /// The first packet that may be left out.
    needed: usize,
    /// Whether the clocks of calls are those of records, as the checkpoints have them.
    is_exact: bool,
}

impl<'c> Stop<'c> {
    /// All records are read without an end or without checkpoints. `is_exact`: the clocks of calls are those of records.
    pub fn behind(
        until: Option<u64>,
        checkpoints: Option<&'c ThreadCheckpoints>,
        is_exact: bool,
    ) -> Stop<'c> {
        let Some((until, checkpoints)) = until.zip(checkpoints) else {
            return Stop::default();
        };
        let strays = checkpoints.strays.iter();
        let open = strays.filter(|(since, _)| *since < until);
        let needed = open.map(|(_, packet)| *packet).max();
        Stop {
            checkpoints: Some(checkpoints),
            until,
            needed: needed.unwrap_or(0),
            is_exact,
        }
    }

    /// Whether neither this packet of the thread, before which the rebuilder stands, nor any after it is needed to know
    /// how long those calls went on that were open at the time's end, `until` by the clocks of calls.
    pub fn is_known(
        &self,
        number: usize,
        until: u64,
        rebuilder: &CallRebuilder,
        remaining: &mut Remaining,
    ) -> bool {
        let Some(checkpoints) = self.checkpoints else {
            return false;
        };
        if number < self.needed || !remaining.is_behind() {
            return false;
        }
        if rebuilder.has_gone_on(until) {
            return true;
        }
        let is_known = self.is_exact && checkpoints.has_state(number);
        if is_known {
            remaining.end_by(rebuilder, |frame| checkpoints.end(frame));
        }
        is_known
    }

    /// The same, if those calls are read to their ends whose sites `awaits` names.
    pub fn is_at(
        &self,
        number: usize,
        packet: &Packet,
        rebuilder: &CallRebuilder,
        awaits: impl Fn(u32) -> bool,
    ) -> bool {
        self.checkpoints.is_some()
            && number >= self.needed
            && packet.clock_begin() > self.until
            && rebuilder.has_ended(self.until, awaits)
    }

    /// The last state behind this packet of the thread, before which the rebuilder stands, at which all calls are still
    /// open that are waited for. Nothing of interest happens until there.
    pub fn leap(
        &self,
        number: usize,
        packet: &Packet,
        rebuilder: &CallRebuilder,
        awaits: impl Fn(u32) -> bool,
    ) -> Option<Leap> {
        let states = &self.checkpoints?.states;
        let at = states.binary_search_by_key(&number, |(packet, _)| *packet);
        let at = at.ok()?;
        if number < self.needed || packet.clock_begin() <= self.until {
            return None;
        }
        let awaited = rebuilder.awaited(self.until, awaits);
        let known: HashMap<LostCall, u32> = awaited
            .map(|frame| (LostCall::new(frame, 0), frame.note))
            .collect();
        let resumed = |at: usize| {
            let (packet, state) = states.get(at)?;
            let (rebuilder, past) = CallRebuilder::resume(state).ok()?;
            let mut open = known.clone();
            for frame in rebuilder.awaited(self.until, |_| true) {
                open.remove(&LostCall::new(frame, 0));
            }
            let is_open = open.is_empty() && rebuilder.can_reopen();
            is_open.then_some((*packet, rebuilder, past))
        };
        // A call that is open at a state was so at all states since it began.
        let (mut last, mut step) = (at, 1);
        while resumed(last + step).is_some() {
            last += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if resumed(last + step).is_some() {
                last += step;
            }
        }
        let (packet, rebuilder, past) = (last > at).then(|| resumed(last))??;
        Some(Leap {
            packet,
            rebuilder,
            past,
            known,
        })
    }
}

/// A state from which reading goes on.
pub struct Leap {
    pub packet: usize,
    rebuilder: CallRebuilder,
    past: Past,
    /// The notes of the calls of which the sink knows.
    known: HashMap<LostCall, u32>,
}

impl Leap {
    /// The rebuilder, of whose open calls the sink is told, but of those that it knows.
    pub fn reopen(mut self, sink: &mut dyn Sink) -> CallRebuilder {
        let known = |frame: &Frame| self.known.get(&LostCall::new(frame, 0)).copied();
        self.rebuilder.reopen_others(&mut self.past, sink, known);
        self.rebuilder
    }
}
