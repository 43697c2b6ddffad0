//! Tests of significance.

use crate::sort;
use std::cmp::Ordering;

/// Different values in ascending order, and how often each occurred.
pub type Distribution = [(f64, u64)];

pub fn distribution(values: impl Iterator<Item = (f64, u64)>) -> Vec<(f64, u64)> {
    let mut all: Vec<(f64, u64)> = values.collect();
    sort::by(&mut all, |a, b| a.0.total_cmp(&b.0));
    all.dedup_by(|again, kept| {
        let is_same = again.0 == kept.0;
        kept.1 += if is_same { again.1 } else { 0 };
        is_same
    });
    all
}

/// The probability that two samples of distributions that differ by no more than a factor `margin` differ as much as
/// these, or more: the Mann-Whitney test, by its normal approximation with corrections for ties and continuity, of each
/// against the other times the margin. None without values.
pub fn mann_whitney(a: &Distribution, b: &Distribution, margin: f64) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let one_sided = f64::min(exceeds(b, a, margin), exceeds(a, b, margin));
    Some((2.0 * one_sided).min(1.0))
}

/// The probability that `more` exceeds `less` times `margin` as often as here by chance.
fn exceeds(more: &Distribution, less: &Distribution, margin: f64) -> f64 {
    let count = |all: &Distribution| all.iter().map(|&(_, count)| count as f64).sum::<f64>();
    let (m, n) = (count(more), count(less));
    let (mut wins, mut below, mut ties) = (0.0, 0.0, 0.0);
    let mut less = less
        .iter()
        .map(|&(value, count)| (value * margin, count as f64))
        .peekable();
    let cube = |count: f64| count * count * count - count;
    for &(value, times) in more {
        let times = times as f64;
        while let Some((_, passed)) = less.next_if(|&(other, _)| other < value) {
            below += passed;
            ties += cube(passed);
        }
        let mut same = 0.0;
        while let Some((_, passed)) = less.next_if(|&(other, _)| other == value) {
            same += passed;
        }
        wins += times * (below + same / 2.0);
        below += same;
        ties += cube(times + same);
    }
    ties += less.map(|(_, passed)| cube(passed)).sum::<f64>();
    let all = m + n;
    let variance = m * n / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    match variance > 0.0 {
        true => above((wins - m * n / 2.0 - 0.5) / variance.sqrt()),
        false => 1.0,
    }
}

/// The part of a normal distribution that is above `z`: Abramowitz and Stegun 26.2.17, within 7.5e-8.
fn above(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [
        0.319381530,
        -0.356563782,
        1.781477937,
        -1.821255978,
        1.330274429,
    ];
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let t = 1.0 / (1.0 + 0.2316419 * z);
    let series = FACTORS
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    series * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The probability that the means of two normal samples of one distribution differ as much, or more: Student's test.
/// None if there are fewer than three values, or none on a side.
pub fn student(a: &[f64], b: &[f64]) -> Option<f64> {
    let freedom = (a.len() + b.len())
        .checked_sub(2)
        .filter(|free| *free > 0)?;
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let squares = |all: &[f64]| {
        let mean = mean(all);
        all.iter().map(|one| (one - mean).powi(2)).sum::<f64>()
    };
    let difference = (mean(a) - mean(b)).abs();
    let variance = (squares(a) + squares(b)) / freedom as f64;
    let error = (variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64)).sqrt();
    match (difference > 0.0, error > 0.0) {
        (false, _) => Some(1.0),
        (true, false) => Some(0.0),
        (true, true) => Some(outside(difference / error, freedom)),
    }
}

