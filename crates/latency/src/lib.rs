//! The latency tracers of `runtime/core/latency.c`, from Rust: a begin event, an end event, and a key that pairs them.

mod histogram;

/// The constants and structures of `runtime/core/latency.h`.
#[allow(dead_code)]
mod layout {
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

use std::pin::Pin;

pub use layout::Histogram;
use layout::{RawCase, RawEvent, RawLatency, RawOwn, RawTracer, outcome};

/// The key that pairs the events of a tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Processor = layout::key::PROCESSOR as isize,
    Thread = layout::key::THREAD as isize,
    /// A value that they have, in any thread.
    Value = layout::key::VALUE as isize,
    ValueOfThread = layout::key::VALUE_OF_THREAD as isize,
}

/// The meaning of a second begin of an open case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// The case ends after as many ends.
    Counts = layout::nesting::COUNTS as isize,
    /// A new case begins: the previous one never ended.
    Again = layout::nesting::AGAIN as isize,
}

/// The events that begin and end a case: sets of bits, one for each event from 0 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracer {
    pub begins: u32,
    pub ends: u32,
    pub key: Key,
    pub nesting: Nesting,
    /// Only the open case of the lowest rank counts.
    pub most_urgent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub event: u32,
    pub processor: u32,
    pub thread: u32,
    /// The rank of a begin, below 65,536.
    pub rank: u32,
    pub value: u64,
    pub clock: u64,
}

/// The time from a begin to an end. A dropped case has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The value, or the number of thread or processor, as the tracer's key says.
    pub key: u64,
    /// By the clock of the events.
    pub begin: u64,
    pub end: u64,
    /// The positions given by the events.
    pub begin_thread: u32,
    pub end_thread: u32,
}

impl Case {
    fn of(raw: &RawCase) -> Case {
        Case {
            key: raw.key,
            begin: raw.begin,
            end: raw.end,
            begin_thread: raw.begin_thread,
            end_thread: raw.end_thread,
        }
    }

    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// A case that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub case: Case,
    /// It is the worst of its [`Own`] so far, or above the threshold if there is one.
    pub kept: bool,
}

/// Counts of missed events and cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Too many cases were open.
    pub begins_lost: u64,
    /// Ends without a begin, or whose begin was lost.
    pub ends_alone: u64,
    /// Dropped, or begun again.
    pub never_ended: u64,
    /// Cases that ended before they began.
    pub clock_went_back: u64,
}

/// A running tracer.
pub struct Latency {
    /// The tracer that `raw` points to.
    _tracer: Pin<Box<RawTracer>>,
    raw: Box<RawLatency>,
}

// SAFETY: the pointer in `raw` leads to memory that the structure owns, and that nobody writes.
unsafe impl Send for Latency {}

/// The state of a tracer for one thread, or another unit, with its own histogram and worst case.
pub struct Own {
    raw: Box<RawOwn>,
}

impl Default for Own {
    fn default() -> Own {
        // SAFETY: integers only, for which 0 is valid.
        let raw = unsafe { Box::<RawOwn>::new_zeroed().assume_init() };
        Own { raw }
    }
}

impl Own {
    pub fn histogram(&self) -> &Histogram {
        &self.raw.histogram
    }
}

impl Latency {
    pub fn new(tracer: Tracer) -> Latency {
        let tracer = Box::pin(RawTracer {
            name: c"tracer".as_ptr(),
            begins: tracer.begins,
            ends: tracer.ends,
            key: tracer.key as u32,
            nesting: tracer.nesting as u32,
            most_urgent: tracer.most_urgent,
        });
        // SAFETY: integers, and a pointer that may be null.
        let mut raw = unsafe { Box::<RawLatency>::new_zeroed().assume_init() };
        raw.tracer = &raw const *tracer;
        Latency {
            _tracer: tracer,
            raw,
        }
    }

    /// Longer cases are kept, not only the worst; 0: no threshold.
    pub fn set_threshold(&mut self, ticks: u64) {
        self.raw.threshold = ticks;
    }

    /// A case that stays open for longer is dropped; 0: never.
    pub fn set_timeout(&mut self, ticks: u64) {
        self.raw.timeout = ticks;
    }

    /// Takes an event; those of one key in the order of their clocks. Returns the case that it has ended.
    pub fn event(&mut self, own: &mut Own, event: &Event) -> Option<Ended> {
        let event = RawEvent {
            event: event.event,
            processor: event.processor,
            thread: event.thread,
            rank: event.rank,
            value: event.value,
            clock: event.clock,
            position: 0,
        };
        let mut ended = RawCase::default();
        // SAFETY: all four are valid, of the layout that the core has, and used by this thread alone meanwhile.
        let outcome = unsafe {
            layout::nopal_latency_event(&mut *self.raw, &mut *own.raw, &event, &mut ended)
        };
        (outcome == outcome::ENDED || outcome == outcome::KEPT).then(|| Ended {
            case: Case::of(&ended),
            kept: outcome == outcome::KEPT,
        })
    }

