//! Readers of a recording with lost events, of one that holds only the end of a program, and of one without durations:
//! they begin with the losses, and report no more than there was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nopal_tests::{Case, End, Ended, Start, announced_calls, c, nopal, scratch};
use serde_json::Value;
use tempfile::TempDir;

/// Parts in a thousand by which the clocks of the program and of the trace may differ.
const CLOCKS: u64 = 1;

/// A recording of a program that recurses faster than records are written.
struct Recorded {
    scratch: TempDir,
    calls: BTreeMap<String, u64>,
    /// Nanoseconds, by the program's own clock, in all its functions except `main` and `now`.
    elapsed: u64,
    said: String,
}

impl Recorded {
    fn new(options: &[&str], arguments: [&str; 2]) -> Recorded {
        let scratch = scratch();
        let case = Case::new(c("lossy", &[])).options(options);
        let start = case
            .arguments(arguments)
            .traced_start(&scratch.path().join("trace"));
        let ended = start.on_one_processor().run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let (rest, calls) = announced_calls(&ended.stdout);
        let elapsed = rest
            .strip_prefix("elapsed ")
            .and_then(|text| text.trim().parse().ok());
        Recorded {
            scratch,
            calls,
            elapsed: elapsed.expect("the program prints its duration"),
            said: ended.stderr,
        }
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }

    /// Runs a reader of the trace; pictures go to the file `picture.svg`.
    fn read(&self, words: &[&str]) -> Ended {
        let ended = self.try_read(words);
        assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
        ended
    }

    fn try_read(&self, words: &[&str]) -> Ended {
        read(words, &self.trace(), self.scratch.path())
    }

