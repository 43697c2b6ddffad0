//! Threads: many over a run, many at once, at full speed.

use nopal_tests::{Case, c};

/// Each thread takes a part of the buffer, and the tool may be slower than they come: exact with `--block` only.
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
    let line = traced.said.lines().find(|line| line.contains("lost"));
    let words: Vec<&str> = line
        .expect("some are lost, and it is told")
        .split(' ')
        .collect();
    let lost: u64 = words[1]
        .replace(',', "")
        .parse()
        .expect("nopal: NUMBER events were lost");
    // A call whose entry was lost has no exit to record; one whose exit was lost is unfinished.
    let row = traced
        .report
        .rows_of("leaf")
        .next()
        .expect("some are recorded");
    let unfinished = row["unfinished"].as_u64().expect("unfinished is a number");
    assert_eq!(
        traced.report.calls("leaf") + lost - unfinished,
        8_000_000,
        "{}",
        traced.said
    );
}

/// What runs while the thread pointer leads elsewhere is not recorded, and counted as lost; nothing else is.
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
                traced.said.contains(" events were lost "),
                "{}",
                traced.said
            );
        }
    }
}
