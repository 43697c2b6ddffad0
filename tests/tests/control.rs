//! A running process, controlled by text.

use nopal_tests::process::assert_nothing_left;
use nopal_tests::{
    AttachedProgram, End, Report, Start, c, library, nopal, passed, scratch, shell_word,
};
use std::io::Write;

const FUNCTIONS: usize = 3000;

/// The program `many`, traced, with no functions selected yet.
fn many() -> AttachedProgram {
    many_with(&["-F", "call_all"])
}

fn many_with(options: &[&str]) -> AttachedProgram {
    AttachedProgram::new(c("many", &[]), options)
}

/// A number behind a word in the state.
fn number(attached: &AttachedProgram, word: &str) -> u64 {
    let state = attached.state();
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

/// The number of entries of a trace.
fn entries(attached: &AttachedProgram, trace: &str) -> u64 {
    let state = attached.state();
    let behind = state
        .split_once(&format!(" new {trace}\n"))
        .unwrap_or_else(|| panic!("{state}"))
        .1;
    let entries = behind.split_once("entries ").unwrap().1;
    entries.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn traces_are_made_switched_and_removed() {
    let mut attached = many();
    attached.ctl("reset\ntrace f_00* new low\ntrace f_2999 new last\nstart");
    attached.run("all");
    assert_eq!(
        [entries(&attached, "low"), entries(&attached, "last")],
        [0, 0]
    );
    attached.ctl("trace low on");
    attached.run("all");
    assert_eq!(
        [entries(&attached, "low"), entries(&attached, "last")],
        [100, 0]
    );
    attached.ctl("trace last on\ntrace low off");
    attached.run("all");
    assert_eq!(
        [entries(&attached, "low"), entries(&attached, "last")],
        [100, 1]
    );
    attached.ctl("stop");
    attached.run("all");
    assert_eq!(
        [entries(&attached, "low"), entries(&attached, "last")],
        [100, 1]
    );
    assert_eq!(number(&attached, "#tracehits"), 202);
    assert_eq!(number(&attached, "#traceinhits"), 101);
    attached.ctl("trace low remove\ntrace last remove");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 101);
    // Addresses as they are in the file mean nothing here, but what they may mean is known.
    let refused = attached.refused("trace 0x1000 0x100000 new low");
    assert!(
        refused.contains("no function matches 0x1000 0x100000; the nearest is ")
            && refused.contains("+0x1000-0x100000"),
        "{refused}"
    );
    // The trace has several locations, not in the order of the code, and shares some with another trace.
    attached.ctl("reset\ntrace f_2999 f_00* f_15?7 new mixed\ntrace f_00?? f_2000 new low\nstart");
    assert_eq!(number(&attached, "#tracehits"), 0, "the counts begin anew");
    let mut run = |commands: &str| {
        attached.ctl(commands);
        let before = number(&attached, "#traceinhits");
        attached.run("all");
        number(&attached, "#traceinhits") - before
    };
    assert_eq!(run("trace mixed on"), 111);
    assert_eq!(run("trace low on"), 112);
    assert_eq!(run("trace mixed off"), 101);
    assert_eq!(run("trace mixed on\ntrace low off"), 111);
    assert_eq!(run("trace mixed remove"), 0);
    attached.end();
}

#[test]
fn thousands_of_traces() {
    let mut attached = many();
    let of_each = |command: &dyn Fn(usize) -> String| -> String {
        (0..FUNCTIONS)
            .map(|number| command(number) + "\n")
            .collect()
    };
    attached.ctl("reset\ntrace f_* new all\nstart");
    attached.ctl(&of_each(&|number| {
        format!("trace f_{number:04} new t{number}")
    }));
    attached.ctl(&of_each(&|number| {
        format!("trace t{number} {}", ["on", "off"][number % 2])
    }));
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), FUNCTIONS as u64 / 2);
    assert_eq!([entries(&attached, "t0"), entries(&attached, "t1")], [1, 0]);
    assert_eq!(attached.state().matches(" new t").count(), FUNCTIONS);
    attached.ctl(&of_each(&|number| format!("trace t{number} remove")));
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), FUNCTIONS as u64 / 2);
    attached.end();
}

#[test]
fn overlapping_traces() {
    let mut attached = many();
    attached.ctl(
        "reset\ntrace f_000* new a\ntrace f_0005 f_0006 f_1* new b\ntrace a on\ntrace b on\nstart",
    );
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 10 + 1000);
    attached.ctl("trace a off");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 2 * 1000 + 10 + 2);
    attached.ctl("trace a remove");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 3 * 1000 + 10 + 4);
    attached.ctl("trace b remove");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 3 * 1000 + 10 + 4);
    assert!(
        attached
            .ctl("query f_0005")
            .ends_with("f_0005@many: not traced\n")
    );
    attached.end();
}

