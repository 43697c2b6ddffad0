//! The package for Python, and the notebook among the examples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use nopal_tests::{Case, End, c, nopal, scratch, target_directory};
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Python with the package, which finds nopal by PATH.
fn python(directory: &Path) -> Command {
    let binaries = nopal().parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(target_directory().join("exports/bin/python3"));
    command
        .env("PYTHONPATH", repository().join("packaging/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUSERBASE", directory.join("nobody"))
        .env("PATH", format!("{}:{path}", binaries.display()))
        .current_dir(directory);
    command
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&output(command)).expect("JSON")
}

/// Asserts that a table has every member of the rows that nopal prints.
fn assert_has_rows(found: &Value, expected: &Value) {
    let [found, expected] = [found, expected].map(|rows| rows.as_array().expect("rows"));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        for (name, value) in expected.as_object().expect("a row") {
            assert_eq!(&found[name], value, "{name} of {expected}");
        }
    }
}

#[test]
fn tables_of_the_package_have_the_numbers_of_the_report() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("lossy", &[])).options(["--block"]);
    let case = case.arguments(["3", "300"]);
    let ended = case.traced_start(&directory.join("trace")).run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    for part in [&[][..], &["50%"]] {
        let script = repository().join("tests/exports/package.py");
        let found = json(python(directory).arg(script).arg("trace").args(part));
        let report = |options: &[&str]| {
            let mut command = Command::new(nopal());
            command.args(["report", "--json"]).args(options);
            command.args(part.iter().flat_map(|from| ["--from", from]));
            json(command.arg("trace").current_dir(directory))
        };
        let functions = report(&[]);
        assert_has_rows(&found["functions"], &functions);
        assert_has_rows(&found["threads"], &report(&["--threads"]));
        let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
        let rows = found["calls"].as_array().expect("rows");
        for row in rows {
            *calls
                .entry(row["function"].as_str().expect("a name"))
                .or_default() += 1;
        }
        if part.is_empty() {
            for row in functions.as_array().expect("rows") {
                let name = row["function"].as_str().expect("a name");
                assert_eq!(row["calls"], calls[name], "{name}");
            }
        }
        let of_climb = found["calls_of_climb"].as_array().expect("rows").len();
        assert!(
            (1..rows.len()).contains(&of_climb),
            "{of_climb} of {}",
            rows.len()
        );
    }
}

#[test]
fn the_package_says_what_is_missing_or_wrong() {
    let recorded = scratch();
    let directory = recorded.path();
    let case = Case::new(c("lossy", &[])).options(["--buffer", "256K"]);
    let case = case.arguments(["3", "60000"]);
    let start = case.traced_start(&directory.join("trace"));
    let ended = start.on_one_processor().run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let script = repository().join("tests/exports/package_errors.py");
    output(python(directory).arg(script).arg("trace"));
}

#[test]
fn the_notebook_runs_and_has_its_output() {
    let place = repository().join("examples");
    let text = std::fs::read(place.join("tables.ipynb")).unwrap();
    let notebook: Value = serde_json::from_slice(&text).expect("JSON");
    let mut code = String::new();
    for cell in notebook["cells"].as_array().expect("cells") {
        if cell["cell_type"] == "code" {
            for line in cell["source"].as_array().expect("lines") {
                code += line.as_str().expect("text");
            }
            code.push('\n');
            let is_shown = code
                .lines()
                .next_back()
                .is_some_and(|last| !last.contains(" = "));
            let outputs = cell["outputs"].as_array().expect("outputs");
            assert_eq!(is_shown, !outputs.is_empty(), "{cell}");
        }
    }
    let scratch = scratch();
    output(
        python(scratch.path())
            .args(["-c", &code])
            .env("TMPDIR", scratch.path())
            .current_dir(place),
    );
}