/// The part of Student's distribution that is further from 0 than `t`: Abramowitz and Stegun 26.7.3 and 26.7.4.
fn outside(t: f64, freedom: usize) -> f64 {
    let tangent = t / (freedom as f64).sqrt();
    let cos = 1.0 / tangent.hypot(1.0);
    let sin = tangent * cos;
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = (if is_odd { cos } else { 1.0 }, 0.0);
    let mut step = if is_odd { 1 } else { 0 };
    while step + 2 <= freedom {
        sum += term;
        let next = step as f64;
        term *= cos * cos * (next + 1.0) / (next + 2.0);
        step += 2;
    }
    let inside = match is_odd {
        true => (arctangent(tangent) + sin * sum) * 2.0 / std::f64::consts::PI,
        false => sin * sum,
    };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// The libm function, with its tables for four kinds of processors, would be a hundredth of nopal. The tangent of half
/// an angle is tan / (1 + sqrt(1 + tan^2)): that of a sixteenth is below 0.1, where the series needs few terms.
fn arctangent(tangent: f64) -> f64 {
    let half = |tangent: f64| tangent / (1.0 + tangent.hypot(1.0));
    let small = (0..4).fold(tangent, |tangent, _| half(tangent));
    let series = (0..12).rev().fold(0.0, |sum, term| {
        1.0 / f64::from(2 * term + 1) - small * small * sum
    });
    16.0 * small * series
}

/// Holm's correction for multiple tests: afterwards the probability that any of `all` is below a limit by chance is no
/// higher than that limit.
pub fn holm(all: &mut [&mut f64]) {
    sort::by(all, |a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let mut least = 0.0f64;
    let tests = all.len();
    for (place, p) in all.iter_mut().enumerate() {
        least = least.max((**p * (tests - place) as f64).min(1.0));
        **p = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::Random;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 2e-4, "{found} for {expected}");
    }

    #[test]
    fn tails_are_those_of_tables() {
        for (z, p) in [(0.0, 0.5), (1.0, 0.15866), (1.96, 0.025), (-1.0, 0.84134)] {
            near(above(z), p);
        }
        let of_tables = [
            (12.706, 1, 0.05),
            (4.303, 2, 0.05),
            (3.182, 3, 0.05),
            (4.604, 4, 0.01),
            (4.032, 5, 0.01),
            (3.355, 8, 0.01),
            (2.262, 9, 0.05),
            (2.787, 25, 0.01),
            (0.0, 7, 1.0),
        ];
        for (t, freedom, p) in of_tables {
            near(outside(t, freedom), p);
        }
    }

    #[test]
    fn the_arctangent_is_that_of_libm() {
        for tangent in [0.0, 1e-9, 0.1, 0.5, 1.0, 3.0, 1e3, 1e200] {
            let (found, expected) = (arctangent(tangent), tangent.atan());
            assert!((found - expected).abs() < 1e-15, "{tangent}: {found}");
        }
    }

    #[test]
    fn mann_whitney_of_known_samples() {
        let a = [(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1), (5.0, 1)];
        let b = [(6.0, 1), (7.0, 1), (8.0, 1), (9.0, 1), (10.0, 1)];
        // U = 25: (25 - 12.5 - 0.5) / sqrt(25 * 11 / 12).
        near(mann_whitney(&a, &b, 1.0).unwrap(), 0.01219);
        near(mann_whitney(&b, &a, 1.0).unwrap(), 0.01219);
        near(mann_whitney(&a, &a, 1.0).unwrap(), 1.0);
        near(
            mann_whitney(&[(7.0, 900)], &[(7.0, 900)], 1.0).unwrap(),
            1.0,
        );
        assert_eq!(mann_whitney(&a, &[], 1.0), None);
        // Durations that differ by 5 % are not more than 10 % apart, however often they were seen.
        let (c, d) = ([(100.0, 1_000_000)], [(105.0, 1_000_000)]);
        assert!(mann_whitney(&c, &d, 1.0).unwrap() < 1e-9);
        near(mann_whitney(&c, &d, 1.1).unwrap(), 1.0);
        assert!(mann_whitney(&c, &[(120.0, 1_000_000)], 1.1).unwrap() < 1e-9);
    }

    /// In 1,000 comparisons of equal sides, as many are below a limit as it says.
    #[test]
    fn false_alarms_are_as_frequent_as_stated() {
        let mut random = Random::new(11);
        let mut normal = || {
            let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64).sum();
            sum / (1 << 20) as f64 - 6.0
        };
        let (mut of_runs, mut of_calls) = (0, 0);
        for _ in 0..1000 {
            let [a, b] = [3, 4].map(|many| (0..many).map(|_| normal()).collect::<Vec<f64>>());
            of_runs += u32::from(student(&a, &b).unwrap() < 0.05);
            let [a, b] =
                [40, 30].map(|many| distribution((0..many).map(|_| (normal().round(), 1))));
            of_calls += u32::from(mann_whitney(&a, &b, 1.0).unwrap() < 0.05);
        }
        for alarms in [of_runs, of_calls] {
            assert!((30..75).contains(&alarms), "{alarms} of 1,000");
        }
    }

    #[test]
    fn holm_multiplies_by_what_is_left() {
        let [mut a, mut b, mut c] = [0.03, 0.01, 0.02];
        holm(&mut [&mut a, &mut b, &mut c]);
        assert_eq!([a, b, c], [0.04, 0.03, 0.04]);
    }
}
