//! Kernel events beside the program's own: on one clock, in order, and all of them.

use nopal_tests::{Awake, End, Start, c, nopal, scratch};
use nopal_trace::{Note, Trace};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const ROUNDS: usize = 100;
const NOBODY: &str = "65534";

/// A directory that everybody may use, with the program in it.
struct OpenDirectory {
    directory: TempDir,
    program: PathBuf,
}

impl OpenDirectory {
    fn new() -> OpenDirectory {
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let program = directory.path().join("wakes");
        let built = c("wakes", &[]);
        // nopal is copied, too, since other users may lack access to its build directory.
        copy(nopal(), &directory.path().join("nopal"));
        copy(&built.path, &program);
        OpenDirectory { directory, program }
    }

    fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    /// Records the program, with or without rights. Returns nopal's messages, and whether all went well.
    fn record(&self, events: &str, with_rights: bool) -> (String, bool) {
        let mut command = match with_rights {
            true => Command::new("env"),
            false => Command::new("setpriv"),
        };
        if !with_rights {
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        }
        let output = command
            .arg(self.directory.path().join("nopal"))
            .args(["record", "-e", events, "-F", "say", "-F", "hear", "-o"])
            .arg(self.trace())
            .arg(&self.program)
            .arg(ROUNDS.to_string())
            .env("XDG_CACHE_HOME", self.directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = output.status.success() && output.stdout == format!("{ROUNDS}\n").as_bytes();
        (said, expected)
    }

    fn raw(&self) -> Vec<Line> {
        let raw = said_of(&["dump", "--as", "raw"], &self.trace());
        let records = raw.lines().filter(|line| !line.starts_with("# "));
        records.map(Line::of).collect()
    }
}

/// Copies a program in a separate process: a child that another test starts meanwhile would inherit a writable
/// descriptor of this one, and a file that is open for writing cannot be executed.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

fn said_of(words: &[&str], trace: &Path) -> String {
    let output = Command::new(nopal())
        .args(words)
        .arg(trace)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A line of the raw dump: its clock, and its other words.
struct Line {
    clock: u64,
    words: Vec<String>,
}

impl Line {
    fn of(line: &str) -> Line {
        let mut words = line.split(' ').map(str::to_owned);
        Line {
            clock: words.next().unwrap().parse().unwrap(),
            words: words.collect(),
        }
    }

    fn is_call(&self, kind: &str, function: &str) -> bool {
        self.words.get(2).is_some_and(|word| word == kind)
            && self.words.last().is_some_and(|word| word == function)
    }

    fn is_event(&self, kind: &str) -> bool {
        self.words[0] == "cpu" && self.words[2] == kind
    }

    /// The first number of a word behind the event's name.
    fn number(&self, word: usize) -> &str {
        self.words[3 + word].split(':').next().unwrap()
    }
}

/// The clocks of a function's calls, from entry to exit, and their thread.
fn calls(lines: &[Line], function: &str) -> (Vec<(u64, u64)>, String) {
    let clocks = |kind| {
        let of_kind = lines
            .iter()
            .filter(move |line| line.is_call(kind, function));
        of_kind.map(|line| line.clock)
    };
    let entry = lines.iter().find(|line| line.is_call("entry", function));
    let thread = entry.unwrap().words[1].clone();
    (clocks("entry").zip(clocks("exit")).collect(), thread)
}

fn inside(events: &[u64], (begin, end): (u64, u64)) -> Vec<u64> {
    let inside = |clock: &&u64| (begin..=end).contains(*clock);
    events.iter().filter(inside).copied().collect()
}

#[test]
fn each_wake_up_stands_between_the_call_that_made_it_and_the_end_of_the_one_that_slept() {
    let place = OpenDirectory::new();
    let (said, expected) = place.record("sched", true);
    assert!(expected, "{said}");
    assert!(
        !said.contains("only"),
        "this test needs the rights to see all tasks: {said}"
    );
    let lines = place.raw();
    let (says, _) = calls(&lines, "say");
    let (hears, sleeper) = calls(&lines, "hear");
    assert_eq!((says.len(), hears.len()), (ROUNDS, ROUNDS));
    let clocks = |is_it: &dyn Fn(&Line) -> bool| -> Vec<u64> {
        lines
            .iter()
            .filter(|line| is_it(line))
            .map(|line| line.clock)
            .collect()
    };
    let wakes = clocks(&|line| line.is_event("sched_wakeup") && line.number(2) == sleeper);
    let switches =
        |word: usize| clocks(&|line| line.is_event("sched_switch") && line.number(word) == sleeper);
    let (leaves, gets) = (switches(0), switches(2));
    for (say, hear) in says.iter().zip(&hears) {
        let wakes = inside(&wakes, *hear);
        assert_eq!(
            wakes.len(),
            1,
            "one wake-up of {sleeper} in {hear:?}: {wakes:?}"
        );
        assert!(say.0 < wakes[0], "{say:?} {wakes:?}");
        let left = inside(&leaves, (hear.0, wakes[0]));
        let got = inside(&gets, (wakes[0], hear.1));
        assert!(
            !left.is_empty() && !got.is_empty(),
            "{hear:?} {wakes:?} {left:?} {got:?}"
        );
    }
    let replay = said_of(&["replay", "-F", "hear"], &place.trace());
    let counts = ["blocked (S)", "woken by", "runs on CPU"]
        .map(|what| replay.lines().filter(|line| line.contains(what)).count());
    assert!(counts.iter().all(|count| *count >= ROUNDS), "{counts:?}");
    assert_eq!(counts[1], ROUNDS, "outside of hear() nothing is shown");
    let info = said_of(&["info"], &place.trace());
    let counted = |kind: &str| lines.iter().filter(|line| line.is_event(kind)).count();
    let system = info
        .lines()
        .find(|line| line.starts_with("system"))
        .unwrap();
    let numbers = system.replace(',', "");
    assert!(
        numbers.contains(&format!("{} sched_wakeup ", counted("sched_wakeup"))),
        "{info}"
    );
    assert!(numbers.contains(" lost on "), "{info}");
    for (tracer, least) in [("wakeup", ROUNDS), ("offcpu", ROUNDS), ("blocked", ROUNDS)] {
        let hist = said_of(
            &["hist", "--json", "--by", "thread", tracer],
            &place.trace(),
        );
        let hist: serde_json::Value = serde_json::from_str(&hist).unwrap();
        let mut groups = hist["groups"].as_array().unwrap().iter();
        let of = format!("thread {sleeper} wakes");
        let own = groups.find(|group| group["group"] == of.as_str()).unwrap();
        let count = own["count"].as_u64().unwrap() as usize;
        assert!(
            count >= least && own["min"].as_i64().unwrap() > 0,
            "{tracer}: {hist}"
        );
    }
    let function = said_of(&["dump", "--as", "function"], &place.trace());
    let of_calls = || function.lines().filter(|line| line.contains("hear+0x0/"));
    assert_eq!(of_calls().count(), ROUNDS);
    assert!(
        of_calls().all(|line| !line.starts_with("CPU -")),
        "{function}"
    );
    let chrome = said_of(&["dump", "--as", "chrome"], &place.trace());
    let chrome: serde_json::Value = serde_json::from_str(&chrome).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let woken = format!("wakes wakes {sleeper}");
    let shown = events
        .iter()
        .filter(|event| event["name"] == woken.as_str())
        .count();
    assert!(shown >= ROUNDS, "{shown}");
}

#[test]
fn without_rights_own_switches_are_recorded_and_it_is_said_how_to_get_more() {
    let place = OpenDirectory::new();
    let (said, expected) = place.record("sched", false);
    assert!(expected, "{said}");
    for word in [
        "only",
        "perf_event_paranoid",
        "CAP_PERFMON",
        "/sys/kernel/tracing",
    ] {
        assert!(said.contains(word), "{said}");
    }
    let lines = place.raw();
    let (hears, sleeper) = calls(&lines, "hear");
    assert_eq!(hears.len(), ROUNDS);
    let clocks = |kind: &str, word: usize| -> Vec<u64> {
        let own = lines
            .iter()
            .filter(|line| line.is_event(kind) && line.number(word) == sleeper);
        own.map(|line| line.clock).collect()
    };
    let (leaves, gets) = (clocks("switch_out", 0), clocks("switch_in", 2));
    for hear in hears {
        let (left, got) = (inside(&leaves, hear), inside(&gets, hear));
        assert_eq!(left.len(), got.len(), "{hear:?}");
        assert!(left.iter().zip(&got).all(|(left, got)| left < got) && !left.is_empty());
    }
    assert!(!lines.iter().any(|line| line.is_event("sched_wakeup")));
}

#[test]
fn wake_ups_that_are_forbidden_are_refused_before_anything_runs() {
    let place = OpenDirectory::new();
    let (said, expected) = place.record("sched_wakeup", false);
    assert!(!expected, "{said}");
    assert!(
        said.contains("wake-ups cannot be recorded") && said.contains("CAP_PERFMON"),
        "{said}"
    );
    let (said, expected) = place.record("sched_sleep", true);
    assert!(
        !expected && said.contains("no tracepoint \"sched_sleep\"; the nearest is sched_"),
        "{said}"
    );
}

/// Each tracepoint occurs as often as the program passed it, also in its child, with the right values.
#[test]
fn tracepoints_of_the_traced_threads_are_markers() {
    let place = TempDir::new().unwrap();
    let trace = place.path().join("trace");
    let program = c("kernel_calls", &[]);
    let events = "syscalls:sys_enter_getppid,syscalls:sys_enter_getuid,syscalls:sys_exit_getppid";
    let output = Command::new(nopal())
        .args(["record", "-e", events, "-F", "ask", "-o"])
        .arg(&trace)
        .arg(&program.path)
        .arg("100")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let raw = said_of(&["dump", "--as", "raw"], &trace);
    let count = |name: &str| raw.lines().filter(|line| line.contains(name)).count();
    assert_eq!(count("syscalls:sys_enter_getppid"), 110, "{raw}");
    assert_eq!(count("syscalls:sys_exit_getppid"), 110);
    assert_eq!(count("syscalls:sys_enter_getuid"), 100);
    // The program's parent is the tool.
    let own = said_of(&["hist", "syscalls:sys_exit_getppid.ret"], &trace);
    assert!(own.contains("110 values"), "{own}");
    let inside = said_of(&["replay", "-F", "ask"], &trace);
    let shown = inside
        .lines()
        .filter(|line| line.contains("sys_enter_getppid"));
    assert_eq!(shown.count(), 110, "in the calls that made them: {inside}");
    let text = said_of(&["dump", "--as", "latency", "--of", "events"], &trace);
    let line = text.lines().find(|line| line.contains("sys_enter_getppid"));
    let flags = line.unwrap().split_whitespace().nth(1).unwrap();
    assert!(
        flags.ends_with("..."),
        "interrupts may be off, nothing else: {flags}"
    );
    // The processor is known without the scheduler's events, to each form of the text.
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    assert!(is_number(&flags[..flags.len() - 4]), "{flags}");
    let text = said_of(&["dump", "--as", "function"], &trace);
    let line = text.lines().find(|line| line.contains("sys_enter_getppid"));
    let processor = line.unwrap().strip_prefix("CPU ").unwrap();
    assert!(is_number(processor.split(':').next().unwrap()), "{line:?}");
    let columns = |form: &[&str]| -> Vec<String> {
        let text = said_of(&[&["dump", "--verbose", "--as"], form].concat(), &trace);
        let line = text.lines().find(|line| line.contains("sys_enter_getppid"));
        let words = line.unwrap().split_whitespace().skip(2).take(3);
        words.map(str::to_owned).collect()
    };
    let shown = columns(&["latency", "--of", "events"]);
    assert!(is_number(&shown[0]) && shown[2].len() == 8, "{shown:?}");
    assert_eq!(columns(&["function"]), shown);
    let refused = Command::new(nopal())
        .args(["record", "-e", "exceptions:page_fault_usr", "-o"])
        .arg(place.path().join("none"))
        .arg(&program.path)
        .arg("100")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("no tracepoint \"exceptions:page_fault_usr\"; the nearest are exceptions:page_fault_user"),
        "{said}"
    );
    assert!(refused.stdout.is_empty(), "the program has run");
}

#[test]
fn the_worst_wake_up_is_told_with_what_ran_meanwhile_where_no_function_is_recorded() {
    let _awake = Awake::new();
    let place = OpenDirectory::new();
    let output = Command::new(nopal())
        .args(["run", "-w", "-c", "-o"])
        .arg(place.trace())
        .arg(&place.program)
        .arg("20")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "20\n", "{said}");
    let worst = said.split("wakeup latency trace").nth(1).unwrap();
    let worst = worst.split("offcpu latency trace").next().unwrap();
    let number =
        |text: &str| -> u32 { text.split(['-', ' ', ':']).next().unwrap().parse().unwrap() };
    let thread = number(worst.split("task: wakes-").nth(1).unwrap());
    let begin = format!("+ {thread}:");
    let end = format!("--> {thread}:");
    let events = worst.split("caller").nth(1).unwrap();
    let is_event = |line: &&str| line.contains("us") && !line.starts_with("nopal: ");
    let mut lines = events.lines().filter(is_event);
    assert!(lines.next().unwrap().contains(&begin), "{said}");
    assert!(lines.next_back().unwrap().contains(&end), "{said}");
    assert!(said.contains("offcpu latency trace"), "{said}");
    // A recording without kernel events has no such cases.
    let output = Command::new(nopal())
        .args(["record", "-o"])
        .arg(place.trace())
        .arg(&place.program)
        .output()
        .unwrap();
    assert!(output.status.success());
    let output = Command::new(nopal())
        .args(["hist", "wakeup"])
        .arg(place.trace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("-e sched"),
        "{said}"
    );
}

