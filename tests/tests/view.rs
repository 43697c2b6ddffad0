//! The timeline in a real browser: `tests/browser/page.mjs` drives Chromium.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nopal_tests::{Running, Start, c, node_packages, nopal, scratch};
use nopal_trace::synthetic::{self, Shape};
use serde_json::{Value, json};

/// Runs a script of `tests/browser`.
fn node(script: &Path, arguments: &[&Path]) {
    let output = Command::new("node")
        .arg(script)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Start {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.into_iter().map(Into::into));
    start
}

/// Starts `nopal view` of a trace, and returns the address that it prints.
fn view(trace: &Path) -> (Running, String) {
    view_all(&[trace.to_str().unwrap()])
}

fn view_all(what: &[&str]) -> (Running, String) {
    let mut running = words([&["view", "--no-browser"], what].concat()).spawn();
    let address = running.wait_for(|text| text.ends_with("/\n"));
    (running, address.trim_end().to_owned())
}

fn end(view: Running) {
    view.signal_group(libc::SIGINT);
}

/// The JSON that a command prints.
fn printed(command: &[&str], more: &[&str]) -> Value {
    let ended = words(command.iter().chain(more).copied()).run("");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Renames a trace's functions so that HTML could take them for markup.
fn make_hostile(trace: &Path) {
    let shape = Shape {
        calls_per_thread: 2000,
        ..Shape::default()
    };
    synthetic::write(trace, &shape).unwrap();
    let named = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        let name = "<img src=x onerror=alert(1)><script>alert(2)</script>&quot;'";
        text.replace("function_", &format!("{name}_")).into_bytes()
    };
    synthetic::notes_again(trace, named).unwrap();
}

#[test]
fn the_page_shows_a_trace_in_a_browser() {
    let tests = node_packages();
    let scratch = scratch();
    let [trace, hostile, growing] =
        ["made", "hostile", "growing"].map(|name| scratch.path().join(name));
    let shape = Shape {
        threads: 3,
        calls_per_thread: 300_000,
        ..Shape::default()
    };
    let truth = synthetic::write(&trace, &shape).unwrap();
    make_hostile(&hostile);
    let script = "import time\nwhile True: len(str(time.time())); time.sleep(0.02)";
    let output = growing.to_str().unwrap();
    let mut recording = words([
        "record",
        "-o",
        output,
        "--",
        "/usr/bin/python3",
        "-c",
        script,
    ])
    .spawn();
    recording
        .wait_until(|| fs::metadata(growing.join("stream-0")).is_ok_and(|file| file.len() > 0));

    let (from, until) = (1_000_000, 5_000_000);
    let [from_text, until_text] = [from, until].map(|ns| format!("{ns}ns"));
    let time = ["--from", &from_text, "--until", &until_text];
    let path = trace.to_str().unwrap();
    let rows = printed(&["report", "--json", path], &time);
    let wanted = "function_7";
    let hist = printed(&["hist", "--json", wanted, path], &time);
    let longest = printed(&["slow", "--json", "-n", "100", wanted, path], &[]);
    let longest = longest.as_array().unwrap().iter();
    let longest: Vec<&Value> = longest.map(|call| &call["duration_ns"]).collect();
    // The page puts the most active thread first.
    let threads = printed(&["report", "--threads", "--json", path], &[]);
    let threads = threads.as_array().unwrap().iter().rev();
    let most = threads
        .max_by_key(|thread| thread["calls"].as_u64())
        .unwrap();
    let most = most["thread"].to_string();
    let of_thread = printed(&["report", "--json", "--tid", &most, path], &time);
    let csv = scratch.path().join("csv");
    let export = ["export", "--as", "csv", "-o", csv.to_str().unwrap(), path];
    words(export.into_iter().chain(time)).run("");
    let (views, addresses): (Vec<Running>, Vec<String>) = [&trace, &hostile, &growing]
        .map(|trace| view(trace))
        .into_iter()
        .unzip();
    let plan = json!({
        "address": addresses[0],
        "hostile": addresses[1],
        "growing": addresses[2],
        "from": from,
        "until": until,
        "rows": rows,
        "wanted": wanted,
        "hist": hist,
        "longest": longest,
        "ofThread": of_thread,
        "csv": csv,
        "archive": scratch.path().join("archive"),
        "nopal": nopal(),
        "wantedCalls": truth.functions[7].calls,
    });
    let file = scratch.path().join("plan");
    fs::write(&file, plan.to_string()).unwrap();
    node(&tests.join("page.mjs"), &[&file]);
    views.into_iter().for_each(end);
    recording.signal_group(libc::SIGINT);
}

/// For each thread, how many lines of `nopal dump` show these events of the kernel for it.
fn times(dump: &str, mark: &str) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    let threads = dump
        .lines()
        .filter_map(|line| line.split_once(mark)?.1.split_once(':'));
    for (thread, _) in threads {
        *times.entry(thread.to_owned()).or_insert(0) += 1;
    }
    times
}

