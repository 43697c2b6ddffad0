//! Probes by breakpoints, where no jump fits.

use nopal_tests::process::{
    assert_nothing_left, assert_text_restored, nopals_mappings, wait_until,
};
use nopal_tests::{Case, End, nopal, passed, scratch};
use serde_json::Value;
use std::io::Write;

use crate::{Busy, counts, probes, program, run};

const RISK: &str = "kills the program if a thread that blocks SIGTRAP hits it";

/// Whether a process has a handler of SIGTRAP.
fn handles_traps(process: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (libc::SIGTRAP - 1) & 1 == 1
}

#[test]
fn breakpoints_are_where_no_jump_fits() {
    let program = program("gcc", &["-O2"]);
    let path = program.path.to_str().unwrap().to_owned();
    let nopal = nopal();
    let listed = run(&[
        nopal.to_str().unwrap(),
        "list",
        "--probes",
        "red_zone",
        &path,
    ]);
    assert!(
        listed.stdout.contains("breakpoint red_zone+0x43"),
        "{}",
        listed.stdout
    );
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let untraced = run(&[&path, "3000", "8"]);
    let ended = run(&[
        nopal.to_str().unwrap(),
        "probe",
        "--block",
        "-o",
        trace.to_str().unwrap(),
        "--breakpoint",
        "red_zone+0x43",
        "new",
        "end",
        "--probe",
        "breakpoint counted fetch thread:u32 i:u32",
        "--",
        &path,
        "3000",
        "8",
    ]);
    assert!(ended.stderr.contains(RISK), "{}", ended.stderr);
    assert_eq!((ended.stdout, ended.end), (untraced.stdout, untraced.end));
    let events = passed(&trace);
    assert_eq!(counts(&events), [("end", 36), ("counted", 24_000)].into());
    for thread in 0..8 {
        let begin = format!("counted thread={thread} i=");
        let own = events.iter().filter_map(|event| event.strip_prefix(&begin));
        let own: Vec<usize> = own.map(|i| i.parse().unwrap()).collect();
        assert!(own.into_iter().eq(0..3000), "thread {thread}");
    }
}

/// red_zone+0x43 is the last instruction of the function, of one byte.
const NO_JUMP: &str = "is by a breakpoint: no jump fits at red_zone+0x43@";

