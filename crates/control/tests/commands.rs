//! Commands, and their effect on the sites.

mod common;

use common::{Fake, PROCESS};
use nopal_control::{Command, Control, FunctionSelection, Mode, Spared, begin};

fn obey(control: &mut Control, fake: &mut Fake, commands: &str) -> String {
    control
        .command(fake, commands)
        .unwrap_or_else(|error| panic!("{commands}: {error}"))
}

fn refuse(control: &mut Control, fake: &mut Fake, commands: &str) -> String {
    let before = (text(control, fake), fake.inserted.clone());
    let error = control.command(fake, commands).unwrap_err();
    assert_eq!(
        (text(control, fake), fake.inserted.clone()),
        before,
        "{commands}"
    );
    error.message
}

fn text(control: &mut Control, fake: &mut Fake) -> String {
    common::cat(control, fake, "ctl")
}

fn new() -> (Control, Fake) {
    (Control::new(), Fake::new())
}

#[test]
fn new_inserts_on_and_off_switch_remove_takes_out() {
    let (mut control, mut fake) = new();
    obey(&mut control, &mut fake, "start\ntrace parse_* new p");
    let parse = ["parse_line", "parse_file", "parse_char"];
    assert_eq!(fake.in_mode(Mode::Off), parse);
    obey(&mut control, &mut fake, "trace p on");
    assert_eq!(fake.in_mode(Mode::On), parse);
    obey(&mut control, &mut fake, "trace p off");
    assert_eq!(fake.in_mode(Mode::Off), parse);
    obey(&mut control, &mut fake, "trace p remove");
    assert!(fake.inserted.is_empty());
}

#[test]
fn a_session_with_a_full_trace_says_so_and_is_not_started_again() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "start\ntrace main new m\ntrace m on",
    );
    fake.full = true;
    control.stop(&mut fake).unwrap();
    assert!(text(&mut control, &mut fake).contains("#traceactive 0: the trace is full\n"));
    for command in ["start", "when parse_line do start"] {
        let error = refuse(&mut control, &mut fake, command);
        assert!(error.ends_with("the trace is full"), "{error}");
    }
    obey(
        &mut control,
        &mut fake,
        "reset\ntrace main new m\ntrace m on",
    );
    refuse(&mut control, &mut fake, "start");
    assert_eq!(fake.mode("main"), Some(Mode::Off));
}

#[test]
fn nothing_is_on_until_start_and_after_stop() {
    let (mut control, mut fake) = new();
    obey(&mut control, &mut fake, "trace main new m\ntrace m on");
    assert_eq!(fake.mode("main"), Some(Mode::Off));
    obey(&mut control, &mut fake, "start");
    assert_eq!(fake.mode("main"), Some(Mode::On));
    obey(&mut control, &mut fake, "stop");
    assert_eq!(fake.mode("main"), Some(Mode::Off));
    obey(&mut control, &mut fake, "trace parse_* new p\ntrace p on");
    assert_eq!(fake.mode("parse_line"), Some(Mode::Off));
    obey(&mut control, &mut fake, "start");
    assert_eq!(fake.in_mode(Mode::On).len(), 4);
}

#[test]
fn functions_are_counted_unless_somebody_has_them_recorded() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "trace parse_* new p\ntrace p count",
    );
    let parse = ["parse_line", "parse_file", "parse_char"];
    assert_eq!(fake.in_mode(Mode::Off), parse, "not started");
    obey(&mut control, &mut fake, "start");
    assert_eq!(fake.in_mode(Mode::Counted), parse);
    let text = text(&mut control, &mut fake);
    assert!(text.contains("\ntrace p count\n"), "{text}");
    obey(
        &mut control,
        &mut fake,
        "trace parse_line new l\ntrace l on",
    );
    assert_eq!(fake.in_mode(Mode::On), ["parse_line"]);
    // A trigger looks at its calls, which the trace is to have as well.
    obey(&mut control, &mut fake, "when parse_file do count new n");
    assert_eq!(fake.mode("parse_file"), Some(Mode::On));
    obey(&mut control, &mut fake, "when n remove\ntrace l count");
    assert_eq!(fake.in_mode(Mode::Counted), parse);
    obey(&mut control, &mut fake, "trace p off");
    assert_eq!(fake.in_mode(Mode::Counted), ["parse_line"]);
    obey(&mut control, &mut fake, "stop");
    assert_eq!(fake.in_mode(Mode::Off), parse);
}

