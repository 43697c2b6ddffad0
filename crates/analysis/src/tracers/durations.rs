//! The numbers of cases by duration: exact to the tick, with bounded memory.

use std::collections::BTreeMap;

use nopal_trace::Clocks;

/// The most durations that are counted exactly; further ones are counted within 1/32 of their length.
const MOST: usize = 4096;
const KEPT_BITS: u32 = 6;

/// The durations of some cases, in ticks.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    counts: BTreeMap<u64, u64>,
    summary: Option<Summary>,
}

/// The same in microseconds. Everything except the rows is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub least: u64,
    pub average: u64,
    pub most: u64,
    /// How often cases took so many microseconds, ascending.
    pub rows: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Summary {
    least: u64,
    most: u64,
    sum: u128,
    count: u64,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.rows.iter().map(|(_, count)| count).sum()
    }
}

impl Durations {
    pub fn add(&mut self, ticks: u64) {
        let one = Summary {
            least: ticks,
            most: ticks,
            sum: u128::from(ticks),
            count: 1,
        };
        self.summary = Some(one.and(self.summary));
        let is_room = self.counts.len() < MOST || self.counts.contains_key(&ticks);
        let row = if is_room { ticks } else { rounded(ticks) };
        *self.counts.entry(row).or_default() += 1;
    }

    /// The sum of these, as one histogram.
    pub fn histogram<'a>(all: impl Iterator<Item = &'a Durations>, clocks: &Clocks) -> Histogram {
        let microseconds = |ticks: u64| clocks.duration_ns(ticks) / 1000;
        let (mut rows, mut summary) = (BTreeMap::new(), None::<Summary>);
        for durations in all {
            for (ticks, count) in &durations.counts {
                *rows.entry(microseconds(*ticks)).or_insert(0) += count;
            }
            summary = durations.summary.map(|one| one.and(summary)).or(summary);
        }
        summary.map_or_else(Histogram::default, |summary| Histogram {
            least: microseconds(summary.least),
            average: microseconds((summary.sum / u128::from(summary.count)) as u64),
            most: microseconds(summary.most),
            rows: rows.into_iter().collect(),
        })
    }
}

impl Summary {
    fn and(self, other: Option<Summary>) -> Summary {
        let Some(other) = other else { return self };
        Summary {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            sum: self.sum + other.sum,
            count: self.count + other.count,
        }
    }
}

/// The middle of all that have the same highest bits.
fn rounded(ticks: u64) -> u64 {
    let lower = (u64::BITS - ticks.leading_zeros()).saturating_sub(KEPT_BITS);
    let low = ticks >> lower << lower;
    low + ((1u64 << lower) - 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::Snapshot;

    fn clocks() -> Clocks {
        let snapshot = |counter| Snapshot {
            counter,
            monotonic_ns: counter,
            realtime_ns: 0,
        };
        Clocks::new([snapshot(1000), snapshot(1_000_000_000)])
    }

    #[test]
    fn few_durations_are_exact() {
        let mut durations = Durations::default();
        for ticks in [10_804_321, 1_500, 1_999, 20_177_000] {
            durations.add(ticks);
        }
        let expected = Histogram {
            least: 1,
            average: 7746,
            most: 20_177,
            rows: vec![(1, 2), (10_804, 1), (20_177, 1)],
        };
        assert_eq!(
            Durations::histogram([&durations].into_iter(), &clocks()),
            expected
        );
        let twice = Durations::histogram([&durations, &durations].into_iter(), &clocks());
        assert_eq!(
            (twice.count(), twice.average, twice.most),
            (8, 7746, 20_177)
        );
    }

    #[test]
    fn many_are_counted_within_bounds() {
        let mut durations = Durations::default();
        for case in 0..100_000u64 {
            durations.add(case * 977);
        }
        assert!(
            durations.counts.len() < MOST + 64 * 32,
            "{}",
            durations.counts.len()
        );
        let histogram = Durations::histogram([&durations].into_iter(), &clocks());
        assert_eq!((histogram.count(), histogram.least), (100_000, 0));
        assert_eq!(histogram.most, 99_999 * 977 / 1000, "exact all the same");
        for ticks in [0, 1, 63, 64, 1_000, 123_456_789, u64::MAX] {
            assert!(rounded(ticks).abs_diff(ticks) <= ticks / 32, "{ticks}");
        }
    }
}
