//! Clocks without the cost of recording.
//!
//! A recorded call takes `call` ticks more than another, of which `within` lie between the clocks of its entry and its
//! exit. So in each thread every clock is set back by the cost of all recording before it. Of one call's cost, `within`
//! falls right behind the entry's clock, and the rest right behind the exit's.

use nopal_abi::{KIND_EXTENDED, KIND_ONLY, KIND_ONLY_ARGS, Word};
use nopal_trace::{Cost, Packet};

const PARTS: u64 = 1000;

const NOTHING: Cost = Cost { call: 0, within: 0 };

/// The clocks of one thread.
pub struct Retimer {
    cost: Cost,
    /// Recording takes time between the first and the second only.
    window: (u64, u64),
    /// Clocks behind this become it.
    last: u64,
    /// The clock of the last record, as the trace has it.
    clock: u64,
    /// The same, set back. Clocks never go back, even if a call took less than `cost` says.
    net: u64,
    /// The cost of recording so far, in parts of a tick.
    taken: u64,
}

impl Retimer {
    /// Takes a cost off the clocks within `window`.
    pub fn new(cost: Cost, window: (u64, u64)) -> Retimer {
        Retimer {
            cost,
            window,
            last: u64::MAX,
            clock: 0,
            net: 0,
            taken: 0,
        }
    }

    /// A packet's records and the clock that it begins with, set back. It must be given all packets of a thread in
    /// order. The cost of the kernel's records is not known.
    pub fn packet(&mut self, packet: &Packet) -> (Vec<u64>, u64) {
        let cost = match packet.is_of_kernel() {
            true => NOTHING,
            false => self.cost,
        };
        self.set_back(packet.words(), packet.clock_begin(), cost)
    }

    /// The end of the window, set back. It must be given all packets of a thread, and have no other use.
    pub fn end<'p>(mut self, packets: impl Iterator<Item = Packet<'p>>) -> u64 {
        let (from, until) = self.window;
        self.last = until;
        let is_within =
            |packet: &Packet| packet.clock_end() >= from && packet.clock_begin() <= until;
        for packet in packets.filter(is_within) {
            self.packet(&packet);
        }
        self.passed(u64::MAX)
    }

    fn set_back(&mut self, words: &[u64], begin: u64, cost: Cost) -> (Vec<u64>, u64) {
        self.clock = self.clock.max(begin);
        let begin = self.passed(self.clock);
        let mut words = words.to_vec();
        let mut at = 0;
        while let Some((first, rest)) = words.get_mut(at..).and_then(<[u64]>::split_first_mut) {
            let word = Word(*first);
            let Some(length) = word.words(rest) else {
                break;
            };
            match rest.first_mut().filter(|_| word.kind() == KIND_EXTENDED) {
                Some(whole) => *whole = self.passed(*whole),
                None => drop(self.passed(word.clock_after(self.clock))),
            }
            *first = word.with_clock(self.net).0;
            if (self.window.0..=self.window.1).contains(&self.clock) {
                self.taken = self.taken.saturating_add(cost_of(word, cost));
            }
            at += length;
        }
        (words, begin)
    }

    /// `clock` set back.
    pub fn passed(&mut self, clock: u64) -> u64 {
        self.clock = clock;
        let clock = clock.min(self.last);
        self.net = self.net.max(clock.saturating_sub(self.taken / PARTS));
        self.net
    }
}

