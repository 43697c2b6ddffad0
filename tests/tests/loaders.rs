//! Programs that are run by naming the loader first, as AppImages, Nix and some containers do: they are traced as if
//! they had been named alone.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nopal_tests::process::assert_nothing_left;
use nopal_tests::{
    Case, End, Program, Report, Start, c, compile, name_without_blanks, nopal, scratch, shell_word,
    sources,
};

const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

fn musl() -> Program {
    let compiler = ["musl-gcc", "-std=gnu17", "-O2", "-g", "-pthread"];
    compile("phases.c", &compiler, &[])
}

fn loaded(loader: &str, options: &[&str], program: &Program) -> Case {
    let mut words: Vec<OsString> = options.iter().map(Into::into).collect();
    words.push(program.path.clone().into());
    Case::new(Program::installed(loader)).arguments(words)
}

/// Each kind of loader, with its own options.
fn kinds() -> Vec<Case> {
    let program = c("phases", &[]);
    vec![
        loaded(GLIBC, &[], &program),
        loaded(GLIBC, &["--argv0", "other"], &program),
        loaded(
            GLIBC,
            &["--inhibit-cache", "--library-path", "/lib/x86_64-linux-gnu"],
            &program,
        ),
        loaded(GLIBC, &["--preload", "libm.so.6"], &program),
        loaded(MUSL, &[], &musl()),
        loaded(MUSL, &["--argv0", "other", "--"], &musl()),
    ]
}

fn assert_three_phases(report: &Report) {
    let calls = ["descend", "leaf", "waits", "main"].map(|function| report.calls(function));
    assert_eq!(calls, [3300, 3000, 63, 1]);
    // By default, only the library functions that the program itself calls are recorded.
    assert_eq!(report.calls("printf"), 4);
    assert_eq!(
        report.calls("_dl_relocate_object") + report.calls("_IO_new_file_write"),
        0
    );
}

#[test]
fn a_program_is_recorded_from_its_start() {
    for case in kinds() {
        let case = case.input("on\non\n");
        let traced = case.traced();
        assert_eq!(traced.ended.end, End::Code(5), "{}", traced.ended.stderr);
        assert_eq!(traced.ended.stderr, "");
        assert_three_phases(&traced.report);
    }
}

#[test]
fn a_program_is_attached_to() {
    for case in kinds() {
        let scratch = scratch();
        let trace = scratch.path().join("trace");
        let mut program = case.untraced_start().spawn();
        program.wait_for(|text| text.contains("phase 0\n"));
        let mut stdin = program.stdin();
        let mut tool = case.attach(program.id(), &trace);
        std::io::Write::write_all(&mut stdin, b"on\n").unwrap();
        program.wait_for(|text| text.contains("phase 1\n"));
        tool.signal_group(libc::SIGINT);
        assert_eq!(tool.wait().end, End::Code(0));
        assert_nothing_left(program.id());
        drop(stdin);
        assert_eq!(program.wait().end, End::Code(5));
        let report = Report::of(&trace);
        let calls = ["descend", "leaf", "waits"].map(|function| report.calls(function));
        assert_eq!(calls, [1100, 1000, 21]);
    }
}

/// The error output of a nopal command.
fn said(words: &[&Path]) -> String {
    let mut start = Start::new([nopal()]);
    start.words.extend(words.iter().map(Into::into));
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    ended.stdout
}

#[test]
fn the_program_is_the_one_that_is_named() {
    let case = loaded(GLIBC, &[], &c("phases", &[]));
    let traced = case.traced();
    let program = c("phases", &[]).path;
    let info = said(&["info".as_ref(), &traced.directory()]);
    let process = info.lines().find(|line| line.contains("status 5"));
    let process = process.expect("the process is named");
    assert!(process.ends_with(program.to_str().unwrap()), "{info}");
    let mut running = case.untraced_start().spawn();
    running.wait_for(|text| text.contains("phase 0\n"));
    let number = running.id().to_string();
    let list = said(&["list".as_ref(), "--json".as_ref(), number.as_ref()]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let first = list[0]["functions"].as_array().expect("functions");
    assert!(
        first.iter().any(|one| one["function"] == "descend"),
        "the first file is the program's"
    );
}

#[test]
fn a_loader_that_runs_nothing_ends_as_it_does() {
    for words in [&["--list"][..], &["--verify"], &["--no-such-option"]] {
        let case = loaded(GLIBC, words, &c("phases", &[]));
        let (untraced, traced) = (case.untraced(), case.traced());
        assert_eq!(traced.ended.end, untraced.end);
        assert_eq!(traced.report.total_calls(), 0);
    }
    let missing = Case::new(Program::installed(GLIBC)).arguments(["/no/such/program"]);
    assert_eq!(missing.untraced().end, End::Code(127));
    assert_eq!(missing.traced().ended.end, End::Code(127));
}

/// The programs have loaders as patchelf sets them for Nix, and stranger ones.
#[test]
fn programs_with_loaders_of_their_own() {
    let scratch = scratch();
    let folder = scratch.path().join("a loader's folder");
    std::fs::create_dir(&folder).unwrap();
    let loader = folder.join("ld 2.so");
    std::fs::copy(GLIBC, &loader).unwrap();
    for interpreter in [loader, PathBuf::from("a loader's folder/ld 2.so")] {
        let program = scratch.path().join("phases");
        let built = std::process::Command::new("gcc")
            .args(["-O2", "-g", "-pthread", "-std=gnu17"])
            .arg(sources().join("phases.c"))
            .arg(format!("-Wl,--dynamic-linker={}", interpreter.display()))
            .arg("-o")
            .arg(&program)
            .status();
        assert!(built.expect("gcc runs").success());
        let case = Case::new(Program::installed(&program)).directory(scratch.path());
        let traced = case.input("on\non\n").traced();
        assert_eq!(traced.ended.end, End::Code(5), "{}", traced.ended.stderr);
        assert_three_phases(&traced.report);
    }
}

#[test]
fn a_loader_is_followed_into_by_exec_and_from_scripts() {
    let program = c("phases", &[]).path;
    let scratch = scratch();
    let script = scratch.path().join("script");
    let (_directory, name) = name_without_blanks(&program);
    std::fs::write(&script, format!("#!{GLIBC} {}\n", name.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!(
        "{GLIBC} {}; exec {}",
        shell_word(&program),
        shell_word(&script)
    );
    for case in [
        Case::new(Program::installed(&script)),
        Case::new(Program::installed("/bin/sh")).arguments(["-c", &line]),
    ] {
        let often = 1 + u64::from(case.argument_words().len() > 1);
        let traced = case.traced();
        assert_eq!(traced.ended.end, End::Code(5), "{}", traced.ended.stderr);
        assert_eq!(traced.report.calls("leaf"), 1000 * often);
    }
}
