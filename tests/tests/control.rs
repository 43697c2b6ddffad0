//! A running process, controlled by text.

use nopal_tests::process::assert_nothing_left;
use nopal_tests::{Desk, End, Report, c, library};

const FUNCTIONS: usize = 3000;

/// The program `many`, traced, with nothing chosen yet.
fn many() -> Desk {
    many_with(&["-F", "call_all"])
}

fn many_with(options: &[&str]) -> Desk {
    Desk::new(c("many", &[]), options)
}

/// A number behind a word in the state.
fn number(desk: &Desk, word: &str) -> u64 {
    let state = desk.state();
    let behind = state
        .split_once(word)
        .unwrap_or_else(|| panic!("no {word}:\n{state}"))
        .1;
    let digits = behind
        .trim_start()
        .split(|char: char| !char.is_ascii_digit())
        .next();
    digits.unwrap().parse().unwrap()
}

/// Entries of a trace.
fn entries(desk: &Desk, trace: &str) -> u64 {
    let state = desk.state();
    let behind = state
        .split_once(&format!(" new {trace}\n"))
        .unwrap_or_else(|| panic!("{state}"))
        .1;
    let entries = behind.split_once("entries ").unwrap().1;
    entries.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn traces_are_made_switched_and_removed() {
    let mut desk = many();
    desk.ctl("reset\ntrace f_00* new low\ntrace f_2999 new last\nstart");
    desk.run("all");
    assert_eq!([entries(&desk, "low"), entries(&desk, "last")], [0, 0]);
    desk.ctl("trace low on");
    desk.run("all");
    assert_eq!([entries(&desk, "low"), entries(&desk, "last")], [100, 0]);
    desk.ctl("trace last on\ntrace low off");
    desk.run("all");
    assert_eq!([entries(&desk, "low"), entries(&desk, "last")], [100, 1]);
    desk.ctl("stop");
    desk.run("all");
    assert_eq!([entries(&desk, "low"), entries(&desk, "last")], [100, 1]);
    assert_eq!(number(&desk, "#tracehits"), 202);
    assert_eq!(number(&desk, "#traceinhits"), 101);
    desk.ctl("trace low remove\ntrace last remove");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 101);
    // Of several places, in another order than that of the code, and partly of another trace that is on.
    desk.ctl("reset\ntrace f_2999 f_00* f_15?7 new mixed\ntrace f_00?? f_2000 new low\nstart");
    assert_eq!(number(&desk, "#tracehits"), 0, "the counts begin anew");
    let mut run = |commands: &str| {
        desk.ctl(commands);
        let before = number(&desk, "#traceinhits");
        desk.run("all");
        number(&desk, "#traceinhits") - before
    };
    assert_eq!(run("trace mixed on"), 111);
    assert_eq!(run("trace low on"), 112);
    assert_eq!(run("trace mixed off"), 101);
    assert_eq!(run("trace mixed on\ntrace low off"), 111);
    assert_eq!(run("trace mixed remove"), 0);
    desk.end();
}

#[test]
fn thousands_of_traces() {
    let mut desk = many();
    let of_each = |command: &dyn Fn(usize) -> String| -> String {
        (0..FUNCTIONS)
            .map(|number| command(number) + "\n")
            .collect()
    };
    desk.ctl("reset\ntrace f_* new all\nstart");
    desk.ctl(&of_each(&|number| {
        format!("trace f_{number:04} new t{number}")
    }));
    desk.ctl(&of_each(&|number| {
        format!("trace t{number} {}", ["on", "off"][number % 2])
    }));
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), FUNCTIONS as u64 / 2);
    assert_eq!([entries(&desk, "t0"), entries(&desk, "t1")], [1, 0]);
    assert_eq!(desk.state().matches(" new t").count(), FUNCTIONS);
    desk.ctl(&of_each(&|number| format!("trace t{number} remove")));
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), FUNCTIONS as u64 / 2);
    desk.end();
}

#[test]
fn overlapping_traces() {
    let mut desk = many();
    desk.ctl(
        "reset\ntrace f_000* new a\ntrace f_0005 f_0006 f_1* new b\ntrace a on\ntrace b on\nstart",
    );
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 10 + 1000);
    desk.ctl("trace a off");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 2 * 1000 + 10 + 2);
    desk.ctl("trace a remove");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 3 * 1000 + 10 + 4);
    desk.ctl("trace b remove");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 3 * 1000 + 10 + 4);
    assert!(
        desk.ctl("query f_0005")
            .ends_with("f_0005@many: not traced\n")
    );
    desk.end();
}

