//! Processes in PID namespaces of their own.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use nopal_tests::process::wait_until;
use nopal_tests::{
    Case, End, Ended, Program, Report, Running, Start, c, nopal, scratch, shell_word, wait_for_end,
};

/// The arguments that run a program in its own PID namespace, with its own `/proc`.
const IN_A_NAMESPACE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// A program in a PID namespace, and its arguments.
fn in_a_namespace(program: Program) -> (Program, Vec<OsString>) {
    let path = program.path.clone().into();
    let words = IN_A_NAMESPACE.into_iter().map(OsString::from);
    let unshare = Program {
        path: "unshare".into(),
        ..program
    };
    (unshare, words.chain([path]).collect())
}

/// The program's own numbers of itself and its threads differ from those outside.
#[test]
fn exec_in_a_pid_namespace() {
    let (unshare, words) = in_a_namespace(c("exec", &[]));
    for way in ["chain", "fork", "vfork", "spawn", "thread", "shell"] {
        let words = words.iter().cloned().chain([way, "10"].map(OsString::from));
        let traced = Case::new(unshare.clone()).arguments(words).check();
        assert!(!traced.said.contains("not traced"), "{}", traced.said);
        let executed = match way {
            "chain" => 1,
            "spawn" => 10,
            _ => continue,
        };
        let words = [nopal().into(), "report".into(), "--processes".into()];
        let words = words.into_iter().chain([traced.directory().into()]);
        let processes = Start::new::<OsString>(words).run("").stdout;
        let of = |child| {
            let program = format!("  exec done {child}");
            let rows = processes.lines().filter(|line| line.ends_with(&program));
            rows.count()
        };
        let found: Vec<usize> = (0..executed).map(of).collect();
        assert_eq!(found, vec![1; executed], "{way}: {processes}");
    }
}

/// Most forks end before nopal can learn their numbers outside.
#[test]
fn forks_in_a_pid_namespace_are_recorded() {
    let (unshare, words) = in_a_namespace(c("fork", &[]));
    let traced = Case::new(unshare).arguments(words).check();
    assert!(!traced.said.contains("not traced"), "{}", traced.said);
    // What stands for one outside is not the number inside.
    let read = |words: &[&str]| {
        let mut start = Start::new([nopal().as_os_str(), "report".as_ref()]);
        start.words.extend(words.iter().map(Into::into));
        start.words.push(traced.directory().into());
        start.run("").stdout
    };
    for rows_of in ["--processes", "--threads"] {
        let rows: Value = serde_json::from_str(&read(&[rows_of, "--json"])).unwrap();
        let rows = rows.as_array().unwrap().iter();
        let inner = rows.filter(|row| row["process_is_inner"] == true);
        let inner: Vec<&Value> = inner.collect();
        assert!(!inner.is_empty());
        assert!(inner.iter().all(|row| row["inside"] == row["process"]));
        let text = read(&[rows_of]);
        let unknown = text
            .lines()
            .filter(|line| line.trim_start().starts_with("- "));
        assert_eq!(unknown.count(), inner.len(), "{text}");
    }
}

/// The numbers of a thread outside of its PID namespace, and inside.
#[derive(Debug, Clone, Copy)]
struct Contained {
    process: i32,
    thread: i32,
    inside: (i32, i32),
}

/// The threads in other PID namespaces among the descendants of a process.
fn contained(started_by: i32) -> Vec<Contained> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let inside = |process: i32, thread: i32| {
        let status = read(format!("/proc/{process}/task/{thread}/status"));
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        let numbers = numbers.split_whitespace().skip(1);
        numbers.last()?.parse::<i32>().ok()
    };
    let children = read(format!("/proc/{started_by}/task/{started_by}/children"));
    let mut found = Vec::new();
    for process in children.split_whitespace().map(|id| id.parse().unwrap()) {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let thread = task.file_name().to_str().unwrap().parse().unwrap();
            if let (Some(own), Some(number)) = (inside(process, process), inside(process, thread)) {
                found.push(Contained {
                    process,
                    thread,
                    inside: (own, number),
                });
            }
        }
        found.extend(contained(process));
    }
    found
}

/// Asserts that readers name two processes of two threads each by their numbers outside, and show those inside.
fn assert_named_as_outside(trace: &Path, threads: &[Contained]) {
    let rows = |words: &[&str]| {
        let words = words.iter().map(OsString::from).chain([trace.into()]);
        let ended = Start::new(
            [nopal().into(), "report".into(), "--json".into()]
                .into_iter()
                .chain(words),
        )
        .run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        let rows: Value = serde_json::from_str(&ended.stdout).expect("the report is JSON");
        rows.as_array().expect("an array").clone()
    };
    let (of_threads, of_processes) = (rows(&["--threads"]), rows(&["--processes"]));
    // The first thread has a row for each program that it ran.
    for of in threads {
        let is_one = |row: &&Value| row["thread"] == of.thread;
        let found: Vec<&Value> = of_threads.iter().filter(is_one).collect();
        assert!(!found.is_empty(), "{of:?}: {of_threads:?}");
        for row in found {
            assert_eq!(row["process"], of.process, "{of:?}: {of_threads:?}");
            assert_eq!(row["inside"], of.inside.1, "{of:?}: {of_threads:?}");
        }
        let is_its = |row: &&Value| row["process"] == of.process;
        let found: Vec<&Value> = of_processes.iter().filter(is_its).collect();
        assert_eq!(found.len(), 1, "{of:?}: {of_processes:?}");
        assert_eq!(found[0]["inside"], of.inside.0, "{of:?}: {of_processes:?}");
        let of_tid = rows(&["--tid", &of.thread.to_string()]);
        let first = of.thread == of.process;
        let function = match (of.inside.0, first) {
            (1, true) => "parent_first",
            (1, false) => "parent_second",
            (_, true) => "child_first",
            (_, false) => "child_second",
        };
        assert!(
            of_tid.iter().any(|row| row["function"] == function),
            "{of:?}: {of_tid:?}"
        );
    }
    let is_inner = |row: &&Value| threads.iter().any(|of| row["process"] == of.inside.0);
    assert_eq!(of_processes.iter().find(is_inner), None);
    assert_eq!(of_threads.iter().find(is_inner), None);
}

