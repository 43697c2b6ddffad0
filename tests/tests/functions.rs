//! Calls of every kind, and the choice of what to record of them.

use nopal_tests::process::wait_until;
use nopal_tests::{Case, Program, Report, c, compile, difference, scratch};

#[test]
fn calls_of_every_shape() {
    Case::new(c("calls", &["-lm"])).check();
}

#[test]
fn calls_in_an_executable_at_a_fixed_address() {
    Case::new(c("calls", &["-no-pie", "-lm"])).check();
}

#[test]
fn calls_in_code_that_is_not_optimised() {
    Case::new(c("calls", &["-O0", "-lm"])).check();
}

#[test]
fn calls_with_branch_protection() {
    Case::new(c("calls", &["-fcf-protection=full", "-lm"])).check();
}

#[test]
fn calls_of_functions_packed_without_gaps() {
    // A function of one byte, with another one right behind it.
    let program = c("calls", &["-Os", "-falign-functions=1", "-lm"]);
    Case::new(program).refused("empty").check();
}

#[test]
fn calls_linked_lazily() {
    Case::new(c("calls", &["-Wl,-z,lazy", "-lm"])).check();
}

#[test]
fn calls_with_every_library_traced() {
    let traced = Case::new(c("calls", &["-lm"])).options(["--libs"]).check();
    assert!(traced.report.rows.iter().any(|row| {
        row["module"]
            .as_str()
            .is_some_and(|it| it.starts_with("libc.so"))
    }));
}

#[test]
fn jumps_in_tail_position() {
    Case::new(c("tail", &[])).check();
}

#[test]
fn a_hundred_thousand_frames() {
    Case::new(c("deep", &[])).options(["--block"]).check();
}

#[test]
fn constructors_and_destructors() {
    Case::new(c("constructors", &[])).check();
}

#[test]
fn a_stripped_executable() {
    let traced = Case::new(c("stripped", &["-s", "-rdynamic"])).check();
    let unnamed = traced
        .report
        .functions()
        .iter()
        .filter(|name| name.starts_with("stripped+0x"))
        .count();
    assert!(
        unnamed >= 1,
        "functions without names are named by their place: {:?}",
        traced.report.functions()
    );
}

#[test]
fn only_what_is_chosen() {
    let calls = || Case::new(c("calls", &["-lm"]));
    let report = calls().options(["-F", "fib", "-F", "m*"]).traced().report;
    assert_eq!(
        (
            report.calls("fib"),
            report.calls("many"),
            report.calls("mixed")
        ),
        (21891, 1000, 1000)
    );
    assert_eq!((report.calls("empty"), report.calls("variadic")), (0, 0));

    let report = calls()
        .options(["-N", "fib", "-N", "*@libc.so*"])
        .traced()
        .report;
    assert_eq!(
        (
            report.calls("fib"),
            report.calls("many"),
            report.calls("puts")
        ),
        (0, 1000, 0)
    );

    let report = calls()
        .options(["-F", "fib@calls", "-F", "empty@libc.so*"])
        .traced()
        .report;
    assert_eq!((report.calls("fib"), report.calls("empty")), (21891, 0));
}

#[test]
fn a_choice_that_fits_nothing_is_an_error_and_runs_nothing() {
    let scratch = nopal_tests::scratch();
    let trace = scratch.path().join("trace");
    let ended = Case::new(c("calls", &["-lm"]))
        .options(["-F", "no_such_function"])
        .traced_start(&trace)
        .run("");
    assert_ne!(ended.end, nopal_tests::End::Code(0));
    assert_eq!(ended.stdout, "");
    assert!(
        ended.stderr.contains("no_such_function"),
        "{}",
        ended.stderr
    );
}

#[test]
fn entries_only() {
    let traced = Case::new(c("calls", &["-lm"]))
        .options(["--entry-only"])
        .check();
    assert!(traced.report.rows_of("fib").count() == 1);
}

#[test]
fn no_deeper_than_asked() {
    let options = ["-D", "3", "-N", "*@libc.so*"];
    let report = Case::new(c("calls", &["-lm"]))
        .options(options)
        .traced()
        .report;
    // main, fib(20), its two calls, and nothing below them.
    let calls = ["main", "fib", "many"].map(|function| report.calls(function));
    assert_eq!(calls, [1, 3, 1000]);
}

