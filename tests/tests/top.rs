//! The live table of a running process, on a terminal.

use std::io::Write;
use std::time::Duration;

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

/// The calls per second in a row that says that its function is counted.
fn rate_of_counted(text: &str) -> Option<u64> {
    // Without the terminal's control sequences, which end with a letter.
    let mut pieces = text.split('\x1b');
    let mut plain = pieces.next()?.to_owned();
    for piece in pieces {
        let end = piece.find(|letter: char| letter.is_ascii_alphabetic());
        plain.push(' ');
        plain.push_str(&piece[end.map_or(piece.len(), |end| end + 1)..]);
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    let rates = words.windows(2).filter(|two| two[1] == "counted");
    rates
        .filter_map(|two| two[0].replace(',', "").parse().ok())
        .max()
}

#[test]
fn counted_calls_are_shown() {
    let running = busy();
    let mut terminal = Terminal::start(&top(running.id()));
    terminal.resize(140, 30);
    terminal.wait_for("descend");
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend([
        "ctl".into(),
        running.id().to_string().into(),
        "trace function count".into(),
    ]);
    assert_eq!(start.run("").end, End::Code(0));
    terminal.wait_for(" counted");
    // A terminal gets only the changes, unless its size has changed.
    let shows_rate = |columns: u16| {
        let before = terminal.text().len();
        terminal.resize(columns, 30);
        std::thread::sleep(Duration::from_secs(1));
        rate_of_counted(&terminal.text()[before..]).is_some_and(|rate| rate > 2_000_000)
    };
    // Those that were recorded, and a second later one in some 500, are fewer.
    assert!(
        (141..171)
            .filter(|columns| shows_rate(*columns))
            .nth(2)
            .is_some(),
        "the rate is that of the counts:\n{}",
        terminal.text()
    );
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
