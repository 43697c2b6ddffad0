//! Frames that are left by other ways than returning.

use std::io::Write;

use nopal_tests::{Case, End, c, cxx, library, rust, scratch};

fn exceptions(flags: &[&str]) -> Case {
    let (directory, _) = library("throws_through.cc");
    let directory = directory.to_str().expect("a plain path").to_owned();
    let (search, run) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    Case::new(cxx(
        "exceptions",
        &[&[search.as_str(), "-lthrows_through", run.as_str()], flags].concat(),
    ))
}

fn terminate(way: &str) {
    Case::new(cxx("terminate", &[])).arguments([way]).check();
}

#[test]
fn exceptions_of_every_kind() {
    exceptions(&[]).check();
}

#[test]
fn exceptions_with_every_library_traced() {
    exceptions(&[]).options(["--libs"]).check();
}

#[test]
fn exceptions_with_an_unwinder_of_the_programs_own() {
    exceptions(&["-static-libgcc", "-static-libstdc++"]).check();
}

#[test]
fn exceptions_traced_at_entry_only() {
    exceptions(&[]).options(["--entry-only"]).check();
}

#[test]
fn an_exception_that_meets_noexcept() {
    terminate("noexcept");
}

#[test]
fn an_exception_that_nobody_catches() {
    terminate("uncaught");
}

#[test]
fn an_exception_that_nobody_catches_on_a_thread() {
    terminate("thread");
}

#[test]
fn a_terminate_handler() {
    terminate("handler");
}

#[test]
fn longjmp_through_recursion() {
    Case::new(c("longjmp", &[])).check();
}

#[test]
fn longjmp_checked_by_the_library() {
    Case::new(c("longjmp", &["-D_FORTIFY_SOURCE=2"])).check();
}

#[test]
fn pthread_exit_and_cancellation() {
    Case::new(c("cancel", &[])).options(["--block"]).check();
}

#[test]
fn exceptions_out_of_signal_handlers() {
    Case::new(cxx("non_call_exceptions", &["-fnon-call-exceptions"]))
        .refused("fault")
        .check();
}

#[test]
fn coroutines_of_cxx20() {
    Case::new(cxx("coroutines20", &["-std=c++20"])).check();
}

#[test]
fn panics_that_are_caught() {
    Case::new(rust("panics", &[])).check();
}

#[test]
fn a_panic_that_ends_the_program() {
    Case::new(rust("panics", &[])).arguments(["end"]).check();
}

/// A program's own functions answer its unwinder. nopal hooks them in place of libc's, and calls have durations; if it
/// cannot, it records only entries.
#[test]
fn programs_that_answer_their_unwinder_themselves() {
    let own = |what: &str, flags: &[&str]| {
        let flags = [&[what][..], flags].concat();
        Case::new(cxx("own_lookup", &flags))
    };
    const ENTRIES_ONLY: &str = "only entries are recorded";
    for what in ["-DFIND_OBJECT", "-DITERATE"] {
        for flags in [&[][..], &["-static-libgcc", "-static-libstdc++"]] {
            for options in [&["--block"][..], &["--libs", "--block"]] {
                let traced = own(what, flags).options(options).check();
                assert!(!traced.said.contains(ENTRIES_ONLY), "{}", traced.said);
            }
        }
    }
    let traced = own("-DFIND_FDE", &[]).options(["--block"]).check();
    assert!(traced.said.contains(ENTRIES_ONLY), "{}", traced.said);
}

/// An auditing loader makes the calls of libunwind itself.
#[test]
fn exceptions_whose_unwinder_is_audited() {
    let (_, audits) = library("audits.c");
    for options in [&[][..], &["--libs"]] {
        let flags = ["-Wl,--no-as-needed", "-l:libunwind.so.8"];
        Case::new(cxx("throws", &flags))
            .options(options)
            .environment("LD_AUDIT", &audits)
            .check();
    }
}

/// The return address of a traced callback is in the mirror: nothing else shows that an unwinder has called it.
#[test]
fn a_backtrace_goes_on_after_nopal_has_left() {
    let scratch = scratch();
    let case = Case::new(c("unwinds_late", &[]));
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.ends_with("ready\n"));
    let mut stdin = program.stdin();
    for round in 1..=2 {
        let mut tool = case.attach(program.id(), &scratch.path().join("trace"));
        writeln!(stdin, "walk").expect("the program reads");
        program.wait_for(|text| text.matches("within\n").count() == round);
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        writeln!(stdin, "go on").expect("the program lives");
        program.wait_for(|text| text.matches("complete\n").count() == round);
    }
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// It unwinds nearly all of the time, through what a session leaves then: the next one would not find its frames.
#[test]
fn a_program_that_unwinds_all_the_time() {
    Case::new(c("samples_itself", &["-DHOLD"])).check_come_and_go();
}
