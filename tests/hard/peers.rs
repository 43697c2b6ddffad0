//! The other tracers of this machine, on the same programs.

use crate::{Verdict, miscounted};
use nopal_tests::{Case, Ended, Program, Start, compile, difference, scratch};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

pub struct Peer {
    pub name: &'static str,
    pub run: fn(&Case) -> Verdict,
}

pub const PEERS: &[Peer] = &[
    Peer {
        name: "uftrace",
        run: uftrace,
    },
    Peer {
        name: "frida",
        run: frida,
    },
    Peer {
        name: "uprobes",
        run: uprobes,
    },
    Peer {
        name: "XRay",
        run: xray,
    },
];

/// The functions whose calls the program states: a peer traces these if it cannot trace all.
fn functions(case: &Case) -> Vec<String> {
    let ended = case.untraced();
    case.expected(&ended).into_keys().collect()
}

/// The program's start, with a tracer's command before it.
fn under(case: &Case, words: &[&str]) -> Start {
    let mut start = case.untraced_start();
    let before = words.iter().map(OsString::from);
    start.words = before.chain(start.words).collect();
    start
}

fn compared(case: &Case, ended: &Ended, calls: impl Fn(&str) -> u64) -> Verdict {
    if let Some(difference) = difference(&case.untraced(), ended) {
        return Verdict::Harmed(difference);
    }
    miscounted(case, ended, calls).map_or(Verdict::Same, Verdict::Harmed)
}

