//! Functions of the kernel inside the calls that made them, recorded in a guest, whose kernel allows it even if the
//! machine's does not. The guest runs once for all of these tests.

use nopal_tests::{c, nopal, run_in_guest};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

const TIMES: usize = 100;
const TIMES_IN_CHILD: usize = 10;

/// Other programs call the kernel all the time, too.
const SCRIPT: &str = "
instances=/sys/kernel/tracing/instances
kernel_calls 0 &
other=$!
record() {
	name=$1
	shift
	nopal record -o /out/$name -F ask -F pass \"$@\" >/out/$name.out 2>/out/$name.said
	echo $? >/out/$name.status
	ls $instances >/out/$name.left
}
record all -k -e sched kernel_calls 100
record glob --kernel-functions '*sys_getppid*' kernel_calls 100
nopal run -o /out/run -f -c --kernel-functions '*sys_getppid*' kernel_calls 100 >/out/run.out 2>/out/run.said
ls $instances >/out/run.left

nopal attach -o /out/killed --kernel-functions '*sys_getppid*' -F ask $other >/out/killed.said 2>&1 &
tool=$!
until [ -s /out/killed/cpu-0 ] || ! kill -0 $tool; do usleep 20000; done
ls $instances >/out/killed.before
nopal ctl $other tracer wakeup on >/out/killed.tracer 2>&1
kill -KILL $tool
for wait in $(seq 1000); do
	[ -n \"$(ls $instances)\" ] || break
	usleep 20000
done
ls $instances >/out/killed.left
kill -0 $other && echo runs >/out/killed.runs
kill $other

echo 2 >/proc/sys/kernel/kptr_restrict
record hidden -k touch /out/hidden.ran
echo 0 >/proc/sys/kernel/kptr_restrict
echo 0 >/proc/sys/kernel/ftrace_enabled
record off -k touch /out/off.ran
";

fn out(name: &str) -> PathBuf {
    static OUT: OnceLock<TempDir> = OnceLock::new();
    let out = OUT.get_or_init(|| {
        let program = c("kernel_calls", &[]);
        run_in_guest(&[nopal(), &program.path], SCRIPT)
    });
    out.path().join(name)
}

fn text(name: &str) -> String {
    let path = out(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn said_of(program: &str, words: &[&str], trace: &str) -> String {
    let output = Command::new(program)
        .args(words)
        .arg(out(trace))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{error}{}",
        text(&format!("{trace}.said"))
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn nopal_says(words: &[&str], trace: &str) -> String {
    said_of(nopal().to_str().unwrap(), words, trace)
}

/// A line of `nopal dump --as raw`.
struct Line {
    clock: u64,
    words: Vec<String>,
}

fn raw(trace: &str) -> Vec<Line> {
    let raw = nopal_says(&["dump", "--as", "raw"], trace);
    let lines = raw.lines().map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Line {
            clock: words.next().unwrap().parse().unwrap(),
            words: words.collect(),
        }
    });
    lines.collect()
}

impl Line {
    /// `cpu NUMBER kernel_function THREAD NAME <-- CALLER`
    fn kernel_function(&self) -> Option<(&str, &str)> {
        match self.words.get(2)?.as_str() {
            "kernel_function" => Some((&self.words[3], &self.words[4])),
            _ => None,
        }
    }
}

/// The clocks of entry and exit of the only call that a thread makes of a function.
fn call(lines: &[Line], thread: &str, function: &str) -> (u64, u64) {
    let clock = |kind: &str| {
        let is_it = |line: &&Line| {
            let words = &line.words;
            words[1] == thread && words[2] == kind && words.last().unwrap() == function
        };
        let mut found = lines.iter().filter(is_it).map(|line| line.clock);
        let clock = found
            .next()
            .unwrap_or_else(|| panic!("no {kind} of {function} in {thread}"));
        assert_eq!(found.next(), None, "{function} is called once");
        clock
    };
    (clock("entry"), clock("exit"))
}

/// Threads with calls, the first one first.
fn threads(lines: &[Line]) -> Vec<String> {
    let mut threads: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| line.words[0] != "cpu") {
        if !threads.contains(&line.words[1]) {
            threads.push(line.words[1].clone());
        }
    }
    threads
}

fn clocks_of(lines: &[Line], thread: &str, function: &str) -> Vec<u64> {
    let is_it = |line: &&Line| {
        let found = line.kernel_function();
        found.is_some_and(|(of, name)| of == thread && name.ends_with(function))
    };
    lines.iter().filter(is_it).map(|line| line.clock).collect()
}

#[test]
fn each_stands_inside_the_call_that_made_it() {
    let lines = raw("all");
    let threads = threads(&lines);
    let [main, child] = threads.as_slice() else {
        panic!("{threads:?}");
    };
    for (thread, function, system_call, times) in [
        (main, "ask", "sys_getppid", TIMES),
        (main, "pass", "sys_getuid", TIMES),
        (child, "ask", "sys_getppid", TIMES_IN_CHILD),
    ] {
        let (begin, end) = call(&lines, thread, function);
        let clocks = clocks_of(&lines, thread, system_call);
        assert_eq!(clocks.len(), times, "{system_call} of {thread}");
        let inside = clocks.iter().filter(|clock| (begin..end).contains(*clock));
        assert_eq!(
            inside.count(),
            times,
            "{system_call} in {function} of {thread}"
        );
    }
    // The kernel's two sources of events, in order.
    let of_processor = lines.iter().filter(|line| line.words[0] == "cpu");
    assert!(of_processor.map(|line| line.clock).is_sorted());
    assert!(lines.iter().any(|line| line.words[2] == "sched_switch"));
    assert_eq!(text("all.out"), format!("{TIMES}\n"));
    assert_eq!(text("all.status"), "0\n");
    let info = nopal_says(&["info"], "all");
    assert!(
        info.contains(" kernel_function") && info.contains(" 0 lost on "),
        "{info}"
    );
    let replay = nopal_says(&["replay", "-F", "ask"], "all");
    let expected = replay
        .lines()
        .filter(|line| line.contains("sys_getppid <-- "));
    assert_eq!(expected.count(), TIMES + TIMES_IN_CHILD, "{replay}");
    let report = nopal_says(&["report", "--kernel"], "all");
    for (times, system_call, function) in [
        (TIMES + TIMES_IN_CHILD, "sys_getppid", "ask"),
        (TIMES, "sys_getuid", "pass"),
    ] {
        let is_it = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[0] == times.to_string() && words[1].ends_with(system_call) && words[2] == function
        };
        assert_eq!(report.lines().filter(is_it).count(), 1, "{report}");
    }
    let latency = nopal_says(&["dump", "--as", "latency", "--of", "pass"], "all");
    let expected = latency.lines().filter(|line| line.contains("sys_getuid ("));
    assert_eq!(expected.count(), TIMES, "{latency}");
}