    fn json(&self, words: &[&str]) -> Value {
        let text = self.read(words).stdout;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn picture(&self, words: &[&str]) -> String {
        self.read(&[words, &["-o", "picture.svg"]].concat());
        std::fs::read_to_string(self.scratch.path().join("picture.svg")).unwrap()
    }

    /// Asserts that no function took longer than its program ran, nor longer in itself than in all.
    fn assert_times_are_possible(&self, rows: &[Value]) {
        let most = self.elapsed + self.elapsed * CLOCKS / 1000;
        let number =
            |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{row}"));
        let mut own = 0;
        for row in rows {
            let [total, alone] = ["total_ns", "self_ns"].map(|name| number(row, name));
            assert!(alone <= total, "{row}");
            if self.calls.contains_key(row["function"].as_str().unwrap()) {
                assert!(total <= most, "{row}, and it ran for {most}");
                own += alone;
            }
        }
        assert!(own <= most, "{own} in all functions of {most}");
    }
}

fn read(words: &[&str], trace: &Path, directory: &Path) -> Ended {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.push(trace.into());
    start.directory = Some(directory.to_owned());
    start.run("")
}

/// Readers whose first line is a comment.
const TEXTS: [&[&str]; 12] = [
    &["report"],
    &["report", "--threads"],
    &["report", "--callers", "leaf"],
    &["report", "--callees", "climb"],
    &["report", "--net"],
    &["graph"],
    &["graph", "climb"],
    &["replay"],
    &["hist"],
    &["hist", "leaf"],
    &["dump", "--as", "function"],
    &["dump", "--as", "raw"],
];

/// Formats of other tools, which have no comments: nopal reports the loss on standard error.
const FOREIGN: [&[&str]; 4] = [
    &["dump", "--as", "devtrace"],
    &["dump", "--as", "folded"],
    &["dump", "--as", "folded", "--calls"],
    &["dump", "--as", "latency"],
];

const PICTURES: [&[&str]; 7] = [
    &["flame"],
    &["plot", "timeline"],
    &["plot", "cdf"],
    &["plot", "scatter"],
    &["plot", "latency", "climb"],
    &["plot", "hist", "leaf"],
    &["plot", "table", "leaf"],
];

const BEGIN: &str = "this trace is incomplete: ";

#[test]
fn every_reader_begins_with_what_was_lost() {
    let recorded = Recorded::new(&["--buffer", "256K"], ["3", "60000"]);
    let expected = "events were lost (for lack of room)";
    let begins = |line: &str, begin: &str| line.starts_with(begin) && line.contains(expected);
    for words in TEXTS {
        let ended = recorded.read(words);
        let first = ended.stdout.lines().next().unwrap_or_default();
        assert!(begins(first, &format!("# {BEGIN}")), "{words:?}: {first}");
    }
    for words in FOREIGN {
        let ended = recorded.read(words);
        let first = ended.stderr.lines().next().unwrap_or_default();
        assert!(
            begins(first, &format!("nopal: {BEGIN}")),
            "{words:?}: {first}"
        );
    }
    for words in PICTURES {
        let picture = recorded.picture(words);
        assert!(
            picture.contains(BEGIN) && picture.contains(expected),
            "{words:?}"
        );
    }
    for (words, losses) in [
        (&["report", "--json"][..], "/0/losses/events"),
        (&["report", "--json", "--net"], "/0/losses/events"),
        (&["hist", "--json"], "/losses/events"),
        (&["dump", "--as", "chrome"], "/otherData/losses/events"),
    ] {
        let json = recorded.json(words);
        let lost = json.pointer(losses).and_then(Value::as_u64);
        assert!(lost > Some(0), "{words:?}: {lost:?}");
    }
    let info = recorded.read(&["info"]).stdout;
    assert!(info.lines().any(|line| line.starts_with("lost ")), "{info}");
    assert!(recorded.said.contains(expected), "{}", recorded.said);
    let all = recorded.json(&["report", "--json"])[0]["losses"].clone();
    assert_eq!(all["events_by_reason"]["no_room"], all["events"], "{all}");
}

#[test]
fn after_losses_nothing_is_more_than_it_was() {
    let recorded = Recorded::new(&["--buffer", "256K"], ["3", "60000"]);
    for words in [&["report", "--json"][..], &["report", "--json", "--net"]] {
        let report = recorded.json(words);
        let rows = report.as_array().unwrap();
        recorded.assert_times_are_possible(rows);
        for row in rows {
            let gross = row["gross_total_ns"].as_u64().unwrap_or(u64::MAX);
            assert!(row["total_ns"].as_u64().unwrap() <= gross, "{row}");
        }
        let lost = rows[0]["losses"]["events"].as_u64().unwrap();
        let mut missing = 0;
        for (function, &calls) in &recorded.calls {
            let of_it = rows.iter().filter(|row| row["function"] == **function);
            let found: u64 = of_it.map(|row| row["calls"].as_u64().unwrap()).sum();
            assert!(found <= calls, "{function}: {found} calls of {calls}");
            missing += calls - found;
        }
        assert!(
            0 < missing && missing <= lost,
            "{missing} calls are missing, {lost} events lost"
        );
    }
    assert_calls_are_nested(&recorded.json(&["dump", "--as", "chrome"]));
}

/// Asserts that no call extends beyond its caller.
fn assert_calls_are_nested(chrome: &Value) {
    let mut calls: Vec<(u64, u64, &str)> = Vec::new();
    for event in chrome["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let [begin, length] = ["ts", "dur"].map(|name| event[name].as_f64().unwrap());
            let [begin, length] = [begin, length].map(|us| (us * 1000.0).round() as u64);
            calls.push((begin, begin + length, event["name"].as_str().unwrap()));
        }
    }
    assert!(calls.len() > 1000, "{} calls", calls.len());
    calls.sort_by_key(|&(begin, end, _)| (begin, std::cmp::Reverse(end)));
    let mut open: Vec<(u64, u64, &str)> = Vec::new();
    for call in calls {
        while open.pop_if(|caller| caller.1 <= call.0).is_some() {}
        if let Some(caller) = open.last() {
            // Both times are rounded.
            assert!(call.1 <= caller.1 + 1, "{call:?} in {caller:?}");
        }
        open.push(call);
    }
}

