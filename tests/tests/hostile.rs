//! Names that would command a terminal, forge a line, or end a string, wherever nopal shows names: they appear as text
//! of harmless characters, and each output keeps its format.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use nopal_tests::mounted::{Mounted, start};
use nopal_tests::{Case, End, Program, Start, c, nopal, scratch};
use serde_json::Value;

const NAMES: [&[u8]; 12] = [
    b"escape\x1b[2J\x1b]0;title\x07",
    b"newline\nnopal: forged",
    b"return\r\tforged\x0b\x0c\x08",
    b"no UTF-8 \xff\xfe\xc0\x80\xed\xa0\x80",
    b"quotes\"'`\\$(id);&|",
    b"<script>alert(1)</script>]]>&amp;",
    "turned\u{202e}\u{2066}\u{61c}\u{200f}".as_bytes(),
    "C1\u{9b}31m\u{85}\u{2028}\u{2029}\u{ffff}".as_bytes(),
    b"%s%n{0}\\u001b\\033",
    b"_ZN5\x1b[31m1fEv",
    b"../../a@b;c d/e,f#*?[",
    b"-o",
];

/// The program with these names, as a file.
fn program(path: PathBuf) -> Program {
    let compiled = c("hostile", &["-g0"]);
    let mut bytes = fs::read(&compiled.path).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let mark = format!("hostile_{number:02}{}", "_".repeat(40));
        let found = bytes
            .windows(mark.len())
            .position(|at| at == mark.as_bytes());
        let at = found.expect("the symbol table has it");
        bytes[at..][..name.len()].copy_from_slice(name);
        bytes[at + name.len()] = 0;
    }
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    Program::installed(path)
}

/// Asserts that a text has no forged line and no control character; no test requests colours.
fn assert_harmless(what: &dyn std::fmt::Debug, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    let harmful = |char: char| {
        char.is_control() && !"\n\t".contains(char)
            || matches!(
                char,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    };
    let at = text.find(harmful);
    let around = at.map(|at| text[text.floor_char_boundary(at.saturating_sub(80))..at].to_owned());
    assert_eq!(around, None, "{what:?}");
    let forged = text.lines().find(|line| line.starts_with("nopal: forged"));
    assert_eq!(forged, None, "{what:?}");
}

fn run(words: &[&OsStr], directory: &Path) -> Output {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.iter().map(OsString::from));
    start.directory = Some(directory.to_owned());
    let output = start.command().output().unwrap();
    assert_harmless(&words, &output.stderr);
    output
}

const READERS: [&[&str]; 38] = [
    &["diff"],
    &["diff", "--json"],
    &["flame", "-o", "change.svg", "--against"],
    &["report"],
    &["report", "--threads", "--json"],
    &["report", "--processes"],
    &["report", "--processes", "--json"],
    &["report", "--hot-path"],
    &["slow", "everything"],
    &["slow", "everything", "--json"],
    &["requests", "everything..everything.end"],
    &["requests", "everything..everything.end", "--json"],
    &["graph", "--per", "process"],
    &[
        "dump",
        "--as",
        "folded",
        "--until",
        "no such\u{1b}[2J\u{202e}",
    ],
    &["report", "--threads"],
    &["report", "--net"],
    &["report", "--callers", "everything"],
    &["report", "--callees", "everything"],
    &["report", "--json"],
    &["graph"],
    &["replay"],
    &["hist"],
    &["hist", "--json"],
    &["info"],
    &["flame", "-o", "flame.svg"],
    &["plot", "timeline", "-o", "timeline.svg"],
    &["plot", "cdf", "-o", "cdf.svg"],
    &["plot", "scatter", "-o", "scatter.svg"],
    &["plot", "table"],
    &["dump", "--as", "raw"],
    &["dump", "--as", "chrome"],
    &["dump", "--as", "folded"],
    &["dump", "--as", "folded", "--calls"],
    &["dump", "--as", "devtrace"],
    &["dump", "--as", "function"],
    &["dump", "--as", "latency"],
    &["report", "-F", "no such\u{1b}[2J\u{202e}"],
    &["hist", "no such\u{1b}[2J\u{202e}"],
];