#[test]
fn what_was_chosen_at_the_start_is_a_trace() {
    let mut desk = many_with(&["-F", "f_1*", "-F", "call_all", "-N", "f_19*"]);
    let state = desk.state();
    assert!(
        state.contains("\ntrace f_1* call_all !f_19* new function\n"),
        "{state}"
    );
    assert!(
        state.contains("\ntrace function on\n") && state.contains("\nstart\n"),
        "{state}"
    );
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 901);
    desk.ctl("trace function remove");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 901);
    let traced = desk.ctl("query f_* call_all");
    assert_eq!(traced.matches(": not traced\n").count(), FUNCTIONS + 1);
    desk.end();
}

#[test]
fn a_saved_state_is_restored_elsewhere() {
    let commands = "reset\ntrace f_00* !f_001* new a\ntrace f_2000 new b\ntrace a on\nstart";
    let first = many();
    first.ctl(commands);
    let answer = first.ctl("query f_0020 f_0021");
    let addresses: Vec<&str> = answer
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    first.ctl(&format!(
        "trace {} {} new range\ntrace range on",
        addresses[0], addresses[1]
    ));
    first.ctl("uniform on\nuniform off");
    let saved = first.state();

    let mut second = many();
    second.ctl(&format!("reset\n{saved}"));
    let plain = |state: &str| -> Vec<String> {
        let lines = state.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(plain(&second.state()), plain(&saved));
    second.run("all");
    assert_eq!(
        [
            entries(&second, "a"),
            entries(&second, "b"),
            entries(&second, "range")
        ],
        [90, 0, 1]
    );
    first.end();
    second.end();
}

#[test]
fn uniform_records_the_chosen_functions_only() {
    let mut desk = many();
    desk.ctl("reset\ntrace one new one\ntrace one on\nuniform on\nstart");
    desk.run("pair 20000");
    assert_eq!(entries(&desk, "one"), 20000);
    assert_eq!(
        number(&desk, "#traceinhits"),
        20000,
        "others pay, and are not recorded"
    );
    desk.ctl("reset");
    desk.run("pair 1000");
    desk.end();
}

#[test]
fn reset_leaves_nothing_behind() {
    let mut desk = many();
    desk.run("all");
    desk.ctl("trace f_* new all\ntrace all on\nuniform on");
    desk.run("thread");
    desk.ctl("reset");
    let state = desk.state();
    assert!(
        !state.contains("trace ") && state.ends_with("\nstop\n"),
        "{state}"
    );
    assert!(
        desk.ctl("query f_0000 call_all")
            .matches(": not traced\n")
            .count()
            == 2
    );
    assert_eq!(number(&desk, "#tracehits"), 0);
    desk.run("all");
    assert_eq!(number(&desk, "#slothits"), 0);
    desk.end();
}

/// Of a flight recorder only as much is left as its buffer holds.
#[test]
fn the_buffer_grows_and_shrinks() {
    for (size, kept) in [
        ("", 30_000..70_000),
        ("size 19", 140_000..200_001),
        ("size 15", 5_000..17_000),
    ] {
        let mut desk = many_with(&["-F", "one", "--flight", "--buffer", "1M"]);
        desk.ctl(size);
        desk.run("pair 200000");
        let trace = desk.scratch.path().join("trace");
        assert!(desk.refused("size 20").contains("4194304 bytes at most"));
        assert_eq!(
            number(&desk, "logsize "),
            size.split(' ').nth(1).map_or(17, |it| it.parse().unwrap())
        );
        let scratch = desk.end().0;
        let calls = Report::of(&trace).calls("one");
        assert!(kept.contains(&calls), "{size}: {calls} calls kept");
        drop(scratch);
    }
}

#[test]
fn threads_are_watched() {
    let mut desk = many();
    desk.ctl("reset\ntrace f_* new all\ntrace all on\nstart");
    // It says their numbers when it is ready.
    let threads: Vec<&str> = desk.said.split_whitespace().skip(1).collect();
    let &[main, second] = threads.as_slice() else {
        panic!("{}", desk.said);
    };
    let [main, second] = [main, second].map(str::to_owned);
    desk.ctl(&format!("watch {second}"));
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 0);
    desk.run("thread");
    assert_eq!(number(&desk, "#traceinhits"), FUNCTIONS as u64);
    // The process's own number means all of its threads.
    desk.ctl(&format!("watch {main}"));
    desk.run("thread");
    desk.run("all");
    assert_eq!(number(&desk, "#traceinhits"), 3 * FUNCTIONS as u64);
    desk.run("fork");
    assert_eq!(number(&desk, "#traceinhits"), 3 * FUNCTIONS as u64);
    desk.ctl(&format!("watch {main} children"));
    desk.run("fork");
    assert_eq!(number(&desk, "#traceinhits"), 4 * FUNCTIONS as u64);
    desk.ctl("watch 0");
    desk.run("fork");
    assert_eq!(number(&desk, "#traceinhits"), 5 * FUNCTIONS as u64);
    assert!(desk.refused("watch 1").contains("\"watch 1\": "));
    desk.end();
}

