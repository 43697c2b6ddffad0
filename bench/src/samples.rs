//! Interleaved measurements: other work of the machine disturbs all of them alike.

use anyhow::Result;

/// The values of each round.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    pub fn lowest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn highest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Combines the values of each round, which were measured at nearly the same time.
    pub fn with(&self, other: &Samples, combine: impl Fn(f64, f64) -> f64) -> Samples {
        Samples(
            self.0
                .iter()
                .zip(&other.0)
                .map(|(one, other)| combine(*one, *other))
                .collect(),
        )
    }

    pub fn less(&self, other: &Samples) -> Samples {
        self.with(other, |one, other| one - other)
    }

    pub fn over(&self, other: &Samples) -> Samples {
        self.with(other, |one, other| one / other)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Samples {
        Samples(values.into_iter().collect())
    }
}

/// Runs all of `what` in each round, one after the other, and returns the results of each, by round.
pub fn in_turn<T>(
    rounds: usize,
    what: &mut [&mut dyn FnMut() -> Result<T>],
) -> Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = what.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for _ in 0..rounds {
        for (run, results) in what.iter_mut().zip(&mut results) {
            results.push(run()?);
        }
    }
    Ok(results)
}
