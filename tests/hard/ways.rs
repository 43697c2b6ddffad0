//! The ways in which nopal itself traces a program.

use crate::{Verdict, miscounted};
use nopal_tests::{
    Case, End, Report, Running, Start, difference, nopal, scratch, without_own_words,
};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Way {
    pub name: &'static str,
    pub run: fn(&Case) -> Verdict,
}

pub const WAYS: &[Way] = &[
    Way {
        name: "nopal",
        run: launched,
    },
    Way {
        name: "within 5 %",
        run: within_budget,
    },
    Way {
        name: "attached",
        run: attached,
    },
    Way {
        name: "come and go",
        run: come_and_go,
    },
];

fn launched(case: &Case) -> Verdict {
    recorded(case, &[])
}

/// Functions are counted or off for a while, to hold a budget. The calls of the latter are at most those that were made.
fn within_budget(case: &Case) -> Verdict {
    recorded(case, &["--budget", "5%"])
}

fn recorded(case: &Case, options: &[&str]) -> Verdict {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let untraced = case.untraced();
    let mut start = case.traced_start(&trace);
    let record = start.words.iter().position(|word| word == "record");
    let behind = record.expect("it is recorded") + 1;
    let options = options.iter().map(|word| (*word).into());
    start.words.splice(behind..behind, options);
    let ended = start.run(case.input_text());
    let (ended, said) = without_own_words(ended);
    let did_nothing = ended.stdout.is_empty() && ended.stderr.is_empty();
    if did_nothing && matches!(ended.end, End::Code(1 | 126)) && !said.is_empty() {
        return Verdict::Refused(said);
    }
    if let Some(difference) = difference(&untraced, &ended) {
        return Verdict::Harmed(difference);
    }
    let report = Report::of(&trace);
    let made = case.expected(&ended);
    let calls = |function: &str| {
        let calls = report.calls(function);
        let made = made.get(function).copied().unwrap_or(0);
        let is_least = |row: &Value| row.get("calls_are_least").is_some();
        let counted = report
            .rows_of(function)
            .filter_map(|row| row["counted"].as_u64())
            .sum();
        let most = made + unrecorded(&ended.stdout, function).min(counted);
        match calls {
            calls if calls < made && report.rows_of(function).any(is_least) => made,
            calls if calls > made && calls <= most => made,
            calls => calls,
        }
    };
    miscounted(case, &ended, calls).map_or(Verdict::Same, Verdict::Harmed)
}

/// The calls that a program says cannot be recorded, `unrecorded: NUMBER FUNCTION`. They can be counted.
fn unrecorded(output: &str, function: &str) -> u64 {
    let told = output
        .lines()
        .filter_map(|line| line.strip_prefix("unrecorded: ")?.split_once(' '));
    let mut of_it = told.filter(|(_, name)| *name == function);
    of_it
        .next()
        .map_or(0, |(number, _)| number.parse().expect("it is a number"))
}

/// nopal attaches while the program is busy before its work, and stays until its end.
fn attached(case: &Case) -> Verdict {
    let mut held = HeldProgram::start(case);
    let mut session = held.attach(case, &[]);
    tracing(&mut session);
    held.release();
    let ended = held.program.wait();
    let said = session.wait();
    if let Some(difference) = difference(&case.untraced(), &ended) {
        return Verdict::Harmed(difference);
    }
    if said.end != End::Code(0) {
        return Verdict::Refused(said.stderr);
    }
    let report = Report::of(&held.trace());
    // The program was in main's caller already, and may have been in main.
    let calls = |function: &str| match function {
        "main" => 1,
        _ => report.calls(function),
    };
    miscounted(case, &ended, calls).map_or(Verdict::Same, Verdict::Harmed)
}

/// nopal attaches for 50 ms, again and again, from before the program's work to its end.
fn come_and_go(case: &Case) -> Verdict {
    let mut held = HeldProgram::start(case);
    let mut recorded = false;
    let mut refused = String::new();
    while !held.program.has_ended() {
        let mut session = held.attach(case, &["--for", "50ms"]);
        recorded |= tracing(&mut session);
        held.release();
        let said = session.wait();
        match said.end {
            End::Code(0) => {}
            End::Code(1) if refused.is_empty() => refused = said.stderr,
            End::Code(1) => {}
            end => return Verdict::Harmed(format!("nopal: {end:?}: {}", said.stderr)),
        }
    }
    if let Some(difference) = difference(&case.untraced(), &held.program.wait()) {
        return Verdict::Harmed(difference);
    }
    if recorded {
        Verdict::Same
    } else {
        Verdict::Refused(refused)
    }
}

/// A program that is busy before its work until it is released.
struct HeldProgram {
    program: Running,
    scratch: TempDir,
}

impl HeldProgram {
    fn start(case: &Case) -> HeldProgram {
        let scratch = scratch();
        let hold = scratch.path().join("hold");
        let mut start = case.untraced_start();
        start.environment.push(("HOLD".into(), hold.into()));
        let mut program = start.spawn();
        let mut stdin = program.stdin();
        let _ = stdin.write_all(case.input_text().as_bytes());
        drop(stdin);
        // This lets the program get there; it is held even if nopal attaches earlier. A program that another inspects
        // from its start reports when it is there.
        let held = scratch.path().join("hold.held");
        let early = |word: &OsString| word == "early";
        let tells = case.argument_words().iter().any(early);
        let patience = Duration::from_millis(if tells { 10_000 } else { 300 });
        let begun = Instant::now();
        while !held.exists() && begun.elapsed() < patience && !program.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        HeldProgram { program, scratch }
    }

    fn release(&self) {
        fs::write(self.scratch.path().join("hold"), "").expect("a file can be made");
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }

    fn attach(&self, case: &Case, options: &[&str]) -> Running {
        let mut attach = Start::new([nopal().as_os_str(), "attach".as_ref()]);
        attach.words.extend(["-o".into(), self.trace().into()]);
        attach.words.extend(options.iter().map(OsString::from));
        attach.words.extend(case.option_words().iter().cloned());
        attach.words.push(self.program.id().to_string().into());
        attach.spawn()
    }
}

/// Waits until the session traces the process. Returns whether it does.
fn tracing(session: &mut Running) -> bool {
    let begun = Instant::now();
    loop {
        let ended = session.has_ended();
        let traces = session.stderr().contains("nopal: tracing process");
        if traces || ended || begun.elapsed() > Duration::from_secs(10) {
            return traces;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