    /// The worst case of `own` since the last reset.
    pub fn worst(&self, own: &Own) -> Option<Case> {
        let mut worst = RawCase::default();
        // SAFETY: as in `event`; the first two are only read.
        let found = unsafe { layout::nopal_latency_worst(&*self.raw, &*own.raw, &mut worst) };
        found.then(|| Case::of(&worst))
    }

    /// Forgets the worst cases. The histograms continue.
    pub fn reset(&mut self) {
        // SAFETY: valid, and used by this thread alone.
        unsafe { layout::nopal_latency_reset(&mut *self.raw) };
    }

    /// Drops a case that has been open for longer than the timeout; call it until there is none.
    pub fn expire(&mut self, clock: u64) -> Option<Case> {
        let mut given_up = RawCase::default();
        // SAFETY: as in `event`.
        let found = unsafe { layout::nopal_latency_expire(&mut *self.raw, clock, &mut given_up) };
        found.then(|| Case::of(&given_up))
    }

    /// Drops the open cases that were begun by such threads. For tracers without ranks.
    pub fn give_up(&mut self, is_of: impl Fn(u32) -> bool) {
        for open in &mut self.raw.open {
            // Nobody changes an entry meanwhile: it is free, or has the mark of its key.
            if open.mark != 0 && is_of(open.begin_thread) {
                open.mark = 0;
                self.raw.never_ended += 1;
            }
        }
    }

    pub fn missing(&self) -> Missing {
        Missing {
            begins_lost: self.raw.begins_lost,
            ends_alone: self.raw.ends_alone,
            never_ended: self.raw.never_ended,
            clock_went_back: self.raw.clock_went_back,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: Tracer = Tracer {
        begins: 1 << 0,
        ends: 1 << 1,
        key: Key::ValueOfThread,
        nesting: Nesting::Again,
        most_urgent: false,
    };

    fn at(event: u32, thread: u32, value: u64, clock: u64) -> Event {
        Event {
            event,
            processor: 0,
            thread,
            rank: 0,
            value,
            clock,
        }
    }

    #[test]
    fn the_worst_of_two_keys_is_kept() {
        let (mut latency, mut own) = (Latency::new(LOCKS), Own::default());
        let mut tell = |event| latency.event(&mut own, &event);
        assert_eq!(tell(at(0, 1, 0x1000, 10)), None);
        assert_eq!(tell(at(0, 1, 0x2000, 20)), None);
        assert_eq!(tell(at(0, 2, 0x1000, 25)), None);
        let first = tell(at(1, 1, 0x1000, 110)).unwrap();
        assert!(first.kept);
        let second = tell(at(1, 1, 0x2000, 60)).unwrap();
        assert!(!second.kept);
        assert_eq!((second.case.ticks(), second.case.key), (40, 0x2000));
        let worst = latency.worst(&own).unwrap();
        assert_eq!(
            (worst.ticks(), worst.key, worst.begin_thread),
            (100, 0x1000, 1)
        );
        latency.reset();
        assert_eq!(latency.worst(&own), None);
        assert_eq!(own.histogram().count(), 2);
    }

    #[test]
    fn with_a_threshold_every_case_above_it_is_kept() {
        let (mut latency, mut own) = (Latency::new(LOCKS), Own::default());
        latency.set_threshold(50);
        let mut kept = 0;
        for (begin, ticks) in [(0, 100), (1000, 50), (2000, 51), (3000, 20)] {
            latency.event(&mut own, &at(0, 1, 8, begin));
            kept += u32::from(
                latency
                    .event(&mut own, &at(1, 1, 8, begin + ticks))
                    .unwrap()
                    .kept,
            );
        }
        assert_eq!(kept, 2);
    }

    #[test]
    fn what_is_missing_is_counted() {
        let (mut latency, mut own) = (Latency::new(LOCKS), Own::default());
        latency.set_timeout(1000);
        latency.event(&mut own, &at(1, 1, 8, 5));
        latency.event(&mut own, &at(0, 1, 8, 10));
        latency.event(&mut own, &at(0, 1, 8, 20));
        assert_eq!(latency.expire(1020), None);
        let given_up = latency.expire(1021).unwrap();
        assert_eq!((given_up.key, given_up.begin), (8, 20));
        latency.event(&mut own, &at(0, 1, 8, 2000));
        latency.event(&mut own, &at(1, 1, 8, 1999));
        let missing = latency.missing();
        let expected = Missing {
            begins_lost: 0,
            ends_alone: 1,
            never_ended: 2,
            clock_went_back: 1,
        };
        assert_eq!(missing, expected);
        for key in 0..2000 {
            latency.event(&mut own, &at(0, 1, key, 3000));
        }
        assert!(latency.missing().begins_lost >= 2000 - layout::CASES_OPEN as u64);
    }
}
