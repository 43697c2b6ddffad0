//! The ends of programs, and the traces that a sudden end of the program or of nopal leaves behind.

use std::io::Write;
use std::path::Path;

use nopal_tests::process::{assert_text_restored, is_text_changed, wait_until};
use nopal_tests::terminal::Terminal;
use nopal_tests::{Case, End, Report, Running, announced_calls, c, scratch, wait_for_end};

fn end(words: &[&str]) -> Case {
    Case::new(c("end", &[])).arguments(words.iter().copied())
}

#[test]
fn every_exit_code() {
    let program = c("end", &[]).path;
    std::thread::scope(|scope| {
        for first in 0..4 {
            let program = &program;
            scope.spawn(move || {
                for code in (first..256).step_by(4) {
                    let scratch = scratch();
                    let start = end(&["exit", &code.to_string()])
                        .traced_start(&scratch.path().join("trace"));
                    assert_eq!(start.run("").end, End::Code(code), "{}", program.display());
                }
            });
        }
    });
}

#[test]
fn every_way_to_exit() {
    for way in ["exit", "quick", "raw", "return"] {
        end(&[way, "37"]).check();
    }
}

#[test]
fn every_signal_that_ends_a_program() {
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    let harmless = [&harmless[..], &[libc::SIGURG, libc::SIGWINCH, 32, 33]].concat();
    for signal in (1..=64).filter(|signal| !harmless.contains(signal)) {
        let case = end(&["signal", &signal.to_string()]);
        assert_eq!(case.untraced().end, End::Signal(signal));
        let traced = case.traced();
        assert_eq!(traced.ended.end, End::Signal(signal));
        assert_eq!(
            (traced.report.calls("work"), traced.report.calls("main")),
            (1, 1),
            "signal {signal}"
        );
    }
}

#[test]
fn faults_traps_and_aborts() {
    for way in ["abort", "trap", "fault"] {
        end(&[way]).check();
    }
}

/// The process number that the program printed.
fn process(output: &str) -> i32 {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("process "))
        .expect("the program prints its number");
    line.parse().expect("a number")
}

fn kill(process: i32) {
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
}

fn nopal_is_killed(words: &[&str]) {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut running = Case::new(c("phases", &[]))
        .arguments(words.iter().copied())
        .spawn(&trace);
    let mut stdin = running.stdin();
    let output = running.wait_for(|text| text.contains("phase 0\n"));
    let process = process(&output);
    assert_ne!(
        process,
        running.id(),
        "the program has a process of its own"
    );
    stdin.write_all(b"on\n").unwrap();
    running.wait_for(|text| text.contains("phase 1\n"));
    kill(running.id());
    wait_until("the code is put back", || !is_text_changed(process));
    assert_text_restored(process);
    stdin.write_all(b"on\non\n").unwrap();
    running.wait_for(|text| text.contains("phase 3\n"));
    drop(stdin);
    running.wait_for_end_of_output();
    assert!(
        running.stdout().ends_with("phase 3\nend\n"),
        "{}",
        running.stdout()
    );
    wait_for_end(&trace);
    assert_phases_recorded(&trace, 2);
}

/// Asserts that the earlier records are in the trace, and that babeltrace2 reads them.
fn assert_phases_recorded(trace: &Path, phases: u64) {
    let report = Report::of(trace);
    let calls = report.calls("descend");
    assert!(calls >= phases * 1100, "{calls} calls of descend");
    let read = nopal_tests::Start::new(["babeltrace2".as_ref(), trace.as_os_str()]).run("");
    assert_eq!(read.end, End::Code(0), "{}", read.stderr);
    assert!(read.stdout.contains("descend"), "function names are shown");
}

#[test]
fn nopal_killed_leaves_the_program_as_it_was() {
    nopal_is_killed(&[]);
}

#[test]
fn nopal_killed_while_threads_record() {
    nopal_is_killed(&["busy"]);
}

#[test]
fn the_program_killed_leaves_its_records() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let mut running: Running = Case::new(c("phases", &[])).spawn(&trace);
    let mut stdin = running.stdin();
    stdin.write_all(b"on\n").unwrap();
    let output = running.wait_for(|text| text.contains("phase 1\n"));
    kill(process(&output));
    assert_eq!(running.wait().end, End::Signal(libc::SIGKILL));
    let report = Report::of(&trace);
    // descend(10) runs 200 times; 21 frames of `waits` in each of two phases never ended.
    assert_eq!(
        (
            report.calls("descend"),
            report.calls("leaf"),
            report.calls("waits")
        ),
        (2200, 2000, 42)
    );
}

/// The signals reach nopal, too: it neither ends nor passes them on to a program that has had them.
#[test]
fn what_the_program_sends_to_its_group_comes_once() {
    Case::new(c("group_signals", &[])).check();
}

#[test]
fn a_signal_to_nopal_is_handed_on() {
    let scratch = scratch();
    let case = Case::new(c("interrupted", &[])).arguments(["waits"]);
    for signal in [libc::SIGUSR1, libc::SIGRTMIN()] {
        let mut running = case.traced_start(&scratch.path().join("trace")).spawn();
        running.wait_for(|text| text.contains("ready\n"));
        // SAFETY: takes numbers only.
        assert_eq!(unsafe { libc::kill(running.id(), signal) }, 0);
        assert_eq!(running.wait().end, End::Signal(signal));
    }
}

