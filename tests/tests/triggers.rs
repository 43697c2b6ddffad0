//! Triggers of running processes, and snapshots of a flight recorder.

use std::path::Path;
use std::time::{Duration, Instant};

use nopal_tests::process::{assert_nothing_left, wait_until};
use nopal_tests::{AttachedProgram, Case, End, Report, Start, c, nopal, scratch};

/// A duration that no request reaches by waiting for a processor.
const SLOW: &str = "return handle_request if duration > 4s";

fn requests(scratch: &Path) -> Case {
    Case::new(c("requests", &[])).environment("XDG_RUNTIME_DIR", scratch)
}

/// The program `requests`, traced.
fn traced(options: &[&str]) -> AttachedProgram {
    AttachedProgram::new(c("requests", &[]), options)
}

fn replay(trace: &Path) -> String {
    let start = nopal_tests::Start::new([nopal(), Path::new("replay"), trace]);
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

/// The number of slow calls of handle_request in a trace, and of all.
fn requests_in(trace: &Path) -> (u64, u64) {
    let report = Report::of(trace);
    (report.calls("stall"), report.calls("handle_request"))
}

#[test]
fn a_slow_call_has_its_snapshot() {
    let mut attached = traced(&["--flight", "--snapshot-when", SLOW]);
    attached.run("fast 20");
    attached.run("slow 20");
    attached.run("slow 5000");
    let expected = attached.wait_for("#snapshot-1: ");
    assert!(
        expected.contains("return handle_request after "),
        "{expected}"
    );
    attached.run("fast 5");
    attached.run("slow 5000");
    attached.wait_for("#snapshot-2: ");
    attached.run("fast 5");
    let (scratch, ended) = attached.end();
    let said = ended.stderr;
    assert_eq!(said.matches("nopal: snapshot-").count(), 2, "{said}");
    let trace = scratch.path().join("trace");
    // The snapshot has the slow call, and the calls before it.
    assert_eq!(requests_in(&trace.join("snapshot-1")), (2, 22));
    assert_eq!(requests_in(&trace.join("snapshot-2")), (3, 28));
    assert_eq!(requests_in(&trace), (3, 33), "the end is kept as well");
    let text = replay(&trace.join("snapshot-1"));
    let mut lines = text.lines().rev();
    let last = lines.next().unwrap();
    assert!(
        last.contains("/* snapshot-1: return handle_request after "),
        "{last}"
    );
    let calls: Vec<&str> = lines.collect();
    assert!(
        calls
            .iter()
            .any(|line| line.ends_with("} /* handle_request */")),
        "the call has its end"
    );
}

/// The durations of the longest two calls of handle_request in a trace, longest first.
fn longest(trace: &Path) -> Vec<f64> {
    let words = ["slow", "handle_request", "-n", "2", "--json"];
    let mut start = Start::new([nopal()]);
    start
        .words
        .extend(words.map(Into::into).into_iter().chain([trace.into()]));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let calls: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let calls = calls.as_array().unwrap().iter();
    calls
        .map(|call| call["duration_ns"].as_f64().unwrap())
        .collect()
}

/// Asserts that each snapshot has a slow case and little else. Returns the duration of the longest call in each.
fn slow_cases(trace: &Path) -> Vec<f64> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(trace).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("snapshot-") {
            let handled = Report::of(&path).calls("handle_request");
            assert!((1..=1000).contains(&handled), "{name} has {handled}");
            let text = replay(&path);
            assert!(
                text.contains(": handle_request..handle_request.end took "),
                "{text}"
            );
            cases.push(longest(&path)[0]);
        }
    }
    cases
}

/// Whether one of the cases took this time; a longer trace knows the clock's rate better.
fn is_among(took: f64, cases: &[f64]) -> bool {
    cases.iter().any(|case| (took - case).abs() < took / 100.0)
}

#[test]
fn the_slowest_cases_of_a_minute_are_kept_and_replace_each_other() {
    let mut attached = traced(&["--keep-slowest", "2", "handle_request..handle_request.end"]);
    let begun = Instant::now();
    for request in ["slow 400", "slow 900", "slow 1800", "slow 3600"] {
        attached.run("fast 2000");
        attached.run(request);
    }
    attached.run("fast 2000");
    let state = attached.wait_for("tracer handle_request..handle_request.end keep ");
    assert_eq!(state, "2");
    let (scratch, ended) = attached.end();
    let is_one_minute = begun.elapsed() < Duration::from_secs(60);
    let said = ended.stderr;
    let slowest = "of the slowest cases of handle_request..handle_request.end: the slowest took ";
    assert!(said.contains(slowest), "{said}");
    let trace = scratch.path().join("trace");
    let (cases, longest) = (slow_cases(&trace), longest(&trace));
    assert!(
        longest.iter().all(|took| is_among(*took, &cases)),
        "{longest:?} of {cases:?}"
    );
    assert!(cases.len() == 2 || !is_one_minute, "{cases:?}");
}