fn is_installed(command: &str) -> bool {
    let found = Command::new(command).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// uftrace traces all functions of the program by patching.
fn uftrace(case: &Case) -> Verdict {
    if !is_installed("uftrace") {
        return Verdict::Absent("not installed".into());
    }
    let scratch = scratch();
    let directory = scratch.path().join("trace");
    let directory = directory.to_str().expect("a plain path");
    let record = [
        "uftrace",
        "record",
        "--no-pager",
        "-P",
        ".",
        "-d",
        directory,
    ];
    let ended = under(case, &record).run(case.input_text());
    let report = [
        "uftrace",
        "report",
        "--no-pager",
        "-f",
        "call",
        "-d",
        directory,
    ];
    let report = Start::new(report).run("").stdout;
    let calls: BTreeMap<&str, u64> = report
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .filter_map(|(calls, function)| Some((function.trim(), calls.parse().ok()?)))
        .collect();
    compared(case, &ended, |function| {
        calls.get(function).copied().unwrap_or(0)
    })
}

/// Counts calls with a function in JavaScript, as Frida's handbook does.
const FRIDA: &str = r#"
import frida, json, os, sys
names, program = json.loads(sys.argv[1]), sys.argv[2:]
counts = {}
device = frida.get_local_device()
pid = device.spawn(program, stdio="inherit")
session = device.attach(pid)
script = session.create_script("""
const counts = {};
for (const name of %s) {
  const found = Process.mainModule.enumerateSymbols().find(s => s.name === name && s.type === 'function');
  if (found) { counts[name] = 0; Interceptor.attach(found.address, { onEnter() { counts[name]++; } }); }
}
for (const name of ['_exit', 'exit_group'])  {
  const exit = Module.findGlobalExportByName(name);
  if (exit) Interceptor.attach(exit, { onEnter() { send(counts); recv('go', () => {}).wait(); } });
}
""" % json.dumps(names))
def message(m, _):
    if m["type"] == "send":
        with open(os.environ["COUNTS"], "w") as file: json.dump(m["payload"], file)
        script.post({"type": "go"})
script.on("message", message)
script.load()
fd = os.pidfd_open(pid)
device.resume(pid)
import select
select.select([fd], [], [], 25)
"#;

fn frida(case: &Case) -> Verdict {
    let has = Command::new("python3")
        .args(["-c", "import frida"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        return Verdict::Absent("not installed (pip install frida)".into());
    }
    let scratch = scratch();
    let counts = scratch.path().join("counts");
    let names = format!("{:?}", functions(case));
    let mut start = under(case, &["python3", "-c", FRIDA, &names]);
    start
        .environment
        .push(("COUNTS".into(), counts.clone().into()));
    let mut ended = start.run(case.input_text());
    let counts = fs::read_to_string(&counts).ok();
    // The status is the script's own: only the program's output is compared.
    let untraced = case.untraced();
    if crate::ended_well(ended.end) {
        ended.end = untraced.end;
    }
    if let Some(difference) = difference(&untraced, &ended) {
        return Verdict::Harmed(difference);
    }
    let counts = counts.and_then(|text| serde_json::from_str::<BTreeMap<String, u64>>(&text).ok());
    let Some(counts) = counts else {
        return Verdict::Absent("it does the same; how often was not delivered".into());
    };
    let calls = |function: &str| counts.get(function).copied().unwrap_or(0);
    miscounted(case, &ended, calls).map_or(Verdict::Same, Verdict::Harmed)
}

const TRACING: &str = "/sys/kernel/tracing";

/// uprobes are the kernel's breakpoints, one at each function, counted by the kernel.
fn uprobes(case: &Case) -> Verdict {
    let events = Path::new(TRACING).join("uprobe_events");
    if !events.exists() {
        return Verdict::Absent("the kernel has none, or tracefs is not mounted".into());
    }
    let Some(offsets) = offsets(&case.program().path, &functions(case)) else {
        return Verdict::Absent("no symbols to find its functions by".into());
    };
    let path = case.program().path.display();
    let probes: String = offsets
        .iter()
        .enumerate()
        .map(|(index, (_, offset))| format!("p:nopal_hard/f{index} {path}:{offset:#x}\n"))
        .collect();
    if let Err(error) = fs::write(&events, probes) {
        return Verdict::Refused(format!("uprobe_events: {error}"));
    }
    let probes = Probes;
    probes.enable("1");
    let ended = case.untraced_start().run(case.input_text());
    let profile = fs::read_to_string(Path::new(TRACING).join("uprobe_profile")).unwrap_or_default();
    let hits = |function: &str| {
        let index = offsets.iter().position(|(name, _)| name == function)?;
        let name = format!("f{index}");
        let mut lines = profile.lines().map(str::split_whitespace);
        lines.find_map(|mut words| {
            words.by_ref().find(|word| *word == name)?;
            words.next()?.parse().ok()
        })
    };
    compared(case, &ended, |function| hits(function).unwrap_or(0))
}

/// Removes the probes when dropped, even if a program hangs.
struct Probes;

impl Probes {
    fn enable(&self, word: &str) {
        let _ = fs::write(Path::new(TRACING).join("events/nopal_hard/enable"), word);
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.enable("0");
        let _ = fs::OpenOptions::new()
            .append(true)
            .open(Path::new(TRACING).join("uprobe_events"))
            .and_then(|mut file| file.write_all(b"-:nopal_hard/\n"));
    }
}

/// The offsets of functions in a file, by its symbols.
fn offsets(program: &Path, functions: &[String]) -> Option<Vec<(String, u64)>> {
    let image = nopal_symbols::Image::open(program).ok()?;
    let at = |name: &String| {
        let address = image.symbol(name)?;
        let mut segments = image.segments().iter();
        let segment = segments.find(|segment| {
            (segment.address..segment.address + segment.memory_size).contains(&address)
        })?;
        Some((name.clone(), address - segment.address + segment.offset))
    };
    let found: Vec<_> = functions.iter().filter_map(at).collect();
    (!found.is_empty()).then_some(found)
}

/// XRay patches the same program, which clang compiles with room in every function.
fn xray(case: &Case) -> Verdict {
    let Program {
        source, compiler, ..
    } = case.program();
    let (Some(source), [compiler, words @ ..]) = (source, &compiler[..]) else {
        return Verdict::Absent("it needs the source".into());
    };
    let clang = match compiler.as_str() {
        "gcc" => "clang",
        "g++" => "clang++",
        _ => return Verdict::Absent(format!("not by {compiler}")),
    };
    if !is_installed(clang) || !is_installed("llvm-xray") {
        return Verdict::Absent("clang or llvm is not installed".into());
    }
    let source = source.file_name().and_then(|name| name.to_str());
    let (words, flags): (Vec<&str>, Vec<&str>) = words
        .iter()
        .map(String::as_str)
        .partition(|word| !word.starts_with("-l") && !word.starts_with("-L"));
    let own = ["-fxray-instrument", "-fxray-instruction-threshold=1"];
    let command = [&[clang], &words[..], &own].concat();
    let compiled = catch_unwind(|| compile(source.expect("a plain name"), &command, &flags));
    let Ok(program) = compiled else {
        return Verdict::Absent("clang does not compile or link it so".into());
    };
    let scratch = scratch();
    let mut start = case.untraced_start();
    start.words[0] = program.path.clone().into();
    let untraced = start.run(case.input_text());
    let options = format!(
        "patch_premain=true xray_mode=xray-basic verbosity=0 xray_logfile_base={}/log.",
        scratch.path().display()
    );
    start
        .environment
        .push(("XRAY_OPTIONS".into(), options.into()));
    let all = "func_duration_threshold_us=0";
    start
        .environment
        .push(("XRAY_BASIC_OPTIONS".into(), all.into()));
    let mut ended = start.run(case.input_text());
    ended.stderr = ended
        .stderr
        .split_inclusive('\n')
        .filter(|line| !line.contains("Unable to determine CPU frequency"))
        .collect();
    if let Some(difference) = difference(&untraced, &ended) {
        return Verdict::Harmed(difference);
    }
    let calls = xray_calls(&program.path, scratch.path());
    miscounted(case, &ended, |function| {
        calls.get(function).copied().unwrap_or(0)
    })
    .map_or(Verdict::Same, Verdict::Harmed)
}

/// The entries in all logs of a directory: records of 32 bytes behind a header of the same length.
fn xray_calls(program: &Path, logs: &Path) -> BTreeMap<String, u64> {
    let mut entries: BTreeMap<i32, u64> = BTreeMap::new();
    for log in fs::read_dir(logs).expect("it is there").flatten() {
        let bytes = fs::read(log.path()).unwrap_or_default();
        for record in bytes.chunks_exact(32).skip(1) {
            let is_entry = record[..2] == [0, 0] && matches!(record[3], 0 | 3);
            let function = i32::from_le_bytes([record[4], record[5], record[6], record[7]]);
            *entries.entry(function).or_default() += u64::from(is_entry);
        }
    }
    let mut extract = Start::new(["llvm-xray", "extract", "-symbolize"]);
    extract.words.push(program.into());
    let mut calls = BTreeMap::new();
    for line in extract.run("").stdout.lines() {
        let field = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            let rest = rest.strip_prefix('\'').map_or_else(
                || rest.split(", ").next(),
                |quoted| quoted.split('\'').next(),
            );
            rest.map(str::to_owned)
        };
        if line.contains("function-enter")
            && let (Some(number), Some(name)) = (field(" id: "), field("function-name: "))
        {
            let number = number.parse().unwrap_or(0);
            *calls.entry(name).or_default() += entries.get(&number).copied().unwrap_or(0);
        }
    }
    calls
}
