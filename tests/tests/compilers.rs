//! Programs compiled with hooks, or with room for them, and by other compilers.

use nopal_tests::{Case, Program, c, compile, cxx, nopal, rust};
use serde_json::Value;

fn clang(flags: &[&str]) -> Program {
    compile("hooks.c", &["clang", "-std=gnu17", "-O2", "-g"], flags)
}

/// The way in which `nopal list` says that a function is reached.
fn how(program: &Program, function: &str) -> String {
    let mut start = nopal_tests::Start::new([nopal().as_os_str()]);
    start
        .words
        .extend(["list".into(), "--json".into(), program.path.clone().into()]);
    let ended = start.run("");
    let list: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let rows = list["functions"].as_array().expect("functions is an array");
    let row = rows
        .iter()
        .find(|row| row["function"] == function)
        .unwrap_or_else(|| panic!("no {function}: {list}"));
    row["how"].as_str().expect("how is a string").to_owned()
}

fn check(program: Program, expected: &str) {
    assert_eq!(how(&program, "leaf"), expected);
    Case::new(program).check();
}

#[test]
fn unmodified() {
    check(c("hooks", &[]), "jump");
}

#[test]
fn patchable_function_entry() {
    check(
        c("hooks", &["-fpatchable-function-entry=5"]),
        "patchable entry",
    );
}

#[test]
fn patchable_function_entry_with_room_before_the_function() {
    check(
        c("hooks", &["-fpatchable-function-entry=16,11"]),
        "patchable entry",
    );
}

#[test]
fn patchable_function_entry_by_clang() {
    check(clang(&["-fpatchable-function-entry=5"]), "patchable entry");
}

#[test]
fn fentry_calls() {
    check(c("hooks", &["-pg", "-mfentry"]), "fentry");
}

#[test]
fn fentry_calls_made_nops() {
    check(
        c(
            "hooks",
            &["-pg", "-mfentry", "-mnop-mcount", "-fno-pie", "-no-pie"],
        ),
        "patchable entry",
    );
}

#[test]
fn xray_sleds() {
    check(
        clang(&["-fxray-instrument", "-fxray-instruction-threshold=1"]),
        "xray sled",
    );
}

/// Each run has its own directory, into which the program writes its profile.
fn check_profiled(program: Program) {
    let scratch = nopal_tests::scratch();
    Case::new(program).directory(scratch.path()).check();
    let profile =
        std::fs::metadata(scratch.path().join("gmon.out")).expect("the profile is written");
    assert!(profile.len() > 0);
}

#[test]
fn profiling_calls() {
    check_profiled(c("hooks", &["-pg"]));
}

#[test]
fn profiling_calls_of_a_program_with_exceptions() {
    let scratch = nopal_tests::scratch();
    Case::new(cxx("objects", &["-pg"]))
        .directory(scratch.path())
        .check();
}

#[test]
fn instrumented_functions() {
    Case::new(c("hooks", &["-finstrument-functions"])).check();
}

#[test]
fn by_clang() {
    check(clang(&[]), "jump");
}

#[test]
fn a_program_in_cxx() {
    Case::new(cxx("objects", &[])).check();
}

#[test]
fn a_program_in_cxx_by_clang() {
    Case::new(compile(
        "objects.cc",
        &["clang++", "-std=c++17", "-O2"],
        &[],
    ))
    .check();
}

#[test]
fn a_program_in_rust() {
    Case::new(rust("rusty", &[])).check();
}

#[test]
fn a_program_in_rust_with_the_newer_names() {
    Case::new(rust("rusty", &["-Csymbol-mangling-version=v0"])).check();
}

#[test]
fn linked_with_relocations_kept() {
    check(c("hooks", &["-Wl,-q"]), "jump");
}

#[test]
fn with_sections_collected_and_link_time_optimisation() {
    check(
        c(
            "hooks",
            &["-flto", "-ffunction-sections", "-Wl,--gc-sections"],
        ),
        "jump",
    );
}

#[test]
fn sanitizers_by_gcc() {
    for sanitizer in ["address", "undefined", "thread"] {
        let flag = format!("-fsanitize={sanitizer}");
        Case::new(c("calls", &[&flag, "-lm"])).check();
    }
}

#[test]
fn sanitizers_by_clang() {
    let sanitized = |flag| {
        let command = ["clang", "-std=gnu17", "-O2", "-g", flag];
        Case::new(compile("calls.c", &command, &["-lm"]))
    };
    sanitized("-fsanitize=memory").check();
    // The compiler gives functions names of its own.
    let traced = sanitized("-fsanitize=dataflow").unchanged();
    assert_eq!(traced.report.calls("many.dfsan"), 1000);
}

#[test]
fn values_in_all_places_of_calling_conventions() {
    Case::new(c("conventions", &["-lm"])).check();
    let command = ["clang", "-std=gnu17", "-O2", "-g"];
    Case::new(compile("kept.c", &command, &[])).check();
}
