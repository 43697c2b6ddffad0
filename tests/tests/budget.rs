//! A budget of processor time holds, and the trace shows its price.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use nopal_tests::process::wait_until;
use nopal_tests::{
    AttachedProgram, Case, End, Recording, Report, Running, Start, c, nopal, scratch,
};
use nopal_trace::{Note, SiteState};
use serde_json::Value;

/// Records the program for so many milliseconds of processor time, without what an earlier recording has kept.
fn recorded(milliseconds: &str, options: &[&str]) -> (Recording, [u64; 2]) {
    let cache = scratch();
    let case = Case::new(c("budget", &[])).arguments([milliseconds]);
    let recording = case
        .environment("XDG_CACHE_HOME", cache.path())
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
    let (recording, [tinies, slows]) = recorded("2000", &["--budget", "5%"]);
    let (tiny, slow) = (row(&recording, "tiny"), row(&recording, "slow"));
    assert_eq!(slow["calls"], slows, "{slow}");
    assert!(slow.get("off_ns").is_none(), "{slow}");
    // Even counting all of its calls would take as long as the function itself.
    let calls = tiny["calls"].as_u64().unwrap();
    assert!(calls <= tinies, "{calls} of {tinies}");
    assert!(tiny["off_ns"].as_u64().unwrap() > 0, "{tiny}");
    for least in ["calls_are_least", "total_is_least", "self_is_least"] {
        assert_eq!(tiny[least], true, "{least}: {tiny}");
    }

    // On a busy machine, other functions may have used much of the small budget of the start.
    let off = " off for a time, to hold the budget";
    let info = said_by(&["info"], &recording);
    assert!(
        info.contains("\nbudget     5 % of the processor time: "),
        "{info}"
    );
    for state in ["counted", "off"] {
        assert!(tells(&info, state, "tiny") > 0, "{state}: {info}");
    }
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
    // The callers of recorded calls are known.
    let recorded = calls - tiny["counted"].as_u64().unwrap_or(0);
    for (reader, calls) in [
        (&["report"][..], calls),
        (&["report", "--callers", "tiny"], recorded),
    ] {
        let calls = format!("≥ {}", calls_as_shown(calls));
        let said = said_by(reader, &recording);
        assert!(said.contains(&calls), "{reader:?}: {calls}: {said}");
    }
}

/// Its records are measured although they are not written.
#[test]
fn a_flight_recorder_has_a_budget() {
    let case = Case::new(c("budget", &[])).arguments(["2000"]);
    // Recordings of one program begin with what the last one has kept.
    let cache = scratch();
    let case = case.environment("XDG_CACHE_HOME", cache.path());
    let options = ["--flight", "--buffer", "16M", "--budget", "5%"];
    let recording = case.options(options).traced();
    assert_eq!(recording.ended.end, End::Code(0), "{}", recording.said);
    let info = said_by(&["info"], &recording);
    assert!(
        info.contains("\nbudget     5 % of the processor time: "),
        "{info}"
    );
    assert!(tells(&info, "off", "tiny") > 0, "{info}");
    let (tiny, slow) = (row(&recording, "tiny"), row(&recording, "slow"));
    assert!(tiny["off_ns"].as_u64().unwrap() > 0, "{tiny}");
    assert_eq!(tiny["calls_are_least"], true, "{tiny}");
    assert!(slow["calls"].as_u64().unwrap() > 0, "{slow}");
    assert!(slow.get("off_ns").is_none(), "{slow}");
}

