//! Names of C++ functions: the names shown, and the names that find a function.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nopal_tests::{Case, End, Recording, Start, compile, cxx, nopal, scratch};

fn recorded(options: &[&str]) -> Recording {
    let traced = Case::new(cxx("templates", &["-O1"]))
        .options(options)
        .traced();
    assert_eq!(traced.ended.end, End::Code(0), "{}", traced.ended.stderr);
    traced
}

fn shown(trace: &Path, options: &[&str]) -> Vec<String> {
    let mut start = Start::new([nopal().as_os_str(), "report".as_ref(), "--json".as_ref()]);
    start.words.extend(options.iter().map(Into::into));
    start.words.push(trace.into());
    let rows: serde_json::Value = serde_json::from_str(&start.run("").stdout).unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["function"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn names_are_short_full_or_raw() {
    let traced = recorded(&[]);
    let name = |style: &str, wanted: &str| {
        let names = shown(&traced.directory(), &["--names", style]);
        assert!(
            names.iter().any(|name| name == wanted),
            "{style}: {wanted} is not in {names:#?}"
        );
    };
    let short = shown(&traced.directory(), &[]);
    assert_eq!(short, shown(&traced.directory(), &["--names", "short"]));
    for expected in [
        "app::fib<5>",
        "app::join",
        "app::detail::Store<std::string>::put",
        "app::Square::area",
        "app::twice(int)",
        "app::twice(double)",
        "global constructors keyed to app::join",
    ] {
        name("short", expected);
    }
    let long = short
        .iter()
        .find(|name| name.contains("allocator") || name.contains("__cxx11"));
    assert_eq!(long, None);
    name("full", "int app::fib<5>()");
    name("full", "app::Square::area() const");
    name("raw", "_ZN3app3fibILi5EEEiv");
    name("raw", "_ZNK3app6Square4areaEv");
}

#[test]
fn a_function_is_found_by_what_its_source_calls_it() {
    for (glob, expected) in [
        ("fib*", vec!["app::fib<0>", "app::fib<1>", "app::fib<2>"]),
        ("fib<2>", vec!["app::fib<2>"]),
        ("twice", vec!["app::twice(double)", "app::twice(int)"]),
        (
            "Store<std::string>::put",
            vec!["app::detail::Store<std::string>::put"],
        ),
        ("*Store*", vec!["app::detail::Store<std::string>::put"]),
    ] {
        let mut names = shown(&recorded(&["-F", glob]).directory(), &["-s", "function"]);
        names.truncate(expected.len().max(3));
        assert_eq!(names, expected, "{glob}");
    }
}

#[test]
fn a_class_suggests_its_functions() {
    let scratch = scratch();
    let case = Case::new(cxx("templates", &["-O1"])).options(["-F", "Store"]);
    let said = case
        .traced_start(&scratch.path().join("trace"))
        .run("")
        .stderr;
    let expected =
        "no function matches Store; the nearest are app::detail::Store<std::string>::put";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_table_in_a_pipe_has_160_columns_or_as_many_as_are_asked_for() {
    let traced = recorded(&[]);
    let longest = |columns: Option<&str>| {
        let mut start = Start::new([nopal().as_os_str(), "report".as_ref(), "--names".as_ref()]);
        start.words.push("full".into());
        start.words.push(traced.directory().into());
        let columns = columns.map(|columns| ("COLUMNS".into(), columns.into()));
        start.environment.extend(columns);
        let table = start.run("").stdout;
        let in_libraries = table.lines().filter(|line| line.contains("  libst"));
        in_libraries.map(|line| line.chars().count()).max().unwrap()
    };
    assert_eq!(longest(None), 160);
    assert_eq!(longest(Some("100")), 100);
    assert!(longest(Some("1000")) > 300);
}

#[test]
fn calls_have_their_places_in_the_source() {
    let case = Case::new(cxx("templates", &["-O1", "-g"])).options(["-F", "*@templates*"]);
    let traced = case.traced();
    let replayed = |option: &str| {
        let mut start = Start::new([nopal().as_os_str(), "replay".as_ref(), option.as_ref()]);
        start.words.push(traced.directory().into());
        start.run("").stdout
    };
    let source = include_str!("../programs/templates.cc");
    let line_of = |text: &str| 1 + source.lines().position(|line| line.contains(text)).unwrap();
    let text = replayed("-l");
    for (function, declared) in [
        ("app::twice(int)", "int twice(int number)"),
        ("app::Square::area", "KEPT int area()"),
        ("app::join", "KEPT std::string join("),
    ] {
        let place = format!("templates.cc:{} */", line_of(declared));
        let mut lines = text.lines().filter(|line| line.contains(function));
        assert!(
            lines.any(|line| line.contains(&place)),
            "{function}, {place}:\n{text}"
        );
    }
    assert!(!replayed("-t0us").contains("templates.cc:"));
}

/// A script stands in for elfutils' program and for the servers that it asks.
#[test]
fn debug_files_of_servers_are_used_if_the_user_names_servers() {
    let scratch = scratch();
    let place = |name: &str| scratch.path().join(name);
    let program = compile("typed.c", &["gcc", "-g"], &["-O0"]);
    let run = |words: &[&OsStr]| {
        let ended = Start::new(words.iter().copied()).run("");
        assert_eq!(ended.end, End::Code(0), "{words:?}: {}", ended.stderr);
    };
    let (stripped, debug) = (place("stripped"), place("debug"));
    let (from, to) = (program.path.as_os_str(), debug.as_os_str());
    run(&["objcopy".as_ref(), "--only-keep-debug".as_ref(), from, to]);
    let to = stripped.as_os_str();
    run(&["objcopy".as_ref(), "--strip-debug".as_ref(), from, to]);
    let trace = place("trace");
    let (nopal, out) = (nopal(), trace.as_os_str());
    let record: [&OsStr; 4] = [nopal.as_os_str(), "record".as_ref(), "-o".as_ref(), out];
    run(&[&record[..], &[stripped.as_os_str()]].concat());
    fs::create_dir(place("bin")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", place("bin").display());
    let shown = |found: &Path, servers: Option<&str>| {
        let (asked, finder) = (place("asked"), place("bin/debuginfod-find"));
        let _ = fs::remove_file(&asked);
        let script = format!(
            "#!/bin/sh\necho $1 >> '{}'\necho '{}'\n",
            asked.display(),
            found.display()
        );
        fs::write(&finder, script).unwrap();
        fs::set_permissions(&finder, fs::Permissions::from_mode(0o755)).unwrap();
        let mut start = Start::new([nopal.as_os_str(), "slow".as_ref(), "many".as_ref(), out]);
        start.environment.push(("PATH".into(), path.clone().into()));
        let servers = servers.unwrap_or_default();
        start
            .environment
            .push(("DEBUGINFOD_URLS".into(), servers.into()));
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let asked = fs::read_to_string(&asked).unwrap_or_default();
        (
            ended.stdout.contains("; main calls it at "),
            asked.starts_with("debuginfo\n"),
        )
    };
    assert_eq!(shown(&debug, None), (false, false));
    assert_eq!(shown(&debug, Some("http://127.0.0.1:1/")), (true, true));
    // A debug file of another program is refused.
    let other = compile("calls.c", &["gcc", "-g"], &["-lm"]);
    assert_eq!(
        shown(&other.path, Some("http://127.0.0.1:1/")),
        (false, true)
    );
}