#[test]
fn an_interrupt_of_the_group_ends_the_program_as_it_would_untraced() {
    for way in ["handles", "dies"] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let case = Case::new(c("interrupted", &[])).arguments([way]);
        let mut ends = Vec::new();
        for start in [case.untraced_start(), case.traced_start(&trace)] {
            let mut running = start.spawn();
            running.wait_for(|text| text.contains("ready\n"));
            running.signal_group(libc::SIGINT);
            let ended = running.wait();
            ends.push((ended.end, announced_calls(&ended.stdout)));
        }
        assert_eq!(ends[0], ends[1]);
        assert_eq!(
            ends[0].0,
            if way == "handles" {
                End::Code(3)
            } else {
                End::Signal(libc::SIGINT)
            }
        );
        Report::of(&trace).assert_calls(&ends[0].1.1);
    }
}

#[test]
fn an_interrupt_from_a_terminal() {
    for way in ["handles", "dies"] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let case = Case::new(c("interrupted", &[])).arguments([way]);
        let mut ends = Vec::new();
        for start in [case.untraced_start(), case.traced_start(&trace)] {
            let mut terminal = Terminal::start(&start);
            terminal.wait_for("ready\n");
            terminal.write("\x03");
            ends.push(terminal.wait());
        }
        assert_eq!(ends[0], ends[1]);
        assert_eq!(Report::of(&trace).calls("work"), 1000);
    }
}

#[test]
fn the_terminal_is_the_programs_own() {
    let scratch = scratch();
    let case = Case::new(c("terminal", &[]));
    let mut texts = Vec::new();
    for start in [
        case.untraced_start(),
        case.traced_start(&scratch.path().join("trace")),
    ] {
        let mut terminal = Terminal::start(&start);
        terminal.wait_for("what is your name?");
        terminal.write("nopal\n");
        terminal.wait_for("hello nopal");
        assert_eq!(terminal.wait(), End::Code(0));
        let text = terminal.text();
        texts.push(
            text.split_inclusive('\n')
                .filter(|line| !line.starts_with("nopal: "))
                .collect::<String>(),
        );
    }
    assert_eq!(texts[1], texts[0]);
}

/// Kilobytes of the process in a core dump by the default filter: private anonymous memory, and changed pages of files.
fn dumped_kilobytes(process: i32) -> u64 {
    let smaps =
        std::fs::read_to_string(format!("/proc/{process}/smaps")).expect("the process lives");
    let mut sum = 0;
    let (mut private, mut anonymous, mut size) = (false, 0, 0);
    for line in smaps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let kilobytes = || fields[1].parse::<u64>().expect("a number");
        match fields[0] {
            "Size:" => size = kilobytes(),
            "Anonymous:" => anonymous = kilobytes(),
            "VmFlags:" => {
                let dumped = !fields.contains(&"dd")
                    && !fields.contains(&"io")
                    && (anonymous > 0 || !private);
                sum += if dumped { size } else { 0 };
            }
            range if range.contains('-') => private = fields[1].ends_with('p'),
            _ => {}
        }
    }
    sum
}

#[test]
fn a_core_dump_is_no_larger_than_twice_the_untraced_one() {
    let case = Case::new(c("dump", &[]));
    let scratch = scratch();
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    // If the kernel writes dumps to files beside the program, the test compares these as well.
    let to_file = !pattern.starts_with('|') && !pattern.contains('/');
    let mut mapped = Vec::new();
    let mut dumped = Vec::new();
    for (name, trace) in [
        ("untraced", None),
        ("traced", Some(scratch.path().join("trace"))),
    ] {
        let directory = scratch.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let mut start = match &trace {
            None => case.untraced_start(),
            Some(trace) => case.traced_start(trace),
        };
        start.directory = Some(directory.clone());
        start.limits.push((libc::RLIMIT_CORE, libc::RLIM_INFINITY));
        let mut running = start.spawn();
        let stdin = running.stdin();
        let output = running.wait_for(|text| text.contains("process ") && text.ends_with('\n'));
        mapped.push(dumped_kilobytes(process(&output)));
        drop(stdin);
        assert_eq!(running.wait().end, End::Signal(libc::SIGABRT));
        let sizes = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len());
        dumped.push(sizes.collect::<Vec<_>>());
    }
    assert!(
        mapped[0] > 32 << 10 && mapped[1] <= 2 * mapped[0],
        "kilobytes to dump: {mapped:?}"
    );
    if to_file {
        assert_eq!(
            (dumped[0].len(), dumped[1].len()),
            (1, 1),
            "one dump each: {dumped:?}"
        );
        assert!(
            dumped[0][0] > 32 << 20 && dumped[1][0] <= 2 * dumped[0][0],
            "bytes dumped: {dumped:?}"
        );
    }
    let report = Report::of(&scratch.path().join("trace"));
    assert_eq!(
        report.calls("descend"),
        1_001_000,
        "every call up to the abort is recorded"
    );
}
