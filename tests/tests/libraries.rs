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
