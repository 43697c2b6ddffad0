//! Programs that give up privileges, or inspect their surroundings.

use nopal_tests::process::wait_until;
use nopal_tests::{Case, End, Report, Running, Start, c, library, nopal, scratch, shell_word};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

fn seccomp(way: &str) {
    Case::new(c("seccomp", &[])).arguments([way]).check();
}

#[test]
fn strict_seccomp() {
    seccomp("strict");
}

#[test]
fn a_seccomp_filter_by_prctl() {
    seccomp("filter");
}

#[test]
fn a_seccomp_filter_by_system_call() {
    seccomp("raw");
}

#[test]
fn seccomp_that_is_only_asked_for() {
    seccomp("asked");
}

#[test]
fn a_seccomp_filter_on_all_threads() {
    seccomp("threads");
}

/// nopal itself runs outside of the filter, as when it traces into a container.
#[test]
fn what_a_program_in_a_seccomp_filter_loads_and_executes_is_told_of() {
    let (_, library) = library("library.c");
    let traced = Case::new(c("filtered", &[])).arguments([library]).check();
    let said = |what: &str| {
        traced
            .said
            .lines()
            .filter(|line| line.contains(what))
            .count()
    };
    let both = [
        said("1 program that was executed is not traced"),
        said("new libraries are not traced: under its seccomp filter"),
    ];
    assert_eq!(both, [1, 1], "{}", traced.said);
}

/// The kernel tells how many filters a process is under, not which.
#[test]
fn a_filter_of_the_program_beside_one_of_nopals_own() {
    const MEMFD_CREATE: &str = "319";
    const NONE: &str = "-1";
    let confined = c("confined", &[]).path;
    let program = c("echo_upper", &[]).path;
    let scratch = scratch();
    let words = [
        confined.as_os_str(),
        MEMFD_CREATE.as_ref(),
        program.as_os_str(),
    ];
    let mut running = Start::new(words).spawn();
    let file = format!("/proc/{}/exe", running.id());
    wait_until("the program runs", || {
        std::fs::read_link(&file).is_ok_and(|file| file == program)
    });
    let mut attach = Start::new([confined.as_os_str(), NONE.as_ref(), nopal().as_os_str()]);
    attach.words.extend(["attach".into(), "-o".into()]);
    attach.words.push(scratch.path().join("trace").into());
    attach.words.extend(["--for".into(), "10ms".into()]);
    attach.words.push(running.id().to_string().into());
    let attach = attach.run("");
    let refusal = "a seccomp filter of the process may kill it";
    assert!(attach.stderr.contains(refusal), "{}", attach.stderr);
    assert_eq!(attach.end, End::Code(1));
    running.stdin().write_all(b"text").expect("it lives");
    let ended = running.wait();
    assert_eq!(ended.end, End::Code(0));
    assert!(ended.stdout.starts_with("TEXT\n"), "{}", ended.stdout);
}

/// A call that only nopal's own threads make, or a thread of the process with its filters suspended.
const OF_NOPAL: &str = "319"; // memfd_create
/// One that the agent makes.
const OF_AGENT: &str = "24"; // sched_yield

/// Attaches to a process, which is under a filter. `None`: only root can, in a nopal that is under none.
fn attach(running: &Running, trace: &Path) -> Option<Running> {
    let mut attach = Start::new([nopal().as_os_str(), "attach".as_ref(), "-o".as_ref()]);
    attach.words.push(trace.into());
    attach.words.push(running.id().to_string().into());
    let mut attach = attach.spawn();
    let refusal = "a seccomp filter of the process may kill it";
    let said =
        attach.wait_for_error(|text| text.contains("tracing process") || text.contains(refusal));
    (!said.contains(refusal)).then_some(attach)
}

/// As in a container: what a filter permits is known by its instructions.
#[test]
fn calls_have_times_where_a_filter_permits_what_the_agent_does() {
    for (killed_for, are_timed) in [(OF_NOPAL, true), (OF_AGENT, false)] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let [confined, program] = ["confined", "requests"].map(|name| c(name, &[]).path);
        let words = [
            confined.as_os_str(),
            killed_for.as_ref(),
            program.as_os_str(),
        ];
        let mut running = Start::new(words).spawn();
        running.wait_for(|text| text.contains("ready\n"));
        let Some(mut attach) = attach(&running, &trace) else {
            return;
        };
        let mut commands = running.stdin();
        commands.write_all(b"fast 20\n").unwrap();
        running.wait_for(|text| text.contains("done\n"));
        drop(commands);
        assert_eq!(running.wait().end, End::Code(5));
        let attach = attach.wait();
        assert_eq!(attach.end, End::Code(0));
        let warning = "under a seccomp filter that may forbid what nopal does in it";
        assert_ne!(
            attach.stderr.contains(warning),
            are_timed,
            "{}",
            attach.stderr
        );
        let report = Report::of(&trace);
        let mut rows = report.rows_of("handle_request");
        let row = rows.next().expect("it was called");
        assert_eq!(row["calls"], 20, "{row}");
        assert_eq!(row["avg_ns"].is_number(), are_timed, "{row}");
    }
}

