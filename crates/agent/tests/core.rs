//! Runs the C unit tests of `runtime/core`, on the simulated host, each in a process of its own; and the explorations
//! of its protocols, of larger worlds if `NOPAL_EXPLORE` is `far`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of the core except functions that a hosted C library has.
const SOURCES: [&str; 3] = ["core", "port/sim", "tests"];
const NOT_HOSTED: &str = "memory.c";

/// The hooks of a Linux process, which use their host only by `port.h`.
const HOOKS: [&str; 2] = ["port/linux/hooks.c", "port/linux/unwinders.c"];

/// The files beside `tests/explore` that its program needs.
const EXPLORED: [&str; 3] = [
    "core/poke_protocol.c",
    "port/sim/explore.c",
    "port/sim/sim_text.c",
];

/// Compiled so that `tests/explore/actors.c` watches all of its memory accesses.
const WATCHED: [&str; 3] = [
    "core/chunk.c",
    "tests/explore/actors_of_chunks.c",
    "tests/explore/actors_of_grace.c",
];

fn runtime() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime")
}

fn sources_in(folder: &str) -> Vec<PathBuf> {
    let files = runtime().join(folder).read_dir().unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "c") && !file.ends_with(NOT_HOSTED)
    });
    files.sort();
    files
}

fn compile(output: &Path, flags: &[&str], sources: &[PathBuf]) {
    let status = Command::new("gcc")
        .args(["-std=gnu17", "-g", "-O2", "-mcx16"])
        .args(["-Wall", "-Wextra", "-Werror", "-DNOPAL_RACE_POINTS"])
        .args(flags)
        .args(
            [
                "core",
                "port",
                "port/sim",
                "port/linux",
                "arch/x86_64",
                "../include",
            ]
            .map(|part| format!("-I{}", runtime().join(part).display())),
        )
        .args(sources)
        .arg("-o")
        .arg(output)
        .status();
    assert!(
        status.expect("gcc must be installed").success(),
        "the tests of the core do not compile"
    );
}

/// The output of a test that fails; `None` if it passes.
fn run(program: &Path, test: &str) -> Option<String> {
    let output = Command::new(program).arg(test).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = || {
        format!(
            "{test}: {}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
    };
    (!output.status.success()).then(said)
}

/// Runs all tests of the program, two at a time.
fn run_all(program: &Path, at_least: usize) {
    let list = String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap();
    let tests: Vec<&str> = list.lines().collect();
    assert!(tests.len() >= at_least, "only {} tests", tests.len());
    let next = AtomicUsize::new(0);
    let run_some = || {
        let mut failures = Vec::new();
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(run(program, test));
        }
        failures
    };
    let failures = std::thread::scope(|scope| {
        let other = scope.spawn(run_some);
        [run_some(), other.join().unwrap()].concat()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn core_does_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("core");
    let mut sources: Vec<PathBuf> = SOURCES.into_iter().flat_map(sources_in).collect();
    sources.extend(HOOKS.map(|file| runtime().join(file)));
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    compile(&program, &flags, &sources);
    run_all(&program, 40);
}

#[test]
fn protocols_hold_whatever_comes_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("explore");
    let watched = WATCHED.map(|file| runtime().join(file));
    let mut sources = EXPLORED.map(|file| runtime().join(file)).to_vec();
    sources.extend(sources_in("tests/explore"));
    sources.retain(|file| !watched.contains(file));
    for (number, file) in watched.into_iter().enumerate() {
        let object = folder.path().join(format!("{number}.o"));
        let flags = ["-c", "-fsanitize=thread"];
        compile(&object, &flags, &[file]);
        sources.push(object);
    }
    compile(&program, &[], &sources);
    run_all(&program, 13);
}
