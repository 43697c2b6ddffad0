//! Runtimes that look for return addresses, or copy stacks: they must find the addresses that calls left.

use std::path::Path;

use nopal_tests::{Case, Program, c, compile_copy, name_without_blanks, nopal, scratch, sources};
use serde_json::Value;

fn ocaml(flags: &str) -> Program {
    let script = format!("ocamlopt {flags} -o \"$2\" collected.ml");
    compile_copy("runtimes/collected.ml", &script)
}

/// The reasons in `nopal list` why only entries of functions are recorded.
fn entries_only(program: &Path) -> Vec<(String, Option<String>)> {
    let mut start = nopal_tests::Start::new([nopal().as_os_str()]);
    start
        .words
        .extend(["list".into(), "--json".into(), program.into()]);
    let list: Value = serde_json::from_str(&start.run("").stdout).expect("the list is JSON");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let functions = list["functions"].as_array().expect("functions is an array");
    let functions = functions.iter();
    functions
        .map(|row| {
            (
                text(&row["function"]).unwrap_or_default(),
                text(&row["entries_only"]),
            )
        })
        .collect()
}

/// OCaml's collector looks up the return addresses of all frames in a table, which nopal knows without symbols too.
#[test]
fn ocaml_programs() {
    for flags in [
        "",
        "-ccopt -s",
        "-ccopt -static",
        "-runtime-variant _pic -ccopt -pie",
    ] {
        let program = ocaml(flags);
        let functions = entries_only(&program.path);
        assert!(functions.len() > 500, "{flags}");
        let expected = |why: &Option<String>| why.as_ref().is_some_and(|it| it.contains("table"));
        assert!(functions.iter().all(|(_, why)| expected(why)), "{flags}");
        for options in [&[][..], &["--libs"]] {
            let traced = Case::new(program.clone()).options(options).check();
            assert!(
                traced.said.contains("finds its frames by a table"),
                "{flags}"
            );
        }
        Case::new(program).options(["--libs"]).check_come_and_go();
    }
}

/// So do others, whose tables need half the room.
#[test]
fn frames_found_by_32_bit_distances() {
    let traced = Case::new(c("distances", &[])).check();
    assert!(traced.said.contains("finds its frames by a table"));
    Case::new(c("distances", &["-DHOLD"])).check_come_and_go();
}

#[test]
fn handlers_that_share_a_frame() {
    let program = c("handlers", &[]);
    let functions = entries_only(&program.path);
    Case::new(program).check();
    Case::new(c("handlers", &["-DHOLD"])).check_come_and_go();
    for (function, why) in functions {
        let shares = ["next", "spill", "reload", "call"].contains(&&*function);
        let says = why.is_some_and(|it| it.contains("shares a frame"));
        assert_eq!(says, shares, "{function}");
    }
}

#[test]
fn rubys_continuations() {
    let case = || {
        let script = sources().join("runtimes/continued.rb");
        Case::new(Program::installed("/usr/bin/ruby"))
            .arguments(["-W0".into(), script.into_os_string()])
    };
    for options in [&[][..], &["--libs"]] {
        let traced = case().options(options).check();
        assert!(
            traced.said.contains("copies or walks its stacks"),
            "{}",
            traced.said
        );
    }
    case().options(["--libs"]).check_come_and_go();
}

/// A script that asks for no continuations keeps its durations.
#[test]
fn ruby_without_continuations() {
    let traced = Case::new(Program::installed("/usr/bin/ruby"))
        .arguments([
            "-e",
            "puts (1..1000).map { |n| Fiber.new { n }.resume }.sum",
        ])
        .check();
    assert!(!traced.said.contains("only entries"), "{}", traced.said);
    let durations = traced.report.rows_of("ruby_run_node");
    assert!(durations.count() > 0);
}

/// Two flows share a stack; nopal knows them by the code that switches between them.
#[test]
fn copied_stacks() {
    for flags in [&[][..], &["-s", "-rdynamic"], &["-DBY_DISTANCE"]] {
        let flags = [flags, &["-DHOLD"]].concat();
        let case = || Case::new(c("shared_stack", &flags));
        let traced = case().check();
        assert!(
            traced.said.contains("copies or walks its stacks"),
            "{flags:?}: {}",
            traced.said
        );
        case().options(["--libs"]).check_come_and_go();
    }
}

/// Known by the code that brings their stacks back.
#[test]
fn continuations() {
    for flags in [&["-O1"][..], &["-O2"], &["-O2", "-static"]] {
        for options in [&[][..], &["--libs"]] {
            let case = Case::new(c("continuations", flags));
            let traced = case.options(options).check();
            let said = traced.said;
            assert!(said.contains("copies or walks its stacks"), "{said}");
        }
        let held = [flags, &["-DHOLD"]].concat();
        Case::new(c("continuations", &held)).check_come_and_go();
    }
}