#[test]
fn what_was_chosen_at_the_start_is_a_trace() {
    let mut attached = many_with(&["-F", "f_1*", "-F", "call_all", "-N", "f_19*"]);
    let state = attached.state();
    assert!(
        state.contains("\ntrace f_1* call_all !f_19* new function\n"),
        "{state}"
    );
    assert!(
        state.contains("\ntrace function on\n") && state.contains("\nstart\n"),
        "{state}"
    );
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 901);
    attached.ctl("trace function remove");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 901);
    let traced = attached.ctl("query f_* call_all");
    assert_eq!(traced.matches(": not traced\n").count(), FUNCTIONS + 1);
    attached.end();
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
    let mut attached = many();
    attached.ctl("reset\ntrace one new one\ntrace one on\nuniform on\nstart");
    attached.run("pair 20000");
    assert_eq!(entries(&attached, "one"), 20000);
    assert_eq!(
        number(&attached, "#traceinhits"),
        20000,
        "other functions are not recorded"
    );
    attached.ctl("reset");
    attached.run("pair 1000");
    attached.end();
}

#[test]
fn reset_leaves_nothing_behind() {
    let mut attached = many();
    attached.run("all");
    attached.ctl("trace f_* new all\ntrace all on\nuniform on");
    attached.run("thread");
    attached.ctl("reset");
    let state = attached.state();
    assert!(
        !state.contains("trace ") && state.ends_with("\nstop\n"),
        "{state}"
    );
    assert!(
        attached
            .ctl("query f_0000 call_all")
            .matches(": not traced\n")
            .count()
            == 2
    );
    assert_eq!(number(&attached, "#tracehits"), 0);
    attached.run("all");
    assert_eq!(number(&attached, "#slothits"), 0);
    attached.end();
}

/// A flight recorder keeps only as much as its buffer holds.
#[test]
fn the_buffer_grows_and_shrinks() {
    for (size, kept) in [
        ("", 30_000..70_000),
        ("size 19", 140_000..200_001),
        ("size 15", 5_000..17_000),
    ] {
        let mut attached = many_with(&["-F", "one", "--flight", "--buffer", "1M"]);
        attached.ctl(size);
        attached.run("pair 200000");
        let trace = attached.scratch.path().join("trace");
        assert!(
            attached
                .refused("size 20")
                .contains("at most 4194304 bytes in this recording: size 19, or 4096 KiB")
        );
        assert_eq!(
            number(&attached, "logsize "),
            size.split(' ').nth(1).map_or(17, |it| it.parse().unwrap())
        );
        let scratch = attached.end().0;
        let calls = Report::of(&trace).calls("one");
        assert!(kept.contains(&calls), "{size}: {calls} calls kept");
        drop(scratch);
    }
}

#[test]
fn threads_are_watched() {
    let mut attached = many();
    attached.ctl("reset\ntrace f_* new all\ntrace all on\nstart");
    // The program prints its threads' numbers when it is ready.
    let threads: Vec<&str> = attached.said.split_whitespace().skip(1).collect();
    let &[main, second] = threads.as_slice() else {
        panic!("{}", attached.said);
    };
    let [main, second] = [main, second].map(str::to_owned);
    attached.ctl(&format!("watch {second}"));
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 0);
    attached.run("thread");
    assert_eq!(number(&attached, "#traceinhits"), FUNCTIONS as u64);
    // The process's own number stands for all of its threads.
    attached.ctl(&format!("watch {main}"));
    attached.run("thread");
    attached.run("all");
    assert_eq!(number(&attached, "#traceinhits"), 3 * FUNCTIONS as u64);
    attached.run("fork");
    assert_eq!(number(&attached, "#traceinhits"), 3 * FUNCTIONS as u64);
    attached.ctl(&format!("watch {main} children"));
    attached.run("fork");
    assert_eq!(number(&attached, "#traceinhits"), 4 * FUNCTIONS as u64);
    attached.ctl("watch 0");
    attached.run("fork");
    assert_eq!(number(&attached, "#traceinhits"), 5 * FUNCTIONS as u64);
    assert!(attached.refused("watch 1").contains("\"watch 1\": "));
    attached.end();
}

