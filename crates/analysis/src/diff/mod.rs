//! `nopal diff`: how functions differ between the traces of two sides.

mod run;
mod same;
mod statistics;
mod write;

pub use run::Run;
pub use write::{write_json, write_text};

use crate::sort;
use serde::Serialize;

use run::{Counted, Known};

/// Runs of one program differ, too. With one run a side, durations that differ by less count as the same.
const MARGIN: f64 = 1.1;

/// Functions with a smaller part of all self time are not tested: each test makes the others weaker.
const TESTED: f64 = 0.001;

/// A change with a lower p-value is called significant.
pub const SIGNIFICANT: f64 = 0.01;

/// How the sides were tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// The durations of calls, as there is one trace a side.
    Calls,
    /// Runs, by their calls and how long these took.
    Runs,
}

/// A side's means, a run or, if that was asked for, a call of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Means {
    pub calls: f64,
    pub unfinished: f64,
    pub total_ns: f64,
    pub self_ns: f64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub total_is_least: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub self_is_least: bool,
    #[serde(
        rename = "self_with_untimed_callees",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub self_with_untimed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub calls_are_least: bool,
    /// For how long the function was off.
    #[serde(skip_serializing_if = "is_zero")]
    pub off_ns: f64,
    /// Quantiles of the calls of all runs whose begin and end are known; none without any.
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

impl Means {
    /// Self time of a call. Where there were more calls, it may have been more or less.
    pub fn per_call(&self) -> Option<f64> {
        (self.calls > 0.0 && !self.calls_are_least).then(|| self.self_ns / self.calls)
    }
}

/// A function. A side is none if none of its traces knows the function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub function: String,
    pub module: String,
    pub before: Option<Means>,
    pub after: Option<Means>,
    /// The change of self time.
    pub change_ns: f64,
    /// Corrected for the number of tests; none if it was not tested.
    pub p: Option<f64>,
    pub significant: bool,
}

impl Row {
    fn has_times(&self) -> bool {
        let has = |side: &Means| side.p50_ns.is_some() || side.total_ns > 0.0;
        [&self.before, &self.after].into_iter().flatten().any(has)
    }
}

#[derive(Clone, Debug)]
pub struct Comparison {
    pub test: Test,
    pub tested: usize,
    pub significant: usize,
    /// By the change of self time, the largest first.
    pub rows: Vec<Row>,
    /// Rows removed by [`Comparison::limit`].
    pub left_out: usize,
    /// The means of all functions.
    pub before: Means,
    pub after: Means,
}

/// Compares the runs of two sides; each has at least one.
pub fn compare(before: &[Run], after: &[Run]) -> Comparison {
    let test = match (before, after) {
        ([_], [_]) => Test::Calls,
        _ => Test::Runs,
    };
    let pairs = same::pairs(before, after);
    let all: f64 = pairs
        .iter()
        .flat_map(|pair| pair.iter().flatten())
        .map(|side| side.self_ns())
        .sum();
    let lacks_calls = |run: &Run| run.functions.iter().any(|one| one.lacks_calls);
    let has_untimed = before.iter().chain(after).any(lacks_calls);
    let rows = pairs.iter().map(|[a, b]| {
        let side = |side: &Option<Side>| side.as_ref().map_or(0.0, Side::self_ns);
        let mut sides = [a, b].into_iter().flatten();
        let is_untimed =
            sides.clone().any(Side::is_untimed) || has_untimed && sides.any(Side::makes_calls);
        let is_tested = side(a) + side(b) >= all * TESTED && all > 0.0 && !is_untimed;
        let p = match (a, b, test) {
            _ if !is_tested => None,
            (Some(a), Some(b), Test::Calls) => {
                statistics::mann_whitney(&a.durations(), &b.durations(), MARGIN)
            }
            (Some(a), Some(b), Test::Runs) => statistics::student(&a.logarithms(), &b.logarithms()),
            _ => None,
        };
        // The newer name of a function that was renamed.
        let known = [b, a].into_iter().flatten().map(|side| side.known).next();
        let known = known.cloned().unwrap_or_default();
        Row {
            function: known.name,
            module: known.key.module,
            change_ns: side(b) - side(a),
            before: a.as_ref().map(Side::means),
            after: b.as_ref().map(Side::means),
            p,
            significant: false,
        }
    });
    let called = |row: &Row| {
        let is_called = |side: &Means| side.calls + side.unfinished > 0.0;
        [&row.before, &row.after]
            .into_iter()
            .flatten()
            .any(is_called)
    };
    let mut rows: Vec<Row> = rows.filter(called).collect();
    let mut tests: Vec<&mut f64> = rows.iter_mut().filter_map(|row| row.p.as_mut()).collect();
    let tested = tests.len();
    statistics::holm(&mut tests);
    let mut significant = 0;
    for row in &mut rows {
        row.significant = row.p.is_some_and(|p| p < SIGNIFICANT);
        significant += usize::from(row.significant);
    }
    sort::by(&mut rows, |a, b| {
        let calls = |row: &Row| {
            let of = |side: &Option<Means>| side.as_ref().map_or(0.0, |side| side.calls);
            (of(&row.after) - of(&row.before)).abs()
        };
        let by_time = b.change_ns.abs().total_cmp(&a.change_ns.abs());
        let by_calls = calls(b).total_cmp(&calls(a));
        let names = |row: &Row| (row.function.clone(), row.module.clone());
        by_time.then(by_calls).then_with(|| names(a).cmp(&names(b)))
    });
    Comparison {
        test,
        tested,
        significant,
        left_out: 0,
        before: sum(rows.iter().map(|row| &row.before)),
        after: sum(rows.iter().map(|row| &row.after)),
        rows,
    }
}

