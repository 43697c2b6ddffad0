//! Processes that run already: traced, steered, and let go of.

use std::io::Write;
use std::path::Path;
use std::process::ChildStdin;
use std::time::Duration;

use nopal_tests::process::{
    Resources, assert_nothing_left, is_text_changed, nopals_mappings, wait_until,
};
use nopal_tests::{
    Case, End, Ended, Program, Report, Running, Start, c, compile, cxx, nopal, scratch, shell_word,
};
use nopal_trace::{KernelEvent, KernelRecord, Trace};

/// Starts `case` untraced and waits for the line `begun`.
fn running(case: &Case, begun: &str) -> Running {
    let mut running = case.untraced_start().spawn();
    let line = format!("{begun}\n");
    running.wait_for(|text| text.contains(&line));
    running
}

/// Ctrl-C.
fn interrupt(mut tool: Running) -> Ended {
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended
}

/// The same program for each C library, with a loader and without.
fn kinds() -> [Program; 4] {
    let musl = |flags: &[&str]| {
        let compiler = ["musl-gcc", "-std=gnu17", "-O2", "-g", "-pthread"];
        compile("phases.c", &compiler, flags)
    };
    [
        c("phases", &[]),
        c("phases", &["-static"]),
        musl(&[]),
        musl(&["-static"]),
    ]
}

#[test]
fn what_a_process_calls_meanwhile_is_recorded_exactly() {
    for program in kinds() {
        is_recorded_exactly(&Case::new(program));
    }
}

#[test]
fn programs_of_every_kind_are_recorded_from_their_start() {
    for program in kinds() {
        let traced = Case::new(program).input("on\non\n").traced();
        assert_eq!(traced.ended.end, End::Code(5), "{}", traced.ended.stderr);
        let calls = ["descend", "leaf", "waits"].map(|function| traced.report.calls(function));
        assert_eq!(calls, [3300, 3000, 63]);
    }
}

fn is_recorded_exactly(case: &Case) {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut program = running(case, "phase 0");
    let mut stdin = program.stdin();
    let tool = case.attach(program.id(), &trace);
    assert!(is_text_changed(program.id()), "there are jumps in the code");
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    interrupt(tool);
    assert_nothing_left(program.id());
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 2\n"));
    drop(stdin);
    let ended = program.wait();
    assert_eq!(ended.end, End::Code(5));
    assert!(ended.stdout.ends_with("phase 2\nend\n"));
    let report = Report::of(&trace);
    // One phase, and the frames of the next wait.
    let calls = ["descend", "leaf", "waits"].map(|function| report.calls(function));
    assert_eq!(calls, [1100, 1000, 21]);
}

/// So often by default; NOPAL_ROUNDS=1000 takes some minutes.
const ROUNDS: usize = 40;

#[test]
fn processes_that_were_started_before_are_named() {
    let mut parent = Start::new(["sh", "-c", "sleep 300 & echo $!; wait"]).spawn();
    let said = parent.wait_for(|text| text.ends_with('\n'));
    let name = format!("/proc/{}/comm", said.trim_end());
    wait_until("the shell's child executes", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
    });
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let process = parent.id().to_string();
    let words = [
        "attach",
        "--for",
        "10ms",
        "-o",
        trace.to_str().unwrap(),
        &process,
    ];
    let ended = Start::new(std::iter::once(nopal().to_str().unwrap()).chain(words)).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let named = " had started before: ";
    assert!(ended.stderr.contains(named), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(" sleep; `nopal attach"),
        "{}",
        ended.stderr
    );
    parent.signal_group(libc::SIGTERM);
    parent.wait();
}