#[test]
fn libraries_that_are_loaded_later() {
    let (_, late) = library("late.c");
    let mut attached = many();
    attached.ctl("reset\ntrace late@liblate* new late\ntrace late on\nstart");
    assert_eq!(entries(&attached, "late"), 0);
    attached.run(&format!("load {}", late.display()));
    assert_eq!(entries(&attached, "late"), 1);
    attached.ctl("trace late remove");
    attached.run(&format!("load {}", late.display()));
    assert_eq!(number(&attached, "#traceinhits"), 1);
    attached.end();
}

#[test]
fn markers_of_a_library_that_is_loaded_later() {
    let (_, marking) = library("marking.c");
    let mut attached = many();
    let waits = "mark plugin_*@libmarking.so waits for its library\n";
    let listed = |attached: &AttachedProgram, options: &[&str]| {
        let runtime = attached.scratch.path().to_owned();
        let mut start = Start::new([nopal().as_os_str()]);
        let process = attached.program.id().to_string();
        start.words.push("list".into());
        start.words.extend(options.iter().map(Into::into));
        start.words.push(process.into());
        start
            .environment
            .push(("XDG_RUNTIME_DIR".into(), runtime.into()));
        start.run("").stdout
    };
    let list = |attached: &AttachedProgram| listed(attached, &[]);
    let waiting = |attached: &AttachedProgram| {
        let files: serde_json::Value =
            serde_json::from_str(&listed(attached, &["--json"])).unwrap();
        files[0]["waiting_markers"].clone()
    };
    assert_eq!(
        attached.ctl("reset\nstart\nmark plugin_*@libmarking.so on"),
        waits
    );
    let state = attached.state();
    let line = format!("mark plugin_*@libmarking.so on\n#{waits}");
    assert!(state.contains(&line), "{state}");
    // The line is valid input.
    attached.ctl(&line);
    assert!(list(&attached).ends_with(&format!("\n{waits}")));
    assert_eq!(
        waiting(&attached),
        serde_json::json!(["plugin_*@libmarking.so"])
    );
    attached.run(&format!("load {}", marking.display()));
    let state = attached.state();
    assert!(!state.contains("waits"), "{state}");
    assert!(!list(&attached).contains("waits"));
    assert_eq!(waiting(&attached), serde_json::json!([]));
    // Loaded files that lack the marker are no reason to wait.
    let refused = attached.refused("mark plugin_ltae@libmarking.so on");
    assert!(
        refused.contains("no marker matches plugin_ltae@libmarking.so"),
        "{refused}"
    );
    attached.run(&format!("load {}", marking.display()));
    attached.state();
    let markers = ["plugin_begins", "plugin_late", "plugin_late"];
    assert_eq!(passed(&attached.trace()), markers);
    attached.end();
}

/// This holds whether or not functions of the library that they load are traced.
#[test]
fn children_that_stay_are_left_as_they_were() {
    let (_, late) = library("late.c");
    for chosen in ["call_all", "late@liblate*"] {
        let mut attached = many_with(&["-F", chosen]);
        let said = attached.run(&format!("stay {}", late.display()));
        let (_, child) = said.split_once("child ").unwrap();
        let child = child.split_once('\n').unwrap().0.parse().unwrap();
        attached.tool.signal_group(libc::SIGINT);
        assert_eq!(attached.tool.wait().end, End::Code(0));
        assert_nothing_left(child);
        assert_nothing_left(attached.program.id());
    }
}

#[test]
fn a_program_that_is_executed_later_is_traced_from_its_start() {
    let mut attached = many();
    attached.ctl("reset\ntrace main new m\ntrace f_0* new all\ntrace m on\ntrace all on\nstart");
    for round in 1..4 {
        attached.run("again");
        assert_eq!(entries(&attached, "m"), round);
        attached.run("all");
        assert_eq!(entries(&attached, "all"), 1000 * round);
    }
    attached.ctl("stop");
    attached.run("again");
    attached.run("all");
    assert_eq!(
        [entries(&attached, "m"), entries(&attached, "all")],
        [3, 3000]
    );
    attached.end();
}

#[test]
fn places_in_the_source() {
    let mut attached = many();
    let source =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/many.c")).unwrap();
    let line = 1 + source
        .lines()
        .position(|line| line.contains("sum += 0x77"))
        .unwrap();
    let answer = attached.ctl(&format!("query many.c:{line}"));
    assert!(answer.ends_with(" one@many: not traced\n"), "{answer}");
    attached.ctl(&format!(
        "reset\ntrace many.c:{line} new here\ntrace here on\nstart"
    ));
    attached.run("pair 10");
    assert_eq!(entries(&attached, "here"), 10);
    attached.end();
}