#[test]
fn overlapping_traces_count_right() {
    let (mut control, mut fake) = new();
    let steps = [
        (
            "start\ntrace parse_line parse_file new a\ntrace parse_file parse_char new b",
            None,
            None,
        ),
        ("trace a on", Some(Mode::On), Some(Mode::Off)),
        ("trace b on", Some(Mode::On), Some(Mode::On)),
        ("trace b on", Some(Mode::On), Some(Mode::On)),
        ("trace a off", Some(Mode::Off), Some(Mode::On)),
        ("trace a remove", None, Some(Mode::On)),
        (
            "trace parse_* new c\ntrace c on\ntrace b remove",
            Some(Mode::On),
            Some(Mode::On),
        ),
        ("trace c remove", None, None),
    ];
    for (commands, line, char) in &steps[1..] {
        if fake.inserted.is_empty() {
            obey(&mut control, &mut fake, steps[0].0);
        }
        obey(&mut control, &mut fake, commands);
        assert_eq!(fake.mode("parse_line"), *line, "{commands}");
        assert_eq!(fake.mode("parse_char"), *char, "{commands}");
        let both = if line.is_none() && char.is_none() {
            None
        } else {
            Some(Mode::On)
        };
        assert_eq!(fake.mode("parse_file"), both, "{commands}");
    }
}

#[test]
fn reset_leaves_nothing() {
    let (mut control, mut fake) = new();
    let empty = text(&mut control, &mut fake);
    obey(
        &mut control,
        &mut fake,
        &format!("trace * new a\ntrace a on\nuniform on\nwatch {PROCESS} children\nstart"),
    );
    fake.call(&["main", "parse_line"]);
    obey(&mut control, &mut fake, "reset");
    assert!(fake.inserted.is_empty());
    assert!(fake.watched.is_empty());
    assert_eq!(text(&mut control, &mut fake), empty);
}

#[test]
fn uniform_lets_all_pay() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "trace main new m\ntrace m on\nuniform on",
    );
    assert_eq!(fake.in_mode(Mode::Off).len(), 11);
    obey(&mut control, &mut fake, "start");
    assert_eq!(fake.in_mode(Mode::On), ["main"]);
    assert_eq!(fake.in_mode(Mode::Silent).len(), 10);
    obey(
        &mut control,
        &mut fake,
        "trace parse_line new p\ntrace p on\ntrace m off",
    );
    assert_eq!(fake.in_mode(Mode::On), ["parse_line"]);
    assert_eq!(fake.in_mode(Mode::Silent).len(), 10);
    obey(&mut control, &mut fake, "trace p remove");
    assert_eq!(fake.mode("parse_line"), Some(Mode::Silent));
    obey(&mut control, &mut fake, "stop");
    assert_eq!(fake.in_mode(Mode::Off).len(), 11);
    obey(&mut control, &mut fake, "start\ntrace m on\nuniform off");
    assert_eq!(fake.in_mode(Mode::On), ["main"]);
    assert_eq!(fake.inserted.len(), 1);
}

#[test]
fn a_budget_spares_what_nobody_has_named() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "trace * new all\ntrace all on\ntrace parse_line new p\nstart\nbudget 5%",
    );
    let spared = |fake: &Fake, names: &[&str]| Spared {
        counted: names.iter().map(|name| fake.key(name)).collect(),
        off: [fake.key("parse_file")].into(),
    };
    let off = spared(&fake, &["main", "parse_line"]);
    control.spare(&mut fake, off).unwrap();
    assert_eq!(fake.budget, "5%".parse().ok());
    assert_eq!(fake.in_mode(Mode::Counted), ["main"], "parse_line is named");
    assert_eq!(fake.mode("parse_file"), None);
    // The text of the state restores all but the spared functions.
    let state = text(&mut control, &mut fake);
    assert!(state.contains("\nbudget 5%\n"), "{state}");
    obey(&mut control, &mut fake, "stop");
    assert_eq!(fake.mode("main"), Some(Mode::Off));
    obey(&mut control, &mut fake, "start\nuniform on");
    assert_eq!(fake.mode("main"), Some(Mode::On), "all pay");
    obey(&mut control, &mut fake, "uniform off");
    assert_eq!(fake.in_mode(Mode::Counted), ["main"]);
    obey(&mut control, &mut fake, "budget off");
    assert_eq!((fake.mode("main"), fake.budget), (Some(Mode::On), None));
    assert_eq!(fake.mode("parse_file"), Some(Mode::On));
    let off = spared(&fake, &["main"]);
    control.spare(&mut fake, off).unwrap();
    assert_eq!(fake.mode("main"), Some(Mode::On), "there is no budget");
}