#[test]
fn a_busy_process_is_attached_to_again_and_again() {
    let rounds = std::env::var("NOPAL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let scratch = scratch();
    let case = Case::new(c("phases", &[])).arguments(["busy"]);
    let mut program = running(&case, "phase 0");
    let mut stdin = program.stdin();
    let mut first = None;
    for round in 1..=rounds {
        program.be_patient(Duration::from_secs(150));
        let trace = scratch.path().join("trace");
        let tool = case.attach(program.id(), &trace);
        stdin.write_all(b"on\n").unwrap();
        program.wait_for(|text| text.contains(&format!("phase {round}\n")));
        interrupt(tool);
        assert_nothing_left(program.id());
        assert!(Report::of(&trace).calls("leaf") >= 1000);
        std::fs::remove_dir_all(&trace).unwrap();
        let now = Resources::by(program.id());
        // What libraries allocate when they are first used is there after the first round.
        let first = first.get_or_insert_with(|| now.clone());
        assert_eq!(
            (&now.maps, now.descriptors),
            (&first.maps, first.descriptors)
        );
        assert!(now.kib < first.kib + 64, "{round}: {now:?}, {first:?}");
    }
    let kib = |held: &Resources| held.kib;
    let end = Resources::by(program.id());
    println!(
        "{:?} KiB after the first of {rounds} rounds, {} in the end",
        first.as_ref().map(kib),
        end.kib
    );
    drop(stdin);
    let ended = program.wait();
    assert_eq!((ended.end, &*ended.stderr), (End::Code(5), ""));
}

/// Bytes of records in a trace.
fn recorded(trace: &Path) -> u64 {
    let files = std::fs::read_dir(trace).into_iter().flatten().flatten();
    let streams = files.filter(|file| file.file_name().to_string_lossy().starts_with("stream-"));
    streams
        .flat_map(|file| file.metadata())
        .map(|file| file.len())
        .sum()
}

#[test]
fn exceptions_pass_through_frames_that_are_traced_since() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(cxx("attach_throw", &[]));
    let mut program = running(&case, "ready");
    for _ in 0..2 {
        let tool = case.attach(program.id(), &trace);
        // More than all threads together make until each has come to the function.
        wait_until("it is recorded", || recorded(&trace) > 10_000);
        interrupt(tool);
        let report = Report::of(&trace);
        assert!(report.calls("thrower(long, long*)") > 0);
    }
    drop(program.stdin());
    let ended = program.wait();
    assert_eq!((ended.end, &*ended.stdout), (End::Code(7), "ready\nend\n"));
}

#[test]
fn the_end_of_the_process_ends_the_recording() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[]));
    let mut program = running(&case, "phase 0");
    let mut tool = case.attach(program.id(), &trace);
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert!(trace.join("metadata").exists());
}

#[test]
fn the_tool_killed_while_attached_leaves_the_process_as_it_was() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[])).arguments(["busy"]);
    let case = case.environment("XDG_RUNTIME_DIR", scratch.path());
    let mut program = running(&case, "phase 0");
    let mut tool = case.attach(program.id(), &trace);
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(tool.id(), libc::SIGKILL) }, 0);
    assert_eq!(tool.wait().end, End::Signal(libc::SIGKILL));
    wait_until("the code is put back", || !is_text_changed(program.id()));
    wait_until("its socket is removed", || !has_socket(scratch.path()));
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// The next may come at once: it waits for the guardian of the one that was killed.
#[test]
fn a_killed_session_is_followed_by_another() {
    let scratch = scratch();
    let case = Case::new(c("phases", &[])).arguments(["busy"]);
    let mut program = running(&case, "phase 0");
    for round in 0..3 {
        let trace = scratch.path().join(format!("trace {round}"));
        let mut tool = case.attach(program.id(), &trace);
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(tool.id(), libc::SIGKILL) }, 0);
        tool.wait();
    }
    interrupt(case.attach(program.id(), &scratch.path().join("last")));
    assert_nothing_left(program.id());
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// Whether a session has a name in this runtime directory, which no other test has: nopal removes the names of sessions
/// that are gone wherever it sees them.
fn has_socket(runtime: &Path) -> bool {
    let names = std::fs::read_dir(runtime.join("nopal")).into_iter();
    let names = names.flatten().flatten().map(|entry| entry.file_name());
    names
        .into_iter()
        .any(|name| name.to_string_lossy().starts_with("session-"))
}

/// Then the code is restored only by the next nopal.
#[test]
fn what_a_killed_tool_and_guardian_leave_is_taken_out_by_the_next() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[])).arguments(["busy"]);
    let case = case.environment("XDG_RUNTIME_DIR", scratch.path());
    let mut program = running(&case, "phase 0");
    let mut stdin = program.stdin();
    let mut tool = case.attach(program.id(), &trace);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", tool.id()));
    let guardian = children.unwrap().trim().parse().expect("one child");
    for process in [guardian, tool.id()] {
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    }
    tool.wait();
    assert!(is_text_changed(program.id()), "nobody has put it back");
    assert!(has_socket(scratch.path()), "nobody has removed it");
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    let number = program.id().to_string();
    let mut detach = case.untraced_start();
    detach.words = vec![nopal().into(), "detach".into(), number.into()];
    let ended = detach.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_nothing_left(program.id());
    assert!(!has_socket(scratch.path()));
    interrupt(case.attach(program.id(), &trace));
    assert_nothing_left(program.id());
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