#[test]
fn calls_of_a_pid_namespace_have_the_kernel_events_of_their_threads() {
    let place = OpenDirectory::new();
    let output = Command::new(nopal())
        .args(["record", "-e", "sched", "-o"])
        .arg(place.trace())
        .args(["--", "unshare", "-pf", "--mount-proc", "--kill-child"])
        .arg(&place.program)
        .arg(ROUNDS.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, format!("{ROUNDS}\n").as_bytes(), "{said}");
    let replay = said_of(&["replay"], &place.trace());
    // The program is a fork, the first of its namespace; outside, the first process is another.
    assert!(!replay.contains("thread 1 of process 1:"), "{replay}");
    // The number of the program's first thread, which waits for the others.
    let number = replay.lines().find_map(|line| {
        let (thread, process) = line
            .strip_prefix("/* thread ")?
            .strip_suffix(": wakes */")?
            .split_once(" of process ")?;
        (thread == process).then_some(thread)
    });
    let of = |line: &&str| line.split_whitespace().nth(1) == number;
    let (turns, calls): (Vec<&str>, Vec<&str>) = replay
        .lines()
        .filter(of)
        .partition(|line| line.contains(" CPU "));
    assert!(number.is_some() && !calls.is_empty(), "{replay}");
    assert!(
        turns.iter().any(|line| line.contains("left CPU ")),
        "{replay}"
    );
}

