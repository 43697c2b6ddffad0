//! Markers of `include/nopal.h`, recorded: the program is unharmed, and each marker is in the trace with its values.

use nopal_tests::process::{assert_nothing_left, processor_time};
use nopal_tests::{
    Case, End, Ended, Program, Recording, Running, Start, compile, example, nopal, passed, scratch,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::time::Duration;

fn program(compiler: &str, flags: &[&str]) -> Program {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
    let mut all = vec!["-pthread", include];
    all.extend(flags);
    compile("markers.c", &[compiler, "-std=gnu17", "-g"], &all)
}

fn output(words: &[&str], trace: &Path) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg(trace)
        .output()
        .unwrap_or_else(|error| panic!("{} must be installed: {error}", words[0]));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn check(traced: &Recording, how: &str) {
    let markers = passed(&traced.directory());
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for marker in &markers {
        *count.entry(marker.split(' ').next().unwrap()).or_default() += 1;
    }
    let expected = [
        ("after_exit", 1),
        ("before_main", 1),
        ("generic", 1),
        ("leaf", 4100),
        ("numbers", 1),
        ("on_signal", 1),
        ("starts_with_one", 100),
        ("texts", 1),
        ("thread", 4000),
        ("variable", 1),
    ];
    assert_eq!(count, expected.into(), "{how}");
    let nopal = nopal().to_str().unwrap();
    let hist = output(&[nopal, "hist", "--json", "thread.i"], &traced.directory());
    let hist: serde_json::Value = serde_json::from_str(&hist).unwrap();
    let all = &hist["groups"][0];
    let found = ["count", "min", "max"].map(|name| all[name].as_i64());
    assert_eq!(found, [Some(4000), Some(0), Some(999)], "{how}");
    let has = |text: &str| assert!(markers.iter().any(|marker| marker == text), "{how}: {text}");
    has("before_main pid=1");
    has("leaf a=99 b=100 x=99");
    has("starts_with_one n=7");
    has("on_signal number=10");
    has("thread i=999 of=0x0");
    has("generic n=42");
    has(
        r#"variable argument1=-1 i16=-2 u8=255 size=18446744073709551615 c='c' state=busy f=1.5 text="text" bytes="byt" p=0x10"#,
    );
    has(
        "numbers argument1=-1 i16=-2 u8=255 hex=0xdeadbeef u64=18446744073709551615 state=busy f=1.5",
    );
    let texts = markers
        .iter()
        .find(|marker| marker.starts_with("texts"))
        .unwrap();
    let long = "x".repeat(4096);
    let expected = format!(
        r#"texts text="a \"text\"" none="(null)" part="a " bytes=<00 01 ff> long="{long}"+61440 last=7"#
    );
    assert_eq!(*texts, expected, "{how}");
}

#[test]
fn markers_alone() {
    for (compiler, flags) in [
        ("gcc", &["-O0"][..]),
        ("gcc", &["-O2"]),
        ("gcc", &["-O3", "-fno-omit-frame-pointer"]),
        ("gcc", &["-Os", "-fcf-protection=full"]),
        ("gcc", &["-O2", "-fno-pie", "-no-pie"]),
        ("clang", &["-O0"]),
        ("clang", &["-O2"]),
        ("clang", &["-O3", "-mno-red-zone"]),
    ] {
        let how = format!("{compiler} {flags:?}");
        let case = Case::new(program(compiler, flags)).options(["-M", "*", "--block"]);
        let traced = case.unchanged();
        check(&traced, &how);
        assert!(traced.report.rows.is_empty(), "{how}: no functions");
    }
}

#[test]
fn markers_inside_calls() {
    for compiler in ["gcc", "clang"] {
        let case = Case::new(program(compiler, &["-O2"]));
        let traced = case.options(["-M", "*", "-F", "*", "--block"]).check();
        check(&traced, compiler);
        assert_eq!(traced.report.calls("starts_with_one"), 100);
        let replay = output(&[nopal().to_str().unwrap(), "replay"], &traced.directory());
        let mut lines = replay
            .lines()
            .skip_while(|line| !line.contains("/* starts_with_one n=0 */"));
        let marker = lines.next().expect("the marker is shown");
        let end = lines.next().expect("the call that it is in ends");
        assert!(end.contains("} /* starts_with_one */"), "{compiler}: {end}");
        let depth = |line: &str| {
            line.len()
                - line
                    .trim_start_matches(|c: char| c != '/' && c != '}')
                    .len()
        };
        assert_eq!(depth(marker), depth(end) + 2, "{compiler}");
    }
}

#[test]
fn babeltrace_shows_fields_by_name() {
    let case = Case::new(program("gcc", &["-O2"])).options(["-M", "*", "--block"]);
    let traced = case.traced();
    let shown = output(&["babeltrace2"], &traced.directory());
    for event in [
        " leaf: { ",
        "{ a = 99, b = 100, x = 99 }",
        "{ argument1 = -1, i16 = -2, u8 = 255, hex = 0xDEADBEEF, u64 = 18446744073709551615, state = ( \"busy\" : container = 4 ), f = 1.5 }",
        "text = \"a \\\"text\\\"\", none_length = 6, none_cut = 0, none = \"(null)\"",
        "bytes_length = 3, bytes_cut = 0, bytes = [ [0] = 0x0, [1] = 0x1, [2] = 0xFF ]",
        "long_cut = 61440",
        "last = 7 }",
    ] {
        assert!(shown.contains(event), "{event}");
    }
}

#[test]
fn markers_of_a_process_that_runs() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = Case::new(program("gcc", &["-O2"])).arguments(["busy"]);
    let mut program = case.untraced_start().spawn();
    program.wait_for(|text| text.contains("ready\n"));
    for round in 0..6 {
        let choice: &[&str] = match round % 2 {
            0 => &["-M", "*", "--flight", "--buffer", "1M"],
            _ => &["-M", "*", "-F", "*", "--flight", "--buffer", "1M"],
        };
        let attached = Case::new(case.program().clone()).options(choice.iter().copied());
        let mut tool = attached.attach(program.id(), &trace);
        let process = program.id();
        let enough = processor_time(process) + Duration::from_millis(200);
        program.wait_until(|| processor_time(process) >= enough);
        tool.signal_group(libc::SIGINT);
        let ended = tool.wait();
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
        assert_nothing_left(program.id());
        let recorded = passed(&trace);
        for name in ["busy i=", "tested i=", "leaf a=", "starts_with_one n="] {
            let found = recorded.iter().any(|marker| marker.starts_with(name));
            assert!(found, "round {round}: {name}");
        }
    }
    drop(program.stdin());
    let ended = program.wait();
    assert_eq!((ended.end, &*ended.stderr), (End::Code(0), ""));
}

