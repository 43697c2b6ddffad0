//! libnopal: functions of a program's own, connected to its markers while other threads pass them.

use nopal_tests::{Case, Program, compile, library, nopal};
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn program(source: &str, compiler: &str, flags: &[&str]) -> Program {
    let made = Command::new("make")
        .args(["--silent", "library"])
        .current_dir(root())
        .output()
        .expect("make must be installed");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let include = format!("-I{}", root().join("include").display());
    let library = root().join("target/library");
    let mut all = vec![&*include, "-pthread"];
    let [directory, run_path] =
        ["-L", "-Wl,-rpath,"].map(|flag| format!("{flag}{}", library.display()));
    all.extend([&*directory, &*run_path]);
    all.extend(flags);
    compile(source, &[compiler, "-std=gnu17", "-g"], &all)
}

#[test]
fn hooks_come_and_go() {
    let mcount = ["-pg", "-mfentry", "-mrecord-mcount", "-fno-pie", "-no-pie"];
    for (compiler, flags) in [
        (
            "gcc",
            &["-O2", "-fpatchable-function-entry=5", "-l:libnopal.a"][..],
        ),
        (
            "gcc",
            &[
                "-O0",
                "-falign-functions=16",
                "-fcf-protection=full",
                "-fpatchable-function-entry=7,2",
                "-lnopal",
            ],
        ),
        (
            "clang",
            &["-O2", "-mavx2", "-fpatchable-function-entry=5", "-lnopal"],
        ),
        ("gcc", &[&["-O2", "-lnopal"][..], &mcount].concat()),
        (
            "gcc",
            &[&["-O3", "-l:libnopal.a", "-mnop-mcount"][..], &mcount].concat(),
        ),
    ] {
        let ended = Case::new(program("hooked.c", compiler, flags)).untraced();
        assert_eq!(
            (&*ended.stdout, &*ended.stderr),
            ("done\n", ""),
            "{compiler} {flags:?}"
        );
    }
}

#[test]
fn functions_without_room_are_refused() {
    for (flags, why) in [
        (
            &["-O2", "-l:libnopal.a"][..],
            "they must be compiled with -fpatchable-function-entry=5",
        ),
        (
            &["-O2", "-fpatchable-function-entry=3", "-l:libnopal.a"],
            "cannot be changed while threads run",
        ),
    ] {
        let program = program("hooked.c", "gcc", flags);
        let ended = Case::new(program).arguments(["0", "many"]).untraced();
        assert!(ended.stdout.contains(why), "{flags:?}: {}", ended.stdout);
    }
}

#[test]
fn probes_come_and_go() {
    for (compiler, flags) in [
        ("gcc", &["-O2", "-lnopal"][..]),
        ("gcc", &["-O0", "-l:libnopal.a"]),
        ("clang", &["-O3", "-l:libnopal.a"]),
    ] {
        let ended = Case::new(program("connect.c", compiler, flags)).untraced();
        assert_eq!(
            (&*ended.stdout, &*ended.stderr),
            ("done\n", ""),
            "{compiler} {flags:?}"
        );
    }
}

#[test]
fn connections_wait_for_libraries_that_come_and_go() {
    let (_, marking) = library("marking.c");
    for (compiler, flags) in [
        ("gcc", &["-O2", "-lnopal"][..]),
        ("clang", &["-O2", "-l:libnopal.a", "-rdynamic"]),
    ] {
        let program = program("advance.c", compiler, flags);
        let case = Case::new(program).arguments([marking.as_os_str(), "10".as_ref()]);
        let ended = case.untraced();
        let found = (&*ended.stdout, &*ended.stderr);
        assert_eq!(found, ("done\n", ""), "{compiler} {flags:?}");
    }
}

#[test]
fn a_program_probes_its_own_instructions_and_returns() {
    for (compiler, flags) in [
        ("gcc", &["-O2", "-lnopal"][..]),
        (
            "gcc",
            &[
                "-O0",
                "-falign-functions=16",
                "-fcf-protection=full",
                "-l:libnopal.a",
            ],
        ),
        ("clang", &["-O3", "-mavx2", "-no-pie", "-l:libnopal.a"]),
    ] {
        let ended = Case::new(program("probe_at.c", compiler, flags)).untraced();
        let found = (&*ended.stdout, &*ended.stderr);
        assert_eq!(found, ("done\n", ""), "{compiler} {flags:?}");
    }
}

