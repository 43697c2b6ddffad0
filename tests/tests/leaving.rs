//! nopal leaves processes that go on.

use std::ffi::OsString;
use std::io::{PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nopal_tests::process::{assert_nothing_left, is_text_changed, nopals_mappings, wait_until};
use nopal_tests::{AttachedProgram, Case, End, Ended, Running, Start, c, nopal, scratch};

fn running(case: &Case) -> Running {
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("ready\n"));
    program
}

fn interrupt(mut tool: Running) -> Ended {
    tool.signal_group(libc::SIGINT);
    let ended = tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended
}

fn detach(process: i32) -> Ended {
    Start::new([nopal().to_str().unwrap(), "detach", &process.to_string()]).run("")
}

/// The processes that run this program.
fn processes_of(program: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let runs = |process: &i32| {
        let file = std::fs::read_link(format!("/proc/{process}/exe"));
        file.is_ok_and(|file| file == program)
    };
    numbers.filter(runs).collect()
}

/// Children that are forked while nopal leaves have its jumps, too.
#[test]
fn children_that_come_while_nopal_leaves_are_left_as_well() {
    let case = Case::new(c("forks_on", &[]));
    let program = case.program().path.canonicalize().unwrap();
    for round in 0..6 {
        let scratch = scratch();
        let mut parent = running(&case);
        let stdin = parent.stdin();
        let tool = case.attach(parent.id(), &scratch.path().join("trace"));
        std::thread::sleep(Duration::from_millis(500));
        let said = interrupt(tool).stderr;
        let left: Vec<i32> = processes_of(&program);
        // Nothing is left in a child that ends meanwhile, and those that go on are expected to.
        for warning in [
            "takes out of it what is left",
            "that the program started still run",
        ] {
            assert!(!said.contains(warning), "{said}");
        }
        drop(stdin);
        assert_eq!(parent.wait().end, End::Code(5));
        let has_memory = |process: &i32| {
            let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
            maps.is_ok_and(|maps| maps.contains("memfd:nopal"))
        };
        let count = left.iter().filter(|process| has_memory(process)).count();
        assert_eq!(count, 0, "of {} in round {round}", left.len());
    }
}

/// The thread that waits cannot be looked at: hooks have to stay until it can.
#[test]
fn what_has_to_stay_in_a_process_is_told_and_taken_out_later() {
    let scratch = scratch();
    let case = Case::new(c("vfork_held", &[]));
    let mut program = running(&case);
    let mut stdin = program.stdin();
    wait_until("a child", || {
        processes_of(&case.program().path.canonicalize().unwrap()).len() > 1
    });
    // One that is as young as nopal may be taken for a child of a traced process.
    std::thread::sleep(Duration::from_millis(100));
    let said = interrupt(case.attach(program.id(), &scratch.path().join("trace"))).stderr;
    let told = format!("a part of nopal stays in process {}", program.id());
    assert!(said.contains(&told), "{said}");
    let refused = detach(program.id());
    assert_eq!(refused.end, End::Code(1));
    assert!(refused.stderr.contains("try again"), "{}", refused.stderr);
    assert!(!nopals_mappings(program.id()).is_empty());
    stdin.write_all(b"\n").unwrap();
    program.wait_for(|text| text.contains("over\n"));
    let detached = detach(program.id());
    assert_eq!(detached.end, End::Code(0), "{}", detached.stderr);
    assert_nothing_left(program.id());
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(5));
}

