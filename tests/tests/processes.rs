//! New processes and new programs.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nopal_tests::process::wait_until;
use nopal_tests::{
    AttachedProgram, Awake, Case, End, Program, Report, Start, announced_calls, c, nopal, scratch,
    shell_word, without_own_words,
};

fn exec(way: &str, often: &str) -> Case {
    Case::new(c("exec", &[])).arguments([way, often])
}

fn read(words: &[&str], trace: &Path) -> String {
    let mut start = Start::new([nopal()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.push(trace.into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

/// A child may have fewer rights than its parent, and be somebody else's by now.
#[test]
fn a_child_cannot_change_the_code_that_its_parent_runs() {
    Case::new(c("trespasses", &[])).check();
}

#[test]
fn fork_by_library_and_by_system_call() {
    let traced = Case::new(c("fork", &[])).check();
    let children = 91;
    let threads = read(&["report", "--threads"], &traced.directory());
    let rows = threads
        .lines()
        .skip(1)
        .take_while(|line| line.contains("  fork"));
    assert_eq!(rows.count(), children + 2, "{threads}");
    assert!(!threads.contains('?'), "{threads}");
    let info = read(&["info"], &traced.directory());
    assert!(info.contains("(72 more)") && !info.contains('?'), "{info}");
}

#[test]
fn fork_and_exec() {
    exec("fork", "10").check();
}

#[test]
fn vfork() {
    exec("vfork", "10").check();
}

#[test]
fn posix_spawn() {
    exec("spawn", "10").check();
}

#[test]
fn a_chain_of_exec() {
    let programs = 11;
    let traced = exec("chain", "10").check();
    let info = read(&["info"], &traced.directory());
    let rows: Vec<Vec<&str>> = info
        .lines()
        .skip_while(|line| !line.starts_with("process  "))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), programs, "{info}");
    let (last, before) = rows.split_last().unwrap();
    assert!(
        before.iter().all(|row| row[2..4] == ["1", "exec"]),
        "{info}"
    );
    assert_eq!(last[2..4], ["1", "status"], "{info}");
    // It is one thread all the time.
    let fact = info.lines().find(|line| line.starts_with("threads "));
    assert_eq!(fact.unwrap().split_whitespace().nth(1), Some("1"), "{info}");
    let processes = read(&["report", "--processes", "--json"], &traced.directory());
    let processes: serde_json::Value = serde_json::from_str(&processes).unwrap();
    assert_eq!(processes[0]["threads"], 1, "{processes}");
}

/// The first process gets functions that the session did not know.
#[test]
fn exec_of_another_program() {
    let calls = c("calls", &[]);
    let itself = Case::new(calls.clone()).check().report.calls("fib");
    assert!(itself > 0);
    let command = format!("exec {}", shell_word(&calls.path));
    for (program, words) in [
        ("env", vec![calls.path.into_os_string()]),
        ("sh", vec!["-c".into(), command.into()]),
    ] {
        let case = Case::new(Program::installed(program)).arguments(words);
        assert_eq!(case.check().report.calls("fib"), itself, "{program}");
    }
}

#[test]
fn exec_of_a_descriptor() {
    exec("fd", "1").check();
}

#[test]
fn exec_by_system_call() {
    exec("raw", "1").check();
}

#[test]
fn exec_with_another_environment() {
    exec("environment", "1").check();
}

#[test]
fn exec_from_a_thread() {
    exec("thread", "1").check();
}

#[test]
fn exec_that_fails() {
    exec("fails", "20").check();
}

#[test]
fn shells_and_pipes() {
    exec("shell", "5").check();
}

/// nopal reports whether it met a program, and the process goes on with its own programs. If nopal is slow, the last
/// program may have ended before it attaches.
#[test]
fn a_process_that_executes_programs_while_nopal_attaches() {
    const TRIES: u64 = 12;
    let mut met = 0;
    for number in 0..TRIES {
        let way = if number % 2 == 0 { "main" } else { "thread" };
        let case = Case::new(c("successions", &[])).arguments(["40", way]);
        let mut program = case.untraced_start().spawn();
        std::thread::sleep(std::time::Duration::from_millis(7 * number));
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let mut start = Start::new([nopal()]);
        let words = ["attach", "--for", "100ms", "-o"].map(Into::into);
        start.words.extend(words);
        start.words.push(trace.clone().into());
        let id = program.id();
        start.words.push(id.to_string().into());
        let ended = start.run("");
        let is_over = program.has_ended();
        let of_program = program.wait();
        let what = format!("try {number}: {ended:?}, {of_program:?}");
        assert_eq!(of_program.end, End::Code(7), "{what}");
        assert_eq!(of_program.stdout, "the last one\n", "{what}");
        assert_eq!(of_program.stderr, "", "{what}");
        let has_just_begun = ended.stderr.contains("no thread control block");
        let refused = |why: &str| format!("nopal: process {id} is not traced: the process {why}");
        let begins = match ended.end {
            End::Code(0) => "nopal: tracing process ".to_owned(),
            _ if is_over && ended.stderr.contains("has ended") => "nopal: ".to_owned(),
            _ if has_just_begun => refused("has no thread control block: try again"),
            _ => refused("is executing another program: try again\n"),
        };
        assert!(ended.stderr.starts_with(&begins), "{what}");
        met += u64::from(ended.end == End::Code(0));
    }
    println!("met a program in {met} of {TRIES} tries");
}

#[test]
fn exec_that_is_not_followed() {
    let traced = exec("chain", "10").options(["--no-follow"]).traced();
    assert_eq!(traced.ended.end, nopal_tests::End::Code(17));
    assert_eq!(
        (traced.report.calls("work"), traced.report.calls("report")),
        (1, 0)
    );
}

#[test]
fn children_that_share_memory_and_thread_area() {
    Case::new(c("shared_clone", &[])).check();
}

/// Processes that share memory stop as well while nopal changes text that they execute.
#[test]
fn processes_in_the_memory_of_another_while_nopal_comes_and_goes() {
    for way in ["children", "siblings", "orphans"] {
        let case = Case::new(c("sharers", &["-DHOLD"])).arguments([way]);
        case.check_come_and_go();
    }
}

/// The children wait for nopal, which begins with one after the other.
#[test]
fn children_of_many_threads_at_once_are_recorded_or_told_of() {
    let own = c("spawning", &[]).path;
    let own = own.to_str().expect("a plain path");
    // Events lost for lack of room would be missing in both numbers.
    let case = Case::new(c("spawning", &[]))
        .options(["--buffer", "256M"])
        .arguments(["50", "500", own, "1", "0", "x"]);
    let traced = case.unchanged();
    assert_eq!(traced.report.calls("execute"), 500);
    // All children execute a program.
    let (_, reported) = reported(&traced.said);
    // Each child makes one thread, which has nothing to execute.
    let recorded = traced.report.calls("spawn") - 50;
    assert_eq!(recorded + reported, 500, "{}", traced.said);
    assert!(!traced.said.contains("namespace"), "{}", traced.said);
}

/// How many programs nopal reports as not traced, at least and at most: of some it does not know whether their execution
/// failed.
fn reported(said: &str) -> (u64, u64) {
    let reported = |line: &str| {
        let (count, _) = line.split_once(" program")?;
        let count = count.strip_prefix("nopal: ")?.replace(',', "");
        let is_bound = count.starts_with("up to ");
        let most: u64 = count.trim_start_matches("up to ").parse().ok()?;
        Some(if is_bound { (0, most) } else { (most, most) })
    };
    let lines = said.lines().filter_map(reported);
    lines.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// The number of children of each kind.
const CHILDREN: u64 = 10;

/// A case of 30 threads that execute programs of many kinds, below a folder.
fn of_many_kinds(folder: &Path) -> Case {
    let program = c("kinds", &["-DHOLD"]);
    let path = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let own = program.path.to_str().expect("a plain path").to_owned();
    std::os::unix::fs::symlink(&own, path("again")).unwrap();
    let elf = std::fs::read(&own).unwrap();
    for (name, content, mode) in [
        ("script", format!("#!{own}\n").as_bytes(), 0o755),
        ("owners", &elf, 0o4755),
        ("narrow", &ends_with_7(), 0o755),
        ("denied", &elf, 0o644),
        ("text", b"text", 0o755),
    ] {
        std::fs::write(path(name), content).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let fixed = c("kinds", &["-static"]).path;
    let fixed = fixed.to_str().expect("a plain path").to_owned();
    let names = [
        "again", "script", "owners", "narrow", "denied", "text", "missing",
    ];
    let words = ["30".to_owned(), CHILDREN.to_string()];
    let killed = format!("-{own}");
    let programs = [own, killed, fixed].into_iter();
    Case::new(program).arguments(words.into_iter().chain(programs).chain(names.map(path)))
}

/// A 32-bit program.
fn ends_with_7() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: [u8; 12] = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let halves = |all: &[u16]| {
        all.iter()
            .flat_map(|half| half.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let words = |all: &[u32]| {
        all.iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let size = 52 + 32 + CODE.len() as u32;
    let parts = [
        b"\x7fELF\x01\x01\x01".to_vec(),
        vec![0; 9],
        halves(&[2, 3]),
        words(&[1, BASE + 52 + 32, 52, 0, 0]),
        halves(&[52, 32, 1, 0, 0, 0]),
        words(&[1, 0, BASE, BASE, size, size, 5, 4096]),
        CODE.to_vec(),
    ];
    parts.concat()
}

/// Asserts that each child is recorded or reported; a killed one may be reported, or may have ended too early. A kind
/// that ended with 7 has run.
fn all_are_accounted_for(stdout: &str, report: &Report, said: &str) {
    let ran = stdout.lines().filter(|line| line.ends_with("status 7"));
    let expected = CHILDREN * ran.count() as u64;
    assert!(expected >= 5 * CHILDREN, "{stdout}");
    let recorded = report.calls("ran");
    let (least, most) = reported(said);
    let (least, most) = (recorded + least, recorded + most);
    // Programs that execute another may be reported twice.
    assert!(
        least <= expected + 2 * CHILDREN && expected <= most,
        "{least} to {most} of {expected}: {said}"
    );
    assert!(!said.contains("namespace"), "{said}");
}

#[test]
fn children_of_many_kinds_are_recorded_or_reported() {
    for options in [&[][..], &["--libs"]] {
        let folder = scratch();
        let case = of_many_kinds(folder.path()).options(options);
        let traced = case.unchanged();
        all_are_accounted_for(&traced.ended.stdout, &traced.report, &traced.said);
    }
}

#[test]
fn children_of_many_kinds_are_recorded_or_reported_when_attached() {
    let folder = scratch();
    let hold = folder.path().join("go");
    let trace = folder.path().join("trace");
    let case = of_many_kinds(folder.path()).environment("HOLD", &hold);
    let program = case.untraced_start().spawn();
    let process = program.id();
    wait_until("the program holds", || {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
        name.is_ok_and(|name| name.starts_with("kinds"))
    });
    let mut tool = case.attach(process, &trace);
    std::fs::write(&hold, "").unwrap();
    let mut program = program;
    let ended = program.wait();
    let (_, said) = without_own_words(tool.wait());
    assert_eq!(ended.end, End::Code(0), "{}", ended.stdout);
    all_are_accounted_for(
        &announced_calls(&ended.stdout).0,
        &Report::of(&trace),
        &said,
    );
}

/// Those that it had started before have ended by the time at which nopal says that it is attached.
#[test]
fn no_process_is_called_untraced_that_is_recorded() {
    let attached = AttachedProgram::new(c("server", &[]), &[]);
    wait_until("children are recorded", || {
        let entries = attached.wait_for("#traceinhits ");
        entries.parse::<u64>().unwrap() > 100
    });
    let (scratch, ended) = attached.end();
    let text = read(
        &["report", "--processes", "--json"],
        &scratch.path().join("trace"),
    );
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let calls = rows.as_array().unwrap().iter();
    let recorded: Vec<u64> = calls
        .filter(|row| row["calls"].as_u64().unwrap() > 0)
        .map(|row| row["process"].as_u64().unwrap())
        .collect();
    assert!(recorded.len() > 1, "{text}");
    let lines = ended
        .stderr
        .lines()
        .filter(|line| line.contains("not traced"));
    for line in lines {
        let (_, named) = line.split_once("before: ").expect(line);
        for process in named.split(", ") {
            let number: u64 = process.split(' ').next().unwrap().parse().unwrap();
            assert!(!recorded.contains(&number), "{line}");
        }
    }
}

/// Options that select the functions of the example's three processes, wherever they are loaded.
const REQUESTS: [&str; 9] = [
    "--args",
    "-F",
    "ask@request*",
    "-F",
    "look_up@request*",
    "-F",
    "serve@request*",
    "-F",
    "note@request*",
];
const SECTION: &str = "ask.arg1..note.arg1";

/// A shell command of three processes through which 20 requests pass; two take 50 ms in the second process.
fn pipeline() -> String {
    let program = shell_word(&c("request", &[]).path);
    format!("{program} ask 20 | {program} serve | {program} note")
}

/// The process number that this role printed.
fn process(said: &str, role: &str) -> u32 {
    let numbers = said.lines().filter_map(|line| line.strip_prefix(role));
    let mut numbers = numbers.filter_map(|number| number.trim().parse().ok());
    numbers.next().unwrap_or_else(|| panic!("{role}: {said}"))
}

/// Asserts that each request is a case from first process to last, and that the picture of the longest has all three.
fn assert_requests(trace: &Path, said: &str) {
    let found: serde_json::Value =
        serde_json::from_str(&read(&["hist", "--json", SECTION], trace)).unwrap();
    let [all] = &found["groups"].as_array().unwrap()[..] else {
        panic!("{found}");
    };
    assert_eq!(all["count"], 20, "{found}");
    assert!(all["max"].as_u64().unwrap() >= 50_000_000, "{found}");
    let [ask, serve, note] = ["ask ", "serve ", "note "].map(|role| process(said, role));
    let picture = read(&["plot", "timeline", "--section", SECTION], trace);
    for text in ["ask", "look_up", "serve", "note"] {
        assert!(
            picture.contains(&format!("\n{text}\n")),
            "{text}: {picture}"
        );
    }
    for process in [ask, serve, note] {
        assert!(picture.contains(&format!("thread {process} ")), "{picture}");
    }
    let (_, case) = picture.split_once("The longest of 20 cases of ").unwrap();
    let ends = [format!("-{ask} to "), format!("-{note}.")];
    assert!(ends.iter().all(|end| case.contains(end)), "{picture}");
}

#[test]
fn a_request_is_a_case_through_the_processes_of_a_pipeline() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut start = Start::new([nopal().as_os_str(), "record".as_ref()]);
    start.words.extend(REQUESTS.map(Into::into));
    start.words.extend(["-o".into(), trace.clone().into()]);
    start
        .words
        .extend(["--", "sh", "-c", &pipeline()].map(Into::into));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_requests(&trace, &ended.stderr);
}

#[test]
fn a_request_is_a_case_through_processes_that_one_session_is_attached_to() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut running = Start::new(["sh", "-c", &pipeline()]).spawn();
    let roles = ["ask ", "serve ", "note "];
    let said = running.wait_for_error(|text| roles.iter().all(|role| text.contains(role)));
    let mut start = Start::new([nopal().as_os_str(), "attach".as_ref()]);
    start.words.extend(REQUESTS.map(Into::into));
    start.words.extend(["-o".into(), trace.clone().into()]);
    let processes = roles.map(|role| process(&said, role).to_string());
    start.words.extend(processes.map(Into::into));
    let mut tool = start.spawn();
    tool.wait_for_error(|text| text.contains("tracing 3 processes"));
    running.stdin().write_all(b"go\n").unwrap();
    assert_eq!(running.wait().end, End::Code(0));
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_requests(&trace, &said);
}

/// Records three processes through which requests pass, and returns their numbers.
fn slow_requests(options: &[&str], trace: &Path) -> Vec<u64> {
    let program = c("slow_requests", &[]).path;
    let mut start = Start::new([nopal().as_os_str(), "record".as_ref(), "--args".as_ref()]);
    for function in ["ask", "serve", "grind", "doze", "note", "read", "write"] {
        start.words.extend(["-F", function].map(Into::into));
    }
    start.words.extend(options.iter().map(Into::into));
    start
        .words
        .extend(["-o".into(), trace.into(), program.into()]);
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let numbers = ended.stdout.split_whitespace();
    numbers.map(|number| number.parse().unwrap()).collect()
}

fn requests(words: &[&str], trace: &Path) -> String {
    let mut start = Start::new([nopal().as_os_str(), "requests".as_ref(), SECTION.as_ref()]);
    start.words.extend(words.iter().map(Into::into));
    start.words.push(trace.into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

fn requests_as_json(words: &[&str], trace: &Path) -> Vec<serde_json::Value> {
    let text = requests(&[words, &["--json"]].concat(), trace);
    serde_json::from_str(&text).expect("valid JSON")
}

/// The function with the largest share of a time.
fn most(of: &serde_json::Value) -> &str {
    let spent = of["spent_ns"].as_object().unwrap().iter();
    let most = spent.max_by_key(|(_, ns)| ns.as_u64());
    most.map_or("", |(function, _)| function)
}

/// The planted requests in the program's order: one sleeps, one computes.
const PLANTED: [(&str, &str); 2] = [("7", "doze"), ("3", "grind")];

#[test]
fn the_slowest_requests_come_first_with_what_other_processes_did_meanwhile() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let [first, second, third] = slow_requests(&[], &trace)[..] else {
        panic!();
    };
    let found = requests_as_json(&["--until", "99%"], &trace);
    let whole = || found.iter().filter(|one| one["is_least"] != true);
    let took = |one: &serde_json::Value| one["duration_ns"].as_u64().unwrap();
    assert!(whole().map(took).is_sorted_by(|one, next| one >= next));
    // Any other request may have waited longer for a processor.
    for (value, function) in PLANTED {
        let request = whole().find(|one| one["value"] == value);
        let request = request.unwrap_or_else(|| panic!("{value}: {found:?}"));
        assert_eq!(
            (&request["process"], &request["end_process"]),
            (&first.into(), &third.into())
        );
        let others = request["others"].as_array().unwrap();
        let [other] = &others[..] else {
            panic!("{request}");
        };
        assert_eq!(
            (&other["process"], most(other)),
            (&second.into(), function),
            "{request}"
        );
        assert!(request.get("wait_ns").is_none(), "{request}");
    }
    let text = requests(&[], &trace);
    assert!(
        text.contains("# ask.arg1..note.arg1: 1 case had not ended when the trace ended"),
        "{text}"
    );
    assert!(
        text.contains("of the clock") && text.contains(": doze "),
        "{text}"
    );
    let text = requests(&["--value", "11"], &trace);
    let first = text.lines().find(|line| line.contains("value 11"));
    assert!(first.is_some_and(|line| line.contains("≥ ")), "{text}");
}

/// Records until the kernel has reported, for the planted requests, at all times whether threads ran: it omits switches
/// from idle processors, and some others on busy machines.
fn requests_with_all_switches(trace: &Path) -> Vec<u64> {
    for _ in 0..40 {
        let awake = Awake::new();
        let processes = slow_requests(&["-e", "sched"], trace);
        drop(awake);
        let is_told = |(value, _): &(&str, &str)| {
            let found = requests_as_json(&["--value", value], trace);
            found.iter().all(|request| request["cpu_or_wait_ns"] == 0)
        };
        if PLANTED.iter().all(is_told) {
            return processes;
        }
    }
    panic!("the kernel was silent in each of forty recordings");
}

#[test]
fn the_critical_path_of_a_request_leads_through_the_processes_that_it_waited_for() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let processes = requests_with_all_switches(&trace);
    for (value, function) in PLANTED {
        let found = requests_as_json(&["--value", value], &trace);
        let [request] = &found[..] else {
            panic!("{found:?}");
        };
        let path = request["path"].as_array().unwrap();
        let of_path = path.iter().map(|step| step["process"].as_u64().unwrap());
        assert_eq!(of_path.collect::<Vec<_>>(), processes, "{request}");
        assert_eq!(
            (most(request), most(&path[1])),
            (function, function),
            "{request}"
        );
        let number = |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap();
        let step = &path[1];
        match function {
            "doze" => assert!(number(step, "blocked_ns") >= 950_000_000, "{request}"),
            _ => assert!(number(step, "cpu_ns") >= 190_000_000, "{request}"),
        }
        // Steps follow each other, and make up the whole. Moments use the counter's rate at the time, durations its
        // mean.
        let bound = 3 + path.len() as u64 + number(request, "duration_ns") / 100_000;
        let mut now = number(request, "begin_ns");
        for step in path {
            assert!(number(step, "begin_ns").abs_diff(now) <= bound, "{request}");
            now = number(step, "begin_ns") + number(step, "duration_ns");
        }
        let end = number(request, "begin_ns") + number(request, "duration_ns");
        assert!(now.abs_diff(end) <= bound, "{request}");
    }
    let text = requests(&["--value", "7"], &trace);
    let replay = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("replay  nopal "));
    // The command's words are quoted for a shell.
    let line = format!("\"$0\" {}", replay.unwrap());
    let nopal = nopal();
    let words: [&OsStr; 4] = [
        "sh".as_ref(),
        "-c".as_ref(),
        line.as_ref(),
        nopal.as_os_str(),
    ];
    let replayed = Start::new(words).run("");
    let called = |function: &str| replayed.stdout.contains(&format!("{function}("));
    assert!(
        ["ask", "serve", "doze", "note"].into_iter().all(called),
        "{}",
        replayed.stdout
    );
    assert!(!called("grind"), "{}", replayed.stdout);
}