/// The instructions are those of this machine's C library, as objdump reads it.
#[test]
fn the_ends_of_instructions_are_known() {
    let program = compile(
        "lengths.c",
        &["gcc", "-std=gnu17", "-O2"],
        &[
            &format!("-I{}", root().join("include").display()),
            &format!("-I{}", root().join("runtime/library").display()),
            &format!("-I{}", root().join("runtime/core").display()),
            &format!("-I{}", root().join("runtime/port").display()),
            &format!("-I{}", root().join("runtime/arch/x86_64").display()),
        ],
    );
    let loaded = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = loaded.lines().find_map(|line| {
        let path = line.split_ascii_whitespace().last()?;
        path.contains("/libc.so").then_some(path)
    });
    let disassembled = Command::new("objdump")
        .args(["-d", "--insn-width=16", libc.expect("a C library")])
        .output()
        .expect("objdump runs");
    let text = String::from_utf8_lossy(&disassembled.stdout);
    // FWAIT is an instruction of its own, which objdump shows together with the next one.
    let bytes = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(":\t")?;
        let (bytes, what) = rest.split_once('\t')?;
        let is_one =
            address.starts_with(' ') && !what.contains("(bad)") && !bytes.starts_with("9b ");
        is_one.then(|| format!("{bytes}\n"))
    });
    let ended = Case::new(program)
        .untraced_start()
        .run(&bytes.collect::<String>());
    let counts: Vec<u64> = ended
        .stdout
        .split_ascii_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let [all, wrong, unknown] = counts[..] else {
        panic!("{}", ended.stdout)
    };
    assert!(all > 100_000 && wrong == 0, "{}", ended.stdout);
    assert!(unknown < all / 10_000, "{}", ended.stdout);
}

#[test]
fn all_registers_survive_a_probe() {
    for (compiler, flags) in [
        ("gcc", &["-O2", "-lnopal"][..]),
        ("clang", &["-O2", "-l:libnopal.a"]),
    ] {
        let ended = Case::new(program("vectors.c", compiler, flags)).untraced();
        let found = (&*ended.stdout, &*ended.stderr);
        assert_eq!(found, ("done\n", ""), "{compiler} {flags:?}");
    }
}

#[test]
fn the_registers_that_a_general_probe_changes_are_checked_in_the_file() {
    let program = program("general.c", "gcc", &["-O2", "-l:libnopal.a"]);
    let ended = Case::new(program.clone()).untraced();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("done\n", ""));
    let listed = |options: &[&str]| {
        let mut command = Command::new(nopal());
        let output = command.arg("list").args(options).arg(&program.path);
        String::from_utf8(output.output().unwrap().stdout).unwrap()
    };
    let text = listed(&[]);
    let said = |probe: &str| {
        let line = text
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(probe) && line.contains(" o"));
        let line = line.unwrap_or_else(|| panic!("{probe} is not in {text}"));
        line.split_once(probe).unwrap().1.trim().to_owned()
    };
    assert_eq!(said("adds"), "general ones only");
    assert_eq!(said("calls_general"), "general ones only");
    assert!(said("computes").starts_with("others: in_vectors does, at 0x"));
    assert!(said("calls_libc").starts_with("unknown: it calls a function of another file"));
    assert!(said("through_a_pointer").starts_with("unknown: through_a_pointer calls or jumps"));

    let json: serde_json::Value = serde_json::from_str(&listed(&["--json"])).unwrap();
    let probes = json["nopal_probes"].as_array().unwrap();
    let good: Vec<&str> = probes
        .iter()
        .filter(|probe| probe["general_registers_only"] == true)
        .filter_map(|probe| probe["function"].as_str())
        .collect();
    assert_eq!(probes.len(), 5);
    assert_eq!(good.len(), 2, "{good:?}");
    assert!(good.contains(&"adds") && good.contains(&"calls_general"));
}

#[test]
fn a_recording_and_probes_go_together() {
    let program = program("connect.c", "gcc", &["-O2", "-l:libnopal.a"]);
    let case = Case::new(program).arguments(["3"]);
    let traced = case.options(["-M", "*", "--max-size", "64M"]).traced();
    assert_eq!(traced.ended.stdout, "done\n", "{}", traced.ended.stderr);
    assert_eq!(traced.ended.stderr, "");
    // The trace has markers to which no probe was ever connected.
    let dump = Command::new(nopal())
        .args(["dump", "--as", "raw"])
        .arg(traced.directory())
        .output()
        .unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout);
    let leaves = dump
        .lines()
        .filter(|line| line.contains(" marker leaf a="))
        .count();
    assert!(leaves > 1000 && dump.contains(" marker again"), "{leaves}");
}
