//! Numbers of calls: those that a trace reports, and those that a program is known to make.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::paths::nopal;
use crate::process::wait_until;
use crate::run::{End, Start};

/// The markers and probes that were passed, in each thread's order: the text behind ` marker ` in the raw dump.
pub fn passed(trace: &Path) -> Vec<String> {
    let mut start = Start::new([nopal().as_os_str()]);
    let words = ["dump", "--as", "raw"].map(Into::into);
    start.words.extend(words.into_iter().chain([trace.into()]));
    let raw = start.run("");
    assert_eq!(raw.end, End::Code(0), "{}", raw.stderr);
    let lines = raw.stdout.lines();
    let passed = lines.filter_map(|line| line.split_once(" marker "));
    passed.map(|(_, what)| what.to_owned()).collect()
}

/// Waits until a trace has its end, which the guardian writes where the tool was killed.
pub fn wait_for_end(trace: &Path) {
    wait_until("the trace has its end", || {
        let notes = std::fs::read_to_string(trace.join("session/notes"));
        notes.is_ok_and(|notes| notes.contains("{\"End\":"))
    });
}

/// `nopal report --json`, with functions as their sources declare them: the rows as they are.
#[derive(Debug, Clone)]
pub struct Report {
    pub rows: Vec<Value>,
}

impl Report {
    pub fn of(trace: &Path) -> Report {
        let mut start = Start::new([nopal().as_os_str()]);
        let words = ["report", "--json", "--names", "full"].map(Into::into);
        start.words.extend(words.into_iter().chain([trace.into()]));
        let ended = start.run("");
        assert_eq!(
            ended.end,
            End::Code(0),
            "nopal report failed: {}",
            ended.stderr
        );
        let rows: Value = serde_json::from_str(&ended.stdout).expect("the report is JSON");
        Report {
            rows: rows.as_array().expect("the report is an array").clone(),
        }
    }

    /// Calls of a function, in all modules together; 0 where it does not occur.
    pub fn calls(&self, function: &str) -> u64 {
        self.rows_of(function)
            .map(|row| row["calls"].as_u64().expect("calls is a number"))
            .sum()
    }

    pub fn rows_of(&self, function: &str) -> impl Iterator<Item = &Value> {
        self.rows
            .iter()
            .filter(move |row| row["function"] == function)
    }

    /// The calls of each function for whose name `key` returns a key.
    pub fn calls_of<Key>(&self, key: impl Fn(&str) -> Option<Key>) -> Vec<(Key, u64)> {
        let calls = self.rows.iter().filter_map(|row| {
            let key = key(row["function"].as_str()?)?;
            Some((key, row["calls"].as_u64().expect("calls is a number")))
        });
        calls.collect()
    }

    pub fn total_calls(&self) -> u64 {
        self.rows
            .iter()
            .map(|row| row["calls"].as_u64().expect("calls is a number"))
            .sum()
    }

    pub fn functions(&self) -> Vec<&str> {
        self.rows
            .iter()
            .map(|row| row["function"].as_str().expect("function is a string"))
            .collect()
    }

    /// Panics with all differences.
    pub fn assert_calls(&self, expected: &BTreeMap<String, u64>) {
        let wrong = self.difference(expected);
        assert!(wrong.is_empty(), "calls differ:\n{wrong}");
    }

    /// A line for each function that was not called as often as expected.
    pub fn difference(&self, expected: &BTreeMap<String, u64>) -> String {
        let wrong: Vec<String> = expected
            .iter()
            .filter(|&(function, &calls)| self.calls(function) != calls)
            .map(|(function, calls)| {
                format!("{function}: {} instead of {calls}", self.calls(function))
            })
            .collect();
        wrong.join("\n")
    }
}

/// The lines `// calls: NUMBER FUNCTION` of a source.
pub fn expected_calls(source: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(source).expect("the source is there");
    text.lines()
        .filter_map(|line| parse(line.strip_prefix("// ")?))
        .collect()
}

/// Takes the lines `calls: NUMBER FUNCTION` out of a program's output. Those of one function add up.
pub fn announced_calls(output: &str) -> (String, BTreeMap<String, u64>) {
    let mut rest = String::new();
    let mut calls = BTreeMap::new();
    for line in output.split_inclusive('\n') {
        match parse(line.trim_end()) {
            Some((function, number)) => *calls.entry(function).or_default() += number,
            None => rest.push_str(line),
        }
    }
    (rest, calls)
}

fn parse(line: &str) -> Option<(String, u64)> {
    let (number, function) = line.strip_prefix("calls: ")?.split_once(' ')?;
    Some((function.to_owned(), number.parse().ok()?))
}