#[test]
fn none_is_another_tasks() {
    let lines = raw("all");
    let of: BTreeSet<String> = lines
        .iter()
        .filter_map(|line| Some(line.kernel_function()?.0.to_owned()))
        .collect();
    assert_eq!(of, threads(&lines).into_iter().collect());
}

#[test]
fn a_glob_chooses_among_them() {
    let lines = raw("glob");
    let all: Vec<&str> = lines
        .iter()
        .filter_map(|line| Some(line.kernel_function()?.1))
        .collect();
    assert!(
        all.iter().all(|name| name.contains("sys_getppid")),
        "{all:?}"
    );
    assert_eq!(all.len(), TIMES + TIMES_IN_CHILD);
    let other = said_of("babeltrace2", &[], "glob");
    let expected = other
        .lines()
        .filter(|line| line.contains("kernel_function"));
    assert_eq!(expected.count(), TIMES + TIMES_IN_CHILD, "{other}");
}

#[test]
fn they_go_with_tracers_of_latency() {
    let lines = raw("run");
    let threads = threads(&lines);
    let [main, child] = threads.as_slice() else {
        panic!("{threads:?}");
    };
    for (thread, times) in [(main, TIMES), (child, TIMES_IN_CHILD)] {
        assert_eq!(clocks_of(&lines, thread, "sys_getppid").len(), times);
    }
    assert_eq!(text("run.out"), format!("{TIMES}\n"));
    let said = text("run.said");
    assert!(said.contains("nopal: offcpu: "), "{said}");
    let worst = nopal_says(&["dump", "--as", "latency", "--of", "ask..ask.end"], "run");
    assert!(worst.contains("sys_getppid ("), "{worst}");
}

#[test]
fn nothing_is_left_in_tracefs() {
    for trace in ["all", "glob", "run", "hidden", "off", "killed"] {
        assert_eq!(text(&format!("{trace}.left")), "", "{trace}");
    }
    assert!(
        text("killed.before").starts_with("nopal-"),
        "{}",
        text("killed.said")
    );
    assert_eq!(text("killed.runs"), "runs\n");
    let refused = text("killed.tracer");
    assert!(refused.contains("-k with -e sched"), "{refused}");
}

#[test]
fn where_the_kernel_hides_what_is_needed_the_program_does_not_run() {
    for (trace, advice) in [
        ("hidden", "kernel.kptr_restrict"),
        ("off", "kernel.ftrace_enabled=1"),
    ] {
        let said = text(&format!("{trace}.said"));
        assert!(said.contains(advice), "{said}");
        assert_eq!(text(&format!("{trace}.status")), "1\n");
        assert!(!out(&format!("{trace}.ran")).exists());
        assert!(!out(trace).exists(), "there is no trace");
    }
}