#[test]
fn names_are_text_in_every_reader() {
    let scratch = scratch();
    let trace: PathBuf = scratch.path().join(OsStr::from_bytes(
        "trace\x1b[2J\nnopal: forged\u{202e}".as_bytes(),
    ));
    let directory = OsStr::from_bytes(b"\x1b[2J\nnopal: forged \xff\xe2\x80\xae<b>");
    let directory = scratch.path().join(directory);
    fs::create_dir(&directory).unwrap();
    let file = OsStr::from_bytes(b"program\x1b[31m\nnopal: forged\"");
    let case = Case::new(program(directory.join(file))).arguments([OsStr::from_bytes(
        b"\x1b[2J\nnopal: forged \xff\xe2\x80\xae",
    )]);
    let mut record = case.traced_start(&trace).command();
    let recorded = record.stdin(std::process::Stdio::null()).output().unwrap();
    assert_harmless(&"record", &recorded.stderr);
    assert_eq!(recorded.status.code(), Some(5), "{recorded:?}");
    for reader in READERS {
        let mut words: Vec<&OsStr> = reader.iter().map(OsStr::new).collect();
        let compares = reader.contains(&"diff") || reader.contains(&"--against");
        let traces = if compares { 2 } else { 1 };
        words.extend(std::iter::repeat_n(trace.as_os_str(), traces));
        let output = run(&words, scratch.path());
        assert_harmless(&reader, &output.stdout);
        let is_asked_for = reader.iter().all(|word| !word.starts_with("no such"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_asked_for, "{reader:?}: {said}");
        if reader.contains(&"--json") || reader.contains(&"chrome") {
            let parsed = serde_json::from_slice::<Value>(&output.stdout);
            parsed.unwrap_or_else(|error| panic!("{reader:?}: {error}"));
        }
    }
    for picture in [
        "flame.svg",
        "change.svg",
        "timeline.svg",
        "cdf.svg",
        "scatter.svg",
    ] {
        let text = fs::read(scratch.path().join(picture)).unwrap();
        assert_harmless(&picture, &text);
        assert!(
            !String::from_utf8(text).unwrap().contains("<script>alert"),
            "{picture}"
        );
    }
    let list = [OsStr::new("list"), case.program().path.as_os_str()];
    let list = run(&list, scratch.path());
    assert_harmless(&"list", &list.stdout);
    assert!(list.status.success());
    let report = run(&[OsStr::new("report"), trace.as_os_str()], scratch.path());
    let report = String::from_utf8(report.stdout).unwrap();
    for shown in [
        "escape",
        "newline",
        "turned",
        "quotes\"'`",
        "<script>",
        "xxxxxxxx",
    ] {
        assert!(report.contains(shown), "{shown} is missing");
    }
}

/// The names stand for nothing, or for a file that is neither trace nor program.
#[test]
fn names_are_text_in_error_messages() {
    let scratch = scratch();
    let name = OsStr::from_bytes(b"\x1b[2J\nnopal: forged \xff\xe2\x80\xae");
    let file = scratch.path().join("file");
    fs::write(&file, "no trace, and no program").unwrap();
    let hostile_file = scratch.path().join(name);
    fs::copy(&file, &hostile_file).unwrap();
    for words in [
        &["report"][..],
        &["info"],
        &["list"],
        &["record", "--"],
        &["record", "-o"],
        &["probe"],
        &["ctl", "1"],
        &["plot"],
        &["dump", "--as"],
        &["attach"],
        &["mount"],
    ] {
        for name in [name, hostile_file.as_os_str()] {
            let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            words.push(name);
            let output = run(&words, scratch.path());
            assert_harmless(&words, &output.stdout);
            assert!(!output.status.success(), "{words:?}");
        }
    }
}

#[test]
fn names_are_text_in_control_files() {
    let own = scratch();
    let mut mounted = Mounted::new(program(own.path().join("program")), "done\n", "*@program*");
    let process = mounted.program.id().to_string();
    let commands = "trace everything new e\ntrace e on\nquery everything\n";
    for (commands, status) in [
        (commands, 0),
        ("", 0),
        ("trace no\u{1b}[2J\u{202e} new n\n", 1),
        ("\u{1b}[2J\u{202e}\n", 1),
    ] {
        let ended = start(mounted.scratch.path(), &["ctl", &process]).run(commands);
        assert_eq!(
            ended.end,
            End::Code(status),
            "{commands:?}: {}",
            ended.stderr
        );
        assert_harmless(&commands, ended.stdout.as_bytes());
        assert_harmless(&commands, ended.stderr.as_bytes());
    }
    mounted.tell("again", "done\ndone\n");
    for script in [
        "cat ctl",
        "ls",
        "ls tracing",
        "cat tracing/available_filter_functions",
        "cat tracing/set_ftrace_filter",
        "cat tracing/trace",
        "echo function >tracing/current_tracer; cat tracing/trace",
    ] {
        let shown = mounted.good(script);
        assert!(!shown.is_empty(), "{script}");
        assert_harmless(&script, shown.as_bytes());
    }
    mounted.end(5);
}
