//! Kernels that let only the tracing thread write to protected pages by `/proc/PID/mem`, or nobody (6.12 and newer). A
//! guest each runs once for all of these tests.

use nopal_tests::kernel::kernels;
use nopal_tests::{Guest, c, nopal};
use serde_json::Value;
use std::fs;
use std::sync::OnceLock;
use std::thread;
use tempfile::TempDir;

const SCRIPT: &str = "
own_text protected >/out/protected
nopal record --libs -o /out/launched -- own_text 200 >/out/launched.out 2>/out/launched.said
echo $? >/out/launched.status
nopal report --json /out/launched >/out/launched.report

# attached NAME: returns when the tool has all jumps in the text.
attached() {
	own_text 0 >/out/$1.out &
	program=$!
	nopal attach --libs -o /out/$1 $program >/out/$1.said 2>&1 &
	tool=$!
	until nopal ctl $program >/out/$1.state 2>/dev/null || ! kill -0 $tool; do usleep 20000; done
	usleep 200000
}
ended() {
	kill -TERM $program
	wait $program
	echo $? >/out/$1.status
}
attached left
for word in on off on; do
	nopal ctl $program \"mark turned $word\" \"trace turn new t\" \"trace t $word\" >>/out/left.told 2>&1
	usleep 200000
done
nopal detach $program >>/out/left.told 2>&1
wait $tool
ended left
nopal report --json /out/left >/out/left.report

attached killed
kill -KILL $tool
wait $tool
for wait in $(seq 500); do
	grep nopal /proc/$program/maps >/out/killed.maps || break
	usleep 20000
done
ended killed
";

const MODES: [&str; 2] = ["ptrace", "never"];

fn out(mode: &str) -> &'static TempDir {
    static OUT: OnceLock<Vec<TempDir>> = OnceLock::new();
    let all = OUT.get_or_init(|| {
        let program = c("own_text", &[]);
        let kernel = kernels().pop().expect("there are kernels").join("vmlinuz");
        let run = |mode| {
            let guest = Guest {
                programs: &[nopal(), &program.path],
                files: &[],
                kernel: kernel.clone(),
                options: &format!("proc_mem.force_override={mode}"),
                processors: 2,
                counts_instructions: false,
            };
            guest.run(SCRIPT)
        };
        thread::scope(|scope| {
            let running = MODES.map(|mode| scope.spawn(move || run(mode)));
            running
                .into_iter()
                .map(|it| it.join().expect("it is done"))
                .collect()
        })
    });
    let at = MODES.iter().position(|it| *it == mode);
    &all[at.expect("one of the modes")]
}

fn text(mode: &str, name: &str) -> String {
    let path = out(mode).path().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{mode}: {name}: {error}"))
}

/// The row of a function in `nopal report --json`.
fn row(report: &str, function: &str) -> Value {
    let rows: Vec<Value> = serde_json::from_str(report).expect("a report");
    let mut rows = rows.into_iter();
    rows.find(|row| row["function"] == function)
        .unwrap_or_default()
}

/// The program found its text as before. Where nobody may write through the file, jumps in two words are left out.
fn is_as_before(mode: &str, name: &str, turns: u32) {
    let [output, status, said] =
        ["out", "status", "said"].map(|kind| text(mode, &format!("{name}.{kind}")));
    assert_eq!(
        output,
        format!("{turns} turns, text as before\n"),
        "{mode}: {said}"
    );
    assert_eq!(status, "3\n", "{mode}: {said}");
    let left_out = said.contains("not traced: the code in memory cannot be changed");
    let told = mode == "never" && name != "killed";
    assert_eq!(left_out, told, "{mode}: {said}");
}

#[test]
fn a_program_is_recorded_whole_and_left_as_it_was() {
    for mode in MODES {
        assert_eq!(text(mode, "protected"), "protected\n", "{mode}");
        is_as_before(mode, "launched", 200);
        let report = text(mode, "launched.report");
        assert_eq!(row(&report, "turn")["calls"], 200, "{mode}: {report}");
        is_as_before(mode, "left", 0);
        assert_eq!(text(mode, "left.told"), "", "{mode}");
        let report = row(&text(mode, "left.report"), "turn");
        assert!(report["calls"].as_u64() > Some(0), "{mode}: {report}");
    }
}

#[test]
fn a_killed_tool_leaves_nothing_behind() {
    for mode in MODES {
        is_as_before(mode, "killed", 0);
        assert_eq!(text(mode, "killed.maps"), "", "{mode}");
    }
}