#[test]
fn libraries_that_are_loaded_later() {
    let (_, late) = library("late.c");
    let mut desk = many();
    desk.ctl("reset\ntrace late@liblate* new late\ntrace late on\nstart");
    assert_eq!(entries(&desk, "late"), 0);
    desk.run(&format!("load {}", late.display()));
    assert_eq!(entries(&desk, "late"), 1);
    desk.ctl("trace late remove");
    desk.run(&format!("load {}", late.display()));
    assert_eq!(number(&desk, "#traceinhits"), 1);
    desk.end();
}

/// Whether or not anything of a library is traced that they load.
#[test]
fn children_that_stay_are_left_as_they_were() {
    let (_, late) = library("late.c");
    for chosen in ["call_all", "late@liblate*"] {
        let mut desk = many_with(&["-F", chosen]);
        let said = desk.run(&format!("stay {}", late.display()));
        let (_, child) = said.split_once("child ").unwrap();
        let child = child.split_once('\n').unwrap().0.parse().unwrap();
        desk.tool.signal_group(libc::SIGINT);
        assert_eq!(desk.tool.wait().end, End::Code(0));
        assert_nothing_left(child);
        assert_nothing_left(desk.program.id());
    }
}

#[test]
fn a_program_that_is_executed_later_is_traced_from_its_start() {
    let mut desk = many();
    desk.ctl("reset\ntrace main new m\ntrace f_0* new all\ntrace m on\ntrace all on\nstart");
    for round in 1..4 {
        desk.run("again");
        assert_eq!(entries(&desk, "m"), round);
        desk.run("all");
        assert_eq!(entries(&desk, "all"), 1000 * round);
    }
    desk.ctl("stop");
    desk.run("again");
    desk.run("all");
    assert_eq!([entries(&desk, "m"), entries(&desk, "all")], [3, 3000]);
    desk.end();
}

#[test]
fn places_in_the_source() {
    let mut desk = many();
    let source =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/many.c")).unwrap();
    let line = 1 + source
        .lines()
        .position(|line| line.contains("sum += 0x77"))
        .unwrap();
    let answer = desk.ctl(&format!("query many.c:{line}"));
    assert!(answer.ends_with(" one@many: not traced\n"), "{answer}");
    desk.ctl(&format!(
        "reset\ntrace many.c:{line} new here\ntrace here on\nstart"
    ));
    desk.run("pair 10");
    assert_eq!(entries(&desk, "here"), 10);
    desk.end();
}

#[test]
fn what_is_wrong_is_said() {
    let desk = many();
    let before = desk.state();
    for (command, expected) in [
        (
            "trace f_0000 nwe p",
            "nopal: \"trace f_0000 nwe p\": expected new, on, off or remove, found \"nwe\"\n",
        ),
        (
            "trace f_000 new p",
            "nopal: \"trace f_000 new p\": no function matches f_000; the nearest are f_0000, ",
        ),
        (
            "trace _start new p",
            "nopal: \"trace _start new p\": 1 of 1 functions cannot be traced: _start@many (the program's entry",
        ),
    ] {
        let said = desk.refused(command);
        assert!(said.starts_with(expected), "{said}");
    }
    assert_eq!(desk.state(), before);
    desk.end();
}
