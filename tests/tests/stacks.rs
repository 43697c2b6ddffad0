//! Stacks in unusual places, and scarce memory.

use nopal_tests::{AttachedProgram, Case, Report, c};

#[test]
fn coroutines_of_the_library() {
    Case::new(c("ucontext", &[])).check();
}

#[test]
fn coroutines_by_a_hand_written_switch() {
    Case::new(c("coroutines", &[])).check();
}

#[test]
fn an_unlimited_stack() {
    let unlimited = |case: Case| case.limit(libc::RLIMIT_STACK, libc::RLIM_INFINITY);
    unlimited(Case::new(c("calls", &["-lm"]))).check();
    unlimited(Case::new(c("threads", &[])).arguments(["400", "50"])).check();
    unlimited(Case::new(c("deep", &[])).options(["--block"])).check();
}

/// The mirrors leave a program the mappings that it needs.
#[test]
fn stacks_that_take_most_mappings() {
    let said = Case::new(c("many_stacks", &["-DHOLD"])).unchanged().said;
    assert!(said.contains("could not be mirrored"), "{said}");
}

/// A frame on a stack that nopal cannot read is not wrapped, as it could not be unwrapped. If the kernel has no such
/// memory, the stack is wrapped like any other.
#[test]
fn a_stack_that_no_other_process_can_read() {
    // SAFETY: makes a file.
    let is_secret = unsafe { libc::syscall(libc::SYS_memfd_secret, 0) } >= 0;
    let mut attached = AttachedProgram::new(c("secret_stacks", &[]), &[]);
    for _ in 0..3 {
        attached.run("deeper");
    }
    let (scratch, ended) = attached.end();
    assert_eq!(Report::of(&scratch.path().join("trace")).calls("held"), 3);
    let is_refused = ended.stderr.contains("could not be mirrored");
    assert_eq!(is_refused, is_secret, "{}", ended.stderr);
}

#[test]
fn a_small_stack() {
    Case::new(c("calls", &["-lm"]))
        .limit(libc::RLIMIT_STACK, 256 << 10)
        .check();
}

#[test]
fn all_memory_locked() {
    Case::new(c("mlockall", &[])).check();
}

#[test]
fn an_address_space_that_is_limited_by_the_program() {
    Case::new(c("address_space", &[]))
        .arguments(["now"])
        .check();
}

#[test]
fn an_address_space_that_is_limited_before_the_program_starts() {
    Case::new(c("address_space", &[]))
        .arguments(["exec"])
        .check();
}

#[test]
fn an_address_space_that_is_limited_for_nopal_too() {
    Case::new(c("address_space", &[]))
        .arguments(["exec"])
        .limit(libc::RLIMIT_AS, 1 << 30)
        .check();
}

#[test]
fn threads_on_the_smallest_stacks() {
    Case::new(c("small_stacks", &[])).check();
}

#[test]
fn stacks_that_overflow() {
    Case::new(c("overflows", &[])).check();
}
