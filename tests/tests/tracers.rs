//! Tracers of latency on a program that holds locks and blocks signals a known number of times.

use nopal_tests::{End, Program, Start, c, compile, nopal, scratch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program's longest case, in microseconds.
const LONG_US: u64 = 300_000;

fn program() -> Program {
    compile("latencies.c", &["gcc", "-std=gnu17", "-O2"], &["-pthread"])
}

fn run(words: &[&str], path: &Path) -> Output {
    Command::new(nopal())
        .args(words)
        .arg(path)
        .output()
        .unwrap()
}

/// The result of `nopal run`.
struct TracerRun {
    trace: PathBuf,
    /// The program's name for each thread, by its number.
    threads: BTreeMap<String, String>,
    output: String,
}

fn traced(switches: &[&str], folder: &Path) -> TracerRun {
    let trace = folder.join("trace");
    let words = ["run", "-o", trace.to_str().unwrap()];
    let ended = run(&[&words[..], switches].concat(), &program().path);
    let output = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{output}");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let thread = |line: &str| {
        let (name, number) = line.split_once(' ').unwrap();
        (number.to_owned(), name.to_owned())
    };
    let threads: BTreeMap<String, String> = said.lines().map(thread).collect();
    assert_eq!(threads.len(), 4, "{said}{output}");
    TracerRun {
        trace,
        threads,
        output,
    }
}

impl TracerRun {
    /// The number of cases of a tracer in each thread except the main one, which takes locks of libc's own.
    fn cases(&self, tracer: &str) -> BTreeMap<String, u64> {
        let output = run(&["hist", tracer, "--by", "thread", "--json"], &self.trace);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let groups = all["groups"].as_array().unwrap().iter();
        let named = groups.filter_map(|group| {
            let number = group["group"].as_str()?.split(' ').nth(1)?;
            Some((self.threads.get(number)?.clone(), group["count"].as_u64()?))
        });
        named.collect()
    }

    /// The latency in a tracer's latency trace, and its thread.
    fn worst(&self, tracer: &str) -> (u64, &str) {
        let head = format!("{tracer} latency trace v1.1.5 on ");
        let (_, trace) = self.output.split_once(&head).expect(&self.output);
        let part = |before: &str, after: &str| {
            let (_, rest) = trace.split_once(before).expect(trace);
            rest.split_once(after).expect(trace).0.to_owned()
        };
        let latency = part(" latency: ", " us").parse().unwrap();
        (latency, &self.threads[&part("    | task: latencies-", " ")])
    }
}

fn expected(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
    names
        .iter()
        .map(|(name, count)| (name.to_string(), *count))
        .collect()
}

#[test]
fn locks_are_held_as_often_and_as_long_as_they_are() {
    let folder = scratch();
    let traced = traced(&["-p", "-l"], folder.path());
    let held = [("hold_10", 10), ("hold_4", 4), ("hold_7", 7)];
    assert_eq!(
        traced.cases("lockhold"),
        expected(&held),
        "{}",
        traced.output
    );
    let waited = [("hold_10", 10), ("hold_4", 8), ("hold_7", 5)];
    assert_eq!(
        traced.cases("lockwait"),
        expected(&waited),
        "{}",
        traced.output
    );
    let (latency, thread) = traced.worst("lockhold");
    assert!(
        latency >= LONG_US && thread == "hold_10",
        "{}",
        traced.output
    );
    // The thread has ended by now.
    let (_, head) = traced.output.split_once("lockhold latency trace").unwrap();
    let task = head.lines().find(|line| line.contains("| task: ")).unwrap();
    // SAFETY: it cannot fail.
    let user = unsafe { libc::getuid() };
    assert!(task.contains(&format!("(uid:{user} nice:")), "{task}");
    assert!(!task.contains(":-"), "{task}");
    assert!(
        !traced.output.contains(" nanosleep+0x0"),
        "{}",
        traced.output
    );
}

