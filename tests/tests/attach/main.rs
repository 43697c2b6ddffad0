//! Running processes: traced, controlled, and left.

mod several;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use nopal_tests::process::{Resources, assert_nothing_left, is_text_changed, wait_until};
use nopal_tests::{
    AttachedProgram, Case, End, Ended, Program, Report, Running, Start, c, compile, cxx, nopal,
    scratch, shell_word,
};

/// Starts `case` untraced and waits for the line `begun`.
fn running(case: &Case, begun: &str) -> Running {
    let mut running = case.untraced_start().spawn();
    let line = format!("{begun}\n");
    running.wait_for(|text| text.contains(&line));
    running
}

/// Ends a tool by Ctrl-C.
fn interrupt(mut tool: Running) -> Ended {
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended
}

/// The same program for each C library, dynamic and static.
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
    // The report has one phase, and the frames of the next wait.
    let calls = ["descend", "leaf", "waits"].map(|function| report.calls(function));
    assert_eq!(calls, [1100, 1000, 21]);
}

/// Copies of nopal's jumps do not stay in memory that has no file, nor is such memory dropped.
#[test]
fn code_that_was_copied_to_huge_pages_is_recorded_and_left_intact() {
    let mut attached = AttachedProgram::new(c("huge_text", &["-DASKED"]), &[]);
    assert!(is_text_changed(attached.program.id()));
    attached.run("on");
    attached.run("on");
    let (scratch, _) = attached.end();
    let report = Report::of(&scratch.path().join("trace"));
    assert_eq!(report.calls("work"), 2000);
}

/// The number of rounds by default; NOPAL_ROUNDS=1000 takes some minutes.
const ROUNDS: usize = 40;

#[test]
fn processes_that_were_started_before_are_named() {
    let script = "sleep 300 & echo $!; sleep 300 & echo $!; wait";
    let mut parent = Start::new(["sh", "-c", script]).spawn();
    let said = parent.wait_for(|text| text.lines().count() == 2 && text.ends_with('\n'));
    let children: Vec<&str> = said.lines().collect();
    for child in &children {
        wait_until("the shell's child executes", || {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name == "sleep\n")
        });
    }
    let scratch = scratch();
    let process = parent.id().to_string();
    let attach = |trace: &str, processes: &[&str]| {
        let trace = scratch.path().join(trace);
        let options = ["attach", "--for", "10ms", "-o", trace.to_str().unwrap()];
        let words = options.iter().chain(processes).copied();
        let ended = Start::new(std::iter::once(nopal().to_str().unwrap()).chain(words)).run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        ended.stderr
    };
    let said = attach("one", &[&process]);
    assert!(said.contains(" had started before: "), "{said}");
    assert!(said.contains(" sleep; `nopal attach"), "{said}");
    // Whoever has attached to one of them is not told how to attach to all.
    let said = attach("some", &[&process, children[0]]);
    let other = format!(
        "not traced are other processes that process {process} has started: {} sleep\n",
        children[1]
    );
    assert!(said.contains(&other), "{said}");
    parent.signal_group(libc::SIGTERM);
    parent.wait();
}

/// Otherwise each session would leave its memory in the process.
#[test]
fn words_that_only_look_like_return_addresses_keep_nothing() {
    let scratch = scratch();
    let case = Case::new(c("looks_like_code", &["-Wl,--no-as-needed", "-lgcc_s"]));
    let mut program = running(&case, "phase 0");
    let mut stdin = program.stdin();
    let tool = case.attach(program.id(), &scratch.path().join("trace"));
    writeln!(stdin).expect("the program reads");
    program.wait_for(|text| text.ends_with("filled\n"));
    interrupt(tool);
    assert_nothing_left(program.id());
    writeln!(stdin).expect("the program reads");
    assert_eq!(program.wait().end, End::Code(0));
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
        // Libraries have made their first allocations after the first round.
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
        // The trace has more records than all threads make before each has reached the function.
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

/// The next session may begin at once: it waits for the guardian of the killed one.
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

/// Whether a session has a name in this runtime directory. No other test uses it: nopal removes the names of ended
/// sessions wherever it sees them.
fn has_socket(runtime: &Path) -> bool {
    let names = std::fs::read_dir(runtime.join("nopal")).into_iter();
    let names = names.flatten().flatten().map(|entry| entry.file_name());
    names
        .into_iter()
        .any(|name| name.to_string_lossy().starts_with("session-"))
}

fn kill_with_guardian(tool: &mut Running) {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", tool.id()));
    let guardian = children.unwrap().trim().parse().expect("one child");
    for process in [guardian, tool.id()] {
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    }
    tool.wait();
}

/// A program waits for the two less and less: no more than twice 0.8 s in all, where each library would take 0.8 s.
#[test]
fn libraries_load_fast_though_tool_and_guardian_were_killed() {
    let scratch = scratch();
    let case = Case::new(c("reloads", &["-ldl"]));
    let mut program = running(&case, "ready");
    let mut stdin = program.stdin();
    kill_with_guardian(&mut case.attach(program.id(), &scratch.path().join("trace")));
    stdin.write_all(b"\n").unwrap();
    let begun = std::time::Instant::now();
    program.wait_for(|text| text.contains("loaded\n"));
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(0));
}