#[test]
fn what_cannot_be_attached_to_is_refused_with_the_reason() {
    let said = |process: i32| {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let words = ["attach".into(), process.to_string(), "-o".into()];
        let start = Start::new(
            [nopal().as_os_str().to_owned()]
                .into_iter()
                .chain(words.map(Into::into))
                .chain([trace.clone().into_os_string()]),
        );
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(1), "{}", ended.stderr);
        assert!(!trace.exists(), "an older trace would have been moved");
        ended.stderr
    };
    assert!(said(i32::MAX).contains("no such process") || said(i32::MAX).contains("has ended"));
    assert!(said(2).contains("kernel thread"));
}

/// How often the process has been let onto a processor: once more each time that it is stopped, or makes a call for us.
fn runs(process: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    let counts = counts.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>());
    counts.map(Result::unwrap).sum()
}

#[test]
fn what_fits_nothing_is_said_before_anything_is_touched() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[]));
    let mut program = running(&case, "phase 0");
    let number = program.id().to_string();
    // It waits for a line from now on.
    wait_until("it waits", || {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
        stat.contains(") S ")
    });
    let before = runs(program.id());
    let attach = ["attach", &number];
    let record = ["record", "-p"];
    let nearest = "no function matches desend; the nearest are descend";
    for (way, options, expected) in [
        (attach, &["-F", "desend"][..], nearest),
        (record, &["-F", "desend"], nearest),
        (
            attach,
            &["-F", "_start"],
            "_start can be traced: _start: the program's entry",
        ),
        (
            attach,
            &["-F", "prinft@libc*"],
            "no function matches prinft@libc*; the nearest are printf",
        ),
        (
            attach,
            &["-F", "wcstombs"],
            "the nearest is wcstombs@libc.so.6",
        ),
        (record, &["-M", "nosuch"], "no marker matches nosuch"),
        (attach, &["--flight", "--snapshot-when", "desend"], nearest),
    ] {
        let mut start = case.untraced_start();
        start.words = vec![nopal().into()];
        start.words.extend(way.map(Into::into));
        if way == record {
            start.words.push(number.clone().into());
        }
        start.words.extend(["-o".into(), trace.clone().into()]);
        start.words.extend(options.iter().map(Into::into));
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(!trace.exists(), "an older trace would have been moved");
    }
    assert_eq!(runs(program.id()), before, "it was not stopped");
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// As if the system counted memory: only what nopal reads of it is changed.
#[test]
fn memory_that_is_counted_suffices_or_is_asked_for_before() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let file = |name: &str, text: String| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mode = file("mode", "2\n".into());
    let left = |mib: u64| {
        let text = format!(
            "CommitLimit: {} kB\nCommitted_AS: 2048 kB\n",
            (mib + 2) << 10
        );
        file("left", text)
    };
    let case = Case::new(c("phases", &[]));
    let mut program = running(&case, "phase 0");
    let mut stdin = program.stdin();
    let attach = |left: &str, options: &str| {
        let script = format!(
            "mount --bind {} /proc/sys/vm/overcommit_memory && mount --bind {} /proc/meminfo && exec {} attach {} \
             -o {} {options}",
            shell_word(&mode),
            shell_word(left),
            shell_word(nopal()),
            program.id(),
            shell_word(&trace)
        );
        let mut start = case.untraced_start();
        let words = ["unshare", "--mount", "sh", "-c", &script];
        start.words = words.map(Into::into).to_vec();
        start.spawn()
    };
    let ended = attach(&left(60), "").wait();
    assert_eq!(ended.end, End::Code(1));
    for part in [
        "vm.overcommit_memory is 2",
        "60 MiB are left",
        "64 are its --buffer",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    assert!(!trace.exists());
    let mut tool = attach(&left(60), "--buffer 1M");
    tool.wait_for_error(|text| text.contains("tracing process"));
    // It has all its memory now.
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", program.id())).unwrap();
    assert!(smaps.contains("/memfd:nopal"));
    let files = std::fs::read_dir(format!("/proc/{}/map_files", program.id())).unwrap();
    let mut holes = 0;
    for file in files {
        let metadata = file.unwrap().path();
        let named = std::fs::read_link(&metadata).unwrap();
        if named.to_string_lossy().starts_with("/memfd:nopal") {
            let metadata = std::fs::metadata(metadata).unwrap();
            let pages = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
            holes += u64::from(pages < metadata.len());
        }
    }
    assert_eq!(holes, 0, "memory without pages");
    stdin.write_all(b"on\n").unwrap();
    program.wait_for(|text| text.contains("phase 1\n"));
    interrupt(tool);
    assert_eq!(Report::of(&trace).calls("leaf"), 1000);
    assert_nothing_left(program.id());
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// It saves what is there, a jump of nopal's, and writes it back after nopal has left.
#[test]
fn a_program_that_patches_its_own_functions() {
    Case::new(c("patches", &["-DHOLD"])).check_come_and_go();
}

/// A program of which a phase makes 1,000 calls of `leaf`, three times.
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
    // Each has left its processor, of which no kernel keeps silent.
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

/// Starts a program under a name that no other has.
fn named(name: &str, directory: &Path) -> impl Fn() -> Running {
    let file = directory.join(name);
    std::fs::copy(&c("phases", &[]).path, &file).unwrap();
    move || {
        let mut program = Start::new([file.as_os_str()]).spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        program
    }
}

/// Waits until a session has attached to one more process: until that has changed, and the session answers again.
fn wait_for_newcomer(newcomer: i32, first: &Running) {
    wait_until("a newcomer is traced", || is_text_changed(newcomer));
    let words = [
        nopal().to_str().unwrap().to_owned(),
        "ctl".to_owned(),
        first.id().to_string(),
    ];
    assert_eq!(Start::new(words).run("").end, End::Code(0));
}

/// One phase of each program.
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

/// It is found before its loader has made what nopal needs of a thread.
#[test]
fn a_process_of_a_name_is_recorded_that_has_just_been_executed() {
    let scratch = scratch();
    let name = format!("fresh-{}", std::process::id());
    let mut first = named(&name, scratch.path())();
    let trace = scratch.path().join("trace");
    let tool = attach_to_all(std::slice::from_ref(&name), &trace);
    let file = scratch.path().join(&name);
    // It does not look while another one still traces the process.
    // SAFETY: sends signals to a process of ours.
    let signal = |number| assert_eq!(unsafe { libc::kill(tool.id(), number) }, 0);
    signal(libc::SIGSTOP);
    let mut second = Start::new([c("begins_late", &[]).path, file]).spawn();
    let said = second.wait_for(|text| text.ends_with('\n'));
    signal(libc::SIGCONT);
    let process: i32 = said.trim_start_matches("process ").trim().parse().unwrap();
    // Time in which the session looks for newcomers.
    std::thread::sleep(Duration::from_secs(3));
    let mut stdin = second.stdin();
    stdin.write_all(b"begin\n").unwrap();
    second.wait_for(|text| text.contains("phase 0\n"));
    wait_for_newcomer(process, &first);
    stdin.write_all(b"on\n").unwrap();
    second.wait_for(|text| text.contains("phase 1\n"));
    let ended = interrupt(tool);
    assert!(!ended.stderr.contains("not traced"), "{}", ended.stderr);
    // It may have come in time for a part of the first phase, too.
    let calls = Report::of(&trace).calls("leaf");
    assert!((1000..=2000).contains(&calls), "{calls}");
    assert_nothing_left(process);
    drop(stdin);
    assert_eq!(second.wait().end, End::Code(5));
    drop(first.stdin());
    assert_eq!(first.wait().end, End::Code(5));
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
    // Whoever started nopal is in the group, and is left alone.
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
        (
            &["--cgroup", empty],
            "no process belongs to what is asked for",
        ),
    ] {
        let command = [nopal().to_str().unwrap(), "attach"];
        let words = command.iter().chain(words).copied();
        let ended = Start::new(words).run("");
        assert_ne!(ended.end, End::Code(0));
        assert!(ended.stderr.contains(reason), "{reason}: {}", ended.stderr);
    }
}