#[test]
fn functions_that_follow_frame_pointers() {
    for flags in [
        &["-fno-omit-frame-pointer"][..],
        &["-fno-omit-frame-pointer", "-O0"],
    ] {
        let program = c("walks_frames", flags);
        let functions = entries_only(&program.path);
        let why = |name: &str| {
            let found = functions.iter().find(|(function, _)| function == name);
            found.and_then(|(_, why)| why.clone()).unwrap_or_default()
        };
        for walker in ["asks", "asks_far", "walk"] {
            assert!(
                why(walker).contains("follows frame pointers"),
                "{walker} {flags:?}"
            );
        }
        assert!(
            why("from_afar").contains("keeps a frame pointer"),
            "{flags:?}"
        );
        let traced = Case::new(program).check();
        assert!(
            traced.said.contains("follows frame pointers"),
            "{}",
            traced.said
        );
        if !flags.contains(&"-O0") {
            // The walker never finds this function's return address, so it has durations.
            let mut rows = traced.report.rows_of("unlinked");
            assert!(rows.all(|row| row["total_ns"].as_u64().is_some_and(|total| total > 0)));
        }
    }
}

/// The program's profile counts calls by their return addresses.
#[test]
fn programs_that_profile_themselves() {
    for flags in [&["-pg"][..], &["-pg", "-mfentry"], &["-pg", "-static"]] {
        let traced = Case::new(c("profiles_itself", flags)).check();
        assert!(traced.ended.stdout.contains("400 calls"), "{flags:?}");
    }
}

/// uftrace puts return addresses of its own in place of those in the program.
#[test]
fn a_program_under_another_tracer() {
    let data = scratch();
    let program = c("calls", &["-pg"]).path;
    let traced = Case::new(Program::installed("/usr/bin/uftrace"))
        .arguments([
            "record".into(),
            "--data".into(),
            data.path().join("data"),
            program,
        ])
        .check();
    assert!(traced.said.contains("runs uftrace"), "{}", traced.said);
}

/// The walker is in another file, which is loaded at the start or later.
#[test]
fn a_library_that_follows_frame_pointers() {
    let flags = ["-shared", "-fPIC", "-fno-omit-frame-pointer"];
    let walker = c("walker", &flags).path;
    let program = c("walked", &["-fno-omit-frame-pointer"]);
    let case = || Case::new(program.clone()).arguments([&walker]);
    let traced = case().check();
    assert!(traced.said.contains("from then on"), "{}", traced.said);
    let (_directory, name) = name_without_blanks(&walker);
    let preloaded = case().environment("LD_PRELOAD", &name).check();
    assert!(
        !preloaded.said.contains("from then on"),
        "{}",
        preloaded.said
    );
    assert!(
        preloaded.said.contains("follows frame pointers"),
        "{}",
        preloaded.said
    );
}

/// The program's compiled code calls the thunks that it has found, also after nopal has left.
#[test]
fn a_program_that_follows_jumps() {
    let said = Case::new(c("follows", &["-rdynamic", "-DHOLD"])).check_come_and_go();
    // All but the code was given back. The last session can come too late.
    let failed = ["nopal: process ", "nopal: cannot "];
    let mut lines = said.lines();
    let has_failed = |line: &str| {
        failed.iter().any(|begin| line.starts_with(begin)) && !line.contains("has ended")
    };
    assert!(!lines.any(has_failed), "{said}");
}

/// Calls that are open when such a runtime is loaded have no end in the trace. Their known part ends when they are
/// unwrapped, and not with the thread.
#[test]
fn calls_that_are_open_when_a_runtime_is_loaded() {
    let library = c("runtime_late", &["-shared", "-fPIC", "-DRUNTIME"]).path;
    let traced = Case::new(c("runtime_late", &["-DHOLD"]))
        .arguments([&library])
        .check();
    assert!(
        traced.said.contains("runs a Java virtual machine"),
        "{}",
        traced.said
    );
    assert_eq!(traced.ended.stdout, "1 100\n");
    assert_eq!(traced.report.calls("step"), 100);
    for function in ["outer", "inner", "main"] {
        let rows: Vec<_> = traced.report.rows_of(function).collect();
        let [row] = rows[..] else {
            panic!("{function}: {rows:?}");
        };
        assert_eq!(row["unfinished"], 1, "{row}");
        // The steps take longer than this.
        assert!(row["total_ns"].as_u64().unwrap() < 400_000_000, "{row}");
    }
}

/// The thunks of a large library are in memory that was mapped for them.
#[test]
fn a_runtime_is_loaded_after_a_large_library() {
    let library = c("runtime_late", &["-shared", "-fPIC", "-DRUNTIME"]).path;
    let traced = Case::new(c("runtime_late", &[]))
        .options(["--libs"])
        .arguments([Path::new("libcrypto.so.3"), &library])
        .check();
    assert_eq!(traced.ended.stdout, "2 100\n");
    let said = traced.said;
    assert!(said.contains("runs a Java virtual machine"), "{said}");
    assert!(!said.contains("generated code"), "{said}");
}