#[test]
fn only_what_was_asked_for() {
    let case = Case::new(program("gcc", &["-O2"])).options(["-M", "on_*", "-M", "nothing@lib*"]);
    assert_eq!(passed(&case.traced().directory()), ["on_signal number=10"]);
}

#[test]
fn markers_of_a_program_in_rust() {
    let case = Case::new(example("nopal-mark", "marked")).options(["-M", "*"]);
    let traced = case.unchanged();
    let expected = [0, 1, 2, 3, 4].map(|n| {
        let state = ["even", "odd"][n % 2];
        format!(r#"step n={n} name="Grüße" state={state}"#)
    });
    assert_eq!(passed(&traced.directory()), expected);
}

#[test]
fn a_marker_that_is_not_there() {
    let program = program("gcc", &["-O2"]);
    let ended = Case::new(program)
        .options(["-M", "leav"])
        .traced_start(&scratch().path().join("trace"))
        .run("");
    assert!(
        ended
            .stderr
            .contains("no marker matches leav; the nearest is leaf"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "", "the program has not run");
}

/// The program `marked`, which passes its markers on command, and the tool that traces it.
struct ControlledProgram {
    scratch: tempfile::TempDir,
    program: Running,
    stdin: Option<ChildStdin>,
    tool: Running,
    rounds: usize,
    seen: BTreeMap<String, usize>,
}

const PASSES: usize = 7;

impl ControlledProgram {
    fn new(compiler: &str, options: &[&str]) -> ControlledProgram {
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
        let program = compile("marked.c", &[compiler, "-std=gnu17"], &["-O2", include]);
        ControlledProgram::of(program, options)
    }

    fn of(program: Program, options: &[&str]) -> ControlledProgram {
        let case = Case::new(program).options(options);
        let scratch = scratch();
        let mut program = case.untraced_start().spawn();
        let mut stdin = program.stdin();
        writeln!(stdin, "1").unwrap();
        program.wait_for(|text| text.contains("done\n"));
        let tool = case.attach(program.id(), &scratch.path().join("trace"));
        ControlledProgram {
            scratch,
            program,
            stdin: Some(stdin),
            tool,
            rounds: 1,
            seen: BTreeMap::new(),
        }
    }

    fn ctl(&self, commands: &str) -> Ended {
        let program = self.program.id().to_string();
        let mut start = nopal_tests::Start::new([nopal().as_os_str()]);
        start.words.extend(["ctl".into(), program.into()]);
        start.run(commands)
    }

    fn obeys(&self, commands: &str) -> String {
        let ended = self.ctl(commands);
        assert_eq!(ended.end, End::Code(0), "{commands}: {}", ended.stderr);
        ended.stdout
    }

    /// Has the program pass its markers, and asserts that the trace gains those in `recorded`, and no others.
    fn records(&mut self, recorded: &[&str]) {
        self.rounds += 1;
        let rounds = self.rounds;
        writeln!(self.stdin.as_mut().unwrap(), "{PASSES}").unwrap();
        self.program
            .wait_for(|text| text.matches("done\n").count() == rounds);
        self.obeys("");
        for name in recorded {
            *self.seen.entry(name.to_string()).or_default() += PASSES;
        }
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for marker in passed(&self.scratch.path().join("trace")) {
            let name = marker.split(' ').next().unwrap();
            *found.entry(name.to_owned()).or_default() += 1;
        }
        assert_eq!(found, self.seen, "{recorded:?}");
    }

    /// Ends both, and returns the program's output.
    fn end(mut self) -> (String, String) {
        self.tool.signal_group(libc::SIGINT);
        let ended = self.tool.wait();
        assert_eq!(
            (ended.end, ended.stderr.contains("not traced")),
            (End::Code(0), false),
            "{}",
            ended.stderr
        );
        assert_nothing_left(self.program.id());
        writeln!(self.stdin.as_mut().unwrap(), "1").unwrap();
        self.stdin = None;
        let ended = self.program.wait();
        assert_eq!(ended.end, End::Code(5));
        (ended.stdout, ended.stderr)
    }
}

#[test]
fn markers_are_switched_while_the_program_runs() {
    for compiler in ["gcc", "clang"] {
        let mut controlled = ControlledProgram::new(compiler, &["-F", "main"]);
        controlled.records(&[]);
        controlled.obeys("mark first on");
        controlled.records(&["first"]);
        controlled.obeys("mark * on\nmark within off");
        controlled.records(&["first", "tested"]);
        let state = controlled.obeys("");
        assert!(
            state.contains("mark first on\nmark * on\nmark within off\n"),
            "{state}"
        );
        controlled.obeys("stop");
        controlled.records(&[]);
        controlled.obeys("start\nmark within on");
        controlled.records(&["first", "tested", "within"]);
        let refused = controlled.ctl("mark frist on");
        assert_eq!(refused.end, End::Code(1));
        assert!(
            refused
                .stderr
                .contains("no marker matches frist; the nearest is first"),
            "{}",
            refused.stderr
        );
        controlled.obeys("mark * off");
        controlled.records(&[]);
        // All of them are counted as events, and none as a call.
        let all: usize = controlled.seen.values().sum();
        let state = controlled.obeys("");
        assert!(
            state.contains(&format!("\n#tracehits {all}, in queue {all}\n")),
            "{state}"
        );
        assert!(!state.contains("counted from now on"), "{state}");
        assert!(
            state.contains(&format!("\n#slothits {all}\n#traceinhits 0\n")),
            "{state}"
        );
        controlled.end();
    }
}

/// A marker is among the first instructions of a traced function; both are switched on and off in any order.
#[test]
fn markers_that_are_displaced_are_switched_too() {
    for compiler in ["gcc", "clang"] {
        let mut controlled = ControlledProgram::new(compiler, &["-M", "first"]);
        controlled.records(&["first"]);
        controlled.obeys("trace first within new f\ntrace f on");
        controlled.records(&["first"]);
        controlled.obeys("mark first off\nmark within on");
        controlled.records(&["within"]);
        controlled.obeys("trace f off");
        controlled.records(&["within"]);
        controlled.obeys("mark first on\nmark tested on");
        controlled.records(&["first", "within", "tested"]);
        controlled.obeys("trace f remove");
        controlled.records(&["first", "within", "tested"]);
        controlled.obeys("mark first off");
        controlled.records(&["within", "tested"]);
        controlled.obeys("trace first new f\nmark first on");
        controlled.records(&["first", "within", "tested"]);
        controlled.obeys("mark first off\ntrace f remove");
        controlled.records(&["within", "tested"]);
        controlled.obeys("mark first on\ntrace first new f\ntrace f on");
        controlled.records(&["first", "within", "tested"]);
        // Three rounds ran with f on.
        let calls = 3 * PASSES;
        let state = controlled.obeys("");
        assert!(
            state.contains(&format!("entries {calls}, exits {calls}")),
            "{state}"
        );
        controlled.end();
    }
}

/// Probes of `sys/sdt.h` have values and names with a colon, and the program counts the listeners.
#[test]
fn static_probes() {
    let values = |n: i64| {
        let c = (n + 250) % 256;
        format!("counted:values argument1={} argument2={c} argument3=", -n)
    };
    for (compiler, flag) in [("gcc", "-O2"), ("gcc", "-O0"), ("clang", "-O2")] {
        let program = || compile("statics.c", &[compiler, "-std=gnu17"], &[flag]);
        let how = format!("{compiler} {flag}");
        let options = ["-M", "counted:*", "-F", "main"];
        let launched = Case::new(program()).options(options).input("8\n").traced();
        assert_eq!(
            launched.ended.stdout.lines().next(),
            Some("1 1 done"),
            "{how}: {}",
            launched.said
        );
        let found = passed(&launched.directory());
        let all: Vec<&String> = found.iter().filter(|one| one.contains("values")).collect();
        assert_eq!(all.len(), 8, "{how}");
        for (n, marker) in all.iter().enumerate() {
            assert!(marker.starts_with(&values(n as i64)), "{how}: {marker}");
            assert!(
                marker.contains(" argument4=1099511627776"),
                "{how}: {marker}"
            );
        }
        let others = "counted:others argument1=5 argument2=-7";
        let others = found.iter().filter(|one| one.starts_with(others));
        assert_eq!(others.count(), 8, "{how}: {found:?}");

        let mut controlled = ControlledProgram::of(program(), &["-F", "main"]);
        controlled.records(&[]);
        controlled.obeys("mark counted:values on");
        controlled.records(&["counted:values"]);
        controlled.obeys("mark counted:others on\nmark counted:values off");
        controlled.records(&["counted:others"]);
        controlled.obeys("stop");
        controlled.records(&[]);
        controlled.obeys("start\nmark c*:* on");
        controlled.records(&["counted:others", "counted:values"]);
        let refused = controlled.ctl("mark counted:value on");
        assert!(
            refused.stderr.contains("the nearest is counted:values"),
            "{}",
            refused.stderr
        );
        let (said, _) = controlled.end();
        let listened: Vec<&str> = said.lines().collect();
        let expected = [
            "0 0 done", "0 0 done", "1 0 done", "0 1 done", "0 0 done", "1 1 done", "0 0 done",
        ];
        assert_eq!(listened[..7], expected, "{how}");
    }
}

/// The probes are those of Debian's libraries.
#[test]
fn static_probes_of_a_library() {
    let case = Case::new(nopal_tests::cxx("throws", &[]));
    let traced = case.options(["-M", "libstdcxx:*"]).traced();
    let found = passed(&traced.directory());
    let count = |name: &str| found.iter().filter(|one| one.starts_with(name)).count();
    let counts =
        ["libstdcxx:throw", "libstdcxx:catch"].map(|name| count(&format!("{name} argument1=0x")));
    assert_eq!(counts, [5, 5], "{}", traced.said);
}

/// The number of instructions of an object's function that run while its markers are off: no conditional jump is taken.
fn instructions(object: &Path, function: &str) -> usize {
    let listed = Start::new([
        "objdump",
        "-d",
        "--no-show-raw-insn",
        &format!("--disassemble={function}"),
        object.to_str().unwrap(),
    ]);
    let listed = listed.run("").stdout;
    let address = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
    let lines = listed.lines().filter_map(|line| {
        let (at, instruction) = line.split_once(":\t")?;
        Some((address(at)?, instruction.trim()))
    });
    let code: BTreeMap<u64, &str> = lines.collect();
    let mut at = *code.keys().next().expect("the function is there");
    let mut count = 0;
    loop {
        let instruction = code[&at];
        count += 1;
        assert!(count < 1000, "{function} does not end:\n{listed}");
        let target = instruction.strip_prefix("jmp").map(|rest| {
            let target = rest.split_whitespace().next().and_then(address);
            target.expect("a direct jump")
        });
        let behind = || *code.range(at + 1..).next().expect("it goes on").0;
        match target {
            _ if instruction.starts_with("ret") => return count,
            Some(target) => at = target,
            None => at = behind(),
        }
    }
}

/// The one instruction is the NOP if the compiler moves the rest out of line; else a jump over it as well.
#[test]
fn a_marker_that_is_off_is_one_instruction() {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
    for (compiler, language, level, added) in [
        ("gcc", "-std=gnu17", "-O2", 1),
        ("gcc", "-std=gnu17", "-O3", 1),
        ("gcc", "-std=gnu17", "-Os", 2),
        ("gcc", "-std=gnu17", "-O1", 2),
        ("gcc", "-std=gnu17", "-O0", 2),
        ("clang", "-std=gnu17", "-O1", 1),
        ("clang", "-std=gnu17", "-O2", 1),
        ("clang", "-std=gnu17", "-O3", 1),
        ("clang", "-std=gnu17", "-Os", 1),
    ] {
        let object = |flags: &[&str]| {
            let flags = [&["-c", include][..], flags].concat();
            compile("unlikely.c", &[compiler, language, level], &flags).path
        };
        let (with, without) = (object(&[]), object(&["-DNOPAL_OFF"]));
        let functions = [
            "alone",
            "with_values",
            "of_char",
            "of_byte",
            "of_short",
            "of_bool",
            "of_enum",
            "of_float",
            "of_unsigned",
        ];
        // Compilers that add a jump treat narrow values in other ways, too.
        for function in &functions[..if added == 1 { functions.len() } else { 2 }] {
            assert_eq!(
                instructions(&with, function),
                instructions(&without, function) + added,
                "{compiler} {level} {function}"
            );
        }
    }
}