#[test]
fn an_automatic_probe_is_a_breakpoint_only_where_no_jump_fits() {
    let program = program("gcc", &["-O2"]);
    let path = program.path.to_str().unwrap().to_owned();
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let untraced = run(&[&path, "3000", "8"]);
    let record = |breakpoint: &str| {
        run(&[
            nopal().to_str().unwrap(),
            "record",
            "--block",
            "-o",
            trace.to_str().unwrap(),
            breakpoint,
            "--probe",
            "red_zone+0x43 new end",
            "--probe",
            "red_zone new begin",
            "--",
            &path,
            "3000",
            "8",
        ])
    };
    let ended = record("--breakpoint=auto");
    assert!(ended.stderr.contains(RISK), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&format!("probe end {NO_JUMP}")),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("probe begin"), "{}", ended.stderr);
    assert_eq!((ended.stdout, ended.end), (untraced.stdout, untraced.end));
    let events = passed(&trace);
    assert_eq!(counts(&events), [("begin", 36), ("end", 36)].into());

    // Where jumps fit, there is no risk to tell. Where no instruction begins, one reason is enough.
    let record = |probe: &str| {
        run(&[
            nopal().to_str().unwrap(),
            "record",
            "-o",
            trace.to_str().unwrap(),
            "--breakpoint=auto",
            "--probe",
            probe,
            "--",
            &path,
            "10",
            "3",
        ])
    };
    let ended = record("red_zone new begin");
    assert!(!ended.stderr.contains(RISK), "{}", ended.stderr);
    assert!(ended.stderr.contains("events of"), "{}", ended.stderr);
    let refused = record("self_loop+0x3");
    assert_eq!(
        refused.stderr,
        "nopal: probe self_loop+0x3: self_loop+0x3@probed is inside an instruction: the nearest ones begin at \
         self_loop+0x2 and self_loop+0x5\n"
    );
    assert_eq!((refused.end, &*refused.stdout), (End::Code(1), ""));

    let mut busy = Busy::new();
    let process = busy.program.id();
    let said = busy.obey("probe auto red_zone new begin");
    assert!(said.contains("probe begin is at red_zone"), "{said}");
    assert!(
        !said.contains(RISK) && !said.contains("breakpoint"),
        "{said}"
    );
    assert!(!handles_traps(process));
    let said = busy.obey("probe auto red_zone+0x43 new end");
    assert!(said.contains(RISK), "{said}");
    assert!(said.contains(&format!("probe end {NO_JUMP}")), "{said}");
    assert!(handles_traps(process));
    let state = busy.obey("");
    assert!(
        state.contains("probe auto red_zone new begin\nprobe begin off\n"),
        "{state}"
    );
    let begin = format!("probe auto red_zone+0x43 new end\n#probe end {NO_JUMP}");
    assert!(state.contains(&begin), "{state}");
    // The state is valid input, and changes nothing.
    let probes = state.lines().filter(|line| line.contains("probe "));
    let probes: Vec<&str> = probes.collect();
    assert_eq!(busy.obey(&probes.join("\n")), "");
    busy.obey("probe end remove");
    assert!(!handles_traps(process), "nopal's handler is gone");
    busy.tool.signal_group(libc::SIGINT);
    assert_eq!(busy.tool.wait().end, End::Code(0));
    assert_nothing_left(process);
    busy.end();

    // Where a breakpoint would kill the program, nopal inserts none.
    let mut busy = Busy::with("block");
    let refused = busy.ctl("probe auto red_zone+0x43");
    assert!(
        refused.stderr.contains("no jump fits at red_zone+0x43@")
            && refused.stderr.contains("blocks SIGTRAP"),
        "{}",
        refused.stderr
    );
    busy.tool.signal_group(libc::SIGINT);
    busy.tool.wait();
    busy.end();
}

#[test]
fn breakpoints_at_all_instructions_change_nothing() {
    for (compiler, flags) in [("gcc", &["-O2"][..]), ("clang", &["-O0"])] {
        let program = program(compiler, flags);
        let path = program.path.to_str().unwrap();
        for function in ["mixed", "registers", "backward", "self_loop", "red_zone"] {
            let nopal = nopal();
            let nopal = nopal.to_str().unwrap();
            let listed = run(&[nopal, "list", "--json", "--probes", function, path]);
            let all: Value = serde_json::from_str(&listed.stdout).unwrap();
            let all = all.as_array().unwrap().iter();
            let all = all.filter(|site| site["breakpoint"].as_bool().unwrap());
            let all: Vec<String> = all
                .map(|site| {
                    format!(
                        "breakpoint {} fetch $cx +0($sp)",
                        site["place"].as_str().unwrap()
                    )
                })
                .collect();
            assert!(all.len() > 3, "{function}: {}", all.len());
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let case = Case::new(program.clone())
                .arguments(["45"])
                .options(probes(&all))
                .options(["--block"]);
            let traced = case.unchanged();
            let how = format!("{compiler} {function}: {}", traced.said);
            let events = passed(&traced.directory());
            assert!(counts(&events).len() > all.len() * 2 / 3, "{how}");
        }
    }
}

#[test]
fn breakpoints_come_and_go_while_threads_pass() {
    let mut busy = Busy::new();
    let process = busy.program.id();
    for round in 0..5 {
        let expected = busy.obey(&format!(
            "probe breakpoint counted+0x0 new p{round} fetch $di\nprobe p{round} on"
        ));
        assert!(expected.contains(RISK), "{expected}");
        let state = busy.obey("");
        assert!(state.contains(&format!(
            "probe breakpoint counted new p{round} fetch di=$di\n"
        )));
        assert!(handles_traps(process));
        busy.wait_for_pass(&format!("p{round}"));
        busy.obey(&format!("probe p{round} remove"));
        assert!(
            !handles_traps(process),
            "round {round}: SIGTRAP is the program's again"
        );
    }
    busy.obey("probe breakpoint counted new last\nprobe last on");
    busy.wait_for_pass("last");
    busy.tool.signal_group(libc::SIGINT);
    let ended = busy.tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_nothing_left(process);
    assert!(!handles_traps(process));
    let events = passed(&busy.trace);
    let counts = counts(&events);
    for name in ["p0", "p1", "p2", "p3", "p4", "last"] {
        assert!(counts.contains_key(name), "{name}: {counts:?}");
    }
    busy.end();
}

