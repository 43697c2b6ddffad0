//! The queries of `examples/fleet`, on traces of a service of three processes, agree with `nopal report`: in DuckDB, and
//! with `make fleet` in Spark, whose Python `NOPAL_SPARK` names.

use std::path::{Path, PathBuf};
use std::process::Command;

use nopal_tests::{nopal, scratch, target_directory};
use serde_json::Value;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet")
}

/// The standard output of a command.
fn output(command: &mut Command, directory: &Path) -> String {
    let output = command.current_dir(directory).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn report(traces: &[String], directory: &Path) -> Vec<Value> {
    let mut command = Command::new(nopal());
    let text = output(command.args(["report", "--json"]).args(traces), directory);
    serde_json::from_str(&text).expect("JSON")
}

fn number(row: &Value, member: &str) -> u64 {
    let number = row[member].as_f64();
    number.unwrap_or_else(|| panic!("{member} of {row}")) as u64
}

const SERVICES: [&str; 3] = ["ask", "serve", "note"];
const VERSIONS: [&str; 2] = ["1.0", "1.1"];
const HOSTS: [&str; 2] = ["n1", "n2"];

/// The rows of each query, by the names of their files.
struct Answers {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Answers {
    fn new(directory: &Path) -> Answers {
        let files = std::fs::read_dir(examples()).expect("queries");
        let files = files.map(|file| file.expect("a file").path());
        let mut files: Vec<PathBuf> = files
            .filter(|file| file.extension().is_some_and(|end| end == "sql"))
            .collect();
        files.sort();
        let query = examples().join("query.py");
        let mut command = match std::env::var_os("NOPAL_SPARK") {
            Some(python) => Command::new(python),
            None => Command::new(target_directory().join("exports/bin/python3")),
        };
        command.arg(query).args(["--json", "tables"]).args(&files);
        if std::env::var_os("NOPAL_SPARK").is_some() {
            command.arg("--spark");
        }
        let text = output(&mut command, directory);
        let rows = text.lines().map(serde_json::from_str);
        let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
        let answers = Answers {
            names: files.iter().map(name).collect(),
            rows: rows.collect::<Result<_, _>>().expect("JSON"),
        };
        assert_eq!(answers.rows.len(), answers.names.len());
        answers
    }

    fn of(&self, name: &str) -> &[Value] {
        let at = self.names.iter().position(|known| known == name);
        &self.rows[at.expect("a query")]
    }
}

#[test]
fn queries_of_a_fleet_agree_with_reports_of_its_traces() {
    let place = scratch();
    let directory = place.path();
    let here = nopal().parent().expect("a directory").to_owned();
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let mut service = Command::new("sh");
    service.arg(examples().join("service.sh")).env("PATH", path);
    output(&mut service, directory);
    let answers = Answers::new(directory);
    hosts_have_the_sums_of_their_traces(&answers, directory);
    percentiles_are_of_all_calls_together(&answers, directory);
    requests_lead_through_all_services(&answers);
    changes_are_those_of_the_version(&answers);
    assert!(
        answers.of("losses").is_empty(),
        "{:?}",
        answers.of("losses")
    );
}

fn hosts_have_the_sums_of_their_traces(answers: &Answers, directory: &Path) {
    let found = answers.of("functions-by-host");
    for host in HOSTS {
        for member in ["calls", "total_ns", "self_ns"] {
            let expected: u64 = SERVICES
                .iter()
                .flat_map(|service| {
                    VERSIONS.map(|version| format!("{service}-{version}-{host}.data"))
                })
                .flat_map(|trace| report(&[trace], directory))
                .map(|row| number(&row, member))
                .sum();
            let rows = found.iter().filter(|row| row["host"] == host);
            let sum: u64 = rows.map(|row| number(row, member)).sum();
            assert_eq!(sum, expected, "{host} {member}");
        }
    }
}

fn percentiles_are_of_all_calls_together(answers: &Answers, directory: &Path) {
    let mut compared = 0;
    for service in SERVICES {
        for version in VERSIONS {
            let traces = HOSTS.map(|host| format!("{service}-{version}-{host}.data"));
            for row in report(&traces, directory) {
                let mut found = answers.of("p99-by-version").iter().filter(|found| {
                    let same = |member: &str| found[member] == row[member];
                    found["service"] == service
                        && found["version"] == version
                        && same("module")
                        && same("function")
                });
                if row["min_ns"] == row["max_ns"] && number(&row, "max_ns") == 0 {
                    continue;
                }
                let found = found.next().unwrap_or_else(|| panic!("{row}"));
                for member in ["p50_ns", "p99_ns"] {
                    let (found, expected) = (number(found, member), number(&row, member));
                    let slack = expected / 50 + 2;
                    assert!(found.abs_diff(expected) <= slack, "{member}: {found} {row}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > SERVICES.len() * VERSIONS.len(), "{compared}");
}

fn requests_lead_through_all_services(answers: &Answers) {
    let slowest = answers.of("slowest-requests");
    for row in slowest {
        assert_eq!(number(row, "services"), 3, "{row}");
        assert_eq!(number(row, "hosts"), 1, "{row}");
        // Every tenth request takes 50 ms to look up, and the requests behind it wait.
        assert!(number(row, "took_ns") > 20_000_000, "{row}");
    }
    let one = answers.of("one-request");
    assert!(
        one.iter()
            .all(|row| row["request"] == slowest[0]["request"])
    );
    for service in ["ask", "serve", "look_up", "note"] {
        let of = one.iter().filter(|row| row["function"] == service);
        assert_eq!(of.count(), 1, "{service}");
    }
    let times: Vec<u64> = one.iter().map(|row| number(row, "at_ns")).collect();
    assert!(times.is_sorted(), "{times:?}");
}

fn changes_are_those_of_the_version(answers: &Answers) {
    let first = &answers.of("version-changes")[0];
    assert_eq!(first["function"], "look_up", "{first}");
    assert_eq!(first["old_version"], "1.0");
    assert_eq!(first["new_version"], "1.1");
    // Calls that took 1 ms take 20 ms, except every tenth.
    let slower = number(first, "new_ns").saturating_sub(number(first, "old_ns"));
    assert!(slower > 5_000_000, "{first}");
    assert_eq!(first["old_calls"], 80);
}
