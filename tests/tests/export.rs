//! Exports, read back by the programs of their formats' authors, hold the calls that `nopal report` shows.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nopal_tests::{Case, End, Start, c, node_packages, nopal, scratch, target_directory};
use serde_json::Value;

fn run(words: &[&str], directory: &Path) -> nopal_tests::Ended {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.directory = Some(directory.to_owned());
    start.run("")
}

/// Exports the trace `trace` of a directory.
fn export(format: &str, options: &[&str], directory: &Path) -> String {
    let words = ["export", "--as", format, "-o", format];
    let ended = run(&[&words, options, &["trace"]].concat(), directory);
    assert_eq!(ended.end, End::Code(0), "{format}: {}", ended.stderr);
    ended.stderr
}

/// The result of `tests/exports/read.py` for an export.
fn read(format: &str, directory: &Path) -> Value {
    let python = target_directory().join("exports/bin/python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("exports/read.py");
    let mut command = Command::new(python);
    command.arg(script).arg(format).arg(directory.join(format));
    let output = command
        .output()
        .expect("`.ci/packages test` has made the environment");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{format}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The sums by function, as `go tool pprof` shows a sample of this type.
fn pprof(kind: &str, directory: &Path) -> BTreeMap<String, u64> {
    let mut command = Command::new("go");
    let index = format!("-sample_index={kind}");
    command.args([
        "tool",
        "pprof",
        "-top",
        "-nodecount=0",
        "-nodefraction=0",
        "-edgefraction=0",
    ]);
    command
        .args(["-unit=ns", &index, "pprof"])
        .current_dir(directory);
    let output = command.output().expect("go");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1);
    rows.map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        let value = words[0].trim_end_matches("ns");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{row}"));
        (words[5..].join(" "), value as u64)
    })
    .collect()
}

/// The self times of functions in nanoseconds, as the command line of Firefox's profiler shows them.
fn firefox(directory: &Path) -> BTreeMap<String, u64> {
    let package = node_packages().join("node_modules/@firefox-devtools/profiler-cli");
    let script = package.join("dist/profiler-cli.js");
    let start = |words: &[&str]| {
        let mut start = Start::new([OsStr::new("node"), script.as_os_str()]);
        start.words.extend(words.iter().map(Into::into));
        start.words.extend(["--session", "one"].map(Into::into));
        // Sessions have sockets, whose names must be short.
        let sessions = ("PROFILER_CLI_SESSION_DIR".into(), "sessions".into());
        start.environment.push(sessions);
        start.directory = Some(directory.to_owned());
        start
    };
    let mut server = start(&["--daemon", "firefox"]).spawn();
    // The server and each of its clients start as slowly as a browser: on a busy machine, for minutes.
    server.be_patient(Duration::from_secs(600));
    let is_ready = || start(&["profile", "info"]).run("").end == End::Code(0);
    server.wait_until(is_ready);
    let profile = std::fs::read(directory.join("firefox")).unwrap();
    let profile: Value = serde_json::from_slice(&profile).expect("JSON");
    let mut own = BTreeMap::new();
    for thread in 0..profile["threads"].as_array().expect("threads").len() {
        let thread = format!("--thread=t-{thread}");
        let words = ["thread", "functions", "--json", "--include-idle"];
        let ended = start(&[&words[..], &["--limit=0", &thread]].concat()).run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        for row in found["functions"].as_array().expect("functions") {
            let name = row["name"].as_str().expect("a name").to_owned();
            let milliseconds = row["selfSamples"].as_f64().expect("a number");
            *own.entry(name).or_insert(0) += (milliseconds * 1e6).round() as u64;
        }
    }
    own
}

fn numbers(value: &Value) -> BTreeMap<String, u64> {
    let numbers = value.as_object().expect("an object").iter();
    let numbers = numbers.map(|(name, number)| (name.clone(), number.as_u64().expect("a number")));
    numbers.filter(|(_, number)| *number > 0).collect()
}

