//! A budget of processor time is held, and the trace tells at what price.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use nopal_tests::{AttachedProgram, Case, End, Recording, Start, c, nopal, scratch};
use serde_json::Value;

/// The program with so many milliseconds of processor time, recorded; nothing is lost.
fn recorded(milliseconds: &str, options: &[&str]) -> (Recording, [u64; 2]) {
    let case = Case::new(c("budget", &[])).arguments([milliseconds]);
    let recording = case
        .options(["--block", "--buffer", "512M"])
        .options(options.iter().copied())
        .traced();
    assert_eq!(recording.ended.end, End::Code(0), "{}", recording.said);
    let made = ["tiny ", "slow "].map(|name| {
        let mut lines = recording.ended.stdout.lines();
        let number = lines.find_map(|line| line.strip_prefix(name));
        number.unwrap().parse().unwrap()
    });
    (recording, made)
}

fn row<'a>(recording: &'a Recording, function: &str) -> &'a Value {
    recording.report.rows_of(function).next().unwrap()
}

fn said_by(reader: &[&str], recording: &Recording) -> String {
    let words = [&[nopal().to_str().unwrap()], reader].concat();
    let mut start = Start::new(words);
    start.words.push(recording.directory().into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{ended:?}");
    ended.stdout
}

#[test]
fn a_hot_function_is_off_and_a_slow_one_is_recorded() {
    let (recording, [tinies, slows]) = recorded("1000", &["--budget", "5%"]);
    let (tiny, slow) = (row(&recording, "tiny"), row(&recording, "slow"));
    assert_eq!(slow["calls"], slows, "{slow}");
    assert!(slow.get("off_ns").is_none(), "{slow}");
    // Each that is not recorded takes a tenth of the time.
    let calls = tiny["calls"].as_u64().unwrap();
    assert!(calls < tinies / 2, "{calls} of {tinies}");
    assert!(tiny["off_ns"].as_u64().unwrap() > 0, "{tiny}");
    for least in ["calls_are_least", "total_is_least", "self_is_least"] {
        assert_eq!(tiny[least], true, "{least}: {tiny}");
    }

    let off = "function was off for a time, to hold the budget";
    let info = said_by(&["info"], &recording);
    assert!(
        info.contains("\nbudget     5 % of the processor time: 1 function was off"),
        "{info}"
    );
    let mut lines = info
        .lines()
        .map(|line| line.split_whitespace().rev().take(2));
    assert!(lines.any(|last| last.eq(["tiny", "off"])), "{info}");
    for reader in [
        &["report"][..],
        &["report", "--callers", "tiny"],
        &["graph"],
        &["replay", "--until", "1ms"],
    ] {
        let said = said_by(reader, &recording);
        assert!(
            said.contains(off),
            "{reader:?}: {}",
            &said[..said.len().min(2000)]
        );
    }
    let calls = format!("≥ {}", calls_as_shown(calls));
    for reader in [&["report"][..], &["report", "--callers", "tiny"]] {
        let said = said_by(reader, &recording);
        assert!(said.contains(&calls), "{reader:?}: {calls}: {said}");
    }
}

fn calls_as_shown(calls: u64) -> String {
    let digits = calls.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[test]
fn what_is_named_is_recorded_and_the_budget_said_not_to_hold() {
    let (recording, [tinies, slows]) =
        recorded("300", &["--budget", "5%", "-F", "tiny", "-F", "slow"]);
    assert_eq!(recording.report.calls("tiny"), tinies);
    assert_eq!(recording.report.calls("slow"), slows);
    assert!(row(&recording, "tiny").get("off_ns").is_none());
    let expected = "the budget of 5% was not held at all times: tiny alone, which is recorded because it was asked for by name";
    assert!(recording.said.contains(expected), "{}", recording.said);
}

#[test]
fn a_budget_is_set_and_taken_back_while_the_program_runs() {
    let mut attached = AttachedProgram::new(c("many", &[]), &[]);
    attached.ctl("budget 0.5%");
    assert!(
        attached
            .state()
            .contains("\nbudget 0.5%\n#budget recording adds ")
    );
    assert_eq!(
        attached.refused("budget 5"),
        "nopal: \"budget 5\": expected a share of processor time from 0.01% to 100%, such as 5%, found \"5\"\n"
    );
    // Until something is off.
    while !attached.state().contains(" off, the jumps of")
        && attached.state().contains(" 0 functions are off")
    {
        attached.run("pair 2000000");
    }
    let before = entries(&attached);
    attached.ctl("budget off");
    let state = attached.state();
    assert!(
        state.contains("\nbudget off\n") && !state.contains("#budget"),
        "{state}"
    );
    // All of it is recorded again.
    attached.run("pair 1000");
    let more = entries(&attached) - before;
    assert!(more >= 1000, "{more}");
    attached.ctl("budget 5%\nreset");
    assert!(attached.state().contains("\nbudget off\n"));
    attached.end();
}

fn entries(attached: &AttachedProgram) -> u64 {
    let state = attached.state();
    let line = state
        .lines()
        .find_map(|line| line.strip_prefix("#traceinhits "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_recording_begins_with_what_was_off_when_the_last_one_ended() {
    let scratch = scratch();
    let cache = scratch.path().join("cache");
    let trace = scratch.path().join("trace");
    let record = || {
        let mut start = Start::new([nopal()]);
        let options = ["record", "--budget", "5%", "--block", "--buffer", "512M"];
        start.words.extend(options.map(Into::into));
        start.words.extend(["-o".into(), trace.clone().into()]);
        start
            .words
            .extend([c("budget", &[]).path.into(), "1000".into()]);
        let cache = cache.clone().into();
        start.environment.push(("XDG_CACHE_HOME".into(), cache));
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        ended.stderr
    };
    let began =
        "1 function began off, as when the last recording of this program within a budget ended";
    let first = record();
    assert!(!first.contains("began off"), "{first}");
    let again = record();
    assert!(again.contains(began), "{again}");

    let mut start = Start::new([nopal().as_os_str(), "info".as_ref(), trace.as_os_str()]);
    let info = start.run("").stdout;
    assert!(
        info.contains("; 1 began off, as the last recording of the program ended"),
        "{info}"
    );
    let row = |line: &str| {
        line.split_whitespace()
            .rev()
            .take(3)
            .eq(["tiny", "off", "kept"])
    };
    assert!(info.lines().any(row), "{info}");
    start.words[1] = "report".into();
    let report = start.run("").stdout;
    let of = |name: &str| {
        report
            .lines()
            .find(|line| line.contains(&format!(" {name} ")))
    };
    assert!(
        of("tiny").is_some_and(|line| line.contains("≥ ")),
        "{report}"
    );
    assert!(
        of("slow").is_some_and(|line| !line.contains("≥ ")),
        "{report}"
    );

    // Nobody else's word is taken for it, nor a damaged one.
    let kept = fs::read_dir(cache.join("nopal/plans")).unwrap();
    let mut kept = kept.map(|entry| entry.unwrap().path());
    let kept = kept.find(|path| path.extension().is_some_and(|end| end == "budget"));
    let kept = kept.expect("a file beside the plans");
    assert_eq!(
        fs::metadata(&kept).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut damaged = fs::read(&kept).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&kept, damaged).unwrap();
    assert!(!record().contains("began off"));
    fs::set_permissions(&kept, Permissions::from_mode(0o666)).unwrap();
    assert!(!record().contains("began off"));
}
