//! Compares what tracing should take, by the cost of a call in the loop in which it is measured, with what it takes
//! between other code, whose caches it shares: by samples of the places at which the processors run.

use nopal_kernel_events::Positions;

/// Samples a second of each processor. One takes some 2 us.
const HERTZ: u64 = 250;
/// The factor where there are no samples: recording a call takes 27 ns in python3, and 20 in the loop. It is the least, too:
/// what tracing makes slower in the program's own code, samples do not show.
const USUAL: f64 = 1.35;
/// So many samples count as if they had been expected, and found by the usual factor.
const PRIOR: f64 = 4.0;
/// Samples are forgotten in about so many seconds, in which functions change.
const OF_LATE: f64 = 3.0;
const MOST: f64 = 40.0;

pub(crate) struct Gauge {
    /// None where the kernel refuses them.
    positions: Option<Positions>,
    is_on: bool,
    /// Samples in generated code since the last comparison.
    new: u64,
    /// Samples of late, in generated code, and as many as there should be.
    found: f64,
    expected: f64,
}

impl Gauge {
    pub fn new() -> Gauge {
        Gauge {
            positions: Positions::open(HERTZ).ok(),
            is_on: false,
            new: 0,
            found: 0.0,
            expected: 0.0,
        }
    }

    /// Takes new samples. `is_generated`: whether an address in a process is in generated code.
    pub fn read(&mut self, mut is_generated: impl FnMut(u32, u64) -> bool) {
        let Some(positions) = &mut self.positions else {
            return;
        };
        if !std::mem::replace(&mut self.is_on, true) {
            positions.go_on();
        }
        positions.read(|one| self.new += u64::from(is_generated(one.process, one.address)));
    }

    /// Takes no samples until the next look: the processes do nothing.
    pub fn rest(&mut self) {
        if let Some(positions) = self.positions.as_ref().filter(|_| self.is_on) {
            positions.pause();
        }
        self.is_on = false;
        self.new = 0;
    }

    /// Tracing should have taken so many seconds, by this factor, since the last comparison, which is `since` seconds ago.
    pub fn compare(&mut self, cost: f64, since: f64, factor: f64) {
        let expected = cost / factor * HERTZ as f64;
        let kept = (-since / OF_LATE).exp();
        self.found = self.found * kept + std::mem::take(&mut self.new) as f64;
        self.expected = self.expected * kept + expected;
    }

    /// How much more a call takes than in the loop in which it is measured.
    pub fn factor(&self) -> f64 {
        match self.positions {
            Some(_) => self.by_samples(),
            None => USUAL,
        }
    }

    fn by_samples(&self) -> f64 {
        let factor = (self.found + PRIOR * USUAL) / (self.expected + PRIOR);
        factor.clamp(USUAL, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_samples() -> Gauge {
        Gauge {
            positions: None,
            ..Gauge::new()
        }
    }

    /// Processors are in generated code for this part of the time, and tracing should take `cost` of each 0.1 s in the loop.
    fn after(seconds: f64, part: f64, cost: f64) -> Gauge {
        let mut gauge = without_samples();
        for _ in 0..(seconds / 0.1) as u32 {
            gauge.new = (part * 0.1 * HERTZ as f64).round() as u64;
            let factor = gauge.by_samples();
            gauge.compare(cost * factor, 0.1, factor);
        }
        gauge
    }

    #[test]
    fn without_samples_the_usual_counts() {
        assert_eq!(without_samples().factor(), USUAL);
        assert_eq!(without_samples().by_samples(), USUAL);
    }

    #[test]
    fn samples_show_how_much_more_a_call_takes() {
        // 8 ms of each 0.1 s, where 1 ms is expected.
        let factor = after(5.0, 0.08, 0.001).by_samples();
        assert!((4.5..8.0).contains(&factor), "{factor}");
        let factor = after(5.0, 0.4, 0.02).by_samples();
        assert!((1.8..2.1).contains(&factor), "{factor}");
        // Less than usual is not believed, and nothing is beyond all measure.
        assert_eq!(after(5.0, 0.01, 0.01).by_samples(), USUAL);
        assert_eq!(after(5.0, 4.0, 1e-6).by_samples(), MOST);
    }
}
