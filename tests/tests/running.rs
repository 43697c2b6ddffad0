//! Traces that are read while they are written.

use std::path::Path;

use nopal_tests::{End, Ended, Report, Running, Start, c, nopal, scratch};

fn record(trace: &Path) -> Running {
    let mut start = Start::new([nopal().as_os_str()]);
    start
        .words
        .extend(["record".into(), "-o".into(), trace.into()]);
    start.words.push(c("phases", &[]).path.into());
    start.spawn()
}

/// The number of entries of a function in the output of `nopal dump`.
fn entries(trace: &Path, function: &str) -> usize {
    let mut dump = Start::new([nopal().as_os_str()]);
    dump.words
        .extend(["dump".into(), "--as".into(), "raw".into(), trace.into()]);
    let Ended { stdout, end, .. } = dump.run("");
    assert_eq!(end, End::Code(0));
    let is_entry = |line: &&str| line.contains(" entry ") && line.ends_with(function);
    stdout.lines().filter(is_entry).count()
}

/// The events of a waiting program are in the trace long before it has filled a chunk.
#[test]
fn a_trace_shows_all_calls_so_far() {
    use std::io::Write;
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut running = record(&trace);
    let mut stdin = running.stdin();
    for phase in 0..3 {
        running.wait_for(|text| text.contains(&format!("phase {phase}\n")));
        let mut seen = Report { rows: Vec::new() };
        running.wait_until(|| {
            seen = Report::of(&trace);
            seen.calls("waits") == 21 * (phase + 1)
        });
        assert_eq!(seen.calls("descend"), 1100 * (phase + 1));
        assert_eq!(entries(&trace, " descend") as u64, 1100 * (phase + 1));
        stdin.write_all(b"on\n").unwrap();
    }
    drop(stdin);
    let ended = running.wait();
    assert_eq!(ended.end, End::Code(5), "{ended:?}");
    let report = Report::of(&trace);
    assert_eq!(report.calls("descend"), 1100 * 4);
    assert_eq!(report.calls("waits"), 21 * 4);
    assert_eq!(report.calls("main"), 1);
    assert_eq!(entries(&trace, " descend"), 1100 * 4);
}

/// The guardian that takes the trace over writes each missing record once.
#[test]
fn a_tool_that_is_killed_has_written_no_call_twice() {
    use std::io::Write;
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut running = record(&trace);
    let mut stdin = running.stdin();
    running.wait_for(|text| text.contains("phase 0\n"));
    running.wait_until(|| Report::of(&trace).calls("waits") == 21);
    stdin.write_all(b"on\n").unwrap();
    running.wait_for(|text| text.contains("phase 1\n"));
    // SAFETY: a plain system call; the tool is our child.
    unsafe { libc::kill(running.id(), libc::SIGKILL) };
    running.wait_until(|| Report::of(&trace).calls("waits") == 42);
    let report = Report::of(&trace);
    assert_eq!(report.calls("descend"), 2200);
    assert_eq!(report.calls("main"), 1);
    drop(stdin);
}
