//! Libraries: linked, loaded, unloaded.

use nopal_tests::{
    Case, End, Program, Report, Start, c, compile, copies, library, name_without_blanks, nopal,
    passed, scratch, without_own_words,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn linked() -> Case {
    linked_to("library", "linked")
}

fn linked_to(name: &str, program: &str) -> Case {
    let (directory, _) = library(&format!("{name}.c"));
    let directory = directory.to_str().expect("a plain path").to_owned();
    Case::new(c(
        program,
        &[
            &format!("-L{directory}"),
            &format!("-l{name}"),
            &format!("-Wl,-rpath,{directory}"),
        ],
    ))
}

#[test]
fn a_library_loaded_and_unloaded_in_a_loop() {
    let (_, library) = library("library.c");
    Case::new(c("dlopen", &[]))
        .arguments([library.as_os_str(), "100".as_ref()])
        .options(["--libs"])
        .check();
}

/// A return address in generated code is none of the library's.
#[test]
fn a_library_that_looks_for_the_next_function_of_a_name() {
    linked_to("interposer", "interposed")
        .options(["-F", "*@libinterposer*"])
        .check();
}

/// Pointers to the library's functions may be called from everywhere.
#[test]
fn a_library_that_is_opened_is_traced_whole() {
    let (_, library) = library("library.c");
    let case = Case::new(c("dlopen", &[])).arguments([library.as_os_str(), "20".as_ref()]);
    let traced = case.traced();
    assert_eq!(traced.ended, case.untraced());
    let calls = ["callback", "library_entry", "library_leaf", "library_inner"]
        .map(|function| traced.report.calls(function));
    assert_eq!(calls, [200, 20, 200, 200]);
}

#[test]
fn a_library_that_is_opened_in_a_pid_namespace() {
    let (_, library) = library("library.c");
    let program = c("dlopen", &[]);
    let path = program.path.clone();
    let unshare = Program {
        path: "unshare".into(),
        ..program
    };
    let words = ["--pid", "--fork", "--kill-child", "--mount-proc"].map(OsString::from);
    let words = words
        .into_iter()
        .chain([path.into(), library.into(), "20".into()]);
    let case = Case::new(unshare).arguments(words).options(["--libs"]);
    case.check();
}

#[test]
fn what_a_library_that_is_opened_needs_is_traced_whole_too() {
    let (directory, _) = library("library.c");
    let directory = directory.to_str().expect("a plain path");
    let between = compile(
        "between.c",
        &["gcc", "-O2", "-g", "-shared", "-fPIC"],
        &[
            "-Wl,--no-as-needed",
            &format!("-L{directory}"),
            "-llibrary",
            &format!("-Wl,-rpath,{directory}"),
        ],
    );
    let case = Case::new(c("dlopen", &[])).arguments([between.path.as_os_str(), "20".as_ref()]);
    let traced = case.traced();
    assert_eq!(traced.ended, case.untraced());
    let calls = ["library_entry", "library_leaf", "library_inner"]
        .map(|function| traced.report.calls(function));
    assert_eq!(calls, [20, 200, 200]);
}

/// The executable does not know the library behind the first, and calls nothing of it.
#[test]
fn what_libraries_call_of_each_other_is_traced() {
    let (directory, _) = library("library.c");
    let directory = directory.to_str().expect("a plain path");
    let between = compile(
        "between.c",
        &["gcc", "-O2", "-g", "-shared", "-fPIC"],
        &[
            &format!("-L{directory}"),
            "-llibrary",
            &format!("-Wl,-rpath,{directory}"),
        ],
    );
    let flags = [between.path.to_str().expect("a plain path")];
    let traced = Case::new(c("around", &flags)).check();
    let calls = ["library_leaf", "library_inner"].map(|name| traced.report.calls(name));
    assert_eq!(calls, [0, 0]);
}

#[test]
fn a_thin_program_has_its_library_traced_whole() {
    let directory = copies("crowd.c", "crowd", 1);
    let directory = directory.to_str().expect("a plain path");
    let flags = [
        format!("-L{directory}"),
        "-lcrowd0".to_owned(),
        format!("-Wl,-rpath,{directory}"),
    ];
    let flags = flags.each_ref().map(String::as_str);
    Case::new(c("crowded", &flags)).arguments(["1"]).check();
}

#[test]
fn an_imported_function_is_traced_and_an_inner_one_is_not() {
    let traced = linked().check();
    assert_eq!(traced.report.calls("library_leaf"), 0);
}

/// The large ones that imported functions call, directly or by a table, and those that call the kernel, are.
#[test]
fn inner_functions_that_may_take_time_are_traced() {
    let traced = linked_to("inner", "outer").check();
    let calls = ["inner_small", "inner_small_pointed"].map(|name| traced.report.calls(name));
    assert_eq!(calls, [0, 0]);
}

#[test]
fn a_report_names_what_was_not_recorded_and_may_have_taken_the_time() {
    let part = reported(linked().options(["-F", "library_leaf@liblibrary*"]));
    let said = "self time of library_leaf (100 % of all) may be in functions of liblibrary.so \
                that were not recorded, such as library_inner: --libs";
    assert!(part.contains(said), "{part}");
    // Every traceable function of the library was recorded.
    let whole = reported(linked().options(["-F", "*@liblibrary*"]));
    assert!(!whole.contains("not recorded"), "{whole}");
    // `inner` calls one that cannot be recorded, too, and spends its time there.
    let inner = linked_to("inner", "outer").options(["-F", "inner{,_small}@libinner*"]);
    let inner = reported(inner);
    assert!(inner.contains("inner_small"), "{inner}");
    assert!(!inner.contains("inner_refused"), "{inner}");
}

fn reported(case: Case) -> String {
    let traced = case.traced();
    let mut report = Command::new(nopal());
    report.args(["report".as_ref(), traced.directory().as_os_str()]);
    let report = report.output().expect("nopal runs");
    String::from_utf8(report.stdout).expect("a report is text")
}

/// The first is linked to the library; the second opens it, so that it is traced whole there.
#[test]
fn a_later_program_calls_other_functions_of_a_library() {
    let (_, library) = library("library.c");
    let script = "\"$1\"; \"$2\" \"$3\" 20";
    let opening = c("dlopen", &[]);
    let paths = [
        linked().program().path.clone(),
        opening.path.clone(),
        library,
    ];
    let paths = paths.map(PathBuf::into_os_string);
    let words = ["-c", script, "sh"].map(OsString::from).into_iter();
    let shell = Program {
        path: "sh".into(),
        ..opening.clone()
    };
    let case = Case::new(shell).arguments(words.chain(paths));
    let traced = case.traced();
    assert_eq!(traced.ended, case.untraced());
    let calls = ["library_entry", "library_leaf", "library_inner"]
        .map(|function| traced.report.calls(function));
    assert_eq!(calls, [8 + 20, 200, 200]);
}

#[test]
fn every_function_of_a_library_when_asked() {
    let traced = linked().options(["--libs"]).check();
    assert_eq!(traced.report.calls("library_leaf"), 24);
}

#[test]
fn three_hundred_libraries_one_after_the_other() {
    let directory = copies("library.c", "plugin", 300);
    Case::new(c("plugins", &[]))
        .arguments([directory.as_os_str(), "300".as_ref()])
        .options(["--libs"])
        .check();
}

#[test]
fn many_large_libraries_at_once() {
    const LIBRARIES: usize = 32;
    let directory = copies("crowd.c", "crowd", LIBRARIES);
    let mut flags = vec!["-Wl,--no-as-needed".to_owned()];
    for number in 0..LIBRARIES {
        flags.push(format!("-lcrowd{number}"));
    }
    let directory = directory.to_str().expect("a plain path");
    flags.push(format!("-L{directory}"));
    flags.push(format!("-Wl,-rpath,{directory}"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Case::new(c("crowded", &flags))
        .arguments([LIBRARIES.to_string()])
        .options(["--libs"])
        .check();
}

#[test]
fn a_choice_that_fits_nothing_is_refused_before_an_older_trace_is_moved() {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let case = linked();
    let first = case.traced_start(&trace).run("");
    assert_eq!(case.untraced(), without_own_words(first).0);
    let before = std::fs::read(trace.join("session/notes")).unwrap();
    let main_without_main = ["-F", "main", "-N", "main"];
    for (options, near) in [
        (
            &["-F", "library_laef"][..],
            "no function matches library_laef; the nearest are",
        ),
        (&["-M", "library_laef"], "no marker matches library_laef"),
        // Whether the kernel has it is known when the trace has begun.
        (&["-e", "library:laef"], ""),
        (
            &["--probe", "library_laef"],
            "no function is named library_laef",
        ),
        (
            &main_without_main,
            "every function that matches main is left out by main",
        ),
    ] {
        let refused = linked().options(options).traced_start(&trace).run("");
        assert!(refused.stderr.contains(near), "{}", refused.stderr);
        assert_eq!((refused.end, &*refused.stdout), (End::Code(1), ""));
        assert_eq!(std::fs::read(trace.join("session/notes")).unwrap(), before);
        assert!(!scratch.path().join("trace.old").exists());
    }
}

/// Functions are chosen and switched by numbers, of which each file has its own.
#[test]
fn functions_of_a_library_behind_one_without_functions_are_not_taken_for_others() {
    let shared = |source: &str, more: &[&str]| {
        let command = [&["gcc", "-O2", "-g", "-shared", "-fPIC"], more].concat();
        compile(source, &command, &[]).path
    };
    let libraries = [
        shared("data_only.c", &["-s"]),
        shared("many_functions.c", &[]),
    ];
    let libraries = libraries
        .each_ref()
        .map(|path| path.to_str().expect("a plain path"));
    let case = |options: &[&str]| Case::new(c("behind_data", &libraries)).options(options);
    let all = case(&["--libs"]).check();
    assert_eq!(all.report.calls("many_d7"), 10);
    for (function, calls) in [("own", 10), ("main", 1), ("many_a3", 10)] {
        let chosen = case(&["--libs", "-F", function]).traced().report;
        assert_eq!(chosen.calls(function), calls);
        assert_eq!(chosen.functions(), [function]);
    }
}

#[test]
fn a_function_of_a_c_library_that_cannot_be_hooked_is_told_of() {
    let command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libc.so.split"];
    let library = compile("split_hook.c", &command, &["-Wl,-z,separate-code"]).path;
    let (_directory, name) = name_without_blanks(&library);
    for options in [&[][..], &["--entry-only"]] {
        let case = Case::new(c("tail", &[])).options(options);
        let traced = case.environment("LD_PRELOAD", &name).check();
        let warning = "pkey_mprotect of split_hook cannot be hooked: what its calls do is ";
        assert_eq!(traced.said.matches(warning).count(), 1, "{}", traced.said);
        assert_eq!(traced.said.matches(" hooked").count(), 1, "{}", traced.said);
        // Nothing need be missing.
        let info = Start::new([nopal(), Path::new("info"), &traced.directory()]);
        let info = info.run("").stdout;
        assert!(info.contains("end ") && !info.contains("hooked"), "{info}");
    }
}

#[test]
fn a_function_of_a_library_that_is_loaded_later_is_waited_for() {
    let (_, library) = library("library.c");
    let choose = |options: &[&str]| {
        Case::new(c("dlopen", &[]))
            .arguments([library.as_os_str(), "20".as_ref()])
            .options(options)
    };
    for options in [
        &["-F", "library_leaf@liblibrary*"][..],
        &["--libs", "-F", "library_leaf"],
    ] {
        let traced = choose(options).traced();
        assert_eq!(traced.report.calls("library_leaf"), 200, "{options:?}");
        assert!(!traced.said.contains("no function"), "{}", traced.said);
    }
    // The library is never loaded: the program runs unharmed.
    let case = choose(&["-F", "library_laef@liblibrary*"]);
    let traced = case.traced();
    assert_eq!(traced.ended, case.untraced());
    let said = "no function matches library_laef@liblibrary*; the nearest are library_leaf";
    assert!(traced.said.contains(said), "{}", traced.said);
}

#[test]
fn markers_of_a_library_that_comes_and_goes_are_waited_for() {
    const ROUNDS: usize = 5;
    let (_, library) = library("marking.c");
    let choose = |options: &[&str]| {
        Case::new(c("dlopen", &[]))
            .arguments([library.as_os_str(), ROUNDS.to_string().as_ref()])
            .options(options)
    };
    for options in [
        &["-M", "plugin_*@libmarking.so"][..],
        &["-M", "plugin_*@*", "-F", "main"],
    ] {
        let case = choose(options);
        let traced = case.traced();
        assert_eq!(traced.ended, case.untraced(), "{options:?}");
        let passed = passed(&traced.directory());
        let often = |marker: &str| passed.iter().filter(|one| *one == marker).count();
        for turn in 0..10 {
            assert_eq!(often(&format!("plugin_turn i={turn}")), ROUNDS);
        }
        assert_eq!(often("plugin_begins"), ROUNDS, "before its constructors");
        assert_eq!(often("plugin_end n=10"), ROUNDS, "{options:?}");
        assert_eq!(passed.len(), ROUNDS * 12);
        assert!(!traced.said.contains("no marker"), "{}", traced.said);
    }
    // Patterns for a library that is never loaded are reported, and the program runs unharmed.
    let case = choose(&["-M", "plugin_*@libmakring.so"]);
    let traced = case.traced();
    assert_eq!(traced.ended, case.untraced());
    let said = "no marker matched plugin_*@libmakring.so in all that was loaded";
    assert!(traced.said.contains(said), "{}", traced.said);
}

/// The library comes when nopal has read the list of libraries, and no jump leads to it yet.
#[test]
fn a_library_that_is_loaded_while_nopal_attaches() {
    let scratch = scratch();
    let (_, library) = library("library.c");
    let case = Case::new(c("loads_amid", &[])).arguments([library]);
    let mut program = case.untraced_start().spawn();
    let stdin = program.stdin();
    let trace = scratch.path().join("trace");
    let mut tool = case.attach(program.id(), &trace);
    drop(stdin);
    let ended = program.wait();
    assert_eq!(
        (ended.end, ended.stdout.as_str()),
        (End::Code(0), "called\n")
    );
    assert_eq!(tool.wait().end, End::Code(0));
    let report = Report::of(&trace);
    for (function, calls) in case.expected(&ended) {
        assert_eq!(report.calls(&function), calls, "{function}");
    }
}
