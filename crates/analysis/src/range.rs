//! The places where the reading of a thread's records begins and ends if a time is selected.
//!
//! Records before the time only update the state of the calls, up to the last place where that state says all: see
//! [`CallRebuilder::can_reopen`]. With checkpoints, reading begins near the time and ends behind it. Without, it begins
//! with the thread and goes on to its end, since the exit of a call without entry tells of all the time before.

use std::collections::HashMap;

use nopal_trace::{Packet, ThreadInfo, ThreadKey};

use crate::calls::{CallRebuilder, Past, Sink};

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

/// The place where reading ends.
#[derive(Clone, Copy, Default)]
pub struct Stop {
    /// The end of the selected time, its clock in calls, and the first packet that may be left out. None if all are
    /// read.
    at: Option<(u64, u64, usize)>,
    is_cut: bool,
}

impl Stop {
    /// A stop behind `until`, which is `clock` by the clocks of calls. `is_cut`: calls end there.
    pub fn behind(
        until: Option<u64>,
        clock: Option<u64>,
        is_cut: bool,
        checkpoints: Option<&ThreadCheckpoints>,
    ) -> Stop {
        let at = until.zip(clock).zip(checkpoints);
        let at = at.map(|((until, clock), checkpoints)| {
            let strays = checkpoints.strays.iter();
            let open = strays.filter(|(since, _)| *since < until);
            let needed = open.map(|(_, packet)| *packet).max();
            (until, clock, needed.unwrap_or(0))
        });
        Stop { at, is_cut }
    }

    /// Whether neither this packet of the thread, before which the rebuilder stands, nor any after it is needed. Unless
    /// calls end at the time's end, those of sites that `awaits` names are read to their own.
    pub fn is_at(
        &self,
        number: usize,
        packet: &Packet,
        rebuilder: &CallRebuilder,
        awaits: impl Fn(u32) -> bool,
    ) -> bool {
        self.at.is_some_and(|(until, clock, needed)| {
            number >= needed
                && packet.clock_begin() > until
                && rebuilder.has_passed(clock, self.is_cut, awaits)
        })
    }
}