/// Events that a flight recorder gave up for newer ones are counted by reason, and by thread.
#[test]
fn what_a_flight_recorder_gave_up_is_counted() {
    let recorded = Recorded::new(&["--flight", "--buffer", "256K"], ["2", "60000"]);
    let threads = recorded.json(&["report", "--threads", "--json"]);
    let losses = &threads[0]["losses"];
    let reasons = losses["events_by_reason"].as_object().unwrap();
    let sum = reasons.values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(Some(sum), losses["events"].as_u64(), "{losses}");
    assert!(losses["packets"].is_null(), "told twice: {losses}");
    let dropped = reasons["dropped"].as_u64().unwrap();
    let rows = threads.as_array().unwrap().iter();
    let of_threads: u64 = rows.map(|row| row["lost"].as_u64().unwrap()).sum();
    assert!(
        0 < dropped && dropped <= of_threads && of_threads <= sum,
        "{of_threads} of threads, {losses}"
    );
    let text = recorded.read(&["report", "--threads"]).stdout;
    assert!(text.contains(" for newer ones"), "{text}");
    let of_none = "are of no thread here";
    assert_eq!(text.contains(of_none), of_threads < sum, "{text}");
}

/// Calls that were open at the first record are known from their begin; earlier calls within them are not.
#[test]
fn a_flight_recorder_knows_the_calls_that_were_open() {
    let recorded = Recorded::new(&["--flight", "--buffer", "256K"], ["2", "60000"]);
    let text = recorded.read(&["report"]).stdout;
    let first = text.lines().next();
    let begin = format!("# {BEGIN}");
    assert!(first.is_some_and(|line| line.starts_with(&begin)), "{text}");
    assert!(text.contains("≥ may be more"), "{text}");
    let report = recorded.json(&["report", "--json"]);
    let rows = report.as_array().unwrap();
    recorded.assert_times_are_possible(rows);
    let main = rows.iter().find(|row| row["function"] == "main").unwrap();
    let [total, own] = ["total_is_least", "self_is_least"].map(|name| main[name] == true);
    assert_eq!([total, own], [false, true], "{main}");
    // The call includes both rests.
    assert!(main["total_ns"].as_u64().unwrap() >= 40_000_000, "{main}");
}

#[test]
fn without_durations_there_are_counts() {
    let recorded = Recorded::new(&["--entry-only", "--block"], ["1", "5000"]);
    let why = "# no times: only the entries of calls were recorded: --entry-only was requested";
    for words in [
        &["report"][..],
        &["report", "--threads"],
        &["report", "--callers", "leaf"],
        &["graph"],
        &["graph", "climb"],
    ] {
        let text = recorded.read(words).stdout;
        assert_eq!(text.lines().next(), Some(why), "{words:?}");
        let is_unit = |word: &str| ["ns", "us", "ms", "s"].contains(&word);
        let has_time = |line: &&str| line.split_whitespace().any(is_unit);
        let timed = text.lines().skip(1).find(has_time);
        // The duration of a thread is known.
        assert!(
            timed.is_none() || words.contains(&"--threads"),
            "{words:?}: {timed:?}"
        );
    }
    let report = recorded.json(&["report", "--json"]);
    let rows = report.as_array().unwrap();
    let calls: Vec<u64> = rows
        .iter()
        .map(|row| row["calls"].as_u64().unwrap())
        .collect();
    assert!(calls.is_sorted_by(|one, next| one >= next), "{calls:?}");
    for (function, expected) in &recorded.calls {
        let row = rows
            .iter()
            .find(|row| row["function"] == **function)
            .unwrap();
        assert_eq!(row["calls"], *expected, "{row}");
        assert_eq!(
            (&row["total_ns"], &row["entries_only"]),
            (&0.into(), &true.into()),
            "{row}"
        );
    }
    let folded = recorded.read(&["dump", "--as", "folded"]);
    assert_eq!(folded.stdout, "");
    assert!(
        folded.stderr.contains("no times") && folded.stderr.contains("--calls"),
        "{folded:?}"
    );
    let flame = recorded.picture(&["flame"]);
    assert!(flame.contains("calls") && flame.contains("climb"));
    for words in [&["hist"][..], &["hist", "leaf"], &["plot", "table"]] {
        let ended = recorded.try_read(words);
        assert_eq!(ended.end, End::Code(1), "{words:?}: {}", ended.stdout);
        assert!(
            ended
                .stderr
                .contains("no such call was recorded to its end; no times: only the entries"),
            "{}",
            ended.stderr
        );
    }
    let path = recorded.read(&["report", "--hot-path"]).stdout;
    assert!(
        path.contains("no times") && !path.contains("main"),
        "{path}"
    );
}