/// SIGTERM ends a recording though its program cannot take it at once, or has children that go on.
#[test]
fn a_recording_ends_by_a_signal_in_every_state_of_its_program() {
    for state in ["traced", "stopped", "vfork"] {
        let scratch = scratch();
        let case = Case::new(c("asks_parent", &[])).arguments([state]);
        let mut tool = case.spawn(&scratch.path().join("trace"));
        tool.wait_for(|text| text.contains("ready\n"));
        std::thread::sleep(Duration::from_millis(500));
        let (begun, process) = (Instant::now(), tool.id());
        // SAFETY: a plain system call.
        assert_eq!(unsafe { libc::kill(process, libc::SIGTERM) }, 0);
        while !tool.has_ended() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{state}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The line that tells of the beginning cannot be written: nobody reads it.
#[test]
fn a_session_that_hangs_ends_by_a_signal() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(c("phases", &[]));
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("phase 0\n"));
    let (reader, mut writer) = std::io::pipe().unwrap();
    let set_flags = |pipe: &PipeWriter, flags: i32| {
        // SAFETY: a plain system call on a pipe of ours.
        assert_eq!(
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) },
            0
        );
    };
    set_flags(&writer, libc::O_NONBLOCK);
    while writer.write(b"x").is_ok() {}
    set_flags(&writer, 0);
    let mut tool = Command::new(nopal())
        .args(["attach", "-o"])
        .arg(&trace)
        .arg(program.id().to_string())
        .stderr(writer)
        .spawn()
        .unwrap();
    wait_until("jumps", || is_text_changed(program.id()));
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(tool.id() as i32, libc::SIGINT) }, 0);
    let begun = Instant::now();
    assert_eq!(tool.wait().unwrap().code(), Some(1));
    // 10 s if the signal is left untaken, and 30 s if it was taken before that line.
    assert!(begun.elapsed() < Duration::from_secs(60));
    drop(reader);
    wait_until("the guardian", || nopals_mappings(program.id()).is_empty());
    assert_nothing_left(program.id());
    drop(program.stdin());
    assert_eq!(program.wait().end, End::Code(5));
}

/// The jumps are gone with the pages: readers begin with that, whether nopal leaves at once or has time to notice before the
/// program ends.
#[test]
fn text_that_the_program_discards_is_told() {
    for at_once in [true, false] {
        let mut attached = AttachedProgram::new(c("discards", &[]), &[]);
        attached.run("call");
        attached.run("discard");
        if !at_once {
            std::thread::sleep(Duration::from_millis(2500));
        }
        let trace = attached.trace();
        let scratch = if at_once {
            attached.end().0
        } else {
            drop(attached.stdin.take());
            assert_eq!(attached.program.wait().end, End::Code(5));
            attached.tool.wait();
            attached.scratch
        };
        let report = Start::new([nopal(), "report".as_ref(), &trace]).run("");
        let begins = report.stdout.lines().next().unwrap_or_default();
        assert!(begins.contains("has discarded text"), "{begins}");
        drop(scratch);
    }
}

/// LeakSanitizer looks at no stack of a thread that nopal traces. The threads stop and go on one after the other.
#[test]
fn no_thread_of_a_program_that_traces_itself_runs_while_another_is_held() {
    const SESSIONS: usize = 20;
    const A_FEW_TIMES: u32 = 100;
    let case = Case::new(c("traces_itself", &["-rdynamic"]));
    let scratch = scratch();
    let mut program = running(&case);
    let mut stdin = program.stdin();
    let mut seen: Vec<u32> = Vec::new();
    // The tool may itself wait for a processor while it stops one after the other.
    while seen.len() < SESSIONS && seen.last().is_none_or(|last| *last >= A_FEW_TIMES) {
        let mut attach = Start::new([nopal()]);
        let options = ["attach", "--for", "10ms", "-o"];
        attach.words.extend(options.map(OsString::from));
        attach.words.push(scratch.path().join("trace").into());
        attach.words.push(program.id().to_string().into());
        let ended = attach.spawn().wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        stdin.write_all(b"\n").unwrap();
        let said = program.wait_for(|said| said.matches("times\n").count() > seen.len());
        let times = said.lines().filter_map(|line| line.strip_suffix(" times"));
        seen.extend(times.skip(seen.len()).map(|it| it.parse::<u32>().unwrap()));
    }
    assert!(seen.last() < Some(&A_FEW_TIMES), "{seen:?}");
    drop(stdin);
    assert_eq!(program.wait().end, End::Code(0));
}
