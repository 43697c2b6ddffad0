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
/// Looks without work, of 0.1 s, after which no samples are taken.
const IDLE: u32 = 10;

pub(crate) struct Gauge {
    /// None where the kernel refuses them.
    positions: Option<Positions>,
    is_on: bool,
    /// Looks since the processes did anything.
    idle: u32,
    /// Samples in generated code since the last comparison, if there were samples all the time.
    new: u64,
    is_part: bool,
    /// Samples of late, in generated code, and as many as there should be.
    found: f64,
    expected: f64,
}

impl Gauge {
    pub fn new() -> Gauge {
        Gauge {
            positions: Positions::open(HERTZ).ok(),
            is_on: false,
            idle: 0,
            new: 0,
            is_part: false,
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
            self.is_part = true;
        }
        positions.read(|one| self.new += u64::from(is_generated(one.process, one.address)));
    }

    /// The processes have done nothing, or too little to be compared: soon no samples are taken any more.
    pub fn rest(&mut self) {
        self.idle += 1;
        if self.idle < IDLE {
            return;
        }
        if let Some(positions) = self.positions.as_ref().filter(|_| self.is_on) {
            positions.pause();
        }
        self.is_on = false;
    }

    /// Tracing should have taken so many seconds, by this factor, since the last comparison, which is `since` seconds ago.
    pub fn compare(&mut self, cost: f64, since: f64, factor: f64) {
        self.idle = 0;
        let new = std::mem::take(&mut self.new) as f64;
        if std::mem::take(&mut self.is_part) {
            return;
        }
        let expected = cost / factor * HERTZ as f64;
        let kept = (-since / OF_LATE).exp();
        self.found = self.found * kept + new;
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

    /// A server that does little is looked at now and then.
    #[test]
    fn samples_count_if_they_were_taken_all_the_time() {
        let mut gauge = without_samples();
        gauge.is_part = true;
        gauge.new = 100;
        gauge.compare(0.001, 0.1, USUAL);
        assert_eq!(gauge.by_samples(), USUAL, "of a part of the time");
        for _ in 0..20 {
            gauge.rest();
            gauge.new = 20;
            gauge.compare(0.002, 0.2, USUAL);
        }
        assert!(gauge.by_samples() > 10.0);
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
