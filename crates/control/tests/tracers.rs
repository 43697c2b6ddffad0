//! Tracers of latency: their findings, and the files that show these.

mod common;

use common::{Fake, cat, echo};
use nopal_control::{Control, Mode};

fn obey(control: &mut Control, fake: &mut Fake, commands: &str) -> String {
    control
        .command(fake, commands)
        .unwrap_or_else(|error| panic!("{commands}: {error}"))
}

fn refused(control: &mut Control, fake: &mut Fake, command: &str) -> String {
    let before = (cat(control, fake, "ctl"), fake.inserted.clone());
    let error = control.command(fake, command).unwrap_err();
    let after = (cat(control, fake, "ctl"), fake.inserted.clone());
    assert_eq!(after, before, "{command}");
    error.message
}

const REQUEST: &str = "section parse_line.arg1 parse_file.result new request";

#[test]
fn a_section_records_what_it_needs_and_no_more() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, "start");
    obey(&mut control, &mut fake, REQUEST);
    assert!(fake.inserted.is_empty());
    obey(&mut control, &mut fake, "tracer request on");
    assert_eq!(fake.in_mode(Mode::On), ["parse_line", "parse_file"]);
    assert_eq!(fake.capture("parse_line"), (true, false));
    assert_eq!(fake.capture("parse_file"), (true, true));
    obey(&mut control, &mut fake, "tracer request off");
    assert!(fake.inserted.is_empty());
    obey(
        &mut control,
        &mut fake,
        "section parse_line main.end new s\ntracer s on",
    );
    assert_eq!(fake.capture("parse_line"), (false, false));
    assert_eq!(fake.capture("main"), (false, true));
    obey(&mut control, &mut fake, "reset");

    assert!(fake.inserted.is_empty());
    assert!(!cat(&mut control, &mut fake, "ctl").contains("tracer"));
}

#[test]
fn a_function_that_is_recorded_goes_on_with_more() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(
        &mut control,
        &mut fake,
        "start\ntrace parse_* new p\ntrace p on",
    );
    assert_eq!(fake.capture("parse_line"), (false, true));
    obey(&mut control, &mut fake, REQUEST);
    obey(&mut control, &mut fake, "tracer request on");
    assert_eq!(fake.capture("parse_line"), (true, true));
    assert_eq!(fake.in_mode(Mode::On).len(), 3);
    obey(&mut control, &mut fake, "tracer request off");
    assert_eq!(
        fake.in_mode(Mode::On).len(),
        3,
        "it is still recorded for p"
    );
    obey(&mut control, &mut fake, "trace p remove\ntracer request on");
    assert_eq!(
        fake.capture("parse_line"),
        (true, false),
        "and for nobody else now"
    );
}

#[test]
fn names_mean_one_tracer() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, "trace main new m");
    obey(&mut control, &mut fake, REQUEST);
    obey(&mut control, &mut fake, REQUEST);
    for (command, expected) in [
        (
            "section main free new request",
            "there is a section \"request\" already, from parse_line.arg1 to parse_file.result",
        ),
        (
            "section main free new lockhold",
            "\"lockhold\" is the name of another tracer or trace",
        ),
        (
            "section main free new m",
            "\"m\" is the name of another tracer or trace",
        ),
        (
            "tracer requests on",
            "there is no tracer \"requests\", only events, sched_switch, lockhold, lockwait, sigoff, critical, wakeup, wakeup_all, offcpu, blocked, preempted, request; the nearest is request",
        ),
        ("tracer request off", "the tracer \"request\" is off"),
        ("latency request", "the tracer \"request\" is off"),
        (
            "latency lokhold",
            "there is no tracer \"lokhold\", only events, sched_switch, lockhold, lockwait, sigoff, critical, wakeup, wakeup_all, offcpu, blocked, preempted, request; the nearest is lockhold",
        ),
        (
            "tracer lockhold on",
            "lockhold: no function that acquires a lock was recorded: `nopal run -p` records those of the program",
        ),
    ] {
        let message = refused(&mut control, &mut fake, command);
        assert_eq!(
            message,
            format!("{command:?}: {expected}").replace("\\\"", "\"")
        );
    }
}

