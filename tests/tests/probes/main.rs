//! Probes at instructions: each passing is in the trace with its values, and the program is unharmed.

mod breakpoints;

use nopal_tests::process::{
    assert_nothing_left, assert_text_restored, nopals_mappings, wait_until,
};
use nopal_tests::{Case, End, Ended, Program, Running, Start, compile, nopal, passed, scratch};
use serde_json::Value;
use std::collections::BTreeMap;

fn program(compiler: &str, flags: &[&str]) -> Program {
    let mut all = vec!["-pthread"];
    all.extend(flags);
    compile("probed.c", &[compiler, "-std=gnu17", "-g"], &all)
}

fn run(words: &[&str]) -> Ended {
    Start::new(words).run("")
}

fn counts(events: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        let name = event.split(' ').next().unwrap();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn probes<'a>(all: &[&'a str]) -> Vec<&'a str> {
    all.iter().flat_map(|probe| ["--probe", *probe]).collect()
}

/// The probeable instructions of a function from the `skip`th on that do not overlap; each probe fetches a register and
/// memory.
fn everywhere(file: &str, function: &str, skip: usize) -> Vec<String> {
    let nopal = nopal();
    let listed = run(&[
        nopal.to_str().unwrap(),
        "list",
        "--json",
        "--probes",
        function,
        file,
    ]);
    assert_eq!(listed.end, End::Code(0), "{}", listed.stderr);
    let all: Value = serde_json::from_str(&listed.stdout).unwrap();
    let mut end = 0;
    let mut chosen = Vec::new();
    for site in all.as_array().unwrap().iter().skip(skip) {
        let (address, bytes) = (site["address"].as_u64().unwrap(), site["bytes"].as_u64());
        let Some(bytes) = bytes.filter(|_| address >= end) else {
            continue;
        };
        end = address + bytes;
        let place = site["place"].as_str().unwrap();
        let fetched = ["$cx", "$si +8($sp)", "+0($ax)", "text=$di:string"][chosen.len() % 4];
        chosen.push(format!("{place} fetch {fetched}"));
    }
    assert!(!chosen.is_empty(), "{function} can be probed");
    chosen
}

const TRICKY: [&str; 6] = [
    "red_zone+0xf new red fetch $di $si",
    "backward+0x4 new back fetch $cx from=+0($si):u8 text=-9($si):string",
    "self_loop+0x2 new loop fetch $di",
    "registers+0x2c new all fetch $ax $cx $dx $si $di $r8 $r9 $r10 $r11 $bx $bp $r15",
    "return registers new end fetch $retval:s64",
    "counted new first fetch $arg1 $arg2:u32",
];

