//! Functions with room for a short jump only: it leads to padding near them, which holds the jump to the thunk.

use std::io::Write;
use std::process::Command;

use nopal_tests::process::{assert_nothing_left, is_text_changed};
use nopal_tests::{AttachedProgram, Case, End, Report, Running, c, nopal, scratch};

const FUNCTIONS: [&str; 2] = ["count_up", "nothing"];

#[test]
fn their_calls_are_recorded_exactly() {
    for flags in [&[][..], &["-static"], &["-fno-pie", "-no-pie"]] {
        let traced = Case::new(c("holes", flags)).traced();
        assert_eq!(traced.ended.end, End::Code(5), "{}", traced.ended.stderr);
        for function in FUNCTIONS.into_iter().chain(["again"]) {
            assert_eq!(traced.report.calls(function), 1000, "{function}, {flags:?}");
        }
    }
}

#[test]
fn nopal_list_tells_which_have_short_jumps() {
    let program = c("holes", &[]);
    let listed = Command::new(nopal())
        .arg("list")
        .arg(&program.path)
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    for function in FUNCTIONS {
        let row = |line: &&str| line.contains(" short jump ") && line.ends_with(function);
        assert_eq!(listed.lines().filter(row).count(), 1, "{listed}");
    }
}

/// The number of rounds by default; NOPAL_ROUNDS=1000 takes some minutes.
const ROUNDS: usize = 10;

/// Threads are at the short jumps, and at those that they lead to, whenever nopal comes or goes, and when signals
/// interrupt them.
#[test]
fn a_process_that_always_calls_them_is_attached_to_again_and_again() {
    let rounds = std::env::var("NOPAL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let scratch = scratch();
    let case = Case::new(c("holes", &["-DBUSY"])).options(["--flight"]);
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.ends_with("ready\n"));
    let stdin = program.stdin();
    let trace = scratch.path().join("trace");
    for _ in 0..rounds {
        let mut tool = case.attach(program.id(), &trace);
        assert!(is_text_changed(program.id()));
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert_nothing_left(program.id());
    }
    let report = Report::of(&trace);
    for function in FUNCTIONS {
        assert!(report.calls(function) > 0, "{function}");
    }
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// A program that hooks its own functions may keep a short jump, and write it back when nopal has left.
#[test]
fn a_short_jump_that_comes_back_leads_past() {
    let scratch = scratch();
    let case = Case::new(c("holes", &["-DPATCHED"]));
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.ends_with("ready\n"));
    let mut stdin = program.stdin();
    let mut tell = |program: &mut Running, times: usize| {
        stdin.write_all(b"over\n").unwrap();
        program.wait_for(|text| text.matches("done").count() == times);
    };
    let mut tool = case.attach(program.id(), &scratch.path().join("trace"));
    tell(&mut program, 1);
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    tell(&mut program, 2);
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// Their jumps go and come in a running session, also those to other thunks, such as of a probe.
#[test]
fn they_can_be_chosen_and_left_in_a_session() {
    let mut attached = AttachedProgram::new(c("holes", &["-DBUSY"]), &["-F", "main"]);
    attached.run("on");
    for _ in 0..2 {
        attached.ctl("trace count_up nothing new p\ntrace p on");
        attached.run("on");
        attached.ctl("trace p remove");
        attached.ctl("probe return count_up new r\nprobe r on");
        attached.run("on");
        attached.ctl("probe r remove");
    }
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    for function in FUNCTIONS {
        assert!(report.calls(function) > 0, "{function}");
    }
}