#[test]
fn arguments_and_results() {
    let case = Case::new(c("calls", &["-lm"]));
    let traced = case.options(["--args", "-F", "fib"]).traced();
    assert_eq!(traced.report.calls("fib"), 21891);
    let mut dump = nopal_tests::Start::new([nopal_tests::nopal().as_os_str()]);
    dump.words.extend([
        "dump".into(),
        "--as".into(),
        "devtrace".into(),
        traced.directory().into(),
    ]);
    let text = dump.run("").stdout;
    let first = text
        .lines()
        .find(|line| line.starts_with("E "))
        .expect("an entry");
    assert!(
        first
            .split_whitespace()
            .any(|word| word.trim_start_matches('0') == "14"),
        "fib(20): {first}"
    );
    let last = text
        .lines()
        .rfind(|line| line.starts_with("X "))
        .expect("an exit");
    assert!(
        last.split_whitespace()
            .any(|word| word.trim_start_matches('0') == "1a6d"),
        "6765: {last}"
    );
}

#[test]
fn a_script_is_traced_as_its_interpreter() {
    let scratch = nopal_tests::scratch();
    let script = scratch.path().join("script");
    std::fs::write(
        &script,
        "#!/bin/sh -e\necho \"script $0 $1\" | sed s,/.*/,,\nexit 9\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let traced = Case::new(Program::installed(script))
        .arguments(["word"])
        .check();
    assert!(traced.report.total_calls() > 0);
}

#[test]
fn functions_that_ask_for_their_caller() {
    Case::new(c("caller", &[])).check();
}

/// Those that hand flags to each other are left alone, and by their code the others are known that need their return
/// address.
fn by_hand() -> Case {
    let refused = ["say", "compare", "compare_further", "carry_in"];
    let case = Case::new(c("by_hand", &[]));
    refused.into_iter().fold(case, Case::refused)
}

#[test]
fn functions_that_use_their_return_address_by_hand() {
    by_hand().check();
    by_hand().options(["--libs"]).check();
}

fn pascal() -> Case {
    let command = "fpc -v0 -O2 -Xs- -FU\"$(dirname \"$2\")\" -o\"$2\" \"$0\" >&2";
    Case::new(compile("pascal.pas", &["sh", "-c", command], &[]))
}

#[test]
fn the_runtime_of_free_pascal() {
    pascal().check();
    pascal().options(["--libs"]).check();
}

/// The processor time of a process, in hundredths of a second: more than a loader needs is that of its program.
fn ticks(process: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let mut fields = fields.split(' ').skip(11).map(str::parse::<u64>);
    let mut next = || fields.next().unwrap().unwrap();
    next() + next()
}

/// Attached to before its work begins, it does the same.
fn check_attached(case: &Case) -> Report {
    let scratch = scratch();
    let (trace, go_on) = (scratch.path().join("trace"), scratch.path().join("go on"));
    let mut start = case.untraced_start();
    start
        .environment
        .push(("HOLD".into(), go_on.clone().into()));
    let mut program = start.spawn();
    wait_until("it is busy before its work", || ticks(program.id()) >= 10);
    let mut tool = case.attach(program.id(), &trace);
    std::fs::write(&go_on, "").unwrap();
    let ended = program.wait();
    assert_eq!(difference(&case.untraced(), &ended), None);
    tool.wait();
    Report::of(&trace)
}

#[test]
fn functions_that_use_their_return_address_in_a_process_that_runs() {
    let case = Case::new(c("by_hand", &["-DHOLD"]));
    assert_eq!(check_attached(&case).calls("mark"), 1000);
    check_attached(&case.options(["--libs"]));
    assert!(check_attached(&pascal()).calls("FPC_SETJMP") > 0);
    check_attached(&pascal().options(["--libs"]));
}

#[test]
fn a_call_with_the_direction_of_strings_turned_is_the_first_that_is_recorded() {
    let case = by_hand().options(["-F", "quiet"]);
    let traced = case.unchanged();
    assert_eq!(traced.report.calls("quiet"), 1001);
}

/// Known by a name that it exports, as V8 is.
#[test]
fn a_program_that_walks_its_own_stack() {
    Case::new(c("walks_stack", &["-rdynamic"])).check();
}