/// The buffer holds some 2,000 requests, and many more come at once.
#[test]
fn a_slow_case_is_kept_before_its_records_are_given_up() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let section = ["--keep-slowest", "1", "handle_request..handle_request.end"];
    let case = requests(scratch.path())
        .options(section)
        .options(["--buffer", "512K"]);
    let ended = case
        .traced_start(&trace)
        .run("fast 3000\nslow 5000\nfast 30000\n");
    assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
    let cases = slow_cases(&trace);
    assert!(cases.len() == 1 && cases[0] >= 5e9, "{cases:?}");
    let section = ["--keep-slowest", "1", "nobody..handle_request"];
    let case = requests(scratch.path()).options(section);
    let ended = case.traced_start(&trace).run("fast 3\n");
    let expected = "nopal: no case of nobody..handle_request was kept: no recorded function or marker is named \"nobody\"\n";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

/// It may come with a library. The user is told at the beginning, not when nothing was kept.
#[test]
fn an_end_of_a_section_that_is_nothing_is_told_at_once() {
    let told = [
        (
            "handle_reqest.arg1",
            "no function or marker is named \"handle_reqest\" yet; the nearest ",
        ),
        (
            "later@libnone.so",
            "\"later@libnone.so\" waits for its library\n",
        ),
    ];
    for (end, expected) in told {
        let section = format!("{end}..handle_request.arg1");
        let mut attached = traced(&["--keep-slowest", "1", &section]);
        attached.tool.wait_for_error(|text| text.contains(expected));
        let (_, ended) = attached.end();
        assert_eq!(
            ended.stderr.matches(" yet").count(),
            usize::from(end.contains("reqest"))
        );
    }
    let mut attached = traced(&["--keep-slowest", "1", "handle_request..handle_request.end"]);
    attached.run("fast 3");
    let (_, ended) = attached.end();
    assert!(
        !ended.stderr.contains("no function or marker"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_program_that_nopal_starts_has_snapshots_too() {
    // The second session does not record the function of its trigger.
    for options in [&[][..], &["-F", "step"]] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let case = requests(scratch.path())
            .options(["--flight", "--snapshot-when", SLOW])
            .options(options.iter().copied());
        let ended = case
            .traced_start(&trace)
            .run("fast 10\nslow 5000\nfast 10\n");
        assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
        let snapshot = trace.join("snapshot-1");
        // The program may have gone on for some milliseconds.
        let report = Report::of(&snapshot);
        assert!((110..=210).contains(&report.calls("step")));
        let others = u64::from(options.is_empty());
        assert_eq!(report.calls("handle_request") >= 11, options.is_empty());
        assert_eq!(report.calls("stall"), others);
        assert!(!trace.join("snapshot-2").exists());
        // The second recording replaces the first.
        let ended = case.traced_start(&trace).run("fast 10\n");
        assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
        assert!(!snapshot.exists() && scratch.path().join("trace.old/snapshot-1").exists());
        let ended = case.traced_start(&trace).run("fast 10\n");
        assert_eq!(ended.end, End::Code(5), "{}", ended.stderr);
        assert!(!scratch.path().join("trace.old/snapshot-1").exists());
    }
}

#[test]
fn what_does_not_fit_is_refused_before_the_program_runs() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let older = requests(scratch.path()).traced_start(&trace);
    assert_eq!(older.run("fast 3\n").end, End::Code(5));
    for (when, expected) in [
        (
            "return handle_reqest",
            "no function matches handle_reqest; the nearest are handle_request",
        ),
        (
            "return handle_request if duration > 50m",
            "\"50m\" is not a value",
        ),
        (
            "handle_request if duration > 50ms",
            "is known only when the function returns",
        ),
        ("mark net", "no marker matches net"),
        ("step do", "expected ACTION, found \"do\""),
    ] {
        let case = requests(scratch.path()).options(["--flight", "--snapshot-when", when]);
        let ended = case.traced_start(&trace).run("fast 1\n");
        assert!(ended.stderr.contains(expected), "{when}: {}", ended.stderr);
        assert_eq!((ended.end, &*ended.stdout), (End::Code(1), ""), "{when}");
        // The older trace is still where it was.
        assert_eq!(Report::of(&trace).calls("handle_request"), 3, "{when}");
    }
    for (slowest, expected) in [
        (
            ["x", "step..answer"],
            "--keep-slowest x step..answer: expected a number of cases",
        ),
        (
            ["2", "step"],
            "--keep-slowest 2 step: expected a section FROM..TO",
        ),
        (
            ["2", "offcpu"],
            "--keep-slowest 2 offcpu: expected a section",
        ),
        (
            ["1001", "step..answer"],
            "expected a number of snapshots a minute up to 1000",
        ),
    ] {
        let options = [["--keep-slowest"].as_slice(), &slowest].concat();
        let case = requests(scratch.path()).options(options);
        let ended = case.traced_start(&trace).run("fast 1\n");
        assert!(
            ended.stderr.contains(expected),
            "{slowest:?}: {}",
            ended.stderr
        );
        assert_eq!(
            (ended.end, &*ended.stdout),
            (End::Code(1), ""),
            "{slowest:?}"
        );
    }
}

#[test]
fn recording_starts_and_stops_itself() {
    let mut attached = traced(&["-F", "handle_request"]);
    attached.ctl("stop\nwhen begin_phase do start new b\nwhen end_phase do stop new e");
    attached.run("fast 7");
    attached.run("begin");
    attached.wait_for("#traceactive 1");
    attached.run("fast 10");
    attached.run("end");
    attached.wait_for("#traceactive 0");
    attached.run("fast 7");
    attached.run("begin");
    attached.wait_for("#traceactive 1");
    attached.run("fast 3");
    let expected = [attached.wait_for("#when b "), attached.wait_for("#when e ")];
    assert_eq!(expected, ["met 2, fired 2", "met 1, fired 1"]);
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    assert_eq!(report.calls("handle_request"), 13);
    assert_eq!(report.calls("begin_phase"), 0, "the trigger records none");
}

#[test]
fn traces_switch_by_what_happens() {
    let mut attached = traced(&["-F", "answer"]);
    attached.ctl("trace step new s\nwhen begin_phase do trace s on\nwhen end_phase do trace s off");
    for (line, wanted) in [("begin", "trace s on"), ("end", "trace s off")] {
        attached.run(line);
        attached.wait_for(wanted);
        attached.run("fast 4");
    }
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    assert_eq!(report.calls("step"), 40);
}

/// How often the threads of a process have waited.
fn waits(process: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |status: String| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.map(of).sum()
}

#[test]
fn the_tool_looks_seldom_while_nothing_happens() {
    let mut attached = traced(&["--flight", "--snapshot-when", SLOW]);
    attached.run("fast 20");
    std::thread::sleep(Duration::from_millis(200));
    let before = waits(attached.tool.id());
    std::thread::sleep(Duration::from_secs(1));
    let waited = waits(attached.tool.id()) - before;
    assert!(
        waited < 250,
        "the tool has waited {waited} times in a second"
    );
    attached.run("slow 5000");
    attached.wait_for("#snapshot-1: ");
    attached.end();
}

#[test]
fn arguments_and_results_decide() {
    let mut attached = traced(&[]);
    attached.ctl(
        "when answer if arg1 == 7 or arg1 > 100 do count new seven\n\
         when return answer if int(result) < -50 do count new less\n\
         when return answer if arg1 & 1 == 1 and hits % 2 == 0 do count new odd\n\
         when handle_request if hits == 2 do mark new second",
    );
    for number in [7, 8, 51, 7, 101, 7] {
        attached.run(&format!("answer {number}"));
    }
    attached.run("fast 3");
    for (name, expected) in [
        ("seven", "met 6, fired 4"),
        ("less", "met 6, fired 2"),
        ("odd", "met 6, fired 2"),
        ("second", "met 3, fired 1"),
    ] {
        assert_eq!(
            attached.wait_for(&format!("#when {name} ")),
            expected,
            "{name}"
        );
    }
    let refused = attached
        .try_ctl("when answer if result == 1 do count")
        .stderr;
    assert!(refused.contains("when return answer"), "{refused}");
    attached.ctl("when seven remove\nwhen less remove\nwhen odd remove");
    let (scratch, _) = attached.end();
    let text = replay(&scratch.path().join("trace"));
    let lines: Vec<&str> = text.lines().collect();
    let note = lines
        .iter()
        .position(|line| line.ends_with("/* second: handle_request */"))
        .unwrap_or_else(|| panic!("{text}"));
    let before = |name: &str| {
        lines[..note]
            .iter()
            .filter(|line| line.contains(name))
            .count()
    };
    assert_eq!(
        before("handle_request("),
        1,
        "at the time of the second call:\n{text}"
    );
}

#[test]
fn markers_probes_and_static_probes_are_waited_for() {
    let options = ["-F", "step", "-M", "served", "-M", "requests:answered"];
    let mut attached = traced(&options);
    attached.ctl(
        "probe answer new asked fetch n=$di:s32\nprobe asked on\n\
         probe ask fetch question->number question->worth->points[1]\nprobe ask on\n\
         when probe ask if question_worth_points_1 == 2 and question_number > 50 do count new points\n\
         when mark served if how == \"slow\" do count new slow\n\
         when mark served if ms > 2 and hits > 2 do mark new late\n\
         when probe asked if n == 7 do count new seven\n\
         when mark requests:answered if argument2 < -50 do count new less\n\
         when mark requests:answered if argument1 == 51 do trace function off new quiet\n\
         when probe asked if n == 99 do stop new stopped",
    );
    for line in ["fast 2", "slow 3", "answer 7", "answer 51"] {
        attached.run(line);
    }
    attached.wait_for("trace function off");
    attached.run("fast 3");
    attached.run("answer 99");
    attached.wait_for("#traceactive 0");
    attached.run("slow 3");
    for (name, expected) in [
        ("slow", "met 6, fired 1"),
        ("late", "met 6, fired 1"),
        ("seven", "met 3, fired 1"),
        ("points", "met 3, fired 1"),
        ("less", "met 3, fired 2"),
        ("quiet", "met 3, fired 1"),
        ("stopped", "met 3, fired 1"),
    ] {
        let state = attached.wait_for(&format!("#when {name} "));
        assert_eq!(state, expected, "{name}");
    }
    let (scratch, _) = attached.end();
    let trace = scratch.path().join("trace");
    assert_eq!(Report::of(&trace).calls("step"), 30);
    let text = replay(&trace);
    assert!(
        text.contains("/* late: mark served: served ms=3 how=\"slow\" */"),
        "{text}"
    );
}

#[test]
fn conditions_that_say_nothing_are_quoted_with_what_could_be() {
    let attached = traced(&["-F", "step", "-M", "served"]);
    attached.ctl("probe answer new asked fetch n=$di:s32");
    for (command, expected) in [
        ("when step if do count", "expected COND, found \"do\""),
        (
            "when step if duration > do count",
            "\"\" is not a value: use arg1 to arg6",
        ),
        (
            "when step if hits do count",
            "expected ==, !=, <, <=, > or >=",
        ),
        (
            "when step if (hits > 2 do count",
            "a parenthesis is not closed",
        ),
        (
            "when return step if foo == 2 do count",
            "a function has no \"foo\", but arg1 to arg6",
        ),
        (
            "when mark served if mss > 2 do count",
            "the marker does not have all of mss, but ms, how",
        ),
        (
            "when probe asked if m == 7 do count",
            "the marker does not have all of m, but n",
        ),
        (
            "when probe askd do count",
            "there is no probe \"askd\", only asked",
        ),
        (
            "when mark serfed do count",
            "no marker matches serfed; the nearest is served",
        ),
        ("when step if hits > 2 do", "expected ACTION, found its end"),
        (
            "when step if hits > 2 do cunt",
            "expected snapshot, start, stop, trace, mark, count or detach, found \"cunt\"",
        ),
    ] {
        let refused = attached.try_ctl(command);
        assert_eq!(refused.end, End::Code(1), "{command}");
        let quoted = format!("nopal: \"{}", command.replace('"', "\\\""));
        assert!(refused.stderr.starts_with(&quoted), "{}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    assert!(!attached.ctl("").contains("when"), "no trigger is set");
    attached.end();
}

#[test]
fn a_trigger_ends_the_session() {
    let mut attached = traced(&[]);
    attached.ctl("when end_phase do detach");
    attached.run("fast 3");
    attached.run("end");
    let ended = attached.tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_nothing_left(attached.program.id());
    attached.run("fast 3");
    attached.stdin = None;
    assert_eq!(attached.program.wait().end, End::Code(5));
    assert_eq!(requests_in(&attached.trace()), (0, 3));
}

/// Program and tool die, and the snapshot keeps the events.
#[test]
fn a_snapshot_outlives_all() {
    let mut attached = traced(&["--flight", "--snapshot-when", SLOW]);
    attached.run("fast 20");
    attached.run("slow 5000");
    // SAFETY: sends a signal to a process of ours.
    unsafe { libc::kill(attached.program.id(), libc::SIGKILL) };
    let ended = attached.tool.wait();
    assert!(
        ended.stderr.contains("nopal: snapshot-1: "),
        "{}",
        ended.stderr
    );
    assert_eq!(requests_in(&attached.trace().join("snapshot-1")), (1, 21));
    attached.stdin = None;
    attached.program.wait();

    let mut attached = traced(&["--flight"]);
    let said = attached.ctl("snapshot");
    assert!(said.starts_with("snapshot-1: "), "{said}");
    attached.run("fast 20");
    attached.ctl(&format!("when {SLOW} do snapshot"));
    attached.run("slow 5000");
    attached.wait_for("#snapshot-2: ");
    for _ in 0..1000 {
        if !attached.ctl("").contains("being written") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // SAFETY: as above.
    unsafe { libc::kill(attached.tool.id(), libc::SIGKILL) };
    attached.tool.wait();
    attached.program.wait_until(|| true);
    assert_eq!(requests_in(&attached.trace().join("snapshot-2")), (1, 21));
    attached.run("fast 1");
    attached.stdin = None;
    assert_eq!(attached.program.wait().end, End::Code(5));
}

/// A forked child has one row in a snapshot, as in the whole trace: it has executed nothing.
#[test]
fn forked_children_have_one_row_in_a_snapshot() {
    let attached = AttachedProgram::new(c("forks_on", &[]), &["--flight"]);
    let parent = attached.program.id().to_string();
    let programs = |trace: &Path| {
        let info = Start::new([nopal(), Path::new("info"), trace]).run("");
        let lines = info.stdout.lines();
        let rows = lines.skip_while(|line| !line.starts_with("process  "));
        // Up to the number of those that are not listed, or the next table.
        let is_row = |line: &&str| !line.is_empty() && !line.starts_with('(');
        let rows = rows.skip(1).take_while(is_row);
        let words = rows.map(|row| row.split_whitespace().take(4).map(str::to_owned).collect());
        words.collect::<Vec<Vec<String>>>()
    };
    let mut number = 0;
    let rows = loop {
        number += 1;
        attached.ctl("snapshot");
        wait_until("the snapshot", || {
            !attached.state().contains("being written")
        });
        let rows = programs(&attached.trace().join(format!("snapshot-{number}")));
        if rows.len() > 2 {
            break rows;
        }
        assert!(number < 10, "{rows:?}");
        std::thread::sleep(Duration::from_millis(200));
    };
    for row in &rows {
        assert!(row[0] == parent || row[1] == parent, "{rows:?}");
        assert_ne!(row[3], "exec", "{rows:?}");
        let same = rows.iter().filter(|other| other[0] == row[0]);
        assert_eq!(same.count(), 1, "{rows:?}");
    }
    attached.end();
}

/// Commands that need a flight recorder say so.
#[test]
fn a_session_that_keeps_everything_has_no_snapshots() {
    let attached = traced(&["-F", "step"]);
    for command in ["snapshot", "when step do snapshot"] {
        let refused = attached.try_ctl(command);
        assert_eq!(refused.end, End::Code(1));
        assert!(refused.stderr.contains("(--flight"), "{}", refused.stderr);
    }
    attached.end();
}

/// The call's begin was given up long before its end.
#[test]
fn the_call_that_fired_is_there_with_its_callers() {
    let traced = Case::new(c("overwritten", &[]))
        .options(["--args", "--flight", "--buffer", "1M"])
        .options(["--snapshot-when", "return request if result > 100000"])
        .traced();
    for trace in [traced.directory().join("snapshot-1"), traced.directory()] {
        let report = Report::of(&trace);
        for function in ["main", "request", "slow"] {
            let mut rows = report.rows.iter();
            let row = rows.find(|row| row["function"] == function);
            let row = row.unwrap_or_else(|| panic!("{function} is in {}", trace.display()));
            assert_eq!(row["calls"], 1, "{row}");
            // The call's first callees are not known.
            assert_eq!(row["self_is_least"], true, "{row}");
        }
        let leaf = report.calls("leaf");
        assert!((1..300_000).contains(&leaf), "{leaf}");
        let slow = report.rows.iter().find(|row| row["function"] == "slow");
        assert_eq!(slow.unwrap()["unfinished"], 0);
        let replay = replay(&trace);
        let has_arguments = replay.contains("slow(calls=300000, other=4711)");
        assert!(has_arguments, "{:.1000}", replay);
    }
}