/// Sums of a member of the report's rows, by function.
fn report(member: &str, options: &[&str], directory: &Path) -> BTreeMap<String, u64> {
    let ended = run(
        &[&["report", "--json"], options, &["trace"]].concat(),
        directory,
    );
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let rows: Vec<Value> = serde_json::from_str(&ended.stdout).expect("JSON");
    let mut sums = BTreeMap::new();
    for row in rows {
        let name = row["function"].as_str().expect("a name").to_owned();
        *sums.entry(name).or_insert(0) += row[member].as_u64().expect("a number");
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

fn assert_near(
    found: &BTreeMap<String, u64>,
    expected: &BTreeMap<String, u64>,
    calls: &BTreeMap<String, u64>,
) {
    for (name, number) in expected {
        // Each call is rounded to nanoseconds.
        let slack = number / 1000 + 2 * calls.get(name).copied().unwrap_or(0) + 2;
        let found = found.get(name).copied().unwrap_or(0);
        assert!(
            found.abs_diff(*number) <= slack,
            "{name}: {found} for {number}"
        );
    }
}

const FORMATS: [&str; 6] = [
    "perfetto",
    "firefox",
    "speedscope",
    "csv",
    "parquet",
    "pprof",
];

#[test]
fn viewers_find_the_calls_of_the_report() {
    for program in ["calls", "coroutines", "longjmp"] {
        let recorded = scratch();
        let case = Case::new(c(program, &[]));
        let ended = case.traced_start(&recorded.path().join("trace")).run("");
        assert_eq!(ended.end, End::Code(0), "{program}: {}", ended.stderr);
        let directory = recorded.path();
        let calls = report("calls", &[], directory);
        let own = report("self_ns", &[], directory);
        assert!(!calls.is_empty());
        for format in FORMATS {
            export(format, &[], directory);
            if format == "pprof" {
                assert_eq!(pprof("calls", directory), calls, "{program}");
                assert_near(&pprof("time", directory), &own, &calls);
                continue;
            }
            let found = read(format, directory);
            // These formats have no place for entries alone, and begin a coroutine's calls again each time that the
            // thread returns to them.
            let is_evented = ["firefox", "speedscope"].contains(&format);
            if !is_evented || program == "calls" {
                assert_eq!(numbers(&found["calls"]), calls, "{program} {format}");
            }
            if ["csv", "parquet"].contains(&format) {
                assert_near(&numbers(&found["ns"]), &own, &calls);
            }
            if format == "firefox" && program == "calls" {
                assert_near(&firefox(directory), &own, &calls);
            }
            assert_eq!(found["losses"], Value::Null, "{program} {format}");
        }
    }
}

/// `741.90µs (76%)` in nanoseconds.
fn nanoseconds(text: &str) -> u64 {
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let time = text.split_whitespace().next().unwrap_or_default();
    let found = units.into_iter().find_map(|(unit, ns)| {
        let number: f64 = time.strip_suffix(unit)?.parse().ok()?;
        Some((number * ns).round() as u64)
    });
    found.unwrap_or_else(|| panic!("no time: {text}"))
}

#[test]
fn speedscope_itself_shows_the_times_of_the_report() {
    let packages = node_packages();
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[]));
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    export("speedscope", &[], directory);
    let shown = Command::new("node")
        .arg(packages.join("speedscope.mjs"))
        .arg(packages.join("node_modules/speedscope/dist/release"))
        .arg(directory.join("speedscope"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&shown.stderr);
    let rows: Vec<[String; 3]> =
        serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    let [calls, totals, own] =
        ["calls", "total_ns", "self_ns"].map(|member| report(member, &[], directory));
    let is_near = |shown: &str, name: &str, times: &BTreeMap<String, u64>| {
        let [time, calls] = [times, &calls].map(|of| of.get(name).copied().unwrap_or(0));
        // Each call is rounded to nanoseconds, and the time to two digits behind the point.
        let slack = time / 100 + 2 * calls + 10;
        assert!(
            nanoseconds(shown).abs_diff(time) <= slack,
            "{name}: {shown} for {time}"
        );
    };
    assert_eq!(rows[0], ["Total", "Self", "Symbol Name"]);
    for [total, its_own, name] in &rows[1..] {
        is_near(its_own, name, &own);
        // It counts a call within a call of the same function once.
        if name == "main" {
            is_near(total, name, &totals);
        }
    }
    // It makes only the rows that are in sight.
    let has = |name: &str| rows.iter().any(|row| row[2] == name);
    assert!(rows.len() > 10 && has("main") && has("fib"), "{rows:?}");
}

#[test]
fn exports_tell_what_was_lost_and_no_more_calls_than_there_are() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("lossy", &[])).options(["--buffer", "256K"]);
    let case = case.arguments(["3", "60000"]);
    let start = case.traced_start(&directory.join("trace"));
    let ended = start.on_one_processor().run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let calls = report("calls", &[], directory);
    for format in FORMATS {
        let said = export(format, &[], directory);
        if format == "pprof" {
            assert_eq!(pprof("calls", directory), calls);
            continue;
        }
        let found = read(format, directory);
        assert_eq!(numbers(&found["calls"]), calls, "{format}");
        let tells = match format {
            "csv" => said,
            _ => found["losses"].as_str().unwrap_or_default().to_owned(),
        };
        assert!(
            tells.contains("this trace is incomplete"),
            "{format}: {tells}"
        );
    }
    let found = read("perfetto", directory);
    let number = |name: &str| found[name].as_u64().expect("a number");
    assert!(number("bytes") <= 16 * number("events"), "{found}");
    export(
        "otlp",
        &["--span", "climb", "--span", "round_of"],
        directory,
    );
    let spans = numbers(&read("otlp", directory)["calls"]);
    assert!(spans["climb"] <= calls["climb"], "{spans:?}");
}

