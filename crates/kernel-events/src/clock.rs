//! Converts CLOCK_MONOTONIC, the time of perf's records, to the counter of the trace's other records.
//!
//! Each time that the rings are read, both clocks are read together, so an event stands between two such snapshots
//! which are some milliseconds apart. The error of a snapshot is the distance of two readings of the counter: about 30
//! ns.

use rustix::time::ClockId;

/// Snapshots that are kept: of an event that stayed in a ring while a reading was held up.
const KEPT: usize = 64;
const TRIES: usize = 4;

pub struct Clock {
    /// The counter, and nanoseconds; in order.
    snapshots: Vec<(u64, u64)>,
}

impl Clock {
    pub fn new() -> Clock {
        let mut clock = Clock {
            snapshots: Vec::new(),
        };
        clock.snapshot();
        clock
    }

    pub fn snapshot(&mut self) {
        let read = || {
            let before = counter();
            let ns = monotonic();
            let after = counter();
            (after.wrapping_sub(before), (before.midpoint(after), ns))
        };
        let tries = (0..TRIES).map(|_| read());
        let Some((_, snapshot)) = tries.min_by_key(|(ticks, _)| *ticks) else {
            return;
        };
        self.add(snapshot);
    }

    fn add(&mut self, (counter, ns): (u64, u64)) {
        let is_later = |last: &(u64, u64)| counter > last.0 && ns > last.1;
        if self.snapshots.last().is_none_or(is_later) {
            if self.snapshots.len() == KEPT {
                self.snapshots.drain(..KEPT / 2);
            }
            self.snapshots.push((counter, ns));
        }
    }

    /// The counter at a time: on the line through the snapshots around it, or the nearest two.
    pub fn counter(&self, ns: u64) -> u64 {
        let after = self.snapshots.partition_point(|snapshot| snapshot.1 <= ns);
        let pair = after.clamp(1, self.snapshots.len().saturating_sub(1).max(1)) - 1;
        let (Some(&from), Some(&to)) = (self.snapshots.get(pair), self.snapshots.get(pair + 1))
        else {
            return self.snapshots.first().map_or(0, |only| only.0);
        };
        let ticks = i128::from(to.0 - from.0) * (i128::from(ns) - i128::from(from.1));
        let counter = i128::from(from.0) + ticks / i128::from(to.1 - from.1);
        u64::try_from(counter).unwrap_or(0)
    }
}

/// The processor's counter.
pub fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds.
pub fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_on_the_lines_between_snapshots() {
        let mut clock = Clock {
            snapshots: Vec::new(),
        };
        assert_eq!(clock.counter(5), 0);
        clock.add((1000, 100));
        assert_eq!(clock.counter(5), 1000);
        clock.add((3000, 1100));
        clock.add((3000, 1200));
        clock.add((6000, 2100));
        let counters = [0, 100, 600, 1100, 1600, 2100, 3100].map(|ns| clock.counter(ns));
        assert_eq!(counters, [800, 1000, 2000, 3000, 4500, 6000, 9000]);
        for number in 0..1000 {
            clock.add((10_000 + number, 10_000 + number));
        }
        assert!(clock.snapshots.len() <= KEPT);
        assert_eq!(clock.counter(10_999), 10_999);
    }
}