#[test]
fn what_a_process_under_such_a_filter_executes_is_traced() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let [confined, program] = ["confined", "echo_upper"].map(|name| c(name, &[]).path);
    let script = "echo ready; read line; exec \"$0\"";
    let words = [confined.as_os_str(), OF_NOPAL.as_ref(), "/bin/sh".as_ref()];
    let words = words
        .into_iter()
        .chain(["-c".as_ref(), script.as_ref(), program.as_os_str()]);
    let mut running = Start::new(words).spawn();
    running.wait_for(|text| text.contains("ready\n"));
    let Some(mut attach) = attach(&running, &trace) else {
        return;
    };
    running.stdin().write_all(b"go\ntext").unwrap();
    let ended = running.wait();
    assert_eq!(ended.end, End::Code(0));
    assert!(ended.stdout.contains("TEXT\n"), "{}", ended.stdout);
    let attach = attach.wait();
    assert_eq!(attach.end, End::Code(0), "{}", attach.stderr);
    assert_eq!(Report::of(&trace).calls("upper"), 4, "{}", attach.stderr);
}

#[test]
fn a_filter_that_the_program_and_nopal_are_under() {
    let confined = c("confined", &[]).path;
    let program = c("echo_upper", &[]).path;
    let scratch = scratch();
    let script = "mkfifo \"$1/input\" && { \"$0\" <\"$1/input\" & } && exec 9>\"$1/input\" && \
                  \"$2\" attach -o \"$1/trace\" --for 10ms $! && exec 9>&- && wait $!";
    let words = ["-1", "/bin/sh", "-c", script].map(OsString::from);
    let words = [confined.into_os_string()].into_iter().chain(words);
    let places = [
        program.as_os_str(),
        scratch.path().as_os_str(),
        nopal().as_os_str(),
    ];
    let start = Start::new(words.chain(places.map(OsString::from)));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
}

/// Any thread makes system calls for nopal, or is asked to.
#[test]
fn threads_in_a_seccomp_filter_beside_a_first_thread_in_none() {
    let case = || Case::new(c("confined_threads", &["-DHOLD"]));
    case().check();
    case().check_come_and_go();
}

#[test]
fn a_child_in_a_seccomp_filter() {
    seccomp("fork");
}

/// As under Wine, a system call for nopal would be dispatched to the program's handler.
#[test]
fn system_calls_that_are_dispatched_to_the_program() {
    for way in ["outside", "all"] {
        let case = || Case::new(c("dispatched", &["-DHOLD"])).arguments([way]);
        case().check();
        case().check_come_and_go();
    }
}

#[test]
fn setuid_and_unshare() {
    Case::new(c("credentials", &[])).check();
}

#[test]
fn closing_all_descriptors() {
    Case::new(c("close_all", &[])).check();
}

/// While nopal holds a descriptor in the process, no other thread may see it.
#[test]
fn what_is_opened_gets_the_lowest_number() {
    Case::new(c("lowest", &["-DHOLD"])).check_come_and_go();
}

/// A number that is free in the thread that makes nopal's calls may belong to a file of the program in other threads.
#[test]
fn a_thread_with_descriptors_of_its_own() {
    let case = || Case::new(c("own_descriptors", &["-DHOLD"]));
    case().check();
    case().check_come_and_go();
}

/// nopal finds system call instructions in unreadable text as well.
#[test]
fn text_that_may_not_be_read() {
    let case = || Case::new(c("execute_only", &["-DHOLD"]));
    case().check();
    case().check_come_and_go();
}

#[test]
fn surroundings_are_the_programs_own() {
    Case::new(c("surroundings", &[]))
        .arguments(["one", "", "two words"])
        .environment("EMPTY", "")
        .check();
}

#[test]
fn a_preload_of_the_users_own_stays() {
    Case::new(c("surroundings", &[]))
        .environment("LD_PRELOAD", "libm.so.6")
        .check();
}

#[test]
fn standard_input_is_the_programs_own() {
    let text = "one line\nand another\n".repeat(20_000);
    Case::new(c("echo_upper", &[])).input(text).check();
    Case::new(c("echo_upper", &[])).check();
}

#[test]
fn signals_that_were_ignored_or_blocked_before_stay_so() {
    let program = c("surroundings", &[]).path;
    let scratch = scratch();
    let run = |words: &str| {
        let script = format!("trap '' INT PIPE USR1; exec {words}");
        Start::new(["sh", "-c", &script, "sh"]).run("")
    };
    let untraced = run(&shell_word(&program));
    let trace = scratch.path().join("trace");
    let traced = run(&format!(
        "{} record -o {} -- {}",
        shell_word(nopal()),
        shell_word(&trace),
        shell_word(&program)
    ));
    assert!(untraced.stdout.contains("signal 2 ignored"));
    assert_eq!(traced.stdout, untraced.stdout);
}
