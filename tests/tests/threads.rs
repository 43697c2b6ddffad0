//! Threads: many over a run, many at once, at full speed.

use nopal_tests::{Case, c};

#[test]
fn two_hundred_threads_at_once_and_ten_thousand_over_the_run() {
    Case::new(c("threads", &[]))
        .arguments(["10000", "200"])
        .check();
}

#[test]
fn one_thread_after_the_other() {
    Case::new(c("threads", &[]))
        .arguments(["3000", "1"])
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

/// The number before `word` in what nopal said.
fn said(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words
        .windows(2)
        .find(|pair| pair[1] == word)
        .unwrap_or_else(|| panic!("no {word} in {text}"))[0];
    at.replace(',', "")
        .parse()
        .unwrap_or_else(|_| panic!("{at} is no number"))
}

#[test]
fn what_is_dropped_is_counted() {
    let case = Case::new(c("full_speed", &[]))
        .arguments(["4", "2000000"])
        .options(["-F", "leaf", "--buffer", "1M"]);
    let traced = case.traced();
    let lost = traced
        .said
        .lines()
        .find(|line| line.contains("lost"))
        .expect("some are lost, and it is told");
    // Each of the 8 million calls is an entry and an exit, recorded or counted.
    assert_eq!(
        said(&traced.said, "events") + said(lost, "events"),
        16_000_000,
        "{}",
        traced.said
    );
}
