//! Calls of every kind, and the selection of those to record.

use std::process::Command;

use nopal_tests::process::wait_until;
use nopal_tests::{Case, End, Ended, Program, Recording, Report, c, compile, difference, scratch};

#[test]
fn calls_of_every_shape() {
    Case::new(c("calls", &["-lm"])).check();
}

#[test]
fn calls_in_an_executable_at_a_fixed_address() {
    Case::new(c("calls", &["-no-pie", "-lm"])).check();
}

/// The heap of a program at a fixed address grows towards the thunks.
#[test]
fn heaps_have_room_to_grow() {
    Case::new(c("heap", &["-no-pie"])).check();
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
    // Functions of one byte, each with another directly behind it.
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
        "functions without names are named by address: {:?}",
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
    // The calls are main, fib(20), its two calls, and none below them.
    let calls = ["main", "fib", "many"].map(|function| report.calls(function));
    assert_eq!(calls, [1, 3, 1000]);
}

/// A command that reads a trace, when it has ended.
fn reading(words: &[&str], traced: &Recording) -> Ended {
    let mut start = nopal_tests::Start::new([nopal_tests::nopal().as_os_str()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.extend(["-i".into(), traced.directory().into()]);
    start.run("")
}

/// The output of a command that reads a trace.
fn read(words: &[&str], traced: &Recording) -> String {
    reading(words, traced).stdout
}

/// The direct calls in a function of a program: the callees, and the offsets of the return addresses.
fn calls_in(program: &Program, function: &str) -> Vec<(String, u64)> {
    let output = Command::new("objdump")
        .args(["-d", &format!("--disassemble={function}")])
        .arg(&program.path)
        .output()
        .expect("objdump runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let instructions = text.lines().filter_map(|line| {
        let (address, rest) = line.trim().split_once(":\t")?;
        let (bytes, instruction) = rest.split_once('\t').unwrap_or((rest, ""));
        let begin = u64::from_str_radix(address, 16).ok()?;
        let end = begin + bytes.split_whitespace().count() as u64;
        Some((begin, end, instruction.to_owned()))
    });
    let instructions: Vec<_> = instructions.collect();
    let first = instructions.first().expect("the function is there").0;
    let calls = instructions.iter().filter_map(|(_, end, instruction)| {
        let callee = instruction.strip_prefix("call")?.split_once('<')?.1;
        Some((callee.trim_end_matches('>').to_owned(), end - first))
    });
    calls.collect()
}

/// The call sites of a dump: callee, caller, and offset in the caller.
fn dumped_call_sites(traced: &Recording) -> Vec<(String, String, String)> {
    let place = |text: &str| {
        let (name, offset) = text.split_once('+').unwrap_or((text, ""));
        let offset = offset.split('/').next().unwrap_or_default();
        (name.to_owned(), offset.to_owned())
    };
    let text = read(&["dump", "--as", "function"], traced);
    let lines = text.lines().filter_map(|line| line.split_once(" <-- "));
    let calls = lines.map(|(callee, caller)| {
        let callee = callee.split(' ').next_back().unwrap_or_default();
        let (caller, offset) = place(caller);
        (place(callee).0, caller, offset)
    });
    calls.collect()
}

/// Asserts that readers tell call sites apart: by lines with one call of `leaf` each, and the caller of the jump.
fn report_tells_call_sites_apart(traced: &Recording) {
    let places = ["call_sites.c:16)", "call_sites.c:17)", "call_sites.c:29)"];
    let report = read(&["report", "--callers", "leaf", "--call-sites"], traced);
    let rows: Vec<&str> = report.lines().collect();
    for place in places {
        let of_it = rows.iter().filter(|row| row.contains(place));
        assert_eq!(of_it.count(), 1, "{place}: {report}");
    }
    let by_jump = rows.iter().filter(|row| row.contains(" jump "));
    assert_eq!(by_jump.count(), 1, "{report}");
    let graph = read(&["graph", "--least", "0", "--call-sites"], traced);
    for place in places {
        let from = |line: &&str| line.contains("leaf from ") && line.contains(place);
        assert_eq!(graph.lines().filter(from).count(), 1, "{place}: {graph}");
    }
    let under_leaf = read(&["graph", "leaf", "--call-sites"], traced);
    assert!(under_leaf.contains("leaf from "), "{under_leaf}");
    let flame = read(&["flame", "--by", "calls", "--call-sites"], traced);
    for place in places {
        assert!(flame.contains(place), "{place}: {flame}");
    }
    let usual = read(&["report", "--callers", "leaf"], traced);
    assert!(!usual.contains("call_sites.c"), "{usual}");
}

#[test]
fn call_sites_are_where_the_program_calls() {
    let program = c("call_sites", &[]);
    let mut expected = Vec::new();
    let of = |function| calls_in(&program, function);
    let site = |caller: &str, (callee, offset): &(String, u64)| {
        (callee.clone(), caller.to_owned(), format!("{offset:#x}"))
    };
    let (main, twice) = (of("main"), of("twice"));
    let callees: Vec<&str> = main.iter().map(|(callee, _)| callee.as_str()).collect();
    assert_eq!(callees, ["twice", "leaf", "finish"], "{main:?}");
    expected.push(site("main", &main[0]));
    expected.extend(twice.iter().map(|call| site("twice", call)));
    // A jump has no return address of its own.
    expected.push(("leaf".into(), "jump".into(), "-".into()));
    expected.extend(main[1..].iter().map(|call| site("main", call)));
    for options in [&[][..], &["--args"], &["-D", "9"], &["--args", "-D", "9"]] {
        let options = options
            .iter()
            .chain(&["--call-sites", "-N", "*@lib*", "-N", "main"]);
        let traced = Case::new(c("call_sites", &[])).options(options).traced();
        assert_eq!(traced.ended.end, End::Code(0));
        // The place of the jump is not known, and cannot be had by recording otherwise.
        let said = reading(&["dump", "--as", "function"], &traced).stderr;
        assert!(!said.contains("--call-sites"), "{said}");
        let found = dumped_call_sites(&traced);
        let found = found.into_iter().filter(|(callee, _, _)| {
            ["twice", "leaf", "jump", "finish"].contains(&callee.as_str())
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
    let traced = Case::new(c("call_sites", &[]))
        .options(["--call-sites", "-N", "*@lib*"])
        .traced();
    report_tells_call_sites_apart(&traced);
    // If no call is wrapped, a jump's return address is its function's.
    let options = ["--entry-only", "--call-sites", "-F", "leaf"];
    let traced = Case::new(c("call_sites", &[])).options(options).traced();
    let jump = twice.last().expect("it calls");
    let places = [
        ("twice", twice[0].1),
        ("twice", twice[1].1),
        ("twice", jump.1),
        ("main", main[1].1),
    ];
    let places = places.map(|(caller, offset)| site(caller, &("leaf".into(), offset)));
    assert_eq!(dumped_call_sites(&traced), places);
}

/// They take as much room as all else of a call.
#[test]
fn a_recording_has_call_sites_only_where_they_are_asked_for() {
    let traced = Case::new(c("calls", &["-lm"]))
        .options(["-F", "fib"])
        .traced();
    let calls = dumped_call_sites(&traced);
    assert_eq!(calls.len(), 21891);
    let mut offsets = calls.iter().map(|(_, _, offset)| offset.as_str());
    assert!(offsets.all(|offset| ["-", ""].contains(&offset)));
    let said = reading(&["dump", "--as", "function"], &traced).stderr;
    assert!(said.contains("`nopal record --call-sites`"), "{said}");
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

/// Functions that pass flags to each other are left alone. Their code shows which of the others need their return
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

#[test]
fn functions_that_leave_to_others_that_pop_their_arguments() {
    let case = Case::new(c("pops", &[])).refused("pops");
    case.check();
    case.options(["--libs"]).check();
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

/// Attaches before the program's work begins, and asserts that it does the same.
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
fn a_program_that_copies_its_functions() {
    Case::new(c("copied", &[])).check();
    Case::new(c("copied", &["-DHOLD"])).check_come_and_go();
}

#[test]
fn a_call_with_the_direction_of_strings_turned_is_the_first_that_is_recorded() {
    let case = by_hand().options(["-F", "quiet"]);
    let traced = case.unchanged();
    assert_eq!(traced.report.calls("quiet"), 1001);
}

/// The program exports a name by which V8 is known.
#[test]
fn a_program_that_walks_its_own_stack() {
    Case::new(c("walks_stack", &["-rdynamic"])).check();
}
