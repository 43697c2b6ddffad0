//! `make soak`: whole programs with every function of theirs and of their libraries traced, and the same without.
//!
//! `soak [short] [WORD]...` runs the rows whose names hold one of the words. What a row prints, and how it ends, must be
//! what it is untraced. Ends with 1 where something differs.

mod rows;

use nopal_tests::{Ended, Start, nopal, scratch};
use rows::{PYTHON_TESTS, ROWS};
use std::process::ExitCode;

/// Modules of CPython's tests in the short form.
const SHORT: usize = 3;

struct Job {
    name: String,
    script: String,
}

fn jobs(short: bool) -> Vec<Job> {
    let rows = ROWS.iter().map(|row| Job {
        name: row.name.to_owned(),
        script: row.script.to_owned(),
    });
    let modules = if short { SHORT } else { PYTHON_TESTS.len() };
    let modules = PYTHON_TESTS[..modules].iter().map(|module| Job {
        name: format!("python3 -m test test_{module}"),
        // How long it took is another matter.
        script: format!(
            "$RUN python3 -m test test_{module} > out 2>&1; echo status $?; \
             grep -E '^(Result|Tests result|[0-9]+ test|test_.*(failed|skipped))' out | \
             sed -E 's/ in [0-9.]+ .*//; s/ \\([0-9.]+ .*\\)//'"
        ),
    });
    rows.chain(modules).collect()
}

/// Runs a script in a directory that is empty, by bash. `tracer` stands before its programs.
fn run(script: &str, tracer: &str) -> Ended {
    let scratch = scratch();
    let mut start = Start::new(["bash", "-c", script]);
    start.directory = Some(scratch.path().to_path_buf());
    let environment = [
        ("RUN", tracer),
        ("LC_ALL", "C.UTF-8"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let pairs = environment.map(|(name, value)| (name.into(), value.into()));
    start.environment.extend(pairs);
    start.run("")
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let short = words.first().is_some_and(|word| word == "short");
    words.drain(..usize::from(short));
    // What is recorded is of no interest, and much of it: only the last of it is kept.
    let traces = scratch();
    let tracer = format!(
        "{} record --libs --flight --buffer 16M -o {}/trace --",
        nopal().display(),
        traces.path().display()
    );
    let (mut same, mut others) = (0, 0);
    for Job { name, script } in jobs(short) {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let untraced = run(&script, "");
        let traced = run(&script, &tracer);
        let differs = (untraced.end, &untraced.stdout) != (traced.end, &traced.stdout);
        if differs {
            others += 1;
            println!("{name}: DIFFERS");
            println!("{:?}\n{}", untraced.end, untraced.stdout);
            println!(
                "traced: {:?}\n{}\n{}",
                traced.end, traced.stdout, traced.stderr
            );
        } else {
            same += 1;
            println!("{name}: same, {} bytes of output", traced.stdout.len());
        }
    }
    println!("{same} the same, {others} not");
    if others == 0 && same > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