/// How often `nopal info` reports that a function went to a state.
fn tells(info: &str, state: &str, function: &str) -> usize {
    let told = |line: &&str| {
        let words: Vec<&str> = line.split([' ', ',']).collect();
        line.contains(&format!("  {state}  ")) && words.contains(&function)
    };
    info.lines().filter(told).count()
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

/// Recording takes as long as the function, or up to three times as long, which depends on the machine and on its other
/// work. A budget of 40 % is less than either, and more than counting takes, which is a thirteenth of that.
#[test]
fn what_can_be_counted_within_the_budget_is_and_no_call_is_missing() {
    let program = c("counted", &["-pthread"]);
    let mut attached = AttachedProgram::new(program, &["--block", "--buffer", "512M"]);
    let mut made = 0;
    let mut work = |attached: &mut AttachedProgram, times: u64| {
        attached.run(&format!("work {times}"));
        made += times;
    };
    for _ in 0..2 {
        attached.ctl("budget 40%");
        wait_until("the function is counted", || {
            work(&mut attached, 1_000_000);
            let state = attached.state();
            state.contains(", 0 are off") && !state.contains(" 0 functions are counted")
        });
        work(&mut attached, 1000);
        // The function is recorded again, from one call to the next.
        attached.ctl("budget off");
        work(&mut attached, 1000);
    }
    let (scratch, ended) = attached.end();
    let trace = scratch.path().join("trace");
    let report = Report::of(&trace);
    let row = report.rows_of("work").next().unwrap();
    assert_eq!(row["calls"], made, "{row}, {}", ended.stderr);
    assert!(
        (1..=made - 2000).contains(&row["counted"].as_u64().unwrap()),
        "{row}"
    );
    for not_so in ["calls_are_least", "off_ns"] {
        assert!(row.get(not_so).is_none(), "{row}");
    }
    for least in ["total_is_least", "self_is_least"] {
        assert_eq!(row[least], true, "{row}");
    }
    assert!(report.rows_of("leaf").next().is_none());
    let start = Start::new([nopal().as_os_str(), "info".as_ref(), trace.as_os_str()]);
    let info = start.run("").stdout;
    for state in ["counted", "timed"] {
        assert_eq!(tells(&info, state, "work"), 2, "{state}: {info}");
    }
}

#[test]
fn what_is_named_is_recorded_and_the_budget_said_not_to_hold() {
    let (recording, [tinies, slows]) =
        recorded("300", &["--budget", "5%", "-F", "tiny", "-F", "slow"]);
    assert_eq!(recording.report.calls("tiny"), tinies);
    assert_eq!(recording.report.calls("slow"), slows);
    assert!(row(&recording, "tiny").get("off_ns").is_none());
    let expected = "the budget of 5% was not held at all times: tiny alone, which is recorded because it was asked for by name, took up to ";
    let (_, took) = recording.said.split_once(expected).expect(expected);
    let percent: f64 = took.split(' ').next().unwrap().parse().unwrap();
    assert!(percent > 5.0, "{}", recording.said);
}

/// The last calls come in when nothing is recorded any more.
#[test]
fn nothing_is_said_to_be_named_in_a_recording_that_was_stopped_when_it_was_full() {
    let (recording, _) = recorded("1000", &["--budget", "5%", "--max-size", "256K"]);
    let said = &recording.said;
    assert!(said.contains("recording was stopped then"), "{said}");
    assert!(!said.contains("asked for by name"), "{said}");
}

/// Calls of a function that is counted are recorded at random: a begin would find the end of another case.
#[test]
fn the_ends_of_a_section_are_recorded_also_where_they_were_counted_before() {
    let cache = scratch();
    let record = |options: &[&str]| {
        let case = Case::new(c("budget", &[])).arguments(["1500"]);
        let case = case.environment("XDG_CACHE_HOME", cache.path());
        let case = case.options(["--flight", "--budget", "5%"]);
        let recording = case.options(options.iter().copied()).traced();
        assert_eq!(recording.ended.end, End::Code(0), "{}", recording.said);
        (said_by(&["info"], &recording), recording)
    };
    let states = ["counted", "off", "kept counted", "kept off"];
    let (info, _) = record(&[]);
    let were = states.map(|state| tells(&info, state, "tiny"));
    assert!(were.iter().sum::<usize>() > 0, "{info}");
    let (info, recording) = record(&["--keep-slowest", "2", "tiny.arg1..tiny.result"]);
    assert_eq!(
        states.map(|state| tells(&info, state, "tiny")),
        [0; 4],
        "{info}"
    );
    let expected = "tiny alone, which is recorded because it was asked for by name, took up to ";
    assert!(recording.said.contains(expected), "{}", recording.said);
}

#[test]
fn a_section_that_is_switched_on_has_its_ends_recorded() {
    let mut attached =
        AttachedProgram::new(c("counted", &["-pthread"]), &["--budget", "1%", "--flight"]);
    wait_until("the function is not timed", || {
        attached.run("work 1000000");
        !attached
            .state()
            .contains(" 0 functions are counted, 0 are off")
    });
    attached.ctl("section work.arg1 work.result new life\ntracer life on");
    attached.run("work 100");
    let (scratch, ended) = attached.end();
    let trace = scratch.path().join("trace");
    let start = Start::new([nopal().as_os_str(), "info".as_ref(), trace.as_os_str()]);
    let info = start.run("").stdout;
    let mut states = info.lines().filter(|line| {
        let mut words = line.split([' ', ',']);
        words.any(|word| word == "work")
    });
    let last = states
        .next_back()
        .unwrap_or_else(|| panic!("{info} {}", ended.stderr));
    assert!(last.contains("  timed  "), "{info}");
}

/// What the last session has kept holds for the first process before the second one is attached to.
#[test]
fn a_budget_holds_while_further_processes_are_attached_to() {
    let place = scratch();
    let cache = place.path().join("cache");
    let case = Case::new(c("counted", &["-pthread"])).environment("XDG_RUNTIME_DIR", place.path());
    let case = case.environment("XDG_CACHE_HOME", &cache);
    let case = case.options(["--budget", "1%", "--block"]);
    let mut programs: Vec<_> = (0..3).map(|_| case.untraced_start().spawn()).collect();
    let mut inputs = Vec::new();
    for program in &mut programs {
        program.wait_for(|text| text.ends_with('\n'));
        inputs.push(program.stdin());
    }
    let trace = place.path().join("trace");
    let attach = |processes: &[i32]| {
        let mut start = Start::new([nopal().as_os_str(), "attach".as_ref()]);
        start.words.extend(case.option_words().iter().cloned());
        start.words.extend(["-o".into(), trace.clone().into()]);
        start
            .words
            .extend(processes.iter().map(|process| process.to_string().into()));
        let environment = [
            ("XDG_RUNTIME_DIR", place.path()),
            ("XDG_CACHE_HOME", &cache),
        ];
        let environment = environment.map(|(name, path)| (name.into(), path.into()));
        start.environment.extend(environment);
        let mut tool = start.spawn();
        tool.wait_for_error(|text| text.contains("Ctrl-C ends it"));
        tool
    };
    let end = |mut tool: Running| {
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        nopal_trace::Trace::open(&trace).unwrap()
    };
    let is_untimed =
        |note: &Note| matches!(note, Note::State { state, .. } if *state != SiteState::Timed);
    let mut done = 0;
    loop {
        let tool = attach(&[programs[0].id()]);
        for _ in 0..3 {
            done += 1;
            writeln!(inputs[0], "work 3000000").unwrap();
            programs[0].wait_for(|text| text.matches("done\n").count() == done);
        }
        if end(tool).notes().iter().any(is_untimed) {
            break;
        }
    }
    let processes: Vec<i32> = programs.iter().map(|program| program.id()).collect();
    let trace = end(attach(&processes));
    let notes = trace.notes();
    let untimed = notes.iter().position(is_untimed).expect("it was kept");
    let is_begun = |note: &&Note| matches!(note, Note::Process { .. });
    let before = notes[..untimed].iter().filter(is_begun).count();
    let all = notes.iter().filter(is_begun).count();
    assert_eq!((before, all), (1, 3));
    drop(inputs);
    for mut program in programs {
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// The time between two looks is that of a budget that is nearly held.
#[test]
fn a_busy_process_that_is_attached_to_is_looked_at_at_once() {
    let place = scratch();
    let program = c("budget", &[]).path;
    let mut busy = Start::new([program.into_os_string(), "60000".into()]).spawn();
    let process = busy.id().to_string();
    let mut took = Vec::new();
    // On a busy machine, the tool may have to wait for a processor.
    while took.len() < 5 && !took.iter().any(|ms| *ms < 50.0) {
        let trace = place.path().join("trace");
        let cache = place.path().join(took.len().to_string());
        let words = ["attach", "--budget", "5%", "--for", "500ms", "-o"];
        let mut start = Start::new([nopal().as_os_str()]);
        start.words.extend(words.map(Into::into));
        start
            .words
            .extend([trace.clone().into(), process.clone().into()]);
        let cache = ("XDG_CACHE_HOME".into(), cache.into());
        start.environment.push(cache);
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let trace = nopal_trace::Trace::open(&trace).unwrap();
        let packets = trace
            .threads()
            .into_iter()
            .flat_map(|thread| thread.packets());
        let begin = packets.map(|packet| packet.clock_begin()).min().unwrap();
        let counted = trace.notes().iter().find_map(|note| match note {
            Note::State { counter, .. } => Some(*counter),
            _ => None,
        });
        let ticks = counted.expect("tiny is counted").saturating_sub(begin);
        took.push(trace.clocks().duration_ns(ticks) as f64 / 1e6);
    }
    assert!(took.iter().any(|ms| *ms < 50.0), "{took:?} ms");
    busy.signal_group(libc::SIGKILL);
    busy.wait();
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
    // Works until a function is not recorded.
    while attached
        .state()
        .contains(" 0 functions are counted, 0 are off")
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
    // Every call is recorded again.
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

/// There is always room for the one that is called seldom.
#[test]
fn tiny_functions_begin_counted() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut start = Start::new([nopal()]);
    let options = ["record", "--budget", "5%", "-o"];
    start.words.extend(options.map(Into::into));
    let program = c("budget", &[]).path.into();
    start
        .words
        .extend([trace.clone().into(), program, "300".into()]);
    let cache = scratch.path().join("cache");
    start
        .environment
        .push(("XDG_CACHE_HOME".into(), cache.into()));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let info = Start::new([nopal().as_os_str(), "info".as_ref(), trace.as_os_str()]);
    let info = info.run("").stdout;
    assert_eq!(tells(&info, "counted", "seldom"), 1, "{info}");
    assert_eq!(tells(&info, "counted", "slow"), 0, "{info}");
}

#[test]
fn a_recording_begins_with_what_was_not_timed_when_the_last_one_ended() {
    let scratch = scratch();
    let cache = scratch.path().join("cache");
    let trace = scratch.path().join("trace");
    let record_within = |share| {
        let mut start = Start::new([nopal()]);
        let options = ["record", "--budget", share, "--block", "--buffer", "512M"];
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
    let record = || record_within("5%");
    let as_ended = ", as when the last recording of this program within a budget ended";
    let first = record();
    assert!(!first.contains(as_ended), "{first}");
    let again = record();
    assert!(again.contains(as_ended), "{again}");

    let mut start = Start::new([nopal().as_os_str(), "info".as_ref(), trace.as_os_str()]);
    let info = start.run("").stdout;
    assert!(
        info.contains(" began so, as the last recording of the program ended"),
        "{info}"
    );
    let kept = ["kept counted", "kept off"].map(|state| tells(&info, state, "tiny"));
    assert_eq!(kept.iter().sum::<usize>(), 1, "{info}");
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

    // Within next to nothing it is off in the end, and from the begin of the next recording.
    record_within("0.01%");
    let again = record_within("0.01%");
    assert!(again.contains(&format!(" began off{as_ended}")), "{again}");
    start.words[1] = "info".into();
    let info = start.run("").stdout;
    assert_eq!(tells(&info, "kept off", "tiny"), 1, "{info}");

    // The kept file must be the user's own and undamaged.
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
    assert!(!record().contains(as_ended));
    fs::set_permissions(&kept, Permissions::from_mode(0o666)).unwrap();
    assert!(!record().contains(as_ended));
}
