//! Counted calls, of which a few are recorded at random: none is missed, and none is invented; and the estimate of their
//! times.

use nopal_tests::process::{is_text_changed, wait_until};
use nopal_tests::{AttachedProgram, End, Report, Start, c, nopal, wait_for_end};
use serde_json::Value;
use std::path::Path;

fn attached() -> AttachedProgram {
    let program = c("counted", &["-pthread"]);
    AttachedProgram::new(program, &["-F", "deep", "--block", "--buffer", "512M"])
}

/// Gives the program a line, and returns the calls of `leaf` that it made.
fn made(attached: &mut AttachedProgram, line: &str) -> u64 {
    let said = attached.run(line);
    let lines = said.lines().rev();
    let mut made = lines.filter_map(|line| line.strip_prefix("made "));
    made.next().unwrap().parse().unwrap()
}

fn said_by(reader: &[&str], trace: &Path) -> String {
    let mut start = Start::new([nopal()]);
    let words = reader.iter().map(|word| (*word).into());
    start.words.extend(words.chain([trace.into()]));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

/// One call in some 500 is recorded instead.
fn are_counted_but_for_samples(counted: &Value, calls: u64) {
    let counted = counted.as_u64().unwrap();
    let expected = calls - calls / 512;
    assert!(
        counted <= calls && counted.abs_diff(expected) <= 20 + calls / 2000,
        "{counted} of {calls}"
    );
}

#[test]
fn calls_are_counted_exactly_by_threads_forks_and_handlers() {
    let mut attached = attached();
    attached.ctl("trace leaf new l\ntrace l count");
    let lines = [
        "plain 1000",
        "begin 100000",
        "end",
        "fork 50000",
        "signals 3000000",
    ];
    let calls: u64 = lines.iter().map(|line| made(&mut attached, line)).sum();
    assert!(attached.state().contains("\ntrace l count\n"));
    attached.ctl("trace l off");
    made(&mut attached, "plain 1000");
    attached.ctl("trace l on");
    let recorded = made(&mut attached, "plain 100");
    let (scratch, _) = attached.end();
    let trace = scratch.path().join("trace");

    let report = Report::of(&trace);
    let row = report.rows_of("leaf").next().unwrap();
    assert_eq!(row["calls"], calls + recorded, "{row}");
    are_counted_but_for_samples(&row["counted"], calls);
    assert_eq!(row["self_is_least"], true, "{row}");
    for not_so in ["calls_are_least", "entries_only"] {
        assert!(row.get(not_so).is_none(), "{row}");
    }

    let first = "1 function was counted for a time, and recorded by samples only";
    for reader in [&["report"][..], &["graph"], &["replay"], &["info"]] {
        let said = said_by(reader, &trace);
        assert!(
            reader == ["info"] || said.contains(first),
            "{reader:?}: {said}"
        );
    }
    let table = said_by(&["report"], &trace);
    assert!(table.contains("\ncounted: "), "{table}");
    let info = said_by(&["info"], &trace);
    assert!(
        info.contains(" of 1 function, which have no times"),
        "{info}"
    );
    // Counted calls have no threads or callers to select by.
    let callers = said_by(&["report", "--callers", "leaf", "--json"], &trace);
    assert!(callers.contains("\"calls_are_least\":true"), "{callers}");
    for reader in [
        &["report", "--callers", "leaf"][..],
        &["graph", "leaf", "-i"],
    ] {
        let said = said_by(reader, &trace);
        assert!(said.contains("calls that were only counted\n"), "{said}");
    }
}

/// Each call is recorded or counted, as the switch says at that moment.
/// Its calls are known, and not taken for entries without times.
#[test]
fn a_selected_function_without_records_is_shown() {
    let mut attached = attached();
    attached.ctl("trace leaf new l\ntrace l count");
    let calls = made(&mut attached, "plain 100");
    let (scratch, _) = attached.end();
    let trace = scratch.path().join("trace");
    let left_out = format!("; left out of what -F selects: {calls} calls that were only counted\n");
    let table = said_by(&["report", "-F", "leaf"], &trace);
    assert!(table.contains(&left_out), "{table}");
    let row = table.lines().find(|line| line.contains(" leaf ")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let calls = calls.to_string();
    assert_eq!(words[..4], ["-", "-", &calls, &calls], "{table}");
    for reader in [
        &["report", "--threads"][..],
        &["graph"],
        &["dump", "--as", "folded"],
    ] {
        let mut start = Start::new([nopal()]);
        start.words.extend(reader.iter().map(Into::into));
        start.words.extend([
            "-F".into(),
            "leaf".into(),
            "-i".into(),
            trace.clone().into(),
        ]);
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let said = ended.stdout + &ended.stderr;
        assert!(
            said.contains(&left_out) && !said.contains("only the entries"),
            "{said}"
        );
    }
}

#[test]
fn no_call_is_missed_between_counting_and_recording() {
    let mut attached = attached();
    attached.ctl("trace leaf new l\ntrace l count");
    let mut calls = 0;
    for _ in 0..5 {
        calls += made(&mut attached, "begin 20000");
        for _ in 0..10 {
            attached.ctl("trace l on\ntrace l count");
        }
        made(&mut attached, "end");
    }
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    assert_eq!(report.calls("leaf"), calls);
}

/// The counters are in the memory of the process, and the guardian writes the rest of the counts.
#[test]
fn counts_are_in_the_trace_when_the_tool_is_killed() {
    let mut attached = attached();
    attached.ctl("trace leaf new l\ntrace l count");
    let calls = made(&mut attached, "plain 1000");
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(attached.tool.id(), libc::SIGKILL) }, 0);
    attached.tool.wait();
    let process = attached.program.id();
    wait_until("the code is put back", || !is_text_changed(process));
    made(&mut attached, "plain 1000");
    let trace = attached.trace();
    wait_for_end(&trace);
    let information = said_by(&["info"], &trace);
    assert!(information.contains("nopal was killed"), "{information}");
    assert_eq!(Report::of(&trace).calls("leaf"), calls);
    attached.stdin = None;
    assert_eq!(attached.program.wait().end, End::Code(5));
}

