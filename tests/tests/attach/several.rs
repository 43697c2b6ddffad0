//! One session of several processes: by their numbers, a name, or a control group.

use super::{interrupt, running};
use nopal_tests::process::{assert_nothing_left, is_text_changed, nopals_mappings, wait_until};
use nopal_tests::{Case, End, Program, Report, Running, Start, c, nopal, scratch};
use nopal_trace::{KernelEvent, KernelRecord, Note, Trace};
use std::io::Write;
use std::path::Path;
use std::process::ChildStdin;
use std::time::Duration;

/// Starts three programs, in each of which a phase makes 1,000 calls of `leaf`.
fn three(case: &Case) -> [Running; 3] {
    std::array::from_fn(|_| running(case, "phase 0"))
}

/// Attaches one session to processes.
fn attach_to_all(processes: &[String], trace: &Path) -> Running {
    let nopal = nopal().to_str().unwrap().to_owned();
    let options = ["attach", "-o", trace.to_str().unwrap()].map(str::to_owned);
    let words = [nopal].into_iter().chain(options);
    let mut tool = Start::new(words.chain(processes.iter().cloned())).spawn();
    tool.wait_for_error(|text| text.contains("nopal: tracing "));
    tool
}

#[test]
fn one_session_records_several_processes() {
    let scratch = scratch();
    let case = Case::new(c("phases", &[]));
    let mut programs = three(&case);
    let mut traced = running(&case, "phase 0");
    let mut stdins = programs.each_mut().map(|program| program.stdin());
    let other = case.attach(traced.id(), &scratch.path().join("other"));
    let trace = scratch.path().join("trace");
    let [first, second, third] = programs.each_ref().map(|program| program.id().to_string());
    let elsewhere = traced.id().to_string();
    let none = "4194304".to_owned();
    let asked = [&elsewhere, &first, &second, &none, &first, &third].map(String::clone);
    let tool = attach_to_all(&asked, &trace);
    for (program, stdin) in programs.iter_mut().zip(&mut stdins) {
        assert!(is_text_changed(program.id()));
        stdin.write_all(b"on\n").unwrap();
        program.wait_for(|text| text.contains("phase 1\n"));
    }
    // The session outlives each of them, also the one that it began with.
    let [first_in, second_in, third_in] = stdins;
    drop(first_in);
    assert_eq!(programs[0].wait().end, End::Code(5));
    assert!(is_text_changed(programs[1].id()));
    let ended = interrupt(tool);
    let said = |text: &str| assert!(ended.stderr.contains(text), "{text}:\n{}", ended.stderr);
    said("tracing 3 processes; Ctrl-C ends it");
    said(&format!(
        "process {elsewhere} is not traced: process {elsewhere} is already traced by nopal"
    ));
    said(&format!("process {none} is not traced: "));
    assert!(!ended.stderr.contains("started before"), "{}", ended.stderr);
    for (program, stdin) in programs[1..].iter_mut().zip([second_in, third_in]) {
        assert_nothing_left(program.id());
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
    let report = Report::of(&trace);
    assert_eq!(report.calls("leaf"), 3 * 1000);
    let words = [
        nopal().to_str().unwrap(),
        "report",
        "--processes",
        trace.to_str().unwrap(),
    ];
    let rows = Start::new(words).run("").stdout;
    for process in [first, second, third] {
        assert!(rows.contains(&process), "{process}:\n{rows}");
    }
    interrupt(other);
    drop(traced.stdin());
    traced.wait();
}

#[test]
fn a_session_of_several_ends_with_the_last_or_is_removed_from_all() {
    let scratch = scratch();
    let case = Case::new(c("phases", &[]));
    for is_killed in [false, true] {
        let mut programs = three(&case);
        let stdins = programs.each_mut().map(|program| program.stdin());
        let processes = programs.each_ref().map(|program| program.id().to_string());
        let trace = scratch.path().join(format!("trace-{is_killed}"));
        let mut tool = attach_to_all(&processes, &trace);
        if is_killed {
            tool.signal_group(libc::SIGKILL);
            tool.wait();
            for program in &programs {
                wait_until("nopal is removed", || {
                    nopals_mappings(program.id()).is_empty()
                });
                assert_nothing_left(program.id());
            }
        }
        drop(stdins);
        for program in &mut programs {
            assert_eq!(program.wait().end, End::Code(5));
        }
        if !is_killed {
            let ended = tool.wait();
            assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        }
    }
}

#[test]
fn processes_with_the_same_code_at_the_same_addresses() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut program = running(&Case::new(c("siblings", &[])), "ready");
    let said = program.wait_for(|text| text.contains("ready\n"));
    let numbers = said
        .lines()
        .filter_map(|line| line.strip_prefix("process "));
    let processes: Vec<String> = numbers.map(str::to_owned).collect();
    assert_eq!(processes.len(), 3, "{said}");
    let mut tool = attach_to_all(&processes, &trace);
    // Counting needs what lies at another address in the last one.
    for command in ["trace leaf new l", "trace l count"] {
        let ctl = [nopal().to_str().unwrap(), "ctl", &processes[0], command];
        let answered = Start::new(ctl).run("");
        assert_eq!(answered.end, End::Code(0), "{}", answered.stderr);
    }
    program.stdin().write_all(b"on\n").unwrap();
    assert_eq!(program.wait().end, End::Code(5));
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_eq!(Report::of(&trace).calls("leaf"), 1000 + 2000 + 3000);
}

