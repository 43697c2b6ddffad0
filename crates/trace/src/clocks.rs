//! Converts the time stamp counter to the kernel's clocks, by snapshots of both.

/// The counter's rate with fewer than two snapshots.
const UNKNOWN_FREQUENCY: u64 = 1_000_000_000;

/// The counter and the kernel's clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub counter: u64,
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

/// Nanoseconds per tick, as a fraction of 2^32.
#[derive(Clone, Copy, Debug)]
struct Rate(u64);

impl Rate {
    fn between(from: &Snapshot, to: &Snapshot) -> Rate {
        let ticks = u128::from(to.counter.saturating_sub(from.counter)).max(1);
        let ns = u128::from(to.monotonic_ns.saturating_sub(from.monotonic_ns));
        Rate(u64::try_from((ns << 32) / ticks).unwrap_or(u64::MAX))
    }

    #[inline]
    fn ns(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.0)) >> 32;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn ticks(self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32) / u128::from(self.0.max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// The same, rounded up.
    #[inline]
    fn ns_up(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.0)).div_ceil(1 << 32);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn ticks_up(self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32).div_ceil(u128::from(self.0.max(1)));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Snapshots in order of time, and the rates between them.
#[derive(Clone, Debug)]
pub struct Clocks {
    snapshots: Vec<Snapshot>,
    /// `rates[i]` holds from snapshot `i` to the next one; the last one's is its predecessor's.
    rates: Vec<Rate>,
    mean: Rate,
    gone_back: u64,
}

impl Clocks {
    /// Snapshots that go back in the counter or the monotonic clock are left out.
    pub fn new(snapshots: impl IntoIterator<Item = Snapshot>) -> Clocks {
        let mut kept: Vec<Snapshot> = Vec::new();
        let mut gone_back = 0;
        for snapshot in snapshots {
            let later = |last: &Snapshot| {
                snapshot.counter > last.counter && snapshot.monotonic_ns > last.monotonic_ns
            };
            if kept.last().is_none_or(later) {
                kept.push(snapshot);
            } else {
                gone_back += 1;
            }
        }
        let mean = match kept.as_slice() {
            [first, .., last] => Rate::between(first, last),
            _ => Rate(1 << 32),
        };
        let mut rates: Vec<Rate> = kept
            .windows(2)
            .map(|pair| Rate::between(&pair[0], &pair[1]))
            .collect();
        rates.push(rates.last().copied().unwrap_or(mean));
        Clocks {
            snapshots: kept,
            rates,
            mean,
            gone_back,
        }
    }

    /// Snapshots that were left out: a clock went back.
    pub fn gone_back(&self) -> u64 {
        self.gone_back
    }

    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// Ticks a second, over the whole trace.
    pub fn frequency(&self) -> u64 {
        let [first, .., last] = self.snapshots.as_slice() else {
            return UNKNOWN_FREQUENCY;
        };
        let ticks = u128::from(last.counter - first.counter);
        let hertz = ticks * 1_000_000_000 / u128::from(last.monotonic_ns - first.monotonic_ns);
        u64::try_from(hertz).unwrap_or(u64::MAX).max(1)
    }