#[test]
fn a_probe_sees_all_and_changes_nothing() {
    for (compiler, flags) in [
        ("gcc", &["-O2"][..]),
        ("clang", &["-O0", "-fno-pie", "-no-pie"]),
    ] {
        let how = format!("{compiler} {flags:?}");
        let case = Case::new(program(compiler, flags))
            .arguments(["20"])
            .options(probes(&TRICKY))
            .options(["--block"]);
        let traced = case.unchanged();
        let events = passed(&traced.directory());
        let expected = [
            ("red", 36),
            ("back", 1),
            ("loop", 20),
            ("all", 1),
            ("end", 1),
            ("first", 20),
        ];
        assert_eq!(counts(&events), expected.into(), "{how}");
        let has = |text: &str| assert!(events.iter().any(|event| event == text), "{how}: {text}");
        has("red di=0xffffffffffffffb3 si=0x4d");
        has(r#"back cx=0xa from=99 text="3456789abcdef""#);
        has("loop di=0x14");
        has("loop di=0x1");
        has("end retval=4146");
        has("first arg1=0x0 arg2=19");
        let all = events
            .iter()
            .find(|event| event.starts_with("all "))
            .unwrap();
        let found = "all ax=0x1 cx=0x2 dx=0x3 si=0x6 di=0x5 r8=0x8 r9=0x9 r10=0xa r11=0xb";
        assert!(all.starts_with(found), "{how}: {all}");
    }
}

#[test]
fn every_instruction_can_be_probed() {
    for (compiler, flags) in [
        ("gcc", &["-O0"][..]),
        ("gcc", &["-O2", "-fcf-protection=full"]),
        ("clang", &["-O2"]),
        ("gcc", &["-O3", "-fno-pie", "-no-pie"]),
    ] {
        let how = format!("{compiler} {flags:?}");
        let program = program(compiler, flags);
        let path = program.path.to_str().unwrap().to_owned();
        for skip in 0..3 {
            let all = everywhere(&path, "mixed", skip);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let case = Case::new(program.clone())
                .arguments(["45"])
                .options(probes(&all))
                .options(["--block"]);
            let traced = case.unchanged();
            let events = passed(&traced.directory());
            if all[0].starts_with("mixed fetch") {
                assert_eq!(counts(&events)["mixed"], 45, "{how}");
            }
            assert!(
                counts(&events).len() > all.len() / 2,
                "{how}: most probes are passed"
            );
        }
    }
}

#[test]
fn threads_are_counted_exactly() {
    let case = Case::new(program("gcc", &["-O2"]))
        .arguments(["5000", "8"])
        .options(["--probe", "counted fetch thread:u32 i:u32", "--block"]);
    let traced = case.unchanged();
    let events = passed(&traced.directory());
    assert_eq!(events.len(), 40_000);
    for thread in 0..8 {
        let begin = format!("counted thread={thread} i=");
        let own = events.iter().filter_map(|event| event.strip_prefix(&begin));
        let own: Vec<usize> = own.map(|i| i.parse().unwrap()).collect();
        assert!(own.into_iter().eq(0..5000), "thread {thread}");
    }
}

#[test]
fn variables_are_found_where_the_compiler_keeps_them() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-gdwarf-4"]] {
        let case = Case::new(program("gcc", flags)).arguments(["9"]);
        let case = case.options([
            "--probe",
            "mixed fetch n request +8(request):x64 done",
            "--block",
        ]);
        let traced = case.traced();
        assert_eq!(traced.ended.end, End::Code(5), "{flags:?}: {}", traced.said);
        let events = passed(&traced.directory());
        assert_eq!(events.len(), 9, "{flags:?}");
        // Before the prologue has run, locals in memory have no place yet.
        if flags[0] != "-O0" {
            assert!(
                events[7].starts_with("mixed n=7 request=0x"),
                "{}",
                events[7]
            );
        }
        assert!(
            events.iter().all(|event| event.ends_with(" done=0")),
            "{flags:?}"
        );
    }
}

/// The program with busy threads, and its session.
struct Busy {
    program: Running,
    tool: Running,
    _scratch: tempfile::TempDir,
    trace: std::path::PathBuf,
}

impl Busy {
    fn new() -> Busy {
        Busy::with("wait")
    }

    /// Starts the program with an additional task, as `probed.c` describes.
    fn with(word: &str) -> Busy {
        let scratch = scratch();
        let case = Case::new(program("gcc", &["-O2"]))
            .arguments(["10", "3", word])
            .options(["-F", "main"]);
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains("mixed"));
        // When the program waits for the end of its input, it has made its threads and blocked its signals.
        let stat = format!("/proc/{}/stat", program.id());
        wait_until("it waits", || {
            std::fs::read_to_string(&stat).unwrap().contains(") S ")
        });
        let trace = scratch.path().join("trace");
        let tool = case.attach(program.id(), &trace);
        Busy {
            program,
            tool,
            trace,
            _scratch: scratch,
        }
    }

    fn ctl(&self, commands: &str) -> Ended {
        let process = self.program.id().to_string();
        let nopal = nopal();
        Start::new([nopal.to_str().unwrap(), "ctl", &process]).run(commands)
    }

    fn obey(&self, commands: &str) -> String {
        let ended = self.ctl(commands);
        assert_eq!(ended.end, End::Code(0), "{commands}: {}", ended.stderr);
        ended.stdout
    }

    /// Waits until a thread has passed a probe that is on, and its record is written.
    fn wait_for_pass(&self, probe: &str) {
        self.obey(&format!("when probe {probe} do count new passed"));
        wait_until("a thread comes by", || {
            let state = self.obey("");
            let met = state.split("#when passed met ").nth(1);
            met.is_some_and(|met| !met.starts_with("0,"))
        });
        self.obey("when passed remove");
    }

    fn end(mut self) {
        drop(self.program.stdin());
        assert_eq!(self.program.wait().end, End::Code(5));
    }
}