#[test]
fn where_no_process_can_be_traced_each_has_its_reason() {
    let words = [nopal().to_str().unwrap(), "attach", "4194304", "4194303"];
    let ended = Start::new(words).run("");
    assert_eq!(ended.end, End::Code(1));
    for process in ["4194304", "4194303"] {
        let reason = format!("process {process} is not traced: ");
        assert!(ended.stderr.contains(&reason), "{}", ended.stderr);
    }
}

#[test]
fn tracepoints_are_of_one_process() {
    let words = ["attach", "-e", "exceptions", "1", "2"];
    let ended = Start::new(std::iter::once(nopal().to_str().unwrap()).chain(words)).run("");
    assert_eq!(ended.end, End::Code(1));
    let reason = "can be recorded with one process only (-k, -e GROUP)";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
}

#[test]
fn switches_of_several_processes_are_recorded() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut programs = three(&Case::new(c("phases", &[])));
    let mut stdins = programs.each_mut().map(|program| program.stdin());
    let processes = programs.each_ref().map(|program| program.id().to_string());
    let options = ["-e".to_owned(), "sched".to_owned()];
    let tool = attach_to_all(&[&options[..], &processes].concat(), &trace);
    for (program, stdin) in programs.iter_mut().zip(&mut stdins) {
        stdin.write_all(b"on\n").unwrap();
        program.wait_for(|text| text.contains("phase 1\n"));
    }
    drop(stdins);
    for program in &mut programs {
        assert_eq!(program.wait().end, End::Code(5));
    }
    let mut tool = tool;
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    // Each thread has left its processor, which every kernel reports.
    let trace = Trace::open(&trace).unwrap();
    let processors: Vec<_> = trace.processors().collect();
    for process in programs.each_ref().map(|program| program.id() as u32) {
        let left = |record: KernelRecord| matches!(record.event, KernelEvent::Switch { previous, .. } if previous.thread == process);
        assert!(processors.iter().any(|one| one.events().any(left)));
    }
}

#[test]
fn a_function_may_be_in_any_of_several_processes() {
    let scratch = scratch();
    let mut sleeping = Start::new(["sh", "-c", "echo begun; read line"]).spawn();
    sleeping.wait_for(|text| text.contains("begun"));
    let mut program = running(&Case::new(c("phases", &[])), "phase 0");
    let mut stdin = program.stdin();
    let processes = [sleeping.id(), program.id()].map(|process| process.to_string());
    let trace = scratch.path().join("trace");
    let options = ["-F".to_owned(), "leaf".to_owned()];
    let tool = attach_to_all(&[&processes[..], &options].concat(), &trace);
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    interrupt(tool);
    let report = Report::of(&trace);
    assert_eq!((report.calls("leaf"), report.total_calls()), (1000, 1000));
    drop(stdin);
    program.wait();
    drop(sleeping.stdin());
    sleeping.wait();
}