#[test]
fn places_of_every_kind() {
    let address = |name| Fake::new().address(name);
    let line = address("parse_line");
    let cases = [
        ("parse_line", vec!["parse_line"]),
        ("parse_* !parse_char", vec!["parse_line", "parse_file"]),
        ("ns::f", vec!["_ZN2ns1fEi"]),
        ("\"ns::f(int)\"", vec!["_ZN2ns1fEi"]),
        ("*@libz*", vec!["deflate", "inflate"]),
        ("malloc free@libc*", vec!["malloc", "free"]),
        ("main.c:30", vec!["parse_line"]),
        (&format!("{line:x}"), vec!["parse_line"]),
        (&format!("{:#x}", line + 5), vec!["parse_line"]),
        (
            &format!("{line:x} {:x}", line + 0x80),
            vec!["parse_line", "parse_file"],
        ),
        ("prog+0x1221", vec!["parse_line"]),
        ("prog+0x1220-0x12a0", vec!["parse_line", "parse_file"]),
        ("new main", vec!["main", "new"]),
        ("main main main", vec!["main"]),
    ];
    for (what, expected) in cases {
        let (mut control, mut fake) = new();
        obey(&mut control, &mut fake, &format!("trace {what} new n"));
        assert_eq!(fake.in_mode(Mode::Off), expected, "{what}");
    }
}

#[test]
fn addresses_are_saved_so_that_they_hold_elsewhere() {
    let (mut control, mut fake) = new();
    let line = fake.address("parse_line");
    obey(
        &mut control,
        &mut fake,
        &format!("trace {line:x} {:x} new p", line + 0x80),
    );
    obey(&mut control, &mut fake, &format!("trace {line:x} new q"));
    let saved = text(&mut control, &mut fake);
    assert!(
        saved.contains("\ntrace prog+0x1220-0x12a0 new p\n"),
        "{saved}"
    );
    assert!(saved.contains("\ntrace prog+0x1220 new q\n"), "{saved}");
    assert!(
        saved.contains(&format!("\n#trace {line:08x} traced? ")),
        "{saved}"
    );

    let (mut control, mut other) = new();
    other.modules[0].base = 0x5600_0000_0000;
    obey(&mut control, &mut other, &saved);
    assert_eq!(other.in_mode(Mode::Off), ["parse_line", "parse_file"]);
}

#[test]
fn functions_that_cannot_be_traced_are_told_of() {
    let (mut control, mut fake) = new();
    let answer = obey(&mut control, &mut fake, "trace _start main new m");
    assert_eq!(
        answer,
        "1 of 2 functions cannot be traced: _start@prog (the program's entry: nothing called it)\n"
    );
    fake.functions[2].busy = Some("a thread is about to return into it");
    let answer = obey(&mut control, &mut fake, "trace parse_* new p");
    assert_eq!(
        answer,
        "1 of 3 functions cannot be traced: parse_line@prog (a thread is about to return into it)\n"
    );
    assert!(
        text(&mut control, &mut fake).contains("\n#functions 2, refused 1, entries 0, exits 0\n")
    );
    assert_eq!(
        refuse(&mut control, &mut fake, "trace _start parse_line new q"),
        "\"trace _start parse_line new q\": 2 of 2 functions cannot be traced: _start@prog (the program's entry: \
         nothing called it), parse_line@prog (a thread is about to return into it)"
    );
}