#[test]
fn perfetto_names_arguments_and_results() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[])).options(["--args"]);
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    export("perfetto", &[], directory);
    let found = read("perfetto", directory);
    let calls: u64 = numbers(&found["calls"]).values().sum();
    let values = numbers(&found["values"]);
    assert!(calls > 0 && values["result"] > 0, "{found}");
    assert_eq!([values["arg1"], values["arg6"]], [calls; 2], "{found}");
}

#[test]
fn a_part_of_the_time_has_only_the_calls_in_it() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("lossy", &[])).options(["--block"]);
    let ended = case
        .arguments(["3", "3000"])
        .traced_start(&directory.join("trace"))
        .run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let part = ["--from", "20%", "--until", "80%"];
    let expected = report("total_ns", &part, directory);
    assert!(expected.contains_key("main"), "{expected:?}");
    for format in ["perfetto", "firefox", "speedscope"] {
        export(format, &part, directory);
        let times = numbers(&read(format, directory)["ns"]);
        // A call within a call of the same function counts twice there.
        for name in ["main", "round_of"] {
            // On a busy machine, no round may fall into that time.
            let [found, expected] =
                [&times, &expected].map(|times| times.get(name).copied().unwrap_or(0));
            assert!(
                found.abs_diff(expected) <= expected / 1000 + 10,
                "{format} {name}: {found} for {expected}"
            );
        }
    }
}

/// Every reader takes a part that was written as a trace, and shows what it shows of that part of the whole.
#[test]
fn a_part_is_a_trace() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("lossy", &[])).options(["--block"]);
    let case = case.arguments(["3", "3000"]);
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let part = ["--from", "20%", "--until", "80%"];
    let shown = |words: &[&str], options: &[&str], of: &str| {
        let ended = run(&[words, options, &[of]].concat(), directory);
        assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
        ended.stdout
    };
    let export = ["export", "--as", "trace", "-o"];
    shown(&[&export[..], &["part"]].concat(), &part, "trace");
    for words in [
        &["report", "--json"][..],
        &["dump", "--as", "folded"],
        &["report", "--json", "--callers", "climb"],
    ] {
        let (whole, part) = (shown(words, &part, "trace"), shown(words, &[], "part"));
        assert!(
            !whole.is_empty() && whole == part,
            "{words:?}:\n{whole}\n{part}"
        );
    }
    for words in [
        &["replay"][..],
        &["graph"],
        &["hist", "climb"],
        &["slow", "climb"],
        &["flame", "-o", "flame.svg"],
        &["dump", "--as", "raw"],
        &["dump", "--as", "chrome"],
        &["diff", "trace"],
        &["export", "--as", "csv"],
    ] {
        shown(words, &[], "part");
    }
    let told = shown(&["info"], &[], "part");
    assert!(told.contains("selection  of the trace "), "{told}");
    let mode = |name: &str| {
        let found = std::fs::metadata(directory.join(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    let modes = [
        "part",
        "part/session/notes",
        "part/stream-0",
        "part/metadata",
    ]
    .map(mode);
    assert_eq!(modes, [0o700, 0o600, 0o600, 0o600]);
    // Calls cannot be left out, and no directory is overwritten.
    for (options, name) in [
        (&["-F", "climb"][..], "other"),
        (&part, "part"),
        (&part, "trace"),
    ] {
        let words = [&export[..], &[name], options, &["trace"]].concat();
        let ended = run(&words, directory);
        assert_eq!(
            ended.end,
            End::Code(1),
            "{options:?} {name}: {}",
            ended.stderr
        );
    }
    let mut names: Vec<_> = std::fs::read_dir(directory).unwrap().collect();
    names.retain(|name| name.as_ref().unwrap().path().is_dir());
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Only the entries of the calls are known: each is in the selected time or not.
#[test]
fn a_part_of_the_time_has_only_the_entries_in_it() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[])).options(["--entry-only"]);
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let part = ["--from", "50%"];
    let calls: u64 = report("calls", &part, directory).values().sum();
    let all: u64 = report("calls", &[], directory).values().sum();
    assert!((1..all).contains(&calls), "{calls} of {all}");
    export("csv", &part, directory);
    let table = std::fs::read_to_string(directory.join("csv")).unwrap();
    assert_eq!(table.lines().count() as u64, 1 + calls);
    let words = ["dump", "--as", "chrome", "--from", "50%", "trace"];
    let text = run(&words, directory).stdout;
    assert_eq!(text.matches("\"ph\":\"i\"").count() as u64, calls);
}