fn sum<'a>(sides: impl Iterator<Item = &'a Option<Means>>) -> Means {
    sides.flatten().fold(Means::default(), |mut all, side| {
        all.calls += side.calls;
        all.self_ns += side.self_ns;
        all.self_is_least |= side.self_is_least;
        all.calls_are_least |= side.calls_are_least;
        all
    })
}

impl Comparison {
    /// Keeps the first rows only.
    pub fn limit(&mut self, rows: usize) {
        self.left_out += self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
    }
}

/// A function in the runs of a side, none in a run that does not know it.
struct Side<'a> {
    known: &'a Known,
    runs: Vec<(f64, Option<Counted>)>,
}

impl Side<'_> {
    fn counted(&self) -> impl Iterator<Item = (f64, &Counted)> {
        let runs = self.runs.iter();
        runs.filter_map(|(times, counted)| Some((*times, counted.as_ref()?)))
    }

    /// The mean of a number, over all runs.
    fn mean(&self, number: impl Fn(&Counted) -> u64) -> f64 {
        let all = self
            .counted()
            .map(|(times, one)| number(one) as f64 / times);
        all.sum::<f64>() / self.runs.len() as f64
    }

    fn self_ns(&self) -> f64 {
        self.mean(|one| one.self_ns)
    }

    /// For each run, the logarithm of the time that its calls would have taken in all, had each taken the geometric mean
    /// of their durations: a few calls that were interrupted for long change it little.
    fn logarithms(&self) -> Vec<f64> {
        let runs = self.runs.iter().map(|(times, counted)| {
            let Some(one) = counted else {
                return 0.0;
            };
            let all: u64 = one.durations.iter().map(|(_, count)| count).sum();
            let logarithms = one.durations.iter();
            let sum: f64 = logarithms
                .map(|(ns, count)| ns.max(1.0).ln() * *count as f64)
                .sum();
            let typical = (sum / (all as f64).max(1.0)).exp();
            (one.calls as f64 * typical / times).ln_1p()
        });
        runs.collect()
    }

    /// Whether calls of the function, or callees, that were not timed may be the difference: their recording takes time.
    fn is_untimed(&self) -> bool {
        self.counted()
            .any(|(_, one)| one.lacks_calls || one.self_with_untimed)
    }

    /// Whether it called recorded functions. In another run these may not have been timed.
    fn makes_calls(&self) -> bool {
        self.counted().any(|(_, one)| one.self_ns < one.total_ns)
    }

    fn durations(&self) -> Vec<(f64, u64)> {
        let all = self.counted().flat_map(|(_, one)| &one.durations);
        statistics::distribution(all.copied())
    }

    fn means(&self) -> Means {
        let durations = self.durations();
        let quantile = |part: f64| {
            let all: u64 = durations.iter().map(|(_, count)| count).sum();
            let mut left = ((all as f64 * part).ceil() as u64).max(1);
            let reached = durations.iter().find(|(_, count)| {
                let is_reached = *count >= left;
                left = left.saturating_sub(*count);
                is_reached
            });
            reached.map(|(value, _)| *value)
        };
        Means {
            calls: self.mean(|one| one.calls),
            unfinished: self.mean(|one| one.unfinished),
            total_ns: self.mean(|one| one.total_ns),
            self_ns: self.self_ns(),
            total_is_least: self.counted().any(|(_, one)| one.total_is_least),
            self_is_least: self.counted().any(|(_, one)| one.self_is_least),
            self_with_untimed: self.counted().any(|(_, one)| one.self_with_untimed),
            calls_are_least: self.counted().any(|(_, one)| one.calls_are_least),
            off_ns: self.mean(|one| one.off_ns),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run::Key;
    use super::*;

    fn function(name: &str, module: &str, durations: &[(f64, u64)]) -> Counted {
        let sum: f64 = durations.iter().map(|(ns, count)| ns * *count as f64).sum();
        Counted {
            known: Known {
                name: name.into(),
                key: Key {
                    module: module.into(),
                    full: name.into(),
                    ..Key::default()
                },
            },
            calls: durations.iter().map(|(_, count)| count).sum(),
            total_ns: sum as u64,
            self_ns: sum as u64,
            durations: durations.to_vec(),
            ..Counted::default()
        }
    }

    fn run(functions: Vec<Counted>) -> Run {
        Run {
            times: 1,
            functions,
            ..Run::default()
        }
    }

    fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
        let mut rows = comparison.rows.iter();
        rows.find(|row| row.function == name).unwrap()
    }

    #[test]
    fn functions_are_the_same_in_other_builds() {
        let of = |name: &str, module: &str| function(name, module, &[(100.0, 10)]);
        let sides = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            let side = |all: &[(&str, &str)]| {
                let all = all.iter();
                run(all.map(|(name, module)| of(name, module)).collect())
            };
            let comparison = compare(&[side(a)], &[side(b)]);
            let rows = comparison.rows.iter();
            let mut both: Vec<String> = rows
                .filter(|row| row.before.is_some() && row.after.is_some())
                .map(|row| format!("{}@{}", row.function, row.module))
                .collect();
            both.sort();
            (both.join(" "), comparison.rows.len())
        };
        let is = |text: &str, rows: usize| (text.to_owned(), rows);
        assert_eq!(
            sides(&[("f", "a")], &[("f", "a"), ("g", "a")]),
            is("f@a", 2)
        );
        // Another copy, another file, both; but never if the function might be another one.
        assert_eq!(sides(&[("f.isra.0", "a")], &[("f", "a")]), is("f@a", 1));
        assert_eq!(sides(&[("f", "old")], &[("f", "new")]), is("f@new", 1));
        assert_eq!(
            sides(&[("f", "old"), ("f", "lib")], &[("f", "new"), ("f", "lib")]),
            is("f@lib f@new", 2)
        );
        assert_eq!(sides(&[("f", "a"), ("f", "b")], &[("f", "c")]), is("", 3));
        assert_eq!(
            sides(
                &[("f(int) [clone .part.0]", "a")],
                &[("f(int)", "a"), ("f(char)", "a")]
            ),
            is("f(int)@a", 2)
        );
        // Two functions of one name are one.
        assert_eq!(
            sides(&[("f", "a"), ("f", "a")], &[("f", "a")]),
            is("f@a", 1)
        );
    }

    #[test]
    fn what_changed_comes_first() {
        let before = run(vec![
            function("steady", "a", &[(1e6, 100)]),
            function("slower", "a", &[(1e3, 1000)]),
            function("less", "a", &[(2e3, 1000)]),
            function("gone", "a", &[(500.0, 1000)]),
        ]);
        let after = run(vec![
            function("steady", "a", &[(1e6, 100)]),
            function("slower", "a", &[(5e3, 1000)]),
            function("less", "a", &[(2e3, 200)]),
            function("new", "a", &[(400.0, 1000)]),
            function("never", "a", &[]),
        ]);
        let mut comparison = compare(&[before], &[after]);
        let names: Vec<&str> = comparison.rows.iter().map(|row| &*row.function).collect();
        assert_eq!(names, ["slower", "less", "gone", "new", "steady"]);
        assert_eq!(row(&comparison, "slower").change_ns, 4e6);
        assert!(row(&comparison, "slower").significant);
        // Durations are compared, not numbers of calls.
        assert!(!row(&comparison, "less").significant);
        assert_eq!(row(&comparison, "gone").p, None);
        assert_eq!(comparison.tested, 3);
        comparison.limit(2);
        assert_eq!((comparison.rows.len(), comparison.left_out), (2, 3));
    }

    /// Calls that were only counted have no durations that could differ.
    #[test]
    fn functions_that_were_counted_are_not_tested() {
        let timed = run(vec![function("f", "a", &[(1e3, 1000)])]);
        let mut counted = timed.clone();
        let one = &mut counted.functions[0];
        (one.durations, one.self_ns, one.lacks_calls) = (Vec::new(), 0, true);
        for number in [1, 3] {
            let (before, after) = (vec![timed.clone(); number], vec![counted.clone(); number]);
            let comparison = compare(&before, &after);
            let row = row(&comparison, "f");
            assert_eq!((row.p, row.significant), (None, false));
            let calls = [&row.before, &row.after].map(|side| side.as_ref().unwrap().calls);
            assert_eq!(calls, [1000.0; 2]);
        }
    }

    /// Where callees were timed, recording them took time.
    #[test]
    fn functions_with_untimed_callees_are_not_tested() {
        let before = run(vec![function("f", "a", &[(1e3, 1000)])]);
        let mut after = run(vec![function("f", "a", &[(2e3, 1000)])]);
        let timed = compare(std::slice::from_ref(&before), std::slice::from_ref(&after));
        assert!(row(&timed, "f").significant);
        after.functions[0].self_with_untimed = true;
        let comparison = compare(&[before], &[after]);
        assert_eq!(row(&comparison, "f").p, None);
    }

    #[test]
    fn calls_and_times_that_may_be_more_are_shown_so() {
        let before = run(vec![function("f", "a", &[(1e3, 1000)])]);
        let mut after = run(vec![function("f", "a", &[(1e3, 500)])]);
        let one = &mut after.functions[0];
        (one.lacks_calls, one.calls_are_least, one.off_ns) = (true, true, 7_000_000);
        (one.self_is_least, one.self_with_untimed) = (true, true);
        let sides = [vec![before], vec![after]];
        let comparison = compare(&sides[0], &sides[1]);
        let sides = [&sides[0][..], &sides[1][..]];
        let mut text = Vec::new();
        write_text(&comparison, sides, None, &mut text, 200).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(", calls 1,000 → ≥ 500\n"), "{text}");
        let row = text.lines().find(|line| line.starts_with("-500 us "));
        let row = row.expect(&text);
        // Of how many calls the time is is not known.
        assert!(row.contains("  1.00 us → -  "), "{row}");
        assert!(
            row.contains("1.00 ms → ≥ 500 us †  ") && row.contains("  1,000 → ≥ 500  "),
            "{row}"
        );
        let mut json = Vec::new();
        write_json(&comparison, sides, None, &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let [before, after] = ["before", "after"].map(|side| &json["functions"][0][side]);
        assert_eq!(after["off_ns"], 7e6);
        for member in ["calls_are_least", "self_with_untimed_callees"] {
            assert_eq!(after[member], true, "{member}: {after}");
        }
        for member in ["off_ns", "calls_are_least", "self_with_untimed_callees"] {
            assert!(before.get(member).is_none(), "{member}: {before}");
        }
    }

    /// Times that vary by a third between runs must change by more than that to be significant; constant times need
    /// not.
    #[test]
    fn differences_between_runs_count() {
        let side = |noisy: [f64; 3], calls: u64, slow: f64| -> Vec<Run> {
            let runs = noisy.iter().enumerate();
            let runs = runs.map(|(place, noise)| {
                let drift = 1.0 + place as f64 / 100.0;
                run(vec![
                    function("noisy", "a", &[(1e4 * noise, 10_000)]),
                    function("called", "a", &[(1e3 * drift, calls)]),
                    function("slow", "a", &[(slow * drift, 10_000), (4e7, 1)]),
                ])
            });
            runs.collect()
        };
        let before = side([1.0, 1.4, 0.8], 1000, 1e3);
        let after = side([1.5, 1.1, 1.3], 3000, 2e3);
        let comparison = compare(&before, &after);
        assert_eq!(comparison.test, Test::Runs);
        assert!(!row(&comparison, "noisy").significant);
        assert!(row(&comparison, "called").significant);
        assert!(row(&comparison, "slow").significant);
        let same = compare(&before, &side([1.5, 1.1, 1.3], 1000, 1e3));
        assert!(same.rows.iter().all(|row| !row.significant));
        // Against runs that are divided by the factor by which their calls grew, nothing has changed.
        let mut divided = side([1.0, 1.4, 0.8], 3000, 1e3);
        for run in &mut divided {
            run.times = 3;
        }
        let called = compare(&before, &divided);
        assert_eq!(row(&called, "called").after.as_ref().unwrap().calls, 1000.0);
        assert!(!row(&called, "called").significant);
    }
}
