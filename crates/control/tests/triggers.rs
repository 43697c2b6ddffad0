//! Triggers: how they are set, which functions they need, and which actions they take.

mod common;

use common::{Fake, cat};
use nopal_analysis::triggers::{Action, Event, Hits};
use nopal_control::{Control, Mode};

fn obey(control: &mut Control, fake: &mut Fake, commands: &str) -> String {
    control.command(fake, commands).unwrap()
}

fn refuse(control: &mut Control, fake: &mut Fake, command: &str) -> String {
    let before = (cat(control, fake, "ctl"), fake.inserted.clone());
    let could = control.could_obey(fake, command);
    let message = control.command(fake, command).unwrap_err().message;
    let could = could.unwrap_err();
    assert_eq!(format!("{could:#}"), message, "told before as well");
    assert_eq!((cat(control, fake, "ctl"), fake.inserted.clone()), before);
    message
}

/// The commands and comments about triggers in ctl.
fn shown(control: &mut Control, fake: &mut Fake) -> Vec<String> {
    let text = cat(control, fake, "ctl");
    let lines = text.lines().map(str::to_owned);
    lines.filter(|line| line.contains("when")).collect()
}

#[test]
fn a_trigger_watches_its_functions_whatever_is_recorded() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let commands = "trace parse_line main new p\ntrace p on\nwhen return parse_* do count new c";
    obey(&mut control, &mut fake, commands);
    let watched = ["parse_line", "parse_file", "parse_char"];
    assert_eq!(fake.in_mode(Mode::Silent), watched, "not started");
    assert_eq!(fake.in_mode(Mode::Off), ["main"]);
    obey(&mut control, &mut fake, "start");
    assert_eq!(fake.in_mode(Mode::On), ["main", "parse_line"]);
    assert_eq!(fake.in_mode(Mode::Silent), watched[1..]);
    obey(&mut control, &mut fake, "trace p remove");
    assert_eq!(fake.in_mode(Mode::Silent), watched);
    assert_eq!(fake.mode("main"), None);
    let (place, trigger) = &fake.triggers["c"];
    let keys = watched.map(|name| fake.key(name)).to_vec();
    assert_eq!(trigger.event, Event::Return(keys));
    assert_eq!(
        (&trigger.action, &**place),
        (&Action::Count, "return parse_*")
    );
    obey(&mut control, &mut fake, "when c remove");
    assert!(fake.inserted.is_empty() && fake.triggers.is_empty());
    obey(&mut control, &mut fake, "when main do start\nreset");
    assert!(fake.inserted.is_empty() && fake.triggers.is_empty());
    assert_eq!(shown(&mut control, &mut fake), [""; 0]);
}

#[test]
fn ctl_shows_triggers_as_commands_that_set_them() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    fake.flight = true;
    let commands = [
        "when return main if duration > 50ms and arg1 == 5 do snapshot new slow",
        "when parse_* !parse_char if hits % 100 == 0 do trace p off new 1",
        "when mark net_rx if device == \"eth 0\" do mark new 2",
        "when \"new\" do stop new \"a b\"",
        "when main.c:20 do detach new d",
    ];
    obey(&mut control, &mut fake, "trace main new p");
    for command in commands {
        let command = match command.rsplit_once(" new ") {
            Some((command, "1" | "2")) => command,
            _ => command,
        };
        obey(&mut control, &mut fake, command);
    }
    fake.hits = Hits {
        met: 300,
        fired: 3,
        passed_over: 1,
    };
    let lines = shown(&mut control, &mut fake);
    let of_triggers: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(of_triggers, commands);
    assert_eq!(lines[1], "#when slow met 300, fired 3");
    assert_eq!(lines[2], "#when slow passed over 1: too fast");
    // The same again does nothing, and elsewhere it restores them.
    let all = cat(&mut control, &mut fake, "ctl");
    obey(&mut control, &mut fake, &commands.join("\n"));
    assert_eq!(cat(&mut control, &mut fake, "ctl"), all);
    let (mut other, mut there) = (Control::new(), Fake::new());
    there.flight = true;
    obey(&mut other, &mut there, &all);
    assert_eq!(there.triggers, fake.triggers);
    assert_eq!(there.inserted, fake.inserted);
}