/// The records before that time are read as calls, too, since no state before it tells which calls are open.
#[test]
fn a_part_of_the_time_has_the_spans_in_it_behind_a_jump() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("uncertain", &[])).options(["--block"]);
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let part = ["--from", "90%"];
    let expected = report("calls", &part, directory)["leaf"];
    let said = export(
        "otlp",
        &[&part[..], &["--span", "leaf"]].concat(),
        directory,
    );
    assert_eq!(
        numbers(&read("otlp", directory)["calls"])["leaf"],
        expected,
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[]));
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let full = run(
        &["export", "--as", "csv", "-o", "/dev/full", "trace"],
        directory,
    );
    assert_eq!(full.end, End::Code(1));
    assert!(full.stderr.contains("No space left"), "{}", full.stderr);
    let nowhere = run(
        &["export", "--as", "csv", "-o", "no/file", "trace"],
        directory,
    );
    assert_eq!(nowhere.end, End::Code(1));
    assert!(nowhere.stderr.contains("no/file"), "{}", nowhere.stderr);
    // Where files cannot grow, nothing is left of directories either, and the reason stands there once.
    let export = "export --as parquet -o made/tables trace";
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec '{}' {export}",
        nopal().display()
    );
    let mut limited = Command::new("sh");
    limited.args(["-c", &script]).current_dir(directory);
    let limited = limited.output().unwrap();
    assert_eq!(limited.status.code(), Some(1));
    let said = String::from_utf8_lossy(&limited.stderr);
    assert_eq!(said.matches("File too large").count(), 1, "{said}");
    assert!(!said.contains("External"), "{said}");
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1);
}

/// The files below a directory, by their relative paths.
fn files(directory: &Path) -> Vec<String> {
    let listed = Command::new("find")
        .args([".", "-type", "f", "-printf", "%P\n"])
        .current_dir(directory)
        .output()
        .expect("find");
    let text = String::from_utf8(listed.stdout).expect("text");
    let mut files: Vec<String> = text.lines().map(str::to_owned).collect();
    files.sort();
    files
}

const TABLES: [&str; 4] = ["calls", "durations", "functions", "traces"];

#[test]
fn a_trace_is_one_file_of_each_table_where_its_labels_say() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[]));
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let hostile = ["--label", "host=../../../x y", "--label", "version=a=b"];
    let labels = [
        &["--label", "service=first", "--label", "service=../cart"],
        &hostile[..],
    ]
    .concat();
    for _ in 0..2 {
        export("parquet", &labels, directory);
        let tables = directory.join("parquet");
        let found = files(&tables);
        assert_eq!(found.len(), TABLES.len(), "{found:?}");
        for (file, table) in found.iter().zip(TABLES) {
            let parts: Vec<&str> = file.split('/').collect();
            let [of, day, service, version, host, part] = parts[..] else {
                panic!("{file}");
            };
            assert_eq!(of, table);
            assert!(day.starts_with("date=20") && day.len() == 15, "{day}");
            assert_eq!(service, "service=..%2Fcart");
            assert_eq!(version, "version=a%3Db");
            assert_eq!(host, "host=..%2F..%2F..%2Fx%20y");
            assert!(part.starts_with("part-") && part.ends_with(".parquet"));
        }
    }
    let names = std::fs::read_dir(directory).unwrap().count();
    assert_eq!(names, 2, "only the trace and the tables");
    std::fs::remove_dir_all(directory.join("parquet")).unwrap();
    export("parquet", &["--functions-only"], directory);
    let found = files(&directory.join("parquet"));
    assert_eq!(found.len(), TABLES.len() - 1, "{found:?}");
    assert!(found[0].starts_with("durations/") && found[0].contains("/service=calls"));
    for wrong in ["host", "host=", "date=2026-11-21", "..=x"] {
        let words = [
            "export", "--as", "parquet", "--label", wrong, "-o", "no", "trace",
        ];
        assert_eq!(run(&words, directory).end, End::Code(2), "{wrong}");
    }
}

#[test]
fn a_table_that_cannot_be_written_is_not_there_and_its_trace_is_not_listed() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("calls", &[]));
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let tables = directory.join("parquet");
    std::fs::create_dir(&tables).unwrap();
    std::fs::write(tables.join("functions"), "in the way").unwrap();
    let words = ["export", "--as", "parquet", "-o", "parquet", "trace"];
    let ended = run(&words, directory);
    assert_eq!(ended.end, End::Code(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("table functions"), "{}", ended.stderr);
    let found = files(&tables);
    assert!(found.contains(&"functions".to_owned()), "{found:?}");
    assert!(
        !found.iter().any(|file| file.starts_with("traces")),
        "{found:?}"
    );
    let nowhere = ["export", "--as", "parquet", "trace"];
    assert_eq!(
        run(&nowhere, directory).end,
        End::Code(2),
        "a directory is needed"
    );
}