#[test]
fn wake_ups_of_all_tasks_are_cases_where_these_are_more_urgent_than_the_running_one() {
    let scratch = scratch();
    let program = c("urgent", &[]);
    let rounds = ROUNDS.to_string();
    let mut other = Start::new([program.path.as_os_str(), rounds.as_ref()]).spawn();
    let said = other.wait_for(|text| text.contains("urgent ") && text.contains("ordinary "));
    let trace = scratch.path().join("trace");
    let options = ["run", "-w", "--all", "-o", trace.to_str().unwrap()];
    let traced = ["sh", "-c", "echo begun; read line"];
    let words = [nopal().to_str().unwrap()].into_iter();
    let mut tool = Start::new(words.chain(options).chain(traced)).spawn();
    tool.wait_for(|text| text.contains("begun"));
    other.stdin().write_all(b"go\n").unwrap();
    assert_eq!(other.wait().end, End::Code(0));
    drop(tool.stdin());
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(1), "of sh: {}", ended.stderr);
    assert!(ended.stderr.contains("wakeup_all: "), "{}", ended.stderr);
    let words = ["hist", "--json", "--by", "thread", "wakeup_all"];
    let words = [nopal().to_str().unwrap()].into_iter().chain(words);
    let found = Start::new(words.chain([trace.to_str().unwrap()])).run("");
    let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    let number = |role: &str| -> u32 {
        let (_, number) = said.split_once(role).unwrap();
        number.lines().next().unwrap().trim().parse().unwrap()
    };
    let cases = |role: &str| {
        let name = format!("thread {} ", number(role));
        let mut groups = found["groups"].as_array().unwrap().iter();
        let group = groups.find(|group| group["group"].as_str().unwrap().starts_with(&name));
        group.map_or(0, |group| group["count"].as_u64().unwrap() as usize)
    };
    // The case is the most urgent task that waits: now and then that is a thread of the kernel.
    let urgent = cases("urgent ");
    assert!(
        (ROUNDS * 9 / 10..=ROUNDS).contains(&urgent),
        "{urgent}: {found}"
    );
    assert_eq!(cases("ordinary "), 0, "{found}");
    // The trace shows how a task of another program was scheduled.
    let is_noted = |note: &Note| {
        matches!(note, Note::Task { thread, facts, .. }
            if *thread == number("urgent ") && (facts.policy, facts.rt_prio) == (libc::SCHED_FIFO as u32, 20))
    };
    assert!(Trace::open(&trace).unwrap().notes().iter().any(is_noted));
}

