//! Calls that are open when a recording ends.

use nopal_tests::{AttachedProgram, End, Report, Start, c, nopal};
use serde_json::Value;
use std::path::Path;

const FUNCTIONS: [&str; 6] = ["-F", "waits", "-F", "early", "-F", "left"];

/// What the program tells of its calls' times.
fn told(text: &str, what: &str) -> f64 {
    let told = text.lines().find_map(|line| line.strip_prefix(what));
    told.unwrap_or_else(|| panic!("no {what:?} in {text}"))
        .trim()
        .parse()
        .unwrap()
}

/// The least time of a function's only call, which has no end.
fn open_for(report: &Report, function: &str) -> f64 {
    let row = report.rows_of(function).next().unwrap();
    assert_eq!(
        (&row["calls"], &row["unfinished"]),
        (&1.into(), &1.into()),
        "{row}"
    );
    assert_eq!(row["total_is_least"], true, "{row}");
    assert_eq!(row["total_ns"], row["self_ns"], "{row}");
    row["total_ns"].as_f64().unwrap()
}

fn printed(words: &[&str], trace: &Path) -> String {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.push(trace.into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

/// The two clocks agree to this.
const PRECISION: f64 = 0.01;

/// A call in which a thread waits has taken all the time until nopal left. One whose thread has ended amid it has not, nor
/// one that was left by a jump.
#[test]
fn a_call_that_is_open_at_the_end_counts_until_then() {
    let mut attached = AttachedProgram::new(c("hangs", &["-pthread"]), &FUNCTIONS);
    attached.run("exit");
    attached.run("jump");
    attached.run("hang");
    let said = attached.run("sleep");
    let trace = attached.trace();
    let (_scratch, ended) = attached.end();
    let report = Report::of(&trace);
    let waited = open_for(&report, "waits");
    let least = told(&said, "waits has taken more than");
    assert!(
        waited >= least * (1.0 - PRECISION),
        "{said}{}",
        ended.stderr
    );
    for function in ["early", "left"] {
        let most = told(&said, &format!("{function} has taken less than"));
        let open = open_for(&report, function);
        assert!(
            open <= most * (1.0 + PRECISION),
            "{function}: {open}, {said}"
        );
    }
    let folded = printed(&["dump", "--as", "folded"], &trace);
    assert_eq!(told(&folded, "waits"), waited, "{folded}");
    let slow = printed(&["slow", "waits", "--json"], &trace);
    let slow: Value = serde_json::from_str(&slow).unwrap();
    assert_eq!(slow[0]["duration_ns"].as_f64(), Some(waited), "{slow}");
    assert_eq!(slow[0]["is_least"], true, "{slow}");
    for words in [
        &["replay", "-F", "waits"][..],
        &["graph", "waits"],
        &["slow", "waits"],
    ] {
        let shown = printed(words, &trace);
        assert!(shown.contains("≥"), "{words:?}: {shown}");
    }
}

/// From the moment at which recording was stopped, nothing is said of the call.
#[test]
fn a_call_that_is_open_when_recording_is_stopped_counts_until_then() {
    let mut attached = AttachedProgram::new(c("hangs", &["-pthread"]), &FUNCTIONS);
    attached.run("hang");
    attached.ctl("stop");
    let said = attached.run("sleep");
    let trace = attached.trace();
    let (_scratch, ended) = attached.end();
    let most = told(&said, "waits had taken less than");
    let waited = open_for(&Report::of(&trace), "waits");
    assert!(
        waited <= most * (1.0 + PRECISION),
        "{waited}: {said}{}",
        ended.stderr
    );
}
