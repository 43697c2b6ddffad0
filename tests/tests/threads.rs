//! Threads: many over a run, many at once, at full speed.

use nopal_tests::{Case, End, Report, Start, announced_calls, c, nopal, scratch};
use std::io::Write;

/// Each thread takes a part of the buffer, and threads may outrun the tool: numbers are exact with `--block` only.
#[test]
fn two_hundred_threads_at_once_and_ten_thousand_over_the_run() {
    Case::new(c("threads", &[]))
        .arguments(["10000", "200"])
        .options(["--block"])
        .check();
}

#[test]
fn one_thread_after_the_other() {
    Case::new(c("threads", &[]))
        .arguments(["3000", "1"])
        .options(["--block"])
        .check();
}

#[test]
fn a_thousand_threads_at_once() {
    Case::new(c("threads", &[]))
        .arguments(["1000", "1000"])
        .check();
}

#[test]
fn a_thread_has_the_last_of_its_names() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let notes = || std::fs::read_to_string(trace.join("session/notes")).unwrap_or_default();
    let case = Case::new(c("named", &[])).options(["--block"]);
    let mut running = case.spawn(&trace);
    let mut stdin = running.stdin();
    for name in ["first", "second"] {
        running.wait_until(|| notes().contains(&format!("\"name\":\"{name}\"")));
        stdin.write_all(b"\n").expect("it reads");
    }
    let ended = running.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    Report::of(&trace).assert_calls(&announced_calls(&ended.stdout).1);
    let notes = notes();
    let thread = notes.lines().find_map(|line| {
        let line = line.strip_suffix("\"name\":\"first\"}}]")?;
        line.find("\"thread\"").map(|at| &line[at..])
    });
    let thread = thread.expect("the trace has its first name");
    let is_name = |line: &&str| line.contains(thread) && line.contains("\"name\"");
    let last = notes.lines().rfind(is_name);
    assert!(
        last.is_some_and(|line| line.contains("\"second\"")),
        "{notes}"
    );
}

#[test]
fn threads_that_end_at_once_have_the_names_that_they_gave_themselves() {
    let traced = Case::new(c("named_briefly", &[])).check();
    let mut start = Start::new([nopal()]);
    start
        .words
        .extend(["report", "--threads", "--json"].map(Into::into));
    start.words.push(traced.directory().into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    for thread in 0..20 {
        let name = format!("\"brief-{thread}\"");
        assert_eq!(
            ended.stdout.matches(&name).count(),
            1,
            "{name}: {}",
            ended.stdout
        );
    }
}

#[test]
fn detached_threads_with_destructors() {
    Case::new(c("detached", &[])).check();
}

#[test]
fn nothing_is_lost_where_threads_wait_for_room() {
    let traced = Case::new(c("full_speed", &[]))
        .arguments(["8", "400000"])
        .options(["--block", "--buffer", "4M"])
        .check();
    assert!(!traced.said.contains("lost"), "{}", traced.said);
}

#[test]
fn what_is_dropped_is_counted() {
    let case = Case::new(c("full_speed", &[]))
        .arguments(["4", "2000000"])
        .options(["-F", "leaf", "--buffer", "1M"]);
    let traced = case.traced();
    let lost = lost(&traced.said);
    assert!(lost > 0, "lost events are reported: {}", traced.said);
    // A call whose entry was lost has no exit to record; a call whose exit was lost is unfinished.
    let row = traced
        .report
        .rows_of("leaf")
        .next()
        .expect("some calls are recorded");
    let unfinished = row["unfinished"].as_u64().expect("unfinished is a number");
    assert_eq!(
        traced.report.calls("leaf") + lost - unfinished,
        8_000_000,
        "{}",
        traced.said
    );
}

/// Exactly the calls made while the thread pointer leads elsewhere are missing, and count as lost.
#[test]
fn thread_pointers_that_lead_elsewhere() {
    for mode in ["kernel", "instruction"] {
        for options in [
            &["--block", "-F", "*", "-M", "*"][..],
            &["--block", "-D", "50"],
        ] {
            let case = Case::new(c("thread_pointer", &[]));
            let traced = case.arguments([mode]).options(options).check();
            assert!(
                traced.said.contains(
                    " events were lost (in threads whose control block was not their own)"
                ),
                "{}",
                traced.said
            );
        }
    }
}

/// The threads outnumber the chunks in the buffer: events without room are counted.
#[test]
fn five_thousand_threads_at_once() {
    let case = Case::new(c("threads", &[]))
        .arguments(["5000", "5000"])
        .options(["-F", "body", "-F", "step"]);
    let traced = case.unchanged();
    let unfinished: u64 = ["body", "step"]
        .into_iter()
        .flat_map(|function| traced.report.rows_of(function))
        .map(|row| row["unfinished"].as_u64().expect("a number"))
        .sum();
    let calls = traced.report.calls("body") + traced.report.calls("step");
    assert!(calls >= 1000, "{}", traced.said);
    assert_eq!(
        calls + lost(&traced.said) - unfinished,
        20_000,
        "{}",
        traced.said
    );
}

#[test]
fn five_thousand_threads_at_once_with_room_for_all() {
    let traced = Case::new(c("threads", &[]))
        .arguments(["5000", "5000"])
        .options(["--buffer", "400M"])
        .check();
    assert_eq!(lost(&traced.said), 0, "{}", traced.said);
}

/// The number of a line `nopal: NUMBER events were lost`.
fn lost(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("lost"));
    let number = line.and_then(|line| line.split(' ').nth(1));
    number.map_or(0, |number| {
        let number = number.replace(',', "");
        number.parse().expect("nopal: NUMBER events were lost")
    })
}

/// A thread waits for its submissions, also while it makes calls for nopal.
#[test]
fn what_is_submitted_to_a_ring_times_out() {
    let case = || Case::new(c("rings", &["-DHOLD"])).arguments(["timeouts"]);
    case().check();
    case().check_come_and_go();
}

/// The kernel ends a transfer whose thread is stopped, and returns the number of bytes so far.
#[test]
fn transfers_are_whole() {
    let case = || Case::new(c("transfers", &["-DHOLD"]));
    case().check();
    case().check_come_and_go();
}

/// Handlers do not overwrite the saved state of a thread that waits on.
#[test]
fn handlers_run_while_a_ring_is_waited_for() {
    let case = || Case::new(c("ring_signals", &["-DHOLD"]));
    case().check();
    case().check_come_and_go();
}

/// The work of the kernel's threads would fail with EINTR if they were stopped.
#[test]
fn threads_of_the_kernels_own_are_left_alone() {
    let case = || Case::new(c("rings", &["-DHOLD"]));
    case().check();
    let said = case().check_come_and_go();
    assert!(!said.contains("is not recorded"), "{said}");
}