/// Waits until the trace names the threads of two processes of two threads each.
fn wait_for_contained(running: &mut Running, trace: &Path) -> Vec<Contained> {
    let (started_by, mut threads) = (running.id(), Vec::new());
    running.wait_until(|| {
        threads = contained(started_by);
        let notes = std::fs::read_to_string(trace.join("session/notes")).unwrap_or_default();
        let is_named = |of: &Contained| {
            let note = format!(
                "\"Thread\":{{\"process\":{},\"thread\":{},",
                of.process, of.thread
            );
            notes.contains(&note)
        };
        threads.len() == 4 && threads.iter().all(is_named)
    });
    threads
}

#[test]
fn threads_in_a_pid_namespace_are_named_as_outside() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let (unshare, words) = in_a_namespace(c("contained", &[]));
    let mut traced = Case::new(unshare).arguments(words).spawn(&trace);
    let mut stdin = traced.stdin();
    stdin.write_all(b"\n").unwrap();
    let threads = wait_for_contained(&mut traced, &trace);
    drop(stdin);
    let ended = traced.wait();
    assert_eq!(ended.end, End::Code(0), "{ended:?}");
    assert_named_as_outside(&trace, &threads);
}

/// The guardian writes the missing notes about threads after these have ended.
#[test]
fn threads_in_a_pid_namespace_have_one_name_when_nopal_is_killed() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let (unshare, words) = in_a_namespace(c("contained", &[]));
    let case = Case::new(unshare).arguments(words);
    let mut traced = case.spawn(&trace);
    let mut stdin = traced.stdin();
    stdin.write_all(b"\n").unwrap();
    let threads = wait_for_contained(&mut traced, &trace);
    let expected = case.expected(&Ended {
        stdout: String::new(),
        stderr: String::new(),
        end: End::Code(0),
    });
    let is_whole = || {
        let report = Report::of(&trace);
        expected
            .iter()
            .all(|(function, calls)| report.calls(function) == *calls)
    };
    traced.wait_until(is_whole);
    let send = |process: i32, signal: i32| {
        // SAFETY: signals processes of this test.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    };
    let first = threads.iter().find(|of| of.inside == (1, 1)).unwrap();
    send(traced.id(), libc::SIGSTOP);
    // All others of its namespace end with it.
    send(first.process, libc::SIGKILL);
    wait_until("the namespace is gone", || {
        let is_gone = |of: &Contained| !Path::new(&format!("/proc/{}", of.process)).exists();
        threads.iter().all(is_gone)
    });
    send(traced.id(), libc::SIGKILL);
    wait_for_end(&trace);
    Report::of(&trace).assert_calls(&expected);
    assert_named_as_outside(&trace, &threads);
    drop(stdin);
}

#[test]
fn threads_in_a_pid_namespace_that_nopal_attaches_to_are_named_as_outside() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let program = c("contained", &[]);
    let case = Case::new(program.clone());
    let (unshare, words) = in_a_namespace(program);
    let mut running = Case::new(unshare).arguments(words).untraced_start().spawn();
    let (mut stdin, started_by) = (running.stdin(), running.id());
    let mut first = 0;
    running.wait_until(|| {
        let process = contained(started_by).first().map(|of| of.process);
        first = process.unwrap_or(0);
        let name = std::fs::read_to_string(format!("/proc/{first}/comm"));
        name.is_ok_and(|name| name == "contained\n")
    });
    let mut tool = case.attach(first, &trace);
    stdin.write_all(b"\n").unwrap();
    let threads = wait_for_contained(&mut running, &trace);
    drop(stdin);
    assert_eq!(running.wait().end, End::Code(0));
    assert_eq!(tool.wait().end, End::Code(0));
    assert_named_as_outside(&trace, &threads);
}

/// Both processes live when the first one executes a program.
#[test]
fn exec_by_forks_that_have_the_same_ids() {
    let traced = Case::new(c("same_ids", &[])).check();
    assert!(!traced.said.contains("not traced"), "{}", traced.said);
}

/// As with a container, nopal is outside, and the process has other numbers and files.
#[test]
fn exec_in_a_pid_namespace_that_nopal_attaches_to() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("exec", &[])).arguments(["spawn", "10"]);
    let script = format!("read line; {} spawn 10", shell_word(&case.program().path));
    let words = IN_A_NAMESPACE.into_iter().chain(["sh", "-c", &script]);
    let mut program = Start::new(["unshare"].into_iter().chain(words)).spawn();
    let children = format!("/proc/{0}/task/{0}/children", program.id());
    let shell = || {
        std::fs::read_to_string(&children)
            .unwrap_or_default()
            .trim()
            .parse::<i32>()
    };
    wait_until("the shell runs", || {
        let name = shell().map(|shell| std::fs::read_to_string(format!("/proc/{shell}/comm")));
        matches!(name, Ok(Ok(name)) if name == "sh\n")
    });
    let mut tool = case.attach(shell().expect("a process"), &trace);
    writeln!(program.stdin(), "go").unwrap();
    let ended = program.wait();
    let said = tool.wait().stderr;
    assert_eq!(ended.end, End::Code(0), "{ended:?}");
    assert!(!said.contains("not traced"), "{said}");
    Report::of(&trace).assert_calls(&case.expected(&ended));
}
