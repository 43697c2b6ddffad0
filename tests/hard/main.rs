//! `make hard`: programs that break tracers, each untraced, under nopal, and under the tracers that this machine has.
//!
//! A row passes where output, exit status and numbers of calls are what they are untraced. Words on the command line
//! choose the rows whose names hold one of them. Ends with 1 if nopal itself fails anywhere.

mod peers;
mod rows;

use nopal_tests::{Case, End, Report, Start, difference, nopal, scratch, without_own_words};
use peers::PEERS;
use rows::ROWS;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a program fared.
pub enum Verdict {
    Same,
    /// The tracer said that it will not, and why.
    Refused(String),
    /// It was harmed, or its calls were miscounted.
    Harmed(String),
    /// Not tried, and why.
    Absent(String),
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Refused(_) => "refused",
            Verdict::Harmed(_) => "FAILS",
            Verdict::Absent(_) => "-",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Verdict::Same => None,
            Verdict::Refused(why) | Verdict::Harmed(why) | Verdict::Absent(why) => Some(why),
        }
    }
}

/// Panics are how the pieces below say that something went otherwise.
fn guarded(run: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict::Harmed(text.unwrap_or_default())
    })
}

fn launched(case: &Case) -> Verdict {
    let scratch = scratch();
    let trace = scratch.path().join("trace");
    let untraced = case.untraced();
    let ended = case.traced_start(&trace).run(case.input_text());
    let (ended, said) = without_own_words(ended);
    let did_nothing = ended.stdout.is_empty() && ended.stderr.is_empty();
    if did_nothing && ended.end == End::Code(1) && !said.is_empty() {
        return Verdict::Refused(said);
    }
    if let Some(difference) = difference(&untraced, &ended) {
        return Verdict::Harmed(difference);
    }
    let report = Report::of(&trace);
    miscounted(case, &ended, |function| report.calls(function))
        .map_or(Verdict::Same, Verdict::Harmed)
}

/// Attached to while the program is busy before its work, and until its end.
fn attached(case: &Case) -> Verdict {
    let scratch = scratch();
    let (trace, hold) = (scratch.path().join("trace"), scratch.path().join("hold"));
    let mut start = case.untraced_start();
    start.environment.push(("HOLD".into(), hold.clone().into()));
    let mut program = start.spawn();
    let mut stdin = program.stdin();
    let _ = stdin.write_all(case.input_text().as_bytes());
    drop(stdin);
    // Long enough for it to get there; a program that is attached to earlier is held all the same. One that is looked
    // into by another from its start tells when it is.
    let held = scratch.path().join("hold.held");
    let tells = case
        .argument_words()
        .first()
        .is_some_and(|word| word == "early");
    let patience = Duration::from_millis(if tells { 10_000 } else { 300 });
    let begun = Instant::now();
    while !held.exists() && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut attach = Start::new([nopal().as_os_str(), "attach".as_ref()]);
    attach.words.extend(["-o".into(), trace.clone().into()]);
    attach.words.extend(case.option_words().iter().cloned());
    attach.words.push(program.id().to_string().into());
    let mut attach = attach.spawn();
    let begun = Instant::now();
    while !trace.join("stream-0").exists() && begun.elapsed() < Duration::from_secs(10) {
        if attach.has_ended() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::write(&hold, "").expect("a file can be made");
    let ended = program.wait();
    let said = attach.wait();
    if let Some(difference) = difference(&case.untraced(), &ended) {
        return Verdict::Harmed(difference);
    }
    if said.end != End::Code(0) {
        return Verdict::Refused(said.stderr);
    }
    let report = Report::of(&trace);
    // It was in main's caller already, and may have been in main.
    let calls = |function: &str| match function {
        "main" => 1,
        _ => report.calls(function),
    };
    miscounted(case, &ended, calls).map_or(Verdict::Same, Verdict::Harmed)
}

/// What is counted otherwise than the program says.
pub fn miscounted(
    case: &Case,
    ended: &nopal_tests::Ended,
    calls: impl Fn(&str) -> u64,
) -> Option<String> {
    let wrong: Vec<String> = case
        .expected(ended)
        .iter()
        .filter(|(function, _)| !case.refuses(function))
        .filter(|(function, expected)| calls(function) != **expected)
        .map(|(function, expected)| format!("{function}: {} of {expected}", calls(function)))
        .collect();
    (!wrong.is_empty()).then(|| format!("calls differ: {}", wrong.join(", ")))
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| ()));
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let rows = ROWS
        .iter()
        .filter(|row| chosen.is_empty() || chosen.iter().any(|word| row.name.contains(word)));
    let own = [
        ("nopal", launched as fn(&Case) -> Verdict),
        ("attached", attached),
    ];
    let peers = PEERS.iter().map(|peer| (peer.name, peer.run));
    let tracers: Vec<_> = own.into_iter().chain(peers).collect();
    let mut remarks = Vec::new();
    let mut fails = false;
    let cell = |text: &str| {
        print!("{text:<8} | ");
        let _ = std::io::stdout().flush();
    };
    print!("| {:<38} | ", "program");
    tracers.iter().for_each(|(name, _)| cell(name));
    println!("\n| --- |{}", " --- |".repeat(tracers.len()));
    for row in rows {
        print!("| {:<38} | ", row.name);
        let case = catch_unwind(row.case);
        for (name, run) in &tracers {
            let verdict = match &case {
                Ok(case) => guarded(|| run(case)),
                Err(_) => Verdict::Absent("it cannot be built here".into()),
            };
            let is_own = own.iter().any(|(one, _)| one == name);
            fails |= is_own && matches!(verdict, Verdict::Harmed(_));
            cell(verdict.word());
            remarks.extend(verdict.why().map(|why| (row.name, *name, why.to_owned())));
        }
        println!();
    }
    println!();
    for (row, tracer, why) in remarks {
        let line = why.lines().find(|line| !line.is_empty());
        let line: String = line.unwrap_or_default().chars().take(160).collect();
        println!("{row}, {tracer}: {line}");
    }
    if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Whether a tracer ended as the program would have, for a peer that hides how.
pub fn ended_well(end: End) -> bool {
    end == End::Code(0)
}