#[test]
fn signals_are_blocked_as_often_and_as_long_as_they_are() {
    let folder = scratch();
    let traced = traced(&["-i", "-b"], folder.path());
    let blocked = [("block_5", 5)];
    assert_eq!(
        traced.cases("sigoff"),
        expected(&blocked),
        "{}",
        traced.output
    );
    let critical = [
        ("hold_10", 10),
        ("hold_4", 4),
        ("hold_7", 7),
        ("block_5", 5),
    ];
    assert_eq!(
        traced.cases("critical"),
        expected(&critical),
        "{}",
        traced.output
    );
    let (latency, thread) = traced.worst("sigoff");
    assert!(
        latency >= LONG_US && thread == "block_5",
        "{}",
        traced.output
    );
    assert!(traced.output.contains(" -d--"), "{}", traced.output);
}

#[test]
fn functions_stand_in_the_worst_case() {
    let folder = scratch();
    let traced = traced(&["-f", "-p"], folder.path());
    let mut lines = traced.output.lines();
    let line = lines.find(|line| line.contains("nanosleep+0x0/"));
    let (_, caller) = line.expect(&traced.output).split_once(" (").unwrap();
    assert!(caller.contains("+0x"), "where it is called: {caller}");
    let again = ["dump", "--as", "latency", "--of", "lockhold"];
    let again = run(&again, &traced.trace);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(traced.output.contains(&again), "{}\n{again}", traced.output);
}

#[test]
fn nothing_to_trace_is_told_and_the_program_does_not_run() {
    let ended = run(&["run"], &program().path);
    assert_eq!((ended.status.code(), ended.stdout), (Some(1), Vec::new()));
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(error.starts_with("nopal: nothing to trace: "), "{error}");
}

#[test]
fn what_runs_in_a_handler_is_marked_so() {
    let folder = scratch();
    let trace = folder.path().join("trace");
    let mut start = Start::new([nopal()]);
    let words = ["run", "-f", "-p", "-o", trace.to_str().unwrap()];
    start.words.extend(words.iter().map(Into::into));
    start.words.push(c("delays", &[]).path.into());
    let ended = start.run("catch 30\n");
    assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
    let flags = |call: &str| {
        let is_call = |line: &&str| line.contains(&format!(": {call}+0x0/"));
        let line = ended.stderr.lines().find(is_call).expect(&ended.stderr);
        let words = line.trim_start_matches(' ').split(' ');
        words.filter(|word| !word.is_empty()).nth(1).unwrap()
    };
    assert_eq!(flags("raise"), "----1", "{}", ended.stderr);
    assert_eq!(flags("handler"), "---h1", "{}", ended.stderr);
    assert_eq!(flags("inside_handler"), "---h1", "{}", ended.stderr);
}

#[test]
fn markers_may_be_missing_beside_something_else() {
    let folder = scratch();
    let traced = traced(&["-e", "-p"], folder.path());
    assert!(traced.output.contains("lockhold: "), "{}", traced.output);
}

/// The tracers of recorded events need neither markers nor any other preparation.
#[test]
fn events_and_switches_are_recorded_of_a_program_without_markers() {
    let folder = scratch();
    let traced = traced(&["-e", "-s"], folder.path());
    for tracer in ["events", "sched_switch"] {
        let hint = format!("`nopal dump --as latency --of {tracer} ");
        assert!(traced.output.contains(&hint), "{}", traced.output);
        let words = ["dump", "--as", "latency", "--of", tracer];
        let shown = run(&words, &traced.trace);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let title = format!("{tracer} latency trace v1.1.5 on ");
        assert!(text.starts_with(&title), "{text}");
        // SAFETY: asks for a number.
        let uid = unsafe { libc::getuid() };
        let task = format!(" (uid:{uid} nice:0 policy:0 rt_prio:0)\n");
        assert!(text.contains(&task), "{text}");
        assert!(text.contains(" --> "), "{text}");
        assert!(
            !text.contains("pthread_"),
            "no function is recorded: {text}"
        );
    }
}

#[test]
fn a_trace_that_cannot_be_read_says_so() {
    let folder = scratch();
    let trace = folder.path().join("trace");
    std::fs::create_dir(&trace).unwrap();
    std::fs::write(trace.join("metadata"), "no trace").unwrap();
    for words in [
        &["hist", "lockhold"][..],
        &["hist", "main"],
        &["plot", "timeline"],
        &["plot", "cdf", "main"],
        &["dump", "--as", "latency", "--of", "lockhold"],
    ] {
        let ended = run(words, &trace);
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {error}");
        let path = trace.to_str().unwrap();
        assert!(error.contains(path), "{words:?}: {error}");
    }
}