#[test]
fn a_program_that_is_executed_is_counted_too() {
    let mut attached = attached();
    attached.ctl("trace leaf new l\ntrace l count");
    let mut calls = made(&mut attached, "plain 1000");
    made(&mut attached, "again");
    calls += made(&mut attached, "begin 1000");
    made(&mut attached, "end");
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    let row = report.rows_of("leaf").next().unwrap();
    assert_eq!(row["calls"], calls, "{row}");
    are_counted_but_for_samples(&row["counted"], calls);
}

/// The row of a function that was counted, and how long its calls took by the program's own clock.
fn timed(function: &str, line: &str, calls: u64) -> (Value, f64) {
    let mut attached = attached();
    attached.ctl(&format!("trace {function} new l\ntrace l count"));
    let said = attached.run(&format!("{line} {calls}"));
    let took = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("took "));
    let took: f64 = took.unwrap().parse().unwrap();
    let (scratch, _) = attached.end();
    let trace = scratch.path().join("trace");
    let report = Report::of(&trace);
    let row = report.rows_of(function).next().unwrap().clone();
    assert_eq!(row["calls"], calls, "{row}");
    are_counted_but_for_samples(&row["counted"], calls);
    let samples = row["samples"].as_u64().unwrap();
    assert_eq!(row["counted"], calls - samples, "{row}");
    let table = said_by(&["report"], &trace);
    let name = format!(" {function} ");
    let line = table.lines().find(|line| line.contains(&name)).unwrap();
    assert!(line.contains("≈ ") && line.contains(" ± "), "{line}");
    assert!(table.contains("\n≈ with the error: "), "{table}");
    (row, took)
}

/// Where other work of the machine comes between, a call may take any time, and no sample shows it: one of several runs
/// must come out.
#[test]
fn times_of_counted_calls_are_estimated_from_samples() {
    let mut wrong = Vec::new();
    for _ in 0..5 {
        let (row, took) = timed("lasting", "last", 200_000);
        let number = |member: &str| row[member].as_u64().unwrap() as f64;
        let off = number("estimated_total_ns") - took;
        if off.abs() <= 4.0 * number("estimated_total_error_ns") + 0.02 * took {
            return;
        }
        wrong.push(format!("took {took} ns: {row}"));
    }
    panic!("{}", wrong.join("\n"));
}

/// Samples of calls that are this short take up to half as long again, as nothing is recorded but them: far more than the
/// means of samples differ by chance.
#[test]
fn times_of_short_counted_calls_have_an_error_that_knows_what_sampling_costs() {
    let mut wrong = Vec::new();
    for _ in 0..5 {
        let (row, took) = timed("brief", "brief", 2_000_000);
        let number = |member: &str| row[member].as_u64().unwrap() as f64;
        let off = number("estimated_total_ns") - took;
        if off.abs() <= number("estimated_total_error_ns") {
            return;
        }
        wrong.push(format!("took {took} ns: {row}"));
    }
    panic!("{}", wrong.join("\n"));
}