#[test]
fn probes_come_and_go_while_threads_pass() {
    let mut busy = Busy::new();
    for round in 0..3 {
        busy.obey(&format!(
            "probe counted new p{round} fetch $di\nprobe return mixed\nprobe p{round} on"
        ));
        let state = busy.obey("");
        assert!(state.contains(&format!("probe counted new p{round} fetch di=$di\n")));
        busy.wait_for_pass(&format!("p{round}"));
        busy.obey(&format!(
            "probe p{round} off\nprobe mixed:return remove\nprobe p{round} remove"
        ));
    }
    let refused = busy.ctl("trace counted new t\nprobe counted");
    assert!(
        refused.stderr.contains("counted is traced"),
        "{}",
        refused.stderr
    );
    busy.obey("trace t remove\nprobe counted new last\nprobe last on");
    let refused = busy.ctl("trace counted new t");
    assert!(
        refused.stderr.contains("a probe needs the same bytes"),
        "{}",
        refused.stderr
    );
    busy.tool.signal_group(libc::SIGINT);
    let ended = busy.tool.wait();
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    assert_nothing_left(busy.program.id());
    let events = passed(&busy.trace);
    let counts = counts(&events);
    for round in 0..3 {
        assert!(
            counts.contains_key(&*format!("p{round}")),
            "round {round}: {counts:?}"
        );
    }
    busy.end();
}

#[test]
fn probes_are_taken_out_when_the_tool_is_killed() {
    let mut busy = Busy::new();
    busy.obey("probe counted fetch $di +0($sp)\nprobe counted on\nprobe return mixed\nprobe mixed:return on");
    busy.tool.signal_group(libc::SIGKILL);
    busy.tool.wait();
    let process = busy.program.id();
    wait_until("the guardian has cleaned up", || {
        nopals_mappings(process).is_empty()
    });
    assert_text_restored(process);
    busy.end();
}

#[test]
fn places_that_cannot_be_are_refused_with_the_reason() {
    let program = program("gcc", &["-O2"]);
    let path = program.path.to_str().unwrap();
    let nopal = nopal();
    for (probe, said) in [
        ("mixt", "no function is named mixt; the nearest are"),
        ("mixed fetch requst", "the nearest is request"),
        ("mixed+0x100000", "bytes long"),
        (
            "self_loop+0x3",
            "the nearest ones begin at self_loop+0x2 and self_loop+0x5",
        ),
        (
            "_start",
            "its function may not be patched: the program's entry",
        ),
        ("setjmp@libc", "its function may not be patched"),
        ("probed.c:1", "the next line with code is"),
        ("probed.c:100000", "nor of later lines"),
        ("0x10", "there is no function"),
        ("registers+0x2c fetch $arg1", "where a function begins"),
        ("return mixed+0x10", "not the beginning of a function"),
        ("return mixed fetch $cx", "this register is used by nopal"),
        ("mixed fetch $zz", "registers are"),
        (
            "mixed fetch a=$ax b=$ax c=$ax d=$ax e=$ax f=$ax g=$ax h=$ax i=$ax j=$ax k=$ax l=$ax m=$ax",
            "up to 12 values",
        ),
        (
            "red_zone+0x43",
            "the function ends within the bytes that a jump needs; a breakpoint fits there (--breakpoint=auto,",
        ),
    ] {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let words = [
            nopal.to_str().unwrap(),
            "record",
            "-o",
            trace.to_str().unwrap(),
        ];
        let ended = run(&[&words[..], &["--probe", probe, path]].concat());
        assert_eq!(ended.end, End::Code(1), "{probe}: {}", ended.stderr);
        assert!(ended.stderr.contains(said), "{probe}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{probe}: the program did not run");
    }
}

#[test]
fn a_line_of_several_functions_names_them() {
    let program = program("gcc", &["-O2"]);
    let place = format!("probed.c:{}", program.line_of(" left(long n)"));
    let case = Case::new(program).options(["--probe", &place]);
    let refused = case.traced_start(&scratch().path().join("trace")).run("");
    let expected = format!("{place} is at several places: left@probed right@probed");
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert_eq!((refused.end, &*refused.stdout), (End::Code(1), ""));
}

