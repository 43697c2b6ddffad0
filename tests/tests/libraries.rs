//! Libraries: linked, loaded, unloaded.

use nopal_tests::{Case, c, library};

fn linked() -> Case {
    let (directory, _) = library("library.c");
    let directory = directory.to_str().expect("a plain path").to_owned();
    Case::new(c(
        "linked",
        &[
            &format!("-L{directory}"),
            "-llibrary",
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

#[test]
fn a_loaded_library_is_left_alone_unless_asked_for() {
    let (_, library) = library("library.c");
    let traced = Case::new(c("dlopen", &[]))
        .arguments([library.as_os_str(), "20".as_ref()])
        .traced();
    assert_eq!(
        traced.ended,
        Case::new(c("dlopen", &[]))
            .arguments([library.as_os_str(), "20".as_ref()])
            .untraced()
    );
    assert_eq!(
        (
            traced.report.calls("callback"),
            traced.report.calls("library_leaf")
        ),
        (200, 0)
    );
}

#[test]
fn an_imported_function_is_traced_and_an_inner_one_is_not() {
    let traced = linked().check();
    assert_eq!(traced.report.calls("library_leaf"), 0);
}

#[test]
fn every_function_of_a_library_when_asked() {
    let traced = linked().options(["--libs"]).check();
    assert_eq!(traced.report.calls("library_leaf"), 24);
}

#[test]
fn many_large_libraries_at_once() {
    const LIBRARIES: usize = 32;
    let (directory, library) = library("crowd.c");
    let mut flags = vec!["-Wl,--no-as-needed".to_owned()];
    for number in 0..LIBRARIES {
        let copy = directory.join(format!("libcrowd{number}.so"));
        if !copy.exists() {
            // Another test run may do the same.
            let own = tempfile::NamedTempFile::new_in(&directory).expect("a file can be made");
            std::fs::copy(&library, own.path()).expect("the library can be copied");
            own.persist(&copy).expect("within one directory");
        }
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
