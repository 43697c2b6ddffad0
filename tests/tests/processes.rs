//! New processes and new programs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nopal_tests::process::wait_until;
use nopal_tests::{
    Case, End, Report, Start, announced_calls, c, nopal, scratch, without_own_words,
};

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
    // What is lost for lack of room is in neither number.
    let case = Case::new(c("spawning", &[]))
        .options(["--buffer", "256M"])
        .arguments(["50", "500", own, "1", "0", "x"]);
    let (untraced, traced) = (case.untraced(), case.traced());
    assert_eq!(nopal_tests::difference(&untraced, &traced.ended), None);
    assert_eq!(traced.report.calls("execute"), 500);
    let reported = reported(&traced.said);
    // Each child makes one thread, which finds nothing to do.
    let recorded = traced.report.calls("spawn") - 50;
    assert_eq!(recorded + reported, 500, "{}", traced.said);
    assert!(!traced.said.contains("namespace"), "{}", traced.said);
}

/// How many programs nopal says that it did not trace.
fn reported(said: &str) -> u64 {
    let reported = |line: &str| {
        let (count, _) = line.split_once(" program")?;
        let count = count.strip_prefix("nopal: ")?.replace(',', "");
        Some(if count == "a" { 1 } else { count.parse().ok()? })
    };
    said.lines().filter_map(reported).sum()
}

/// Of each kind.
const CHILDREN: u64 = 10;

/// 30 threads that execute programs of many kinds, below a folder.
fn of_many_kinds(folder: &Path) -> Case {
    let program = c("kinds", &["-DHOLD"]);
    let path = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let own = program.path.to_str().expect("a plain path").to_owned();
    std::os::unix::fs::symlink(&own, path("again")).unwrap();
    let elf = std::fs::read(&own).unwrap();
    for (name, content, mode) in [
        ("script", format!("#!{own}\n").as_bytes(), 0o755),
        ("owners", &elf, 0o4755),
        ("narrow", &ends_with_7(), 0o755),
        ("denied", &elf, 0o644),
        ("text", b"text", 0o755),
    ] {
        std::fs::write(path(name), content).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let fixed = c("kinds", &["-static"]).path;
    let fixed = fixed.to_str().expect("a plain path").to_owned();
    let names = [
        "again", "script", "owners", "narrow", "denied", "text", "missing",
    ];
    let words = ["30".to_owned(), CHILDREN.to_string()];
    let killed = format!("-{own}");
    let programs = [own, killed, fixed].into_iter();
    Case::new(program).arguments(words.into_iter().chain(programs).chain(names.map(path)))
}

/// A program of 32 bits.
fn ends_with_7() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: [u8; 12] = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let halves = |all: &[u16]| {
        all.iter()
            .flat_map(|half| half.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let words = |all: &[u32]| {
        all.iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let size = 52 + 32 + CODE.len() as u32;
    let parts = [
        b"\x7fELF\x01\x01\x01".to_vec(),
        vec![0; 9],
        halves(&[2, 3]),
        words(&[1, BASE + 52 + 32, 52, 0, 0]),
        halves(&[52, 32, 1, 0, 0, 0]),
        words(&[1, 0, BASE, BASE, size, size, 5, 4096]),
        CODE.to_vec(),
    ];
    parts.concat()
}

/// Each child is recorded, or told of; one that was killed may be told of, or may not have got so far. A kind that
/// ended with 7 has run.
fn all_are_accounted_for(stdout: &str, report: &Report, said: &str) {
    let ran = stdout.lines().filter(|line| line.ends_with("status 7"));
    let expected = CHILDREN * ran.count() as u64;
    assert!(expected >= 5 * CHILDREN, "{stdout}");
    let sum = report.calls("ran") + reported(said);
    // Those that execute twice may be told of twice.
    let most = expected + 2 * CHILDREN;
    assert!(
        (expected..=most).contains(&sum),
        "{sum} of {expected}: {said}"
    );
    assert!(!said.contains("namespace"), "{said}");
}

#[test]
fn children_of_many_kinds_are_recorded_or_told_of() {
    for options in [&[][..], &["--libs"]] {
        let folder = scratch();
        let case = of_many_kinds(folder.path()).options(options);
        let (untraced, traced) = (case.untraced(), case.traced());
        assert_eq!(nopal_tests::difference(&untraced, &traced.ended), None);
        all_are_accounted_for(&traced.ended.stdout, &traced.report, &traced.said);
    }
}

#[test]
fn children_of_many_kinds_are_recorded_or_told_of_when_attached() {
    let folder = scratch();
    let hold = folder.path().join("go");
    let trace = folder.path().join("trace");
    let case = of_many_kinds(folder.path()).environment("HOLD", &hold);
    let program = case.untraced_start().spawn();
    let process = program.id();
    wait_until("the program holds", || {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
        name.is_ok_and(|name| name.starts_with("kinds"))
    });
    let mut tool = case.attach(process, &trace);
    std::fs::write(&hold, "").unwrap();
    let mut program = program;
    let ended = program.wait();
    let (_, said) = without_own_words(tool.wait());
    assert_eq!(ended.end, End::Code(0), "{}", ended.stdout);
    all_are_accounted_for(
        &announced_calls(&ended.stdout).0,
        &Report::of(&trace),
        &said,
    );
}
