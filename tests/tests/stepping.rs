//! Programs that interrupt themselves at every instruction of traced calls, inside the tracer's code too.

use nopal_tests::{Case, Recording, c, cxx, library};

/// The handler itself is not traced: its events between any two instructions would keep the interrupted recording from
/// ever being completed.
fn stepping(mode: &str) -> Case {
    Case::new(c("step", &["-rdynamic"]))
        .arguments([mode])
        .options(["--block", "-N", "on_trap"])
}

fn thrown(mode: &str) -> Case {
    // The program finds functions by their symbols, so no parts are moved out of functions.
    let whole = "-fno-reorder-blocks-and-partition";
    Case::new(cxx("step_throw", &["-rdynamic", whole]))
        .arguments([mode])
        .options(["--block"])
}

/// Functions that were left may be recorded without having begun: checks `between: LEAST MOST FUNCTION`.
fn check_between(case: &Case) -> Recording {
    let (untraced, traced) = (case.untraced(), case.traced());
    assert_eq!(traced.ended.end, untraced.end, "{}", traced.ended.stdout);
    assert_eq!(traced.ended.stderr, untraced.stderr);
    let first_line = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(
        first_line(&traced.ended.stdout),
        first_line(&untraced.stdout)
    );
    let mut checked = 0;
    for line in traced
        .ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("between: "))
    {
        let words: Vec<&str> = line.split(' ').collect();
        let [least, most] = [0, 1].map(|index| words[index].parse::<u64>().unwrap());
        let calls = traced.report.calls(words[2]);
        assert!((least..=most).contains(&calls), "{calls} calls: {line}");
        checked += 1;
    }
    assert!(checked > 0);
    traced
        .report
        .assert_calls(&nopal_tests::announced_calls(&traced.ended.stdout).1);
    traced
}

#[test]
fn backtraces_are_complete_at_every_instruction() {
    stepping("walk").check();
}

#[test]
fn backtraces_are_complete_at_every_instruction_that_records_arguments() {
    stepping("walk").options(["--args"]).check();
}

#[test]
fn backtraces_are_complete_at_every_instruction_of_entries_only() {
    stepping("walk").options(["--entry-only"]).check();
}

#[test]
fn backtraces_are_complete_at_every_instruction_with_a_limit_of_depth() {
    let case = stepping("walk").options(["-D", "4"]);
    let (untraced, traced) = (case.untraced(), case.traced());
    assert_eq!(traced.ended.end, untraced.end, "{}", traced.ended.stdout);
    // The frames are main, drive, outer, middle: a leaf is the fourth only if main calls outer itself.
    let calls = |name| traced.report.calls(name);
    assert_eq!([calls("drive"), calls("outer"), calls("leaf")], [61, 62, 4]);
}

#[test]
fn backtraces_are_complete_at_every_instruction_of_the_slow_path() {
    stepping("slow").check();
    stepping("slow").options(["--args"]).check();
}

#[test]
fn handlers_record_at_every_instruction() {
    stepping("call").check();
    stepping("call").options(["--args"]).check();
}

#[test]
fn jumps_leave_from_every_instruction() {
    check_between(&stepping("jump"));
}

#[test]
fn jumps_leave_from_the_slow_path() {
    check_between(&stepping("leap"));
    check_between(&stepping("leap").options(["--args"]));
}

#[test]
fn exceptions_leave_from_every_instruction() {
    check_between(&thrown("throw").options(["-N", "on_trap"]));
    check_between(&thrown("throw").options(["-N", "on_trap", "--args"]));
}

#[test]
fn exceptions_leave_from_the_slow_path() {
    check_between(&thrown("slow").options(["-N", "on_trap"]));
}

#[test]
fn backtraces_are_complete_where_an_exception_passes() {
    // The functions that the handler calls at every step are not traced.
    let functions = [
        "leaf",
        "middle",
        "tail",
        "guarded",
        "drive",
        "calm",
        "__cxa_*",
        "__gxx_*",
        "_Unwind_*",
    ];
    thrown("pass")
        .options(functions.iter().flat_map(|name| ["-F", name]))
        .check();
}

/// If a handler that records interrupts an event at each of its instructions, this event is lost: all others are
/// recorded, and the program goes on.
#[test]
fn handlers_that_record_at_every_instruction_do_not_hold_a_program_up() {
    let stepped = |words: &[&str], options: &[&str]| {
        let case = Case::new(c("steps_itself", &[])).options(["--block"]);
        case.arguments(words).options(options).check();
    };
    stepped(&["here"], &["-F", "*", "-M", "*"]);
    stepped(&["aside"], &["--args"]);
    stepped(&["leap"], &["--entry-only"]);
    let library = library("library.c").1;
    stepped(&["here", library.to_str().unwrap()], &[]);
}