    /// The length of a span of ticks, at the mean rate.
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        self.mean.ns(ticks)
    }

    /// The ticks in a time, at the mean rate.
    pub fn ticks(&self, ns: u64) -> u64 {
        self.mean.ticks(ns)
    }

    /// CLOCK_MONOTONIC at a value of the counter, rounded down. Without any snapshot, the counter itself.
    pub fn monotonic_ns(&self, counter: u64) -> u64 {
        let Some((snapshot, rate)) = self.nearest(counter) else {
            return counter;
        };
        match counter.checked_sub(snapshot.counter) {
            Some(ticks) => snapshot.monotonic_ns.saturating_add(rate.ns(ticks)),
            None => snapshot
                .monotonic_ns
                .saturating_sub(rate.ns_up(snapshot.counter - counter)),
        }
    }

    /// The first value of the counter at which CLOCK_MONOTONIC, as `monotonic_ns` gives it, has reached a time.
    pub fn counter(&self, monotonic_ns: u64) -> u64 {
        let after = self
            .snapshots
            .partition_point(|snapshot| snapshot.monotonic_ns <= monotonic_ns);
        let index = after.saturating_sub(1);
        let (Some(snapshot), Some(rate)) = (self.snapshots.get(index), self.rates.get(index))
        else {
            return monotonic_ns;
        };
        match monotonic_ns.checked_sub(snapshot.monotonic_ns) {
            Some(ns) => {
                let counter = snapshot.counter.saturating_add(rate.ticks_up(ns));
                // The rate is rounded down: at the next snapshot the time may step forward.
                let next = self.snapshots.get(index + 1);
                next.map_or(counter, |next| counter.min(next.counter))
            }
            None => snapshot
                .counter
                .saturating_sub(rate.ticks(snapshot.monotonic_ns - monotonic_ns)),
        }
    }

    /// CLOCK_REALTIME at a value of the counter, including its steps between snapshots.
    pub fn realtime_ns(&self, counter: u64) -> u64 {
        let monotonic = self.monotonic_ns(counter);
        match self.nearest(counter) {
            Some((snapshot, _)) => {
                monotonic.wrapping_add(snapshot.realtime_ns.wrapping_sub(snapshot.monotonic_ns))
            }
            None => monotonic,
        }
    }

    /// The last snapshot that is not later, or else the first one, and the rate there.
    fn nearest(&self, counter: u64) -> Option<(&Snapshot, Rate)> {
        let after = self
            .snapshots
            .partition_point(|snapshot| snapshot.counter <= counter);
        let index = after.saturating_sub(1);
        Some((self.snapshots.get(index)?, *self.rates.get(index)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counter: u64, monotonic_ns: u64, realtime_ns: u64) -> Snapshot {
        Snapshot {
            counter,
            monotonic_ns,
            realtime_ns,
        }
    }

    #[test]
    fn time_is_interpolated_between_snapshots_and_extended_beyond_them() {
        let clocks = Clocks::new([
            snapshot(10_000, 1_000, 501_000),
            snapshot(12_000, 2_000, 502_000),
            snapshot(16_000, 3_000, 503_000),
        ]);
        let times = [9_000, 10_000, 11_000, 12_000, 14_000, 16_000, 20_000];
        let monotonic = times.map(|counter| clocks.monotonic_ns(counter));
        assert_eq!(monotonic, [500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000]);
        assert_eq!(
            times.map(|counter| clocks.realtime_ns(counter)),
            monotonic.map(|ns| ns + 500_000)
        );
        assert_eq!(monotonic.map(|ns| clocks.counter(ns)), times);
        assert_eq!(clocks.frequency(), 3_000_000_000);
        assert_eq!(clocks.duration_ns(3_000_000), 999_999, "rounded down");
        assert_eq!(clocks.ticks(1_000_000), 3_000_000);
    }

    #[test]
    fn the_counter_of_a_time_is_the_first_one_that_has_reached_it() {
        // 2.6 GHz, 3.4 GHz, and a counter of 24 MHz.
        for (mut counter, each) in [(1 << 40, 2_599), (7_001, 3_393), (1 << 33, 24)] {
            let mut ns = 5_000_000_000;
            let mut snapshots = Vec::new();
            for span in [1_000_003, 77_000_000, 5_000_000_000_000, 12_345] {
                snapshots.push(snapshot(counter, ns, ns));
                (counter, ns) = (counter + span * each / 1000, ns + span);
            }
            let clocks = Clocks::new(snapshots);
            for at in [
                4_999_999_000,
                5_000_000_000,
                5_001_000_003,
                5_070_000_000,
                ns,
            ] {
                for ns in at - 300..at + 300 {
                    let counter = clocks.counter(ns);
                    let [before, then] = [counter - 1, counter].map(|one| clocks.monotonic_ns(one));
                    assert!(before < ns && ns <= then, "{ns}: {before}, {then}");
                }
            }
        }
    }

    #[test]
    fn a_step_of_the_realtime_clock_does_not_bend_durations() {
        let clocks = Clocks::new([
            snapshot(0, 1_000, 1_000_000),
            snapshot(1_000, 2_000, 9_000_000),
            snapshot(2_000, 3_000, 9_001_000),
        ]);
        assert_eq!(clocks.realtime_ns(999), 1_000_999);
        assert_eq!(clocks.realtime_ns(1_000), 9_000_000);
        assert_eq!(clocks.monotonic_ns(1_500) - clocks.monotonic_ns(500), 1_000);
    }

    #[test]
    fn snapshots_that_make_no_sense_are_left_out() {
        let clocks = Clocks::new([
            snapshot(5, 5, 0),
            snapshot(4, 9, 0),
            snapshot(9, 5, 0),
            snapshot(u64::MAX, u64::MAX, 3),
        ]);
        assert_eq!((clocks.snapshots().len(), clocks.gone_back()), (2, 2));
        assert_eq!(clocks.monotonic_ns(0), 0);
        assert_eq!(clocks.monotonic_ns(u64::MAX), u64::MAX);
        let extreme = Clocks::new([snapshot(0, 0, 0), snapshot(1, u64::MAX, 0)]);
        assert_eq!(extreme.monotonic_ns(u64::MAX), u64::MAX);
        assert_eq!(extreme.frequency(), 1);
    }

    #[test]
    fn few_snapshots_are_enough() {
        let none = Clocks::new([]);
        assert_eq!(
            (
                none.monotonic_ns(7),
                none.realtime_ns(7),
                none.duration_ns(7)
            ),
            (7, 7, 7)
        );
        let one = Clocks::new([snapshot(100, 10, 1_010)]);
        assert_eq!(
            (one.monotonic_ns(105), one.realtime_ns(105), one.frequency()),
            (15, 1_015, 1_000_000_000)
        );
    }
}