#[test]
fn what_is_wrong_is_said() {
    let attached = many();
    // The first reading says that entries are counted from then on; no other one does.
    let counted = "\n#entries and exits are counted from now on\n";
    assert!(attached.state().contains(counted));
    let before = attached.state();
    assert!(!before.contains(counted));
    for (command, expected) in [
        (
            "trace f_0000 nwe p",
            "nopal: \"trace f_0000 nwe p\": expected new, on, off, count or remove, found \"nwe\"; the nearest is new\n",
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
        let said = attached.refused(command);
        assert!(said.starts_with(expected), "{said}");
    }
    assert_eq!(attached.state(), before);
    attached.end();
}

/// While recording is stopped, open calls may end, but the calls within them are unknown: that time is not the open
/// calls' own, and readers show when recording was stopped.
#[test]
fn time_in_which_recording_was_stopped_is_no_calls_own() {
    const STOPPED: u64 = 200_000_000;
    for closed_later in [false, true] {
        let options = ["-F", "outer", "-F", "part"];
        let mut attached = AttachedProgram::new(c("stopped", &[]), &options);
        attached.run("open");
        attached.ctl("stop");
        attached.run("work");
        if closed_later {
            attached.ctl("start");
            attached.run("work");
        }
        let mut stdin = attached.stdin.as_ref().unwrap();
        stdin.write_all(b"close\n").unwrap();
        let ends = if closed_later { 4 } else { 3 };
        let is_closed = |text: &str| text.matches("done\n").count() == ends;
        attached.program.wait_for(is_closed);
        let trace = attached.trace();
        let (_scratch, ended) = attached.end();

        let report = Report::of(&trace);
        let calls = if closed_later { 20 } else { 0 };
        assert_eq!(report.calls("part"), calls, "{}", ended.stderr);
        let rows: Vec<_> = report.rows_of("outer").collect();
        let [row] = rows[..] else {
            panic!("{rows:?}");
        };
        let time = |name: &str| row[name].as_u64().unwrap();
        let inside: u64 = report
            .rows_of("part")
            .map(|row| row["total_ns"].as_u64().unwrap())
            .sum();
        assert!(
            time("total_ns") >= time("self_ns") + STOPPED + inside,
            "{row}"
        );
        assert_eq!((time("calls"), time("unfinished")), (1, 0), "{row}");
        assert_eq!(row["self_is_least"], true, "{row}");
        assert!(row.get("total_is_least").is_none(), "{row}");
        let stops = report.rows[0]["losses"]["stops"].as_array().unwrap();
        assert_eq!(stops.len(), 1, "{stops:?}");
        assert_eq!(stops[0][1].is_null(), !closed_later, "{stops:?}");
    }
}

/// A program that is executed while functions are off is followed: nopal's hooks are never off.
#[test]
fn a_program_that_is_executed_while_recording_is_stopped_is_recorded_later() {
    let mut attached = AttachedProgram::new(c("stopped", &[]), &["-F", "part"]);
    attached.ctl("stop");
    // The first program begins with its functions on, the second with them off. If hooks were off as well, the third
    // would be missed.
    for executed in 2..4 {
        let mut stdin = attached.stdin.as_ref().unwrap();
        stdin.write_all(b"exec\n").unwrap();
        let is_ready = |text: &str| text.matches("ready\n").count() == executed;
        attached.program.wait_for(is_ready);
    }
    attached.ctl("start");
    attached.run("open");
    attached.run("work");
    let trace = attached.trace();
    let (_scratch, ended) = attached.end();
    assert_eq!(Report::of(&trace).calls("part"), 20, "{}", ended.stderr);
}

#[test]
fn a_session_is_found_that_began_before_there_was_a_better_directory_for_sockets() {
    let scratch = scratch();
    let file = |name: &str| shell_word(scratch.path().join(name));
    // `/run` belongs to the test's mount namespace. nopal does not use it while everybody may write there.
    let script = format!(
        "mount -t tmpfs -o mode=1777 none /run && unset XDG_RUNTIME_DIR || exit 100
        {nopal} record -o {trace} -- sh -c 'echo $$ >\"$0\"; exec sleep 600' {process} & tool=$!
        for try in $(seq 600); do
            process=$(cat {process} 2>/dev/null)
            test -n \"$process\" && test -e /tmp/nopal-0/$process && break
            sleep 0.1
        done
        chmod 755 /run && mkdir -m 700 /run/nopal || exit 101
        {nopal} ctl $process; status=$?
        kill $process; wait $tool
        exit $status",
        nopal = shell_word(nopal()),
        trace = file("trace"),
        process = file("process"),
    );
    let ended = Start::new(["unshare", "--mount", "sh", "-c", &script]).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("start\n"), "{}", ended.stdout);
}
