//! Signal handlers that call traced functions, wherever they interrupt.

use nopal_tests::{Case, c};

fn storm(words: [&str; 3]) -> Case {
    Case::new(c("storm", &[]))
        .arguments(words)
        .options(["--block"])
}

#[test]
fn handlers_with_all_signals_blocked_nested_and_on_threads() {
    Case::new(c("signals", &[])).check();
}

#[test]
fn a_storm_of_a_fine_timer() {
    storm(["3000", "real", "1"]).check();
}

#[test]
fn a_storm_of_a_fine_timer_over_three_threads() {
    storm(["500", "real", "3"]).check();
}

#[test]
fn a_profiling_timer() {
    storm(["20", "profile", "2"]).check();
}

#[test]
fn a_profiling_timer_whose_handler_unwinds() {
    Case::new(c("samples_itself", &[])).check();
}

/// The frame pointer is the program's also while the thread is in nopal's code, where it is for long if the buffer is full.
#[test]
fn a_profiling_timer_whose_handler_follows_frame_pointers() {
    let flags = ["-fno-omit-frame-pointer", "-DHOLD"];
    let case = || Case::new(c("follows_frames", &flags)).options(["--buffer", "1M"]);
    case().check();
    case().check_come_and_go();
}

#[test]
fn a_virtual_timer() {
    storm(["20", "virtual", "1"]).check();
}

#[test]
fn jumps_out_of_handlers() {
    let options = [
        "--block", "-F", "descend", "-F", "on_*", "-F", "leaf", "-F", "busy_*",
    ];
    Case::new(c("siglongjmp", &[])).options(options).check();
}

#[test]
fn handlers_on_stacks_of_their_own() {
    Case::new(c("sigaltstack", &[])).check();
}

#[test]
fn handlers_that_know_an_instruction_by_its_address() {
    let case = || Case::new(c("recovers", &["-DHOLD"]));
    let recording = case().check();
    for function in ["fetch", "copy"] {
        assert_eq!(recording.report.calls(function), 0, "{function}");
    }
    case().check_come_and_go();
}

#[test]
fn traps_faults_and_a_profiler_of_the_programs_own() {
    // The function begins with the trap.
    Case::new(c("own_traps", &[])).refused("trap").check();
}
