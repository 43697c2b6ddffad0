//! Runs the C unit tests of `runtime/core`, on the simulated host, each in a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// All of the core but the functions that a hosted C library has.
const SOURCES: [&str; 3] = ["core", "port/sim", "tests"];
const NOT_HOSTED: &str = "memory.c";

fn sources(runtime: &Path) -> Vec<PathBuf> {
    let files = SOURCES
        .iter()
        .flat_map(|folder| runtime.join(folder).read_dir().unwrap());
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "c") && !file.ends_with(NOT_HOSTED)
    });
    files.sort();
    files
}

fn compile(folder: &Path) -> PathBuf {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime");
    let program = folder.join("core");
    let status = Command::new("gcc")
        .args([
            "-std=gnu17",
            "-g",
            "-O2",
            "-mcx16",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-DNOPAL_RACE_POINTS",
        ])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .args(
            ["core", "port", "port/sim", "arch/x86_64"]
                .map(|part| format!("-I{}", runtime.join(part).display())),
        )
        .args(sources(&runtime))
        .arg("-o")
        .arg(&program)
        .status();
    assert!(
        status.expect("gcc must be installed").success(),
        "the tests of the core do not compile"
    );
    program
}

/// `None`, or what the test says of its failure.
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

#[test]
fn core_does_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    let list = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let tests: Vec<&str> = list.lines().collect();
    assert!(tests.len() > 40, "only {} tests", tests.len());
    let all = |tests: &[&str]| {
        tests
            .iter()
            .filter_map(|test| run(&program, test))
            .collect::<Vec<_>>()
    };
    let (first, second) = tests.split_at(tests.len() / 2);
    let failures = std::thread::scope(|scope| {
        let other = scope.spawn(|| all(second));
        [all(first), other.join().unwrap()].concat()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
