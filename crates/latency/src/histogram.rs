//! A histogram of the core: exact up to 63, and within 1/32 above.

use crate::Histogram;
use crate::layout;

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [0; layout::HISTOGRAM_BUCKETS],
        }
    }
}

impl Histogram {
    pub fn count(&self) -> u64 {
        // SAFETY: valid, and only read.
        unsafe { layout::nopal_histogram_count(self) }
    }

    pub fn merge(&mut self, other: &Histogram) {
        // SAFETY: both valid, and the first ours alone.
        unsafe { layout::nopal_histogram_merge(self, other) };
    }

    /// The smallest and the largest value of each bucket that is not empty, ascending, and how many it holds.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let full = (0u32..).zip(self.buckets).filter(|(_, count)| *count > 0);
        full.map(|(bucket, count)| {
            // SAFETY: functions of a number below HISTOGRAM_BUCKETS.
            let (low, high) = unsafe {
                (
                    layout::nopal_histogram_low(bucket),
                    layout::nopal_histogram_high(bucket),
                )
            };
            (low, high, count)
        })
    }
}