#[test]
fn nopals_own_code_cannot_be_probed() {
    let mut busy = Busy::new();
    let process = busy.program.id();
    let own = nopals_mappings(process);
    let generated = own.iter().find(|line| line.contains(" r-x")).unwrap();
    let address = generated.split('-').next().unwrap();
    for (place, said) in [
        (format!("0x{address}"), "is in nopal's own memory"),
        (
            "_dl_debug_state".to_owned(),
            "the loader's hook, which nopal itself uses",
        ),
        ("0x700000000000".to_owned(), "is in no file that is loaded"),
    ] {
        for way in ["", "breakpoint "] {
            let refused = busy.ctl(&format!("probe {way}{place}"));
            assert_eq!(refused.end, End::Code(1), "{way}{place}");
            let refused = refused.stderr;
            assert!(
                refused.contains(said) || refused.contains("the C library blocks"),
                "{way}{place}: {refused}"
            );
        }
    }
    busy.tool.signal_group(libc::SIGINT);
    assert_eq!(busy.tool.wait().end, End::Code(0));
    busy.end();
}

/// If nopal makes no system calls, probes record registers, and no memory.
#[test]
fn a_confined_program_and_its_child_are_probed() {
    let case = Case::new(nopal_tests::c("seccomp", &[]))
        .arguments(["fork"])
        .options([
            "--block",
            "--probe",
            "before fetch n=$di:s32 held=+0($sp)",
            "--probe",
            "after fetch n=$di:s32 held=+0($sp)",
        ]);
    let traced = case.unchanged();
    let events = passed(&traced.directory());
    assert_eq!(counts(&events), [("before", 100), ("after", 200)].into());
    for n in 0..100 {
        let before = format!("before n={n} held=0x");
        assert_eq!(
            events
                .iter()
                .filter(|event| event.starts_with(&before))
                .count(),
            1
        );
        let after = format!("after n={} held=?", n + 100);
        assert_eq!(
            events.iter().filter(|event| **event == after).count(),
            2,
            "{after}"
        );
    }
}

#[test]
fn programs_that_nobody_here_wrote() {
    let python = "import json\n\
         def f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n\
         print(f(9), json.dumps({str(i): [i, None, 1.5] for i in range(9)}))\n\
         try:\n    [][1]\nexcept IndexError as error:\n    print(error)\n";
    let sql = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 40) \
         insert into t select i, i * i % 97 from n; select b, count(*), sum(a) from t group by b order by 2, 1 limit 9;";
    for (path, words, function) in [
        (
            "/usr/bin/python3",
            ["-c", python],
            "_PyEval_EvalFrameDefault",
        ),
        ("/usr/bin/python3", ["-c", python], "PyObject_GetAttr"),
        ("/usr/bin/sqlite3", [":memory:", sql], "sqlite3_step"),
    ] {
        let real = std::fs::canonicalize(path).unwrap();
        let file = match function {
            "sqlite3_step" => library_of_sqlite(),
            _ => real.to_str().unwrap().to_owned(),
        };
        let all = everywhere(&file, function, 0);
        let every = (all.len() / 60).max(1);
        let all: Vec<&str> = all.iter().step_by(every).map(String::as_str).collect();
        let case = Case::new(Program::installed(path))
            .arguments(words)
            .options(probes(&all));
        let traced = case.unchanged();
        assert_eq!(
            traced.ended.end,
            End::Code(0),
            "{function}: {}",
            traced.said
        );
        let events = passed(&traced.directory());
        assert!(
            counts(&events).len() > all.len() / 8,
            "{function}: {}",
            all.len()
        );
    }
}

fn library_of_sqlite() -> String {
    let ended = run(&["ldd", "/usr/bin/sqlite3"]);
    let line = ended
        .stdout
        .lines()
        .find(|line| line.contains("libsqlite3"));
    let path = line.and_then(|line| line.split_whitespace().nth(2));
    let path = path.expect("sqlite3 uses its library");
    std::fs::canonicalize(path)
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}