#[test]
fn a_section_of_nothing_leaves_nothing() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let told = obey(&mut control, &mut fake, "start\nsection main nobody new s");
    assert_eq!(told, "no function or marker is named \"nobody\" yet\n");
    let told = obey(
        &mut control,
        &mut fake,
        "section parse_lien.arg1 main new u",
    );
    assert_eq!(
        told,
        "no function or marker is named \"parse_lien\" yet; the nearest are parse_line, parse_file, parse_char\n"
    );
    let told = obey(
        &mut control,
        &mut fake,
        "section main.arg1 parse_line@libnone.so.arg1 new v",
    );
    assert_eq!(
        told,
        "\"parse_line@libnone.so.arg1\" waits for its library\n"
    );
    obey(
        &mut control,
        &mut fake,
        "section u remove\nsection v remove",
    );
    let told = obey(&mut control, &mut fake, "section main.arg7 main.end new w");
    assert_eq!(
        told,
        "the function main has no \"arg7\", only end, result and arg1 to arg6\n"
    );
    obey(&mut control, &mut fake, "section w remove");
    let told = obey(
        &mut control,
        &mut fake,
        "section main.arg1 parse_line new t",
    );
    assert!(
        told.ends_with("only one of main.arg1 and parse_line has a value\n"),
        "{told}"
    );
    let message = refused(&mut control, &mut fake, "tracer s on");
    assert!(message.ends_with("no recorded function or marker is named \"nobody\""));
    let message = refused(&mut control, &mut fake, "tracer t on");
    assert!(message.ends_with("only one of main.arg1 and parse_line has a value"));
}

#[test]
fn the_state_restores_tracers() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, REQUEST);
    obey(
        &mut control,
        &mut fake,
        "tracer request on\nthreshold 250\nstart",
    );
    let kept = refused(&mut control, &mut fake, "tracer request keep 20");
    assert_eq!(
        kept,
        "\"tracer request keep 20\": the session keeps everything"
    );
    fake.flight = true;
    obey(&mut control, &mut fake, "tracer request keep 20");
    let saved = cat(&mut control, &mut fake, "ctl");
    assert!(
        saved.contains("\ntracer request on\ntracer request keep 20\n"),
        "{saved}"
    );
    obey(&mut control, &mut fake, "tracer request keep 0");
    let refused = refused(&mut control, &mut fake, "tracer lockhold keep 20");
    assert!(
        refused.ends_with("the tracer \"lockhold\" is off"),
        "{refused}"
    );
    let saved = cat(&mut control, &mut fake, "ctl");
    assert!(saved.contains("\ntracer request on\n#cases 0\n"), "{saved}");
    obey(&mut control, &mut fake, "reset");
    assert!(fake.inserted.is_empty());
    obey(&mut control, &mut fake, &saved);
    assert_eq!(cat(&mut control, &mut fake, "ctl"), saved);
}

