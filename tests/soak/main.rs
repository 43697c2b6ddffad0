//! `make soak`: whole programs with every function of theirs and of their libraries traced, and the same without.
//!
//! `soak [short] [WORD]...` runs the jobs whose names hold one of the words: the scripts in `short` and `long`, in
//! which `$RUN PROGRAM` runs a program, and CPython's own tests. A script must end with 0 and print the same as
//! untraced. `soak` ends with 1 if anything differs.

mod python;

use nopal_tests::{End, Ended, Start, nopal, scratch, shell_word};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::time::Duration;

/// Modules of CPython's tests in the short form.
const SHORT: usize = 3;

/// More time than any script takes, and than any of the short form takes.
const PATIENCE: Duration = Duration::from_secs(3600);
const PATIENCE_FOR_SHORT: Duration = Duration::from_secs(500);

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/soak");

struct Job {
    name: String,
    script: String,
}

fn jobs(short: bool) -> Vec<Job> {
    let mut jobs = scripts("short");
    let mut modules = python::MODULES;
    match short {
        true => modules = &modules[..SHORT],
        false => jobs.extend(scripts("long")),
    }
    let modules = modules.iter().map(|module| Job {
        name: format!("python3 -m test test_{module}"),
        // Durations differ from run to run.
        script: format!(
            "$RUN /usr/bin/python3 -m test test_{module} > out 2>&1; status=$?; \
             grep -E '^(Result|Tests result|[0-9]+ test|test_.*(failed|skipped))' out | \
             sed -E 's/ in [0-9.]+ .*//; s/ \\([0-9.]+ .*\\)//'; exit $status"
        ),
    });
    jobs.extend(modules);
    jobs
}

/// The scripts of a folder, by name.
fn scripts(folder: &str) -> Vec<Job> {
    let entries = std::fs::read_dir(format!("{DIRECTORY}/{folder}")).expect("it is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut scripts: Vec<Job> = paths
        .map(|path| Job {
            name: path
                .file_stem()
                .expect("files have names")
                .to_string_lossy()
                .into_owned(),
            script: std::fs::read_to_string(&path).expect("a script"),
        })
        .collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    scripts
}

/// Runs a script with bash in an empty directory. Its programs are run by `tracer`, which is found by `path`.
fn run(script: &str, tracer: &str, path: &str, patience: Duration) -> Ended {
    let scratch = scratch();
    // A shell in the background has its programs ignore Ctrl-C.
    let mut start = Start::new(["env", "--default-signal=INT,QUIT", "bash", "-c", script]);
    start.directory = Some(scratch.path().to_path_buf());
    let environment = [
        ("RUN", tracer),
        ("PATH", path),
        ("SOAK", DIRECTORY),
        ("LC_ALL", "C.UTF-8"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let pairs = environment.map(|(name, value)| (name.into(), value.into()));
    start.environment.extend(pairs);
    let mut running = start.spawn();
    drop(running.stdin());
    running.be_patient(patience);
    running.wait()
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let short = words.first().is_some_and(|word| word == "short");
    words.drain(..usize::from(short));
    // Recordings are large and are not read: only the end of each is kept.
    let traces = scratch();
    // A single word, as scripts use it without quotes.
    let tracer = traces.path().join("traced");
    let record = format!(
        "#!/bin/sh\nexec {} record --libs --flight --buffer 16M -o {} -- \"$@\"\n",
        shell_word(nopal()),
        shell_word(traces.path().join("trace"))
    );
    std::fs::write(&tracer, record).expect("it can be written");
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&tracer, permissions).expect("it is ours");
    let directory = traces.path().display();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let patience = if short { PATIENCE_FOR_SHORT } else { PATIENCE };
    let (mut same, mut others) = (0, 0);
    for Job { name, script } in jobs(short) {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let untraced = run(&script, "", &path, patience);
        let traced = run(&script, "traced", &path, patience);
        let is_same = untraced.end == traced.end && untraced.stdout == traced.stdout;
        if !is_same || untraced.end != End::Code(0) {
            others += 1;
            let fails = if is_same {
                "fails untraced, too"
            } else {
                "DIFFERS"
            };
            println!("{name}: {fails}");
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
