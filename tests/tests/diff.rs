//! `nopal diff` and `nopal flame --against` on recorded versions of a program.

use std::fs;
use std::path::Path;

use nopal_tests::{Case, End, Ended, Start, c, nopal, scratch};
use serde_json::Value;

fn run(words: &[&str], directory: &Path) -> Ended {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.directory = Some(directory.to_owned());
    start.run("")
}

fn shown(words: &[&str], directory: &Path) -> String {
    let ended = run(words, directory);
    assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
    ended.stdout
}

/// Records a version, with a number of requests.
fn record(trace: &Path, flags: &[&str], requests: &str) {
    let case = Case::new(c("compared", flags)).arguments([requests]);
    let ended = case.traced_start(trace).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
}

const SLOW: &[&str] = &["-DSLOW=100"];

/// The rows of a comparison, and the functions with a significant difference.
fn compared(words: &[&str], directory: &Path) -> (Value, Vec<String>) {
    let text = shown(&[&["diff", "--json"], words].concat(), directory);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let rows = json["functions"].as_array().expect("rows");
    let significant = rows.iter().filter(|row| row["significant"] == true);
    let names = significant.map(|row| row["function"].as_str().expect("a name").to_owned());
    let names = names.collect();
    (json, names)
}

fn row<'a>(json: &'a Value, function: &str) -> &'a Value {
    let rows = json["functions"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["function"] == function);
    row.unwrap_or_else(|| panic!("{function}: {json}"))
}

#[test]
fn a_function_that_became_slow_is_found() {
    let scratch = scratch();
    let directory = scratch.path();
    let several = ["old1", "old2", "old3", "--", "new1", "new2", "new3"];
    let record_all = || {
        for number in 1..=3 {
            record(&directory.join(format!("old{number}")), &[], "2000");
            record(&directory.join(format!("new{number}")), SLOW, "2000");
        }
    };
    record_all();
    // Chance makes an unchanged function significant in one comparison of 100, and in two in a row in one of 10,000.
    if compared(&several, directory)
        .1
        .contains(&"parse".to_owned())
    {
        record_all();
    }
    for (words, test) in [(&["old1", "new1"][..], "calls"), (&several, "runs")] {
        let (json, significant) = compared(words, directory);
        assert_eq!(json["test"], test);
        assert!(significant.contains(&"lookup".to_owned()), "{json}");
        // With one run a side, other work of the machine is significant, too.
        let parse_differs = significant.contains(&"parse".to_owned());
        assert!(test == "calls" || !parse_differs, "{json}");
        let lookup = row(&json, "lookup");
        assert_eq!(lookup["before"]["calls"], 2000.0);
        assert_eq!(lookup["after"]["calls"], 2000.0);
        assert!(lookup["change_ns"].as_f64().unwrap() > 0.0, "{lookup}");
        assert_eq!(row(&json, "removed")["after"], Value::Null);
        assert_eq!(row(&json, "added")["before"], Value::Null);
    }
    let text = shown(
        &[&["diff", "-F", "handle"], &several[..]].concat(),
        directory,
    );
    let lookup = text.lines().find(|line| line.contains("lookup")).unwrap();
    assert!(
        lookup.contains("2,000 → 2,000") && lookup.contains('*'),
        "{text}"
    );
    assert!(!text.contains("main"), "{text}");
    // The picture shows the new version, in which the function is red.
    shown(
        &["flame", "--against", "old1", "new1", "-o", "flame.svg"],
        directory,
    );
    let picture = fs::read_to_string(directory.join("flame.svg")).unwrap();
    let after = &picture[picture.find("<title>lookup").expect("a box")..];
    assert!(after[..after.find("</g>").unwrap()].contains("rgb(255,100,100)"));
    assert!(picture.contains("red: more self time than in old1"));
}

/// Chance makes an unchanged function significant in one comparison of 100, and in two in a row in one of 10,000.
#[test]
fn runs_of_one_version_do_not_differ() {
    let scratch = scratch();
    let directory = scratch.path();
    let mut found = Vec::new();
    for _ in 0..2 {
        let traces = ["a1", "b1", "a2", "b2", "a3", "b3"];
        for trace in traces {
            record(&directory.join(trace), &[], "2000");
        }
        let words = ["a1", "a2", "a3", "--", "b1", "b2", "b3"];
        let (json, significant) = compared(&words, directory);
        assert!(json["tested"].as_u64().unwrap() >= 3, "{json}");
        if significant.is_empty() {
            return;
        }
        found.push(json);
    }
    panic!("{found:?}");
}

#[test]
fn what_a_request_takes_is_compared_by_requests() {
    let scratch = scratch();
    let directory = scratch.path();
    record(&directory.join("old"), &[], "1000");
    record(&directory.join("new"), &[], "3000");
    let (json, _) = compared(&["--per", "handle", "old", "new"], directory);
    for side in ["before", "after"] {
        assert_eq!(row(&json, "lookup")[side]["calls"], 1.0, "{json}");
        assert_eq!(row(&json, "spin")[side]["calls"], 2.0, "{json}");
    }
    assert_eq!(json["per"], "handle");
    let text = shown(&["diff", "--per", "handle", "old", "new"], directory);
    assert!(
        text.starts_with("1 trace → 1 trace per call of handle (1,000 → 3,000)"),
        "{text}"
    );
    let ended = run(&["diff", "--per", "handel", "old", "new"], directory);
    assert_eq!(ended.end, End::Code(1));
    // Others follow if libc's functions have such names.
    let (_, nearest) = ended.stderr.split_once("; the nearest ").expect("a word");
    let is_first = ["is handle", "are handle,"].map(|text| nearest.starts_with(text));
    assert!(is_first.contains(&true), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let scratch = scratch();
    let directory = scratch.path();
    record(&directory.join("nopal.data"), &[], "10");
    let ended = run(&["diff"], directory);
    assert_eq!(ended.end, End::Code(1));
    assert!(ended.stderr.contains("nopal.data.old"), "{}", ended.stderr);
    record(&directory.join("nopal.data"), SLOW, "10");
    assert!(shown(&["diff"], directory).contains("lookup"));
    for words in [&["diff", "nopal.data"][..], &["diff", "a", "b", "c"]] {
        let ended = run(words, directory);
        assert_eq!(ended.end, End::Code(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("name "), "{}", ended.stderr);
    }
    let other = Case::new(c("compared", &[])).arguments(["10"]);
    let other = other.options(["-F", "lookup"]);
    let ended = other.traced_start(&directory.join("some")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let text = shown(&["diff", "nopal.data", "some"], directory);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("# recorded differently") && first.contains("some with -F lookup"),
        "{text}"
    );
}