#[test]
fn kernel_events_of_several_processes_need_the_rights_to_see_all_tasks() {
    let open = OpenDirectory::new();
    let user = [
        "setpriv",
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
    ];
    let tool = open.directory.path().join("nopal");
    let start = |words: &[&str]| {
        let mut start = Start::new(user.into_iter().chain(words.iter().copied()));
        let directory = open.directory.path().as_os_str();
        for name in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
            start.environment.push((name.into(), directory.into()));
        }
        start
    };
    let mut programs = [(); 2].map(|()| start(&["sh", "-c", "echo begun; read line"]).spawn());
    for program in &mut programs {
        program.wait_for(|text| text.contains("begun"));
    }
    let processes = programs.each_ref().map(|program| program.id().to_string());
    let [first, second] = processes.each_ref().map(String::as_str);
    let [tool, trace] = [&tool, &open.trace()].map(|path| path.to_str().unwrap().to_owned());
    let attach = [
        &*tool,
        "attach",
        "-o",
        &trace,
        "-F",
        "read@libc*",
        first,
        second,
    ];
    let refused = "kernel events can be recorded with one process only: ";
    let ended = start(&[&attach[..], &["-e", "sched_switch"]].concat()).run("");
    assert_eq!(ended.end, End::Code(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
    // A running session refuses kernel events as well.
    let mut session = start(&attach).spawn();
    session.wait_for_error(|text| text.contains("tracing 2 processes"));
    let ended = start(&[&*tool, "ctl", first, "tracer offcpu on"]).run("");
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
    for program in &mut programs {
        drop(program.stdin());
        program.wait();
    }
    assert_eq!(session.wait().end, End::Code(0));
}
