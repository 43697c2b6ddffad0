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

#[test]
fn what_is_dropped_is_counted() {
    let case = Case::new(c("full_speed", &[]))
        .arguments(["4", "2000000"])
        .options(["-F", "leaf", "--buffer", "1M"]);
    let traced = case.traced();
    let mut info = nopal_tests::Start::new([nopal_tests::nopal().as_os_str()]);
    info.words
        .extend(["info".into(), "--json".into(), traced.directory().into()]);
    let text = info.run("").stdout;
    let info: serde_json::Value = serde_json::from_str(&text).expect("info is JSON");
    let number = |name: &str| {
        info[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} is a number in {text}"))
    };
    // Each of the 8 million calls is an entry and an exit, recorded or counted.
    assert_eq!(number("events") + number("lost"), 16_000_000);
}
