//! The live table of a running process, on a terminal.

use std::io::Write;

use nopal_tests::terminal::Terminal;
use nopal_tests::{End, Running, Start, c, nopal, scratch};

/// A program with a thread that calls functions all the time.
fn busy() -> Running {
    let program = c("phases", &[]).path;
    // A build may take longer than a program may run.
    nopal();
    let mut running = Start::new([program.into_os_string(), "busy".into()]).spawn();
    running.wait_for(|text| text.contains("phase 0\n"));
    running
}

fn top(process: i32) -> Start {
    let mut start = Start::new([nopal().as_os_str()]);
    start
        .words
        .extend(["top".into(), process.to_string().into()]);
    start
}

fn assert_goes_on(mut running: Running) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    let mut stdin = running.stdin();
    stdin.write_all(b"on\n").unwrap();
    running.wait_for(|text| text.contains("phase 1\n"));
    drop(stdin);
    let ended = running.wait();
    assert_eq!((ended.end, ended.stderr.as_str()), (End::Code(5), ""));
}

#[test]
fn a_process_is_watched_and_goes_on() {
    let running = busy();
    let scratch = scratch();
    let mut start = top(running.id());
    start
        .environment
        .push(("TMPDIR".into(), scratch.path().into()));
    let mut terminal = Terminal::start(&start);
    terminal.resize(120, 30);
    terminal.wait_for("calls/s");
    terminal.wait_for("descend");
    terminal.write("c ");
    terminal.wait_for("   off");
    terminal.write(" /desc");
    terminal.wait_for("filter:");
    terminal.write("\rq");
    assert_eq!(terminal.wait(), End::Code(0));
    assert_eq!(
        scratch.path().read_dir().unwrap().count(),
        0,
        "no file is left"
    );
    assert_goes_on(running);
}

#[test]
fn functions_that_are_off_to_hold_a_budget_are_shown() {
    let running = busy();
    let mut start = top(running.id());
    start.words.extend(["--budget", "0.1%"].map(Into::into));
    let mut terminal = Terminal::start(&start);
    terminal.resize(140, 30);
    // The terminal gets only the changes.
    terminal.wait_for("budget");
    terminal.wait_for("≥");
    terminal.write("q");
    assert_eq!(terminal.wait(), End::Code(0));
    assert_goes_on(running);
}

#[test]
fn what_ends_is_watched_to_its_end() {
    let mut running = busy();
    let mut terminal = Terminal::start(&top(running.id()));
    terminal.resize(120, 30);
    terminal.wait_for("descend");
    drop(running.stdin());
    assert_eq!(running.wait().end, End::Code(5));
    terminal.wait_for("has ended");
    assert_eq!(terminal.wait(), End::Code(0));
}

#[test]
fn without_a_terminal_it_is_refused() {
    let running = busy();
    let ended = top(running.id()).run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(ended.stderr.contains("terminal"), "{}", ended.stderr);
    assert_goes_on(running);
}

#[test]
fn a_terminal_that_is_closed_ends_it() {
    let running = busy();
    let mut terminal = Terminal::start(&top(running.id()));
    terminal.resize(120, 30);
    terminal.wait_for("descend");
    terminal.hang_up();
    assert_eq!(terminal.wait(), End::Code(0));
    assert_goes_on(running);
}
