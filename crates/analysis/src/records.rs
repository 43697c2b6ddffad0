//! Takes the records of a thread, of which a time is selected: with the clocks that calls are to have, and self times from
//! the time's begin on.

use nopal_abi::Cursor;
use nopal_trace::{Cost, Packet};

use crate::calls::{CallRebuilder, Remaining, Sink};
use crate::retimer::Retimer;

pub struct Records {
    pub rebuilder: CallRebuilder,
    retimer: Option<Retimer>,
    /// The selected time, by the clocks of records.
    from: u64,
    until: u64,
    /// Whether records behind its begin have been taken.
    has_begun: bool,
}

impl Records {
    /// Those behind a rebuilder's state, with the `cost` of recording taken off the clocks, if there is one.
    pub fn new(rebuilder: CallRebuilder, cost: Option<Cost>, (from, until): (u64, u64)) -> Records {
        Records {
            rebuilder,
            retimer: cost.map(|cost| Retimer::new(cost, (from, until))),
            from,
            until,
            has_begun: from == 0,
        }
    }

    /// Takes all of a packet.
    pub fn take<S: Sink>(&mut self, packet: &Packet, sink: &mut S) {
        let retimed = self.begin(packet, sink);
        let words = retimed.as_deref().unwrap_or(packet.words());
        self.take_words(packet, words, sink);
    }

    /// Takes the records of a packet of which some are behind the time, which ends at `until` by the clocks of calls.
    pub fn take_up_to<S: Sink>(&mut self, until: u64, packet: &Packet, sink: &mut S) -> Remaining {
        let retimed = self.begin(packet, sink);
        let words = retimed.as_deref().unwrap_or(packet.words());
        let (before, behind) = words.split_at(packet.words_before(self.until).min(words.len()));
        self.take_words(packet, before, sink);
        let stopped = match packet.is_stopped() {
            true => u64::MAX,
            false => 0,
        };
        let mut remaining = self.remaining(until, stopped);
        let mut sink = remaining.behind(sink);
        self.rebuilder.words(Cursor::new(behind), &mut sink);
        remaining
    }

    /// The time ends at `until`, by the clocks of calls, before any record of this packet.
    pub fn end_before(&mut self, until: u64, packet: &Packet) -> Remaining {
        self.remaining(until, packet.stopped_before())
    }

    /// The same, and there are no more records.
    pub fn end_at(&mut self, until: u64) -> Remaining {
        self.remaining(until, 0)
    }

    fn remaining(&mut self, until: u64, stopped: u64) -> Remaining {
        self.begin_time();
        self.rebuilder.remaining(until, stopped)
    }

    /// A clock behind the records, as calls have it. 0 stays 0.
    pub fn clock(&mut self, clock: u64) -> u64 {
        match &mut self.retimer {
            Some(retimer) if clock > 0 => retimer.passed(clock),
            _ => clock,
        }
    }

    /// The end of the thread's records, as [`CallRebuilder::end`].
    pub fn end<S: Sink>(&mut self, alive: u64, sink: &mut S) {
        self.begin_time();
        self.rebuilder.end(alive, sink);
    }

    fn begin_time(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.rebuilder.begin_self_times(self.from);
        }
    }

    /// Begins with a packet, and returns its words if their clocks are others.
    fn begin<S: Sink>(&mut self, packet: &Packet, sink: &mut S) -> Option<Vec<u64>> {
        if packet.clock_begin() > self.from {
            self.begin_time();
        }
        let retimed = self.retimer.as_mut().map(|retimer| retimer.packet(packet));
        let clock = retimed
            .as_ref()
            .map_or(packet.clock_begin(), |(_, clock)| *clock);
        let words = retimed.map(|(words, _)| words);
        let taken = words.as_deref().unwrap_or(packet.words());
        self.rebuilder
            .begin_packet_with(packet, taken, self.from, clock, sink);
        words
    }

    /// Takes the first of the words of a packet that has begun.
    fn take_words<S: Sink>(&mut self, packet: &Packet, words: &[u64], sink: &mut S) {
        let mut records = Cursor::new(words);
        if !self.has_begun && packet.clock_end() > self.from {
            let after = words.len().saturating_sub(packet.words_until(self.from));
            self.rebuilder.up_to(&mut records, after, sink);
            self.begin_time();
        }
        self.rebuilder.words(records, sink);
    }
}
