//! Compares what tracing should take, by the cost of a call in the loop in which it is measured, with what it takes
//! between other code, whose caches it shares: by samples of the places at which the processors run.

use nopal_kernel_events::Positions;

/// Samples a second of each processor. One takes some 2 us.
const HERTZ: u64 = 250;
/// The factor where nothing is known: recording a call takes 27 ns in python3, and 20 in the loop. It is the least, too:
/// what tracing makes slower in the program's own code, samples do not show.
pub const USUAL: f64 = 1.35;
/// The factor's logarithm is thought to be normally distributed before there are samples, with this variance: it is not
/// surprising if it is three times as much, or a third.
const VARIANCE: f64 = 1.2;
/// Samples are forgotten in about so many seconds, in which functions change.
const OF_LATE: f64 = 3.0;
const MOST: f64 = 100.0;
/// Looks without work, of 0.1 s, after which no samples are taken.
const IDLE: u32 = 10;

/// The kinds of cost, which are compared by themselves: of functions that are called seldom, all calls are recorded, and of
/// those that are called often, calls are counted.
pub const RECORDED: usize = 0;
pub const COUNTED: usize = 1;

pub(crate) struct Gauge {
    /// None where the kernel refuses them.
    positions: Option<Positions>,
    is_on: bool,
    /// Looks since the processes did anything.
    idle: u32,
    is_part: bool,
    kinds: [Kind; 2],
}

/// Of a kind of cost.
#[derive(Clone, Copy)]
struct Kind {
    /// The factor that is thought of before there are samples.
    before: f64,
    /// Samples since the last comparison, if there were samples all the time.
    new: u64,
    /// Samples of late, and as many as there should be.
    found: f64,
    expected: f64,
}

impl Gauge {
    pub fn new() -> Gauge {
        Gauge {
            positions: Positions::open(HERTZ).ok(),
            is_on: false,
            idle: 0,
            is_part: false,
            kinds: [Kind::new(USUAL); 2],
        }
    }

    /// The factors that another session of the program ended with.
    pub fn begin(&mut self, factors: [f64; 2]) {
        for (kind, factor) in self.kinds.iter_mut().zip(factors) {
            kind.before = factor.clamp(USUAL, MOST);
        }
    }

    /// Takes new samples. `kind`: which kind of code an address in a process is in.
    pub fn read(&mut self, mut kind: impl FnMut(u32, u64) -> Option<usize>) {
        let Some(positions) = &mut self.positions else {
            return;
        };
        if !std::mem::replace(&mut self.is_on, true) {
            positions.go_on();
            self.is_part = true;
        }
        positions.read(|one| {
            if let Some(kind) = kind(one.process, one.address) {
                self.kinds[kind].new += 1;
            }
        });
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

    /// Tracing should have taken so many seconds, by these factors, since the last comparison, which is `since` seconds ago.
    pub fn compare(&mut self, costs: [f64; 2], since: f64, factors: [f64; 2]) {
        self.idle = 0;
        let is_part = std::mem::take(&mut self.is_part);
        let kept = (-since / OF_LATE).exp();
        for ((kind, cost), factor) in self.kinds.iter_mut().zip(costs).zip(factors) {
            let new = std::mem::take(&mut kind.new) as f64;
            if !is_part {
                kind.found = kind.found * kept + new;
                kind.expected = kind.expected * kept + cost / factor * HERTZ as f64;
            }
        }
    }

    /// How much more recording a call takes than in the loop in which it is measured, and how much more counting it takes
    /// than its part of that.
    pub fn factors(&self) -> [f64; 2] {
        self.kinds.map(|kind| kind.factor())
    }
}

impl Kind {
    fn new(before: f64) -> Kind {
        Kind {
            before,
            new: 0,
            found: 0.0,
            expected: 0.0,
        }
    }

    /// The most likely one, by samples that come by chance: the zero of the derivative of the probability's logarithm,
    /// which falls.
    fn factor(&self) -> f64 {
        let derivative = |factor: f64| {
            self.found - factor * self.expected - (factor / self.before).ln() / VARIANCE
        };
        let (mut low, mut high) = (USUAL, MOST);
        for _ in 0..20 {
            let middle = (low * high).sqrt();
            match derivative(middle) > 0.0 {
                true => low = middle,
                false => high = middle,
            }
        }
        (low * high).sqrt()
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

    fn is_near(factor: f64, other: f64) -> bool {
        (factor / other - 1.0).abs() < 1e-4
    }

    /// Processors are in code that counts for this part of the time, and counting should take `cost` of each 0.1 s in the
    /// loop.
    fn after(seconds: f64, part: f64, cost: f64) -> f64 {
        let mut gauge = without_samples();
        for _ in 0..(seconds / 0.1) as u32 {
            gauge.kinds[COUNTED].new = (part * 0.1 * HERTZ as f64).round() as u64;
            let factors = gauge.factors();
            gauge.compare([0.0, cost * factors[COUNTED]], 0.1, factors);
        }
        assert!(is_near(gauge.factors()[RECORDED], USUAL));
        gauge.factors()[COUNTED]
    }

    #[test]
    fn without_samples_the_usual_counts_or_what_is_known_of_the_program() {
        let mut gauge = without_samples();
        assert!(gauge.factors().iter().all(|factor| is_near(*factor, USUAL)));
        gauge.begin([20.0, f64::MAX]);
        let [recorded, counted] = gauge.factors();
        assert!(is_near(recorded, 20.0) && is_near(counted, MOST));
        // The samples count.
        for _ in 0..50 {
            gauge.kinds[RECORDED].new = 4;
            gauge.compare([0.04 * 2.0, 0.0], 0.1, [5.0, 1.0]);
        }
        assert!((1.35..3.0).contains(&gauge.factors()[RECORDED]));
    }

    /// A server that does little is looked at now and then.
    #[test]
    fn samples_count_if_they_were_taken_all_the_time() {
        let mut gauge = without_samples();
        gauge.is_part = true;
        gauge.kinds[RECORDED].new = 100;
        gauge.compare([0.001, 0.0], 0.1, [USUAL; 2]);
        assert!(
            is_near(gauge.factors()[RECORDED], USUAL),
            "of a part of the time"
        );
        for _ in 0..20 {
            gauge.rest();
            gauge.kinds[RECORDED].new = 20;
            gauge.compare([0.002, 0.0], 0.2, [USUAL; 2]);
        }
        assert!(gauge.factors()[RECORDED] > 10.0);
    }

    #[test]
    fn samples_show_how_much_more_a_call_takes() {
        // 8 ms of each 0.1 s, where 1 ms is expected.
        let factor = after(5.0, 0.08, 0.001);
        assert!((7.0..8.1).contains(&factor), "{factor}");
        let factor = after(5.0, 0.4, 0.02);
        assert!((1.9..2.1).contains(&factor), "{factor}");
        // So also where few samples are expected, as nearly nothing is counted any more.
        let factor = after(5.0, 0.04, 0.0001);
        assert!((32.0..41.0).contains(&factor), "{factor}");
        // Less than usual is not believed, and nothing is beyond all measure.
        assert!(is_near(after(5.0, 0.01, 0.01), USUAL));
        assert!(is_near(after(5.0, 4.0, 1e-6), MOST));
    }
}