/// The cost after the clock of a record.
fn cost_of(word: Word, cost: Cost) -> u64 {
    let Cost { call, within } = cost;
    match word.kind() {
        KIND_ONLY | KIND_ONLY_ARGS => call,
        _ if word.is_exit() => call - within,
        _ if word.has_site() => within,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use crate::drive::Drive;
    use crate::filter::{Filter, Wanted};
    use crate::report;
    use crate::span::{begin, end};
    use nopal_abi::KIND_ENTRY;
    use nopal_trace::synthetic::Recorder;
    use nopal_trace::{Note, Session, Trace, Writer};

    const COST: Cost = Cost {
        call: 50_500,
        within: 20_250,
    };

    /// Calls of known duration under two callers, and what recording them adds.
    fn nested(path: &Path) {
        let mut writer = Writer::create(path, Session::default()).unwrap();
        for (counter, monotonic_ns) in [(0, 0), (1_000_000_000, 1_000_000_000)] {
            let realtime_ns = monotonic_ns;
            writer
                .note(&Note::Clock {
                    counter,
                    monotonic_ns,
                    realtime_ns,
                })
                .unwrap();
        }
        let image = Note::Image {
            image: 1,
            path: "/program".into(),
            identity: String::new(),
        };
        writer.note(&image).unwrap();
        let sites = (1..4).map(|site| (site, 4096 * u64::from(site), 16, format!("f{site}")));
        let sites = Note::Sites {
            image: 1,
            sites: sites.collect(),
        };
        writer.note(&sites).unwrap();
        let Cost { call, within } = COST;
        writer.note(&Note::Cost { call, within }).unwrap();
        let mut recorder = Recorder::new(100, 100, 1);
        // In parts, as the costs are.
        let mut now = 10_000 * PARTS;
        let mut at = |spent: u64, cost: u64| {
            now += spent * PARTS;
            let clock = now / PARTS;
            now += cost;
            clock
        };
        let slot = 0x7ffd_0000_1000;
        recorder.entry(at(10, within), 1, slot);
        for _ in 0..100 {
            recorder.entry(at(7, within), 2, slot - 0x20);
            for _ in 0..10 {
                recorder.entry(at(5, within), 3, slot - 0x40);
                recorder.exit(at(30, call - within), 3, slot - 0x40);
            }
            recorder.exit(at(3, call - within), 2, slot - 0x20);
        }
        recorder.exit(at(1, call - within), 1, slot);
        recorder.finish(&mut writer).unwrap();
    }

    #[test]
    fn nested_times_are_those_without_recording() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        nested(&path);
        let trace = Trace::open(&path).unwrap();
        let drive = Drive {
            workers: 1,
            net: trace.cost(),
            ..Drive::default()
        };
        let report = report::functions(&trace, &drive).unwrap();
        let row = |calls: u64| report.rows.iter().find(|row| row.calls == calls).unwrap();
        let near = |value: u64, expected: u64| {
            assert!(value.abs_diff(expected) <= 1, "{value} for {expected}");
        };
        near(row(1000).avg_ns, 30);
        near(row(100).avg_ns, 10 * 35 + 3);
        near(row(100).self_ns / 100, 10 * 5 + 3);
        near(row(1).avg_ns, 100 * (10 * 35 + 3 + 7) + 1);
        near(row(1).self_ns, 100 * 7 + 1);
    }

    /// Both halves of the time have all calls, and the call that lasts over the middle is divided there.
    #[test]
    fn times_within_a_time_are_those_without_recording_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        nested(&path);
        let trace = Trace::open(&path).unwrap();
        let row = |from, until, name: &str| {
            let mut filter = Filter::new(&trace, &Wanted::default()).unwrap();
            (filter.from, filter.until) = (from, until);
            let drive = Drive {
                workers: 1,
                net: trace.cost(),
                filter: Some(&filter),
                ..Drive::default()
            };
            let report = report::functions(&trace, &drive).unwrap();
            let row = report.rows.into_iter().find(|row| row.function == name);
            row.unwrap()
        };
        let middle = begin(&trace).midpoint(end(&trace));
        let halves = [(None, Some(middle)), (Some(middle), None)];
        let [early, late] = halves.map(|(from, until)| row(from, until, "f1"));
        let all = 100 * (10 * 35 + 3 + 7) + 1;
        let sum = early.total_ns + late.total_ns;
        assert!(sum.abs_diff(all) <= 60, "{sum} for {all}");
        assert!(
            early.total_ns.abs_diff(late.total_ns) <= 400,
            "{early:?}, {late:?}"
        );
        let [early, late] = halves.map(|(from, until)| row(from, until, "f3"));
        assert!((999..=1001).contains(&(early.calls + late.calls)));
        assert!(early.avg_ns.abs_diff(30) <= 1 && late.avg_ns.abs_diff(30) <= 1);
    }

    #[test]
    fn clocks_never_go_back() {
        let entry = |clock| Word::new(KIND_ENTRY, 0, 0, clock).0;
        let mut net = Retimer::new(COST, (0, u64::MAX));
        let (words, begin) = net.set_back(&[100, 101, 102, 103].map(entry), 100, COST);
        assert_eq!(begin, 100);
        assert_eq!(words, [100; 4].map(entry));
        // The time that one call took less, others took more.
        let (words, begin) = net.set_back(&[entry(1000)], 1000, COST);
        assert_eq!((words, begin), (vec![entry(1000 - 81)], 1000 - 81));
    }
}