#[test]
fn the_tracing_folder_has_one_tracer_at_a_time() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, REQUEST);
    obey(&mut control, &mut fake, "section main free new s\nstart");
    let tracer = "tracing/current_tracer";
    assert_eq!(
        cat(&mut control, &mut fake, "tracing/available_tracers"),
        "function events sched_switch lockhold lockwait sigoff critical wakeup wakeup_all offcpu blocked preempted request s nop disable\n"
    );
    for (word, shown, count) in [
        ("function", "function\n", 8),
        ("request", "request\n", 2),
        ("s", "s\n", 2),
        ("function", "function\n", 8),
        ("s", "s\n", 2),
        ("disable", "nop\n", 0),
    ] {
        echo(&mut control, &mut fake, word, tracer, false).unwrap();
        assert_eq!(cat(&mut control, &mut fake, tracer), shown);
        assert_eq!(fake.in_mode(Mode::On).len(), count, "{word}");
    }
    echo(&mut control, &mut fake, "request", tracer, false).unwrap();
    for (file, bad, good, shown) in [
        ("tracing/tracing_thresh", "x", "500", "500\n"),
        ("tracing/tracing_max_latency", "5", "0", "0\n"),
    ] {
        assert!(echo(&mut control, &mut fake, bad, file, false).is_err());
        echo(&mut control, &mut fake, good, file, false).unwrap();
        assert_eq!(cat(&mut control, &mut fake, file), shown);
    }
    let empty = cat(&mut control, &mut fake, "tracing/latency_trace");
    assert_eq!(empty, "# tracer: request\n#\n# cases 0\n");
    let sections = cat(&mut control, &mut fake, "tracing/latency_hist/section");
    assert!(sections.starts_with("# request\n#Minimum latency: 0 microseconds\n"));
    let off = cat(&mut control, &mut fake, "tracing/latency_hist/lockhold");
    assert_eq!(off, "# lockhold is off\n");
}

#[test]
fn tracers_of_the_scheduler_have_kernel_events_as_long_as_they_are_on() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    obey(&mut control, &mut fake, "start\ntracer wakeup on");
    let named = |name: &str| nopal_analysis::tracers::Tracer::named(name).unwrap();
    assert_eq!(fake.system, [named("wakeup")]);
    obey(&mut control, &mut fake, "tracer offcpu on");
    assert_eq!(fake.system, [named("wakeup"), named("offcpu")]);
    obey(&mut control, &mut fake, "tracer wakeup off");
    assert_eq!(fake.system, [named("offcpu")]);
    echo(
        &mut control,
        &mut fake,
        "disable",
        "tracing/current_tracer",
        false,
    )
    .unwrap();
    assert_eq!(fake.system, []);
}

#[test]
fn tracers_that_measure_nothing_record_markers_and_kernel_events() {
    let (mut control, mut fake) = (Control::new(), Fake::new());
    let tracer = "tracing/current_tracer";
    let named = |name: &str| nopal_analysis::tracers::Tracer::named(name).unwrap();
    obey(
        &mut control,
        &mut fake,
        "start\nmark net_* on\nmark net_rx off",
    );
    let marked = fake.marked.clone();
    echo(&mut control, &mut fake, "events", tracer, false).unwrap();
    assert_eq!(cat(&mut control, &mut fake, tracer), "events\n");
    assert_eq!(fake.system, [named("wakeup")]);
    assert!(fake.marked.len() > marked.len());
    assert!(
        !fake.marked.contains(&"net_rx"),
        "what a user has said holds still"
    );
    let saved = cat(&mut control, &mut fake, "ctl");
    assert!(saved.contains("\ntracer events on\n"), "{saved}");
    let empty = cat(&mut control, &mut fake, "tracing/latency_trace");
    assert!(
        empty.starts_with("events latency trace v1.1.5 on "),
        "{empty}"
    );
    echo(&mut control, &mut fake, "sched_switch", tracer, false).unwrap();
    assert_eq!(cat(&mut control, &mut fake, tracer), "sched_switch\n");
    assert_eq!(fake.system, [named("offcpu")]);
    assert_eq!(fake.marked, marked);
    obey(&mut control, &mut fake, "tracer events on");
    assert_eq!(fake.system.len(), 2, "each has what it needs");
    assert!(refused(&mut control, &mut fake, "section a b new events").contains("another tracer"));
    obey(
        &mut control,
        &mut fake,
        "tracer events off\ntracer sched_switch off",
    );
    assert!(refused(&mut control, &mut fake, "tracer events off").contains("is off"));
    assert!(fake.system.is_empty());
    obey(&mut control, &mut fake, "reset");
    obey(&mut control, &mut fake, &saved);
    assert_eq!(cat(&mut control, &mut fake, "ctl"), saved);
}