#[test]
fn the_page_shows_what_the_kernel_and_tracers_tell() {
    let tests = node_packages();
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let path = trace.to_str().unwrap();
    let program = c("viewed", &[]);
    let program = program.path.to_str().unwrap();
    let record = [
        "record", "-F", "*", "-M", "*", "--args", "-e", "sched", "-o", path, "--", program,
    ];
    let recorded = words(record).run("");
    assert_eq!(recorded.stdout, "done\n", "{recorded:?}");

    let selections = ["wakeup", "lockhold", "begun.id..served.id", "served.load"];
    let hists = selections.map(|what| {
        let hist = printed(&["hist", "--json", what, path], &[]);
        (what.to_owned(), hist)
    });
    let threads = printed(&["report", "--threads", "--json", path], &[]);
    let threads: Vec<Value> = threads
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["thread"].clone())
        .collect();
    let rows = printed(&["report", "--json", path], &[]);
    let mut rows = rows.as_array().unwrap().iter();
    let main = rows.find(|row| row["function"] == "main").unwrap();
    let dump = words(["dump", "--as", "function", path]).run("").stdout;
    let wakes = times(&dump, " + ");
    let wakes: u64 = threads
        .iter()
        .filter_map(|thread| wakes.get(&thread.to_string()))
        .sum();

    let (running, address) = view(&trace);
    let plan = json!({
        "address": address,
        "threads": threads,
        "switches": times(&dump, " --> "),
        "wakes": wakes,
        "hists": hists.into_iter().collect::<BTreeMap<_, _>>(),
        "main": main,
        "typed": { "function": "serve", "values": r"\(number=\d+\)", "source": "viewed.c:" },
    });
    let file = scratch.path().join("plan");
    fs::write(&file, plan.to_string()).unwrap();
    node(&tests.join("tracks.mjs"), &[&file]);
    end(running);
}

#[test]
fn the_page_shows_two_traces_beside_each_other() {
    let tests = node_packages();
    let scratch = scratch();
    let program = c("compared", &[]);
    let program = program.path.to_str().unwrap();
    let [one, other, growing] = ["one", "other", "growing"].map(|name| {
        let path = scratch.path().join(name);
        path.to_str().unwrap().to_owned()
    });
    for (trace, requests) in [(&one, "20000"), (&other, "60000")] {
        let recorded = words(["record", "-o", trace, "--", program, requests]).run("");
        assert!(recorded.stderr.contains("events"), "{recorded:?}");
    }
    let mut recording = words([
        "record",
        "-o",
        &growing,
        "--",
        "/usr/bin/python3",
        "-c",
        SLEEPS,
    ])
    .spawn();
    let process = recording.wait_for(|text| text.ends_with('\n'));
    let stream = Path::new(&growing).join("stream-0");
    recording.wait_until(|| fs::metadata(&stream).is_ok_and(|file| file.len() > 0));

    let ranges = [(5_000_000, 15_000_000), (20_000_000, 50_000_000)];
    let reports = [(&one, ranges[0]), (&other, ranges[1])].map(|(trace, (from, until))| {
        let [from, until] = [from, until].map(|ns| format!("{ns}ns"));
        let time = ["--from", &from, "--until", &until];
        printed(&["report", "--json", trace], &time)
    });
    let (running, address) = view_all(&[&one, &other]);
    let (follows, follows_address) = view_all(&[&one, process.trim()]);
    let plan = json!({
        "address": address,
        "growing": follows_address,
        "ranges": ranges,
        "whole": printed(&["diff", "--json", &one, &other], &[]),
        "reports": reports,
        "clicked": "lookup",
    });
    let file = scratch.path().join("plan");
    fs::write(&file, plan.to_string()).unwrap();
    node(&tests.join("beside.mjs"), &[&file]);
    [running, follows].into_iter().for_each(end);
    recording.signal_group(libc::SIGINT);
}

/// Prints its number, and calls functions for ever.
const SLEEPS: &str = "import os, time\nprint(os.getpid(), flush=True)\nwhile True: len(str(time.time())); time.sleep(0.02)";

#[test]
fn what_is_not_a_second_trace_is_told() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    synthetic::write(&trace, &Shape::default()).unwrap();
    let trace = trace.to_str().unwrap();
    let own = std::process::id().to_string();
    let no_trace = scratch.path().to_str().unwrap();
    let refused = [
        (&[trace, no_trace][..], format!("{no_trace} is not a trace")),
        (&[trace, "/none"], "there is no /none".to_owned()),
        (
            &[trace, &own],
            format!("process {own} is not being recorded"),
        ),
        (
            &[trace, trace, "third"],
            "unexpected value 'third'".to_owned(),
        ),
    ];
    for (what, why) in refused {
        let ended = words([&["view", "--no-browser"], what].concat()).run("");
        assert!(ended.stderr.contains(&why), "{ended:?}");
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn the_page_s_types_fit_together() {
    let tests = node_packages();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/view/tsconfig.json");
    let compiler = tests.join("node_modules/typescript/bin/tsc");
    node(&compiler, &[Path::new("--project"), &project]);
}

#[test]
fn a_port_in_use_and_a_process_that_is_not_recorded_are_told() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    synthetic::write(&trace, &Shape::default()).unwrap();
    let (running, address) = view(&trace);
    let port = address.split([':', '/']).nth(4).unwrap();
    let again = words([
        "view",
        "--no-browser",
        "--port",
        port,
        trace.to_str().unwrap(),
    ])
    .run("");
    let why = format!("nopal: cannot listen on port {port} of 127.0.0.1: ");
    assert!(again.stderr.contains(&why), "{again:?}");
    end(running);
    let own = std::process::id().to_string();
    let process = words(["view", &own]).run("");
    let why = format!("nopal: process {own} is not being recorded");
    assert!(process.stderr.contains(&why), "{process:?}");
}