#[test]
fn children_and_their_children_are_recorded_too() {
    let scratch = scratch();
    let script =
        r#"exec 3<&0; sh -c 'sh -c "echo begun; read line <&3; exit" & wait; exit' & wait"#;
    let mut parent = Start::new(["sh", "-c", script]).spawn();
    parent.wait_for(|text| text.contains("begun"));
    let options = ["--children".to_owned(), parent.id().to_string()];
    let tool = attach_to_all(&options, &scratch.path().join("trace"));
    let ended = interrupt(tool);
    assert!(
        ended.stderr.contains("tracing 3 processes"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("started before"), "{}", ended.stderr);
    parent.signal_group(libc::SIGTERM);
    parent.wait();
}

/// Starts a program under a unique name.
fn named(name: &str, directory: &Path) -> impl Fn() -> Running {
    named_of(&c("phases", &[]), name, directory)
}

fn named_of(program: &Program, name: &str, directory: &Path) -> impl Fn() -> Running + use<> {
    let file = directory.join(name);
    std::fs::copy(&program.path, &file).unwrap();
    move || {
        let mut program = Start::new([file.as_os_str()]).spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        program
    }
}

/// Waits until a session traces a newcomer, and answers again.
fn wait_for_newcomer(newcomer: i32, first: &Running) {
    wait_until("a newcomer is traced", || is_text_changed(newcomer));
    let words = [
        nopal().to_str().unwrap().to_owned(),
        "ctl".to_owned(),
        first.id().to_string(),
    ];
    assert_eq!(Start::new(words).run("").end, End::Code(0));
}

/// Runs one phase of each program.
fn on(programs: &mut [Running]) -> Vec<ChildStdin> {
    let stdins = programs.iter_mut().map(|program| {
        let mut stdin = program.stdin();
        stdin.write_all(b"on\n").unwrap();
        program.wait_for(|text| text.contains("phase 1\n"));
        stdin
    });
    stdins.collect()
}

#[test]
fn processes_of_a_name_are_recorded_also_those_that_come_later() {
    let scratch = scratch();
    let name = format!("named-{}", std::process::id());
    let start = named(&name, scratch.path());
    let mut programs = vec![start()];
    let trace = scratch.path().join("trace");
    let tool = attach_to_all(std::slice::from_ref(&name), &trace);
    programs.push(start());
    wait_for_newcomer(programs[1].id(), &programs[0]);
    let stdins = on(&mut programs);
    let ended = interrupt(tool);
    let said = format!("tracing process {}; ", programs[0].id());
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(!ended.stderr.contains("not traced"), "{}", ended.stderr);
    for (program, stdin) in programs.iter_mut().zip(stdins) {
        assert_nothing_left(program.id());
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
    assert_eq!(Report::of(&trace).calls("leaf"), 2 * 1000);
    let words = ["attach", &name[..name.len() - 1]];
    let ended = Start::new([nopal().to_str().unwrap()].into_iter().chain(words)).run("");
    assert_eq!(ended.end, End::Code(1));
    assert!(
        ended.stderr.contains("no process is named"),
        "{}",
        ended.stderr
    );
}

/// When the process that the session is to find at its first instruction is executed.
#[derive(Clone, Copy, PartialEq)]
enum Executed {
    Before,
    Later,
}

#[test]
fn a_process_of_a_name_is_recorded_that_has_just_been_executed() {
    is_recorded_when_it_has_begun("fresh", &c("phases", &[]), Executed::Later);
}

#[test]
fn a_static_process_of_a_name_is_recorded_that_has_just_been_executed() {
    let program = c("phases", &["-static"]);
    is_recorded_when_it_has_begun("static", &program, Executed::Later);
}

#[test]
fn a_process_of_a_name_is_recorded_that_had_just_been_executed_when_the_session_began() {
    is_recorded_when_it_has_begun("before", &c("phases", &[]), Executed::Before);
}

/// A process that stays at its first instruction until a line comes, and its number.
fn begins_late(file: &Path) -> (Running, i32) {
    let mut program = Start::new([c("begins_late", &[]).path, file.to_owned()]).spawn();
    let said = program.wait_for(|text| text.ends_with('\n'));
    let process = said.trim_start_matches("process ").trim().parse();
    (program, process.unwrap())
}

/// The session finds the process before the loader, or a static program's start, has set up its thread.
fn is_recorded_when_it_has_begun(kind: &str, program: &Program, executed: Executed) {
    let scratch = scratch();
    let name = format!("{kind}-{}", std::process::id());
    let mut first = named_of(program, &name, scratch.path())();
    let trace = scratch.path().join("trace");
    let file = scratch.path().join(&name);
    let attach = || attach_to_all(std::slice::from_ref(&name), &trace);
    let (tool, (mut second, process)) = match executed {
        Executed::Before => {
            let second = begins_late(&file);
            (attach(), second)
        }
        Executed::Later => {
            let tool = attach();
            // The session does not look while another process still traces the new one.
            // SAFETY: sends signals to a process of ours.
            let signal = |number| assert_eq!(unsafe { libc::kill(tool.id(), number) }, 0);
            signal(libc::SIGSTOP);
            let second = begins_late(&file);
            signal(libc::SIGCONT);
            (tool, second)
        }
    };
    // The session looks for newcomers in this time.
    std::thread::sleep(Duration::from_secs(3));
    let mut stdin = second.stdin();
    stdin.write_all(b"begin\n").unwrap();
    second.wait_for(|text| text.contains("phase 0\n"));
    wait_for_newcomer(process, &first);
    stdin.write_all(b"on\n").unwrap();
    second.wait_for(|text| text.contains("phase 1\n"));
    let ended = interrupt(tool);
    let is_said = ended.stderr.contains("not traced");
    assert_eq!(is_said, executed == Executed::Before, "{}", ended.stderr);
    // The process was examined several times, and counts once.
    let opened = Trace::open(&trace).unwrap();
    let of_it =
        |note: &&Note| matches!(note, Note::Process { process: it, .. } if *it == process as u32);
    assert_eq!(opened.notes().iter().filter(of_it).count(), 1);
    // The session may have begun during the first phase.
    let calls = Report::of(&trace).calls("leaf");
    assert!((1000..=2000).contains(&calls), "{calls}");
    assert_nothing_left(process);
    drop(stdin);
    assert_eq!(second.wait().end, End::Code(5));
    drop(first.stdin());
    assert_eq!(first.wait().end, End::Code(5));
}

#[test]
fn a_process_that_has_just_been_executed_is_to_be_tried_again() {
    for flags in [&[][..], &["-static"]] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let (mut program, process) = begins_late(&c("phases", flags).path);
        let (process, trace) = (process.to_string(), trace.to_str().unwrap());
        let words = [nopal().to_str().unwrap(), "attach", "-o", trace, &process];
        let ended = Start::new(words).run("");
        assert_eq!(ended.end, End::Code(1));
        let said = "the process has no thread control block: try again if it has just begun";
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        let mut stdin = program.stdin();
        stdin.write_all(b"begin\n").unwrap();
        program.wait_for(|text| text.contains("phase 0\n"));
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
}

/// A control group is a directory whose files list processes.
#[test]
fn processes_of_a_control_group_are_recorded_also_those_that_come_later() {
    let scratch = scratch();
    let start = named("grouped", scratch.path());
    let mut programs = vec![start(), start()];
    let group = scratch.path().join("group");
    std::fs::create_dir_all(group.join("below")).unwrap();
    let list = |group: &Path, processes: &[i32]| {
        let lines: String = processes
            .iter()
            .map(|process| format!("{process}\n"))
            .collect();
        std::fs::write(group.join("cgroup.procs"), lines).unwrap();
    };
    // The process that started nopal is in the group, and is not traced.
    let own = std::process::id() as i32;
    list(&group, &[own, programs[0].id(), 4194304]);
    list(&group.join("below"), &[programs[1].id()]);
    let trace = scratch.path().join("trace");
    let asked = ["--cgroup".to_owned(), group.to_str().unwrap().to_owned()];
    let tool = attach_to_all(&asked, &trace);
    programs.push(start());
    list(&group, &[own, programs[0].id(), programs[2].id()]);
    wait_for_newcomer(programs[2].id(), &programs[0]);
    let stdins = on(&mut programs);
    let ended = interrupt(tool);
    assert!(
        ended.stderr.contains("tracing 2 processes; "),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("not traced"), "{}", ended.stderr);
    for (program, stdin) in programs.iter_mut().zip(stdins) {
        assert_nothing_left(program.id());
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
    }
    assert_eq!(Report::of(&trace).calls("leaf"), 3 * 1000);
}

#[test]
fn what_nothing_belongs_to_is_said() {
    let scratch = scratch();
    let empty = scratch.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("cgroup.procs"), "").unwrap();
    let empty = empty.to_str().unwrap();
    for (words, reason) in [
        (
            &["no such name"][..],
            "no process is named \"no such name\"",
        ),
        (&["0"], "no process has this number"),
        (&["99999999999"], "no process has this number"),
        (&["--unit", "no-such"], "there is no unit \"no-such\""),
        (
            &["--container", "0123456789ab"],
            "there is no container \"0123456789ab\"",
        ),
        (
            &["--cgroup", "/no/such/group"],
            "there is no control group /no/such/group",
        ),
        (&["--cgroup", empty], "no process runs in the control group"),
    ] {
        let command = [nopal().to_str().unwrap(), "attach"];
        let words = command.iter().chain(words).copied();
        let ended = Start::new(words).run("");
        assert_ne!(ended.end, End::Code(0));
        assert!(ended.stderr.contains(reason), "{reason}: {}", ended.stderr);
    }
}