/// Its only thread can make calls for nopal in few moments.
#[test]
fn a_process_that_waits_for_vfork_children_nearly_all_the_time() {
    let scratch = scratch();
    let case = Case::new(c("vforks", &[]));
    let mut program = running(&case, "ready");
    for round in 0..5 {
        let trace = scratch.path().join(format!("trace {round}"));
        interrupt(case.attach(program.id(), &trace));
        assert_nothing_left(program.id());
    }
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(0));
}

/// Without tool and guardian, only the next nopal restores the code.
#[test]
fn what_a_killed_tool_and_guardian_leave_is_taken_out_by_the_next() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[])).arguments(["busy"]);
    let case = case.environment("XDG_RUNTIME_DIR", scratch.path());
    let mut program = running(&case, "phase 0");
    let mut stdin = program.stdin();
    let mut tool = case.attach(program.id(), &trace);
    kill_with_guardian(&mut tool);
    assert!(is_text_changed(program.id()), "the code stays changed");
    assert!(has_socket(scratch.path()), "the socket stays");
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
    let gone = format!(
        "process {} is not traced: there is no such process",
        i32::MAX
    );
    assert!(said(i32::MAX).contains(&gone), "{}", said(i32::MAX));
    assert!(said(2).contains("kernel thread"));

    let mut program = Case::new(c("about_to_end", &[])).untraced_start().spawn();
    let line = program.wait_for(|text| text.ends_with('\n'));
    let process: i32 = line.trim().parse().expect("the line is a number");
    wait_until("the memory is gone", || {
        let size = std::fs::read_to_string(format!("/proc/{process}/statm"));
        size.is_ok_and(|size| size.starts_with("0 "))
    });
    let ends = said(process);
    assert!(ends.contains("has ended"), "{ends}");
    writeln!(program.stdin()).expect("the program reads");
    assert_eq!(program.wait().end, End::Code(0));
}

/// How often the process has run on a processor: a stop and a call for nopal each add one.
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
    // The process waits for a line from now on.
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
    assert_eq!(runs(program.id()), before, "the process was not stopped");
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// The test stands in for the files in which nopal reads how the system limits memory.
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
    // nopal's memory is allocated by now.
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

/// The program saves nopal's jump as its own code, and writes it back after nopal has left.
#[test]
fn a_program_that_patches_its_own_functions() {
    Case::new(c("patches", &["-DHOLD"])).check_come_and_go();
}

/// Its text may be written to when nopal comes, and what it finds there may be as in the file.
#[test]
fn a_program_that_rewrites_its_instructions() {
    for way in ["-DPLAIN", "-DBY_SYSTEM_CALL", "-DWITH_KEY", "-DALWAYS"] {
        let case = |flags: &[&str]| Case::new(c("rewritten", flags));
        case(&[way]).unchanged();
        case(&[way, "-DHOLD"])
            .options(["--libs"])
            .check_come_and_go();
    }
}

/// It finds no jump, and keeps what it writes, at whatever moment nopal comes or goes.
#[test]
fn a_program_that_changes_its_text_while_nopal_comes_and_goes() {
    for way in ["-DAPART", "-DCALLED"] {
        Case::new(c("rewritten_pages", &[way, "-DHOLD"])).check_come_and_go();
    }
}

/// Its functions run at the new address and at the old one, at whatever moment nopal comes or goes.
#[test]
fn a_program_that_moves_its_text() {
    for way in ["-DPLAIN", "-DSTAYS", "-DBY_SYSTEM_CALL"] {
        let traced = Case::new(c("moved", &[way])).unchanged();
        let (_, told) = traced
            .said
            .split_once("may change or move its code: ")
            .unwrap_or_else(|| panic!("{}", traced.said));
        let functions: u32 = told.split(' ').next().unwrap().parse().unwrap();
        // Those at a page's end need padding on that page, for a short jump.
        assert!((797..=801).contains(&functions), "{}", traced.said);
        assert_eq!(traced.report.calls("constant7"), 1, "{way}");
        Case::new(c("moved", &[way, "-DHOLD"])).check_come_and_go();
    }
}

#[test]
fn forks_that_change_their_text_after_each_other() {
    for way in ["-DONCE", "-DIN_PARENT"] {
        let traced = Case::new(c("rewritten_forks", &[way])).unchanged();
        let told = "may change or move its code: 1 function is not recorded from then on";
        assert_eq!(traced.said.matches(told).count(), 2, "{}", traced.said);
    }
}

#[test]
fn functions_in_text_that_becomes_writable_are_recorded_until_then() {
    let case = Case::new(c("rewritten", &[]));
    let traced = case.unchanged();
    assert_eq!(traced.report.calls("constant"), 100);
    assert_eq!(traced.report.calls("apart"), 200 * 100 + 1);
    let told = "may change or move its code: 1 function is not recorded from then on";
    assert!(traced.said.contains(told), "{}", traced.said);
}
