//! New processes and new programs.

use nopal_tests::{Case, End, Start, c, nopal};

fn exec(way: &str, often: &str) -> Case {
    Case::new(c("exec", &[])).arguments([way, often])
}

#[test]
fn fork_by_library_and_by_system_call() {
    let traced = Case::new(c("fork", &[])).check();
    let lines = |words: &[&str]| {
        let mut start = Start::new([nopal()]);
        start.words.extend(words.iter().map(Into::into));
        start.words.push(traced.directory().into());
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        ended.stdout
    };
    let children = 91;
    let threads = lines(&["report", "--threads"]);
    assert_eq!(threads.lines().count(), 1 + children + 2, "{threads}");
    assert!(!threads.contains('?'), "{threads}");
    let info = lines(&["info"]);
    assert!(info.contains("(72 more)") && !info.contains('?'), "{info}");
}

#[test]
fn fork_and_exec() {
    exec("fork", "10").check();
}

#[test]
fn vfork() {
    exec("vfork", "10").check();
}

#[test]
fn posix_spawn() {
    exec("spawn", "10").check();
}

#[test]
fn a_chain_of_exec() {
    exec("chain", "10").check();
}

#[test]
fn exec_of_a_descriptor() {
    exec("fd", "1").check();
}

#[test]
fn exec_by_system_call() {
    exec("raw", "1").check();
}

#[test]
fn exec_with_another_environment() {
    exec("environment", "1").check();
}

#[test]
fn exec_from_a_thread() {
    exec("thread", "1").check();
}

#[test]
fn exec_that_fails() {
    exec("fails", "20").check();
}

#[test]
fn shells_and_pipes() {
    exec("shell", "5").check();
}

#[test]
fn exec_that_is_not_followed() {
    let traced = exec("chain", "10").options(["--no-follow"]).traced();
    assert_eq!(traced.ended.end, nopal_tests::End::Code(17));
    assert_eq!(
        (traced.report.calls("work"), traced.report.calls("report")),
        (1, 0)
    );
}

#[test]
fn children_that_share_memory_and_thread_area() {
    Case::new(c("shared_clone", &[])).check();
}

/// They wait for nopal, which begins with one after the other.
#[test]
fn children_of_many_threads_at_once_are_recorded_or_told_of() {
    let own = c("spawning", &[]).path;
    let own = own.to_str().expect("a plain path");
    let case = Case::new(c("spawning", &[])).arguments(["50", "500", own, "1", "0", "x"]);
    let (untraced, traced) = (case.untraced(), case.traced());
    assert_eq!(nopal_tests::difference(&untraced, &traced.ended), None);
    assert_eq!(traced.report.calls("execute"), 500);
    let told = |line: &str| {
        let (count, _) = line.split_once(" program")?;
        let count = count.strip_prefix("nopal: ")?.replace(',', "");
        Some(if count == "a" { 1 } else { count.parse().ok()? })
    };
    let told: u64 = traced.said.lines().filter_map(told).sum();
    // Each child makes one thread, which finds nothing to do.
    let recorded = traced.report.calls("spawn") - 50;
    assert_eq!(recorded + told, 500, "{}", traced.said);
    assert!(!traced.said.contains("namespace"), "{}", traced.said);
}