#[test]
fn bad_commands_are_quoted_and_change_nothing() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "trace parse_line new p\ntrace p on\nstart",
    );
    let cases = [
        (
            "stat",
            "\"stat\": expected trace, mark, size, logsize, watch, processors, start, stop, reset, query, testtracein, uniform, budget, arguments, probe, section, tracer, threshold, latency, when or snapshot, found \"stat\"; the nearest are start, stop",
        ),
        (
            "probe atuo main",
            "\"probe atuo main\": expected on, off, remove, new, fetch or the end of the line, found \"main\"; for \"atuo\" the nearest is auto",
        ),
        (
            "trace 0x1 0x2 new q",
            "\"trace 0x1 0x2 new q\": no function matches 0x1 0x2",
        ),
        ("tarce p on", "\"tarce p on\": expected trace, mark, size,"),
        (
            "trace p onn",
            "\"trace p onn\": expected new, on, off, count or remove, found \"onn\"",
        ),
        (
            "trace p",
            "\"trace p\": expected new, on, off, count or remove, found its end",
        ),
        (
            "trace q on",
            "\"trace q on\": there is no trace \"q\", only p",
        ),
        (
            "trace parse_lien new q",
            "\"trace parse_lien new q\": no function matches parse_lien; the nearest are parse_line",
        ),
        (
            "trace main new p",
            "\"trace main new p\": there is a trace \"p\" already, of parse_line",
        ),
        (
            "trace 1000 1000 new q",
            "\"trace 1000 1000 new q\": the range is empty",
        ),
        ("size 3", "\"size 3\": expected a number from 10 to 40"),
        (
            "size 40",
            "\"size 40\": the buffer has from 1 MiB to 16 GiB",
        ),
        (
            "watch 99",
            "\"watch 99\": no thread or process 99 in this session",
        ),
        ("watch 0 4711", "\"watch 0 4711\": 0 means all processes"),
        (
            "query f\u{1b}[2J",
            "\"query f\\u{1b}[2J\": expected WHAT, found \"f\\u{1b}[2J\"",
        ),
    ];
    for (command, expected) in cases {
        let message = refuse(&mut control, &mut fake, command);
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn the_first_bad_one_of_several_ends_them() {
    let (mut control, mut fake) = new();
    let error = control
        .command(&mut fake, "# traces\ntrace main new m\nstrat\ntrace m on\n")
        .unwrap_err();
    assert!(
        error.message.starts_with("line 3: \"strat\": expected "),
        "{error}"
    );
    assert_eq!(fake.in_mode(Mode::Off), ["main"]);
}

/// A command that failed has changed nothing, whatever the engine refuses, and whenever.
#[test]
fn a_failing_engine_leaves_all_as_it_was() {
    let commands = [
        "trace parse_* new n",
        "trace p on",
        "trace q off",
        "trace q remove",
        "start",
        "stop",
        "reset",
        "uniform on",
        "uniform off",
        "budget 5%",
        "size 21",
        "watch 4712",
    ];
    let states = [
        "",
        "start",
        "uniform on",
        "uniform on\nstart",
        "budget 1%\nstart",
    ];
    let traces = "trace parse_line parse_file new p\ntrace parse_file main new q\ntrace q on\n";
    let mut failed = 0;
    for state in states {
        for command in commands {
            for after in 0.. {
                let (mut control, mut fake) = new();
                obey(&mut control, &mut fake, &format!("{traces}{state}"));
                let before = (text(&mut control, &mut fake), fake.inserted.clone());
                fake.fails_after = Some(after);
                let done = control.command(&mut fake, command);
                if done.is_ok() {
                    break;
                }
                failed += 1;
                let now = (text(&mut control, &mut fake), fake.inserted.clone());
                assert_eq!(now, before, "{state}: {command}, failing after {after}");
            }
        }
    }
    assert!(failed > 30, "{failed}");
}

#[test]
fn questions() {
    let (mut control, mut fake) = new();
    obey(
        &mut control,
        &mut fake,
        "trace parse_* new p\ntrace parse_line main new \"the others\"",
    );
    assert_eq!(
        obey(
            &mut control,
            &mut fake,
            "query parse_line strlen@libc* _start"
        ),
        "55d0e4c01220 parse_line@prog: not traced: p (off), \"the others\" (off)\n\
         7f0010002080 strlen@libc.so.6: not traced\n\
         55d0e4c01000 _start@prog: cannot be traced: the program's entry: nothing called it\n"
    );
    obey(&mut control, &mut fake, "trace p on");
    assert_eq!(
        obey(&mut control, &mut fake, "query parse_file"),
        "55d0e4c01260 parse_file@prog: not traced until start: p (on)\n"
    );
    obey(&mut control, &mut fake, "start");
    assert_eq!(
        obey(&mut control, &mut fake, "query parse_line"),
        "55d0e4c01220 parse_line@prog: traced: p (on), \"the others\" (off)\n"
    );
    let shown = text(&mut control, &mut fake);
    assert!(shown.ends_with(
        "\nstart\n#55d0e4c01220 parse_line@prog: traced: p (on), \"the others\" (off)\n"
    ));

    assert_eq!(
        obey(&mut control, &mut fake, "testtracein parse_line main"),
        "55d0e4c01220 parse_line@prog: entered\n55d0e4c011e0 main@prog: not entered: trace \"the others\" is off: trace \"the others\" on switches it on\n"
    );
    assert!(text(&mut control, &mut fake).contains("\n#traceinhits 1\n"));
    obey(&mut control, &mut fake, "stop");
    assert_eq!(
        obey(&mut control, &mut fake, "testtracein parse_line"),
        "55d0e4c01220 parse_line@prog: not entered: the session is stopped: start records traces p, \"the others\"\n"
    );
    obey(&mut control, &mut fake, "trace p off");
    assert_eq!(
        obey(&mut control, &mut fake, "testtracein parse_line"),
        "55d0e4c01220 parse_line@prog: not entered: traces p, \"the others\" are off, and the session is stopped: trace p on and start record it\n"
    );
    assert!(text(&mut control, &mut fake).contains("\n#traceinhits 1\n"));
}

#[test]
fn a_size_is_told() {
    let (mut control, mut fake) = new();
    assert_eq!(
        obey(&mut control, &mut fake, "size 20"),
        "logsize 20: the buffer has room for 1,048,576 records (8.00 MiB)\n"
    );
}

#[test]
fn libraries_that_come_later() {
    let (mut control, mut fake) = new();
    fake.modules[2].loaded = false;
    let answer = obey(
        &mut control,
        &mut fake,
        "trace inflate@libz* new z\ntrace z on\nuniform on\nstart",
    );
    assert_eq!(answer, "");
    assert_eq!(fake.mode("inflate"), None);
    fake.modules[2].loaded = true;
    control.refresh(&mut fake).unwrap();
    assert_eq!(fake.mode("inflate"), Some(Mode::On));
    assert_eq!(fake.mode("deflate"), Some(Mode::Silent));
    // Unloaded, and loaded again: its code is new.
    fake.inserted.retain(|key, _| key.0 < 10);
    control.refresh(&mut fake).unwrap();
    assert_eq!(fake.mode("inflate"), Some(Mode::On));
    obey(&mut control, &mut fake, "uniform off\ntrace z remove");
    assert!(fake.inserted.is_empty());
    let message = refuse(&mut control, &mut fake, "trace infalte@libz* new z");
    assert!(
        message.contains("no function matches infalte@libz*"),
        "{message}"
    );
}

#[test]
fn a_recording_begins_with_the_function_tracer() {
    let (_, mut fake) = new();
    let what = FunctionSelection::of_names(["parse_*", "_start"], ["parse_char"], false);
    let mut commands = Vec::from(begin::functions(what));
    commands.push(Command::Start);
    let mut control = Control::begin(commands, &mut fake).unwrap();
    assert!(fake.inserted.is_empty(), "nothing is touched before");
    control.set_up(&mut fake, true).unwrap();
    assert_eq!(fake.in_mode(Mode::On), ["parse_line", "parse_file"]);
    let shown = text(&mut control, &mut fake);
    assert!(
        shown.contains("trace parse_* _start !parse_char new function\n"),
        "{shown}"
    );
}

#[test]
fn what_is_left_out_is_left_out_of_libraries_too() {
    let (mut control, mut fake) = new();
    obey(&mut control, &mut fake, "trace *@libz* !deflate new z");
    assert_eq!(fake.in_mode(Mode::Off), ["inflate"]);
    let what = FunctionSelection::of_names(["parse_*", "*late"], ["inflate"], true);
    assert_eq!(what.to_string(), "parse_*@* *late@* !inflate");
}

#[test]
fn markers_are_on_as_the_last_command_says() {
    let (mut control, mut fake) = new();
    let steps = [
        (
            "mark net_* on",
            &["net_rx", "net_tx"][..],
            "mark net_* on\n",
        ),
        (
            "mark net_rx off",
            &["net_tx"],
            "mark net_* on\nmark net_rx off\n",
        ),
        (
            "mark disk on",
            &["net_tx", "disk"],
            "mark net_* on\nmark net_rx off\nmark disk on\n",
        ),
        (
            "stop",
            &[],
            "mark net_* on\nmark net_rx off\nmark disk on\n",
        ),
        (
            "mark net_rx on",
            &[],
            "mark net_* on\nmark disk on\nmark net_rx on\n",
        ),
        (
            "start",
            &["net_rx", "net_tx", "disk"],
            "mark net_* on\nmark disk on\nmark net_rx on\n",
        ),
        (
            "mark net_* off",
            &["disk"],
            "mark disk on\nmark net_rx on\nmark net_* off\n",
        ),
        (
            "mark disk off",
            &[],
            "mark net_rx on\nmark net_* off\nmark disk off\n",
        ),
        ("mark * off", &[], ""),
        ("mark \"*@lib*\" on", &[], "mark *@lib* on\n"),
        ("reset", &[], ""),
    ];
    obey(&mut control, &mut fake, "start");
    for (command, on, answer) in steps {
        obey(&mut control, &mut fake, command);
        assert_eq!(fake.marked, on, "{command}");
        let text = text(&mut control, &mut fake);
        let marks: String = text
            .lines()
            .filter(|line| line.starts_with("mark "))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(marks, answer, "{command}");
        let (mut other, mut restored) = new();
        obey(&mut other, &mut restored, &text);
        assert_eq!(restored.marked, fake.marked, "{command}: restored");
    }
}

#[test]
fn a_marker_that_is_not_there_is_refused() {
    let (mut control, mut fake) = new();
    obey(&mut control, &mut fake, "start\nmark disk on");
    let answer = refuse(&mut control, &mut fake, "mark net_rxx on");
    assert!(
        answer.contains("no marker matches net_rxx; the nearest are net_rx"),
        "{answer}"
    );
    assert!(
        refuse(&mut control, &mut fake, "mark zzzzzz off")
            .ends_with("no marker matches zzzzzz; zzzzzz@LIBRARY waits for a library")
    );
    let answer = refuse(&mut control, &mut fake, "mark net_rxx@libz.so.1 on");
    assert!(
        answer.contains("no marker matches"),
        "libz is loaded: {answer}"
    );
    let answer = obey(&mut control, &mut fake, "mark net_rxx@libnet.so on");
    assert_eq!(answer, "mark net_rxx@libnet.so waits for its library\n");
    let state = text(&mut control, &mut fake);
    assert!(
        state
            .contains("mark net_rxx@libnet.so on\n#mark net_rxx@libnet.so waits for its library\n"),
        "{state}"
    );
    assert!(!state.contains("#mark disk"), "{state}");
    obey(&mut control, &mut fake, "mark net_rxx@libnet.so off");
    fake.fails_after = Some(0);
    refuse(&mut control, &mut fake, "mark net_rx on");
    assert_eq!(fake.marked, ["disk"]);
}

#[test]
fn probes_are_made_switched_and_removed() {
    let (mut control, mut fake) = new();
    let on = |fake: &Fake| fake.probes.get("p").copied();
    let commands = "probe parse_line+0x4 new p fetch $di name=+8($si):string\nprobe p on";
    obey(&mut control, &mut fake, commands);
    assert_eq!(on(&fake), Some(false), "not started");
    obey(&mut control, &mut fake, "start");
    assert_eq!(on(&fake), Some(true));
    obey(&mut control, &mut fake, "probe main");
    assert_eq!(fake.probes.get("main"), Some(&false));
    let said = refuse(&mut control, &mut fake, "probe main new p");
    assert!(said.contains("there is a probe \"p\" already"), "{said}");
    refuse(&mut control, &mut fake, "probe nothing");
    refuse(&mut control, &mut fake, "probe q on");
    obey(&mut control, &mut fake, "stop");
    assert_eq!(on(&fake), Some(false));
    let state = text(&mut control, &mut fake);
    let (mut other, mut its_fake) = new();
    obey(&mut other, &mut its_fake, &state);
    let commands = |text: &str| -> Vec<String> {
        let all = text.lines().filter(|line| !line.starts_with('#'));
        all.map(str::to_owned).collect()
    };
    let its_state = text(&mut other, &mut its_fake);
    assert_eq!(commands(&its_state), commands(&state));
    obey(&mut other, &mut its_fake, "start");
    assert_eq!(on(&its_fake), Some(true));
    obey(&mut other, &mut its_fake, "probe main remove");
    assert!(!its_fake.probes.contains_key("main"));
    obey(&mut other, &mut its_fake, "reset");
    assert!(its_fake.probes.is_empty());
}
