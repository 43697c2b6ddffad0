//! The order of events of several threads.

use nopal_tests::{Case, Start, c, nopal};

/// The clocks of entry and exit of each call of a function, in order.
fn calls(dump: &str, function: &str) -> Vec<(u64, u64)> {
    let clocks = |kind: &'static str| {
        let lines = dump.lines().filter(move |line| {
            let words: Vec<&str> = line.split(' ').collect();
            words.get(3) == Some(&kind) && words.last() == Some(&function)
        });
        lines.map(|line| line.split(' ').next().unwrap().parse().unwrap())
    };
    clocks("entry").zip(clocks("exit")).collect()
}

/// The most ticks by which a processor may read its counter ahead of earlier instructions.
const AHEAD: u64 = 4000;

#[test]
fn a_baton_is_not_seen_in_two_hands() {
    handed_over(&["-F", "*_has_it", "--block", "--ordered"], 0);
}

#[test]
fn a_baton_is_nearly_not_seen_in_two_hands_without_fences() {
    handed_over(&["-F", "*_has_it", "--block"], AHEAD);
}

/// Asserts that each thread gets the baton after the other passed it on, by the trace's clocks, less `ahead` ticks.
fn handed_over(options: &[&str], ahead: u64) {
    let traced = Case::new(c("baton", &[]))
        .arguments(["50000"])
        .options(options)
        .check();
    let mut start = Start::new([nopal().as_os_str(), "dump".as_ref(), "--as".as_ref()]);
    start.words.push("raw".into());
    start.words.push(traced.directory().into());
    let dump = start.run("").stdout;
    let [first, second] = ["first_has_it", "second_has_it"].map(|function| calls(&dump, function));
    assert_eq!(first.len() as u64, traced.report.calls("first_has_it"));
    assert_eq!(first.len(), second.len());
    assert!(first.len() > 1);
    for pass in 0..first.len() {
        let (one, other) = (first[pass], second[pass]);
        assert!(
            one.0 <= one.1 && one.1 <= other.0 + ahead,
            "pass {pass}: {one:?}, {other:?}"
        );
        if let Some(next) = first.get(pass + 1) {
            assert!(
                other.1 <= next.0 + ahead,
                "pass {pass}: {other:?}, {next:?}"
            );
        }
    }
}