#[test]
fn breakpoints_are_taken_out_when_the_tool_is_killed() {
    let mut busy = Busy::new();
    let process = busy.program.id();
    busy.obey("probe breakpoint counted fetch $di +0($sp)\nprobe counted on");
    busy.tool.signal_group(libc::SIGKILL);
    busy.tool.wait();
    wait_until("the guardian has cleaned up", || {
        nopals_mappings(process).is_empty()
    });
    assert_text_restored(process);
    assert!(!handles_traps(process));
    busy.end();
}

#[test]
fn a_signal_that_is_no_breakpoint_does_what_it_did() {
    let mut busy = Busy::new();
    busy.obey("probe breakpoint counted new p\nprobe p on");
    busy.program.signal_group(libc::SIGTRAP);
    assert_eq!(busy.program.wait().end, End::Signal(libc::SIGTRAP));
    assert_eq!(busy.tool.wait().end, End::Code(0));
}

#[test]
fn breakpoints_are_refused_where_they_would_end_the_program() {
    for (word, said) in [
        (
            "block",
            "blocks SIGTRAP: a breakpoint would kill the program",
        ),
        ("handle", "the program handles SIGTRAP itself"),
    ] {
        let mut busy = Busy::with(word);
        let refused = busy.ctl("probe breakpoint counted");
        assert!(refused.stderr.contains(said), "{word}: {}", refused.stderr);
        busy.obey("probe counted\nprobe counted on");
        busy.tool.signal_group(libc::SIGINT);
        assert_eq!(busy.tool.wait().end, End::Code(0));
        assert_nothing_left(busy.program.id());
        assert_eq!(handles_traps(busy.program.id()), word == "handle");
        busy.end();
    }
    let mut busy = Busy::new();
    let refused = busy.ctl("probe breakpoint strlen@libc");
    assert!(
        refused.stderr.contains("the C library blocks all signals"),
        "{}",
        refused.stderr
    );
    let refused = busy.ctl("probe breakpoint counted+1");
    assert!(
        refused.stderr.contains("the nearest ones begin at"),
        "{}",
        refused.stderr
    );
    busy.tool.signal_group(libc::SIGINT);
    busy.tool.wait();
    busy.end();
}

#[test]
fn breakpoints_leave_when_the_program_takes_the_signal_for_itself() {
    let mut busy = Busy::new();
    let process = busy.program.id();
    let mut stdin = busy.program.stdin();
    busy.obey("probe breakpoint counted new p fetch $di\nprobe p on");
    for (letter, said) in [
        ("s", "spawned 3\n"),
        ("f", "child: 5 traps, before: default\n"),
    ] {
        stdin.write_all(letter.as_bytes()).unwrap();
        busy.program.wait_for(|text| text.contains(said));
        assert!(handles_traps(process), "{said}: only its own counts");
    }
    stdin.write_all(b"t").unwrap();
    let own = "own: 5 traps, before: default\n";
    busy.program.wait_for(|text| text.contains(own));
    let refused = busy.ctl("probe p remove\nprobe breakpoint counted").stderr;
    assert!(
        refused.contains("the program handles SIGTRAP itself"),
        "{refused}"
    );
    busy.tool.signal_group(libc::SIGINT);
    let ended = busy.tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let expected =
        format!("process {process} uses SIGTRAP itself: its probes by breakpoints were removed");
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    assert_nothing_left(process);
    assert!(handles_traps(process), "the program's own handler");
    assert!(counts(&passed(&busy.trace)).contains_key("p"));
    drop(stdin);
    assert_eq!(busy.program.wait().end, End::Code(5));
}