#[test]
fn bad_triggers_are_quoted_and_change_nothing() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, "when main do count new c");
    let cases = [
        ("when", "expected EVENT or NAME, found its end"),
        ("when main if do count", "expected COND, found \"do\""),
        (
            "when main do cuont",
            "expected snapshot, start, stop, trace, mark, count or detach, found \"cuont\"",
        ),
        ("when main do trace p", "expected on or off, found its end"),
        (
            "when main do count new",
            "expected the end of the line, found \"new\"",
        ),
        (
            "when main do trace p on",
            "there is no trace \"p\": none has been made",
        ),
        (
            "when parse_lien do count",
            "no function matches parse_lien; the nearest are parse_line, parse_file, parse_char",
        ),
        (
            "when return main if duration do count",
            "expected ==, !=, <, <=, > or >=, found the end of the condition",
        ),
        (
            "when return main if duration > 5x do count",
            "\"5x\" is not a value: use arg1 to",
        ),
        (
            "when main if len == 5 do count",
            "a function has no \"len\", but arg1 to arg6, result,",
        ),
        (
            "when main if duration > 5 do count",
            "\"duration > 5\" is known only when the function returns: when return main",
        ),
        (
            "when mark a b do count",
            "expected the name of one mark, found \"a b\"",
        ),
        ("when main do snapshot", "the session keeps everything"),
    ];
    for (command, expected) in cases {
        let message = refuse(&mut control, &mut fake, command);
        let expected = format!("{command:?}: {expected}");
        assert!(message.starts_with(&expected), "{message}\n{expected}");
    }
    for (command, expected) in [
        ("when d remove", "there is no trigger \"d\", only c"),
        (
            "when parse_line do count new c",
            "there is a trigger \"c\" already: when main do count",
        ),
    ] {
        let error = control.command(&mut fake, command).unwrap_err();
        assert_eq!(error.message, format!("{command:?}: {expected}"));
    }
}

#[test]
fn what_fires_is_done() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let commands = "trace parse_* new p\nwhen main do start new a\nwhen main do trace p on new b\n\
                    when main do stop new c\nwhen main do trace p off new d\nwhen main do mark new \"the mark\"\n\
                    when main do detach new f";
    obey(&mut control, &mut fake, commands);
    control.fired(&mut fake, "b", 5, "main");
    assert_eq!(fake.in_mode(Mode::On), [""; 0]);
    control.fired(&mut fake, "a", 6, "main");
    assert_eq!(fake.in_mode(Mode::On).len(), 3);
    assert_eq!(fake.mode("main"), Some(Mode::Silent));
    control.fired(&mut fake, "c", 7, "main");
    assert_eq!(fake.in_mode(Mode::Silent), ["main"], "it goes on listening");
    control.fired(&mut fake, "a", 8, "main");
    control.fired(&mut fake, "d", 9, "main");
    assert_eq!(fake.in_mode(Mode::Off).len(), 3);
    control.fired(&mut fake, "the mark", 10, "main after 5 ms");
    control.fired(&mut fake, "gone", 10, "main");
    assert_eq!(fake.texts, ["10 \"the mark\": main after 5 ms"]);
    assert!(!fake.detached);
    control.fired(&mut fake, "f", 11, "main");
    assert!(fake.detached);
}

#[test]
fn what_cannot_be_done_is_told() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let commands = "trace parse_* new p\nwhen main do trace p on new t\ntrace p remove";
    obey(&mut control, &mut fake, commands);
    control.fired(&mut fake, "t", 5, "main");
    let lines = shown(&mut control, &mut fake);
    assert_eq!(
        lines[2],
        "#when t failed: there is no trace \"p\": none has been made"
    );
}

#[test]
fn functions_of_libraries_that_come_later_are_met_too() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    fake.modules[2].loaded = false;
    obey(&mut control, &mut fake, "when inflate@libz* do count new z");
    assert_eq!(fake.triggers["z"].1.event, Event::Entry(vec![]));
    fake.modules[2].loaded = true;
    control.refresh(&mut fake).unwrap();
    let keys = vec![fake.key("inflate")];
    assert_eq!(fake.triggers["z"].1.event, Event::Entry(keys));
    assert_eq!(fake.in_mode(Mode::Silent), ["inflate"]);
}

#[test]
fn a_failing_engine_leaves_all_as_it_was() {
    let mut failed = 0;
    for state in ["", "start", "uniform on", "uniform on\nstart"] {
        for command in [
            "when parse_* do count",
            "when t remove",
            "start",
            "trace p remove",
            "trace p off",
            "reset",
        ] {
            for after in 0.. {
                let (mut control, mut fake) = (Control::new(), Fake::new());
                let begin =
                    "trace parse_line new p\ntrace p on\nwhen parse_line main do count new t\n";
                obey(&mut control, &mut fake, &format!("{begin}{state}"));
                let before = (cat(&mut control, &mut fake, "ctl"), fake.inserted.clone());
                fake.fails_after = Some(after);
                if control.command(&mut fake, command).is_ok() {
                    break;
                }
                failed += 1;
                let now = (cat(&mut control, &mut fake, "ctl"), fake.inserted.clone());
                assert_eq!(now, before, "{state}: {command}, failing after {after}");
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

#[test]
fn what_a_condition_needs_is_recorded_of_its_functions_only() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let commands =
        "trace parse_line main new p\ntrace p on\nstart\nwhen parse_* if arg1 == 5 do count new c";
    obey(&mut control, &mut fake, commands);
    let arguments = |fake: &Fake, name: &str| fake.details[&fake.key(name)].arguments;
    assert_eq!(
        ["parse_line", "parse_file", "main"].map(|name| arguments(&fake, name)),
        [true, true, false]
    );
    assert_eq!(
        fake.in_mode(Mode::On),
        ["main", "parse_line"],
        "those inserted anew go on"
    );
    assert_eq!(fake.in_mode(Mode::Silent), ["parse_file", "parse_char"]);
}
