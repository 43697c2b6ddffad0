//! `make hard`: programs that break tracers, each untraced, in every way under nopal, and under the other tracers of
//! this machine.
//!
//! A row passes if output, exit status and numbers of calls are as untraced; for a tracer that comes and goes, output
//! and status. Words on the command line choose the rows whose names hold one of them; `alone` leaves out other
//! tracers; `runs=10` has nopal come ten times in each way, and prints how often all was the same. Ends with 1 if nopal
//! itself fails anywhere.

mod languages;
mod peers;
mod rows;
mod services;
mod ways;

use nopal_tests::{Case, End, Ended, Program};
use peers::{PEERS, Peer};
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use ways::WAYS;

/// A program that breaks tracers. `case` panics if it cannot be built here.
pub struct Row {
    pub name: &'static str,
    pub case: fn() -> Case,
    /// Whether the program runs once more with all functions of every library.
    pub libs: bool,
}

pub const fn row(name: &'static str, case: fn() -> Case) -> Row {
    Row {
        name,
        case,
        libs: false,
    }
}

impl Row {
    pub const fn also_with_libs(self) -> Row {
        Row { libs: true, ..self }
    }
}

/// The rows of each kind.
const KINDS: &[&[Row]] = &[rows::ROWS, languages::ROWS, services::ROWS];

/// A program of the machine. Panics if the machine lacks it.
pub fn installed(name: &str) -> Case {
    let path = format!("/usr/bin/{name}");
    assert!(
        std::path::Path::new(&path).exists(),
        "{name} is not installed"
    );
    Case::new(Program::installed(path))
}

/// The result of a program under a tracer.
pub enum Verdict {
    Same,
    /// The tracer declined, with the reason.
    Refused(String),
    /// The program was harmed, or its calls were miscounted.
    Harmed(String),
    /// The program was not tried, with the reason.
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

/// Turns a panic, by which the pieces below report a failure, into a verdict.
fn guarded(run: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Verdict::Harmed(words(panic.as_ref()).into()))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

/// The counts that differ from the program's own.
pub fn miscounted(case: &Case, ended: &Ended, calls: impl Fn(&str) -> u64) -> Option<String> {
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
    let mut table = Table {
        runs: 1,
        peers: PEERS,
        ..Table::default()
    };
    let mut chosen: Vec<String> = std::env::args().skip(1).collect();
    chosen.retain(|word| !table.takes(word));
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|it| name.contains(it));
    let names = WAYS.iter().map(|way| way.name);
    let names = names.chain(table.peers.iter().map(|peer| peer.name));
    print!("| {:<46} |", "program");
    names.clone().for_each(|name| print!(" {name} |"));
    println!("\n| --- |{}", " --- |".repeat(names.count()));
    for row in KINDS.iter().copied().flatten() {
        if is_chosen(row.name) {
            table.row(row.name, row.case, false);
            if row.libs {
                table.row(&format!("{}, --libs", row.name), row.case, true);
            }
        }
    }
    println!();
    for (row, tracer, why) in table.remarks {
        let line = why.lines().find(|line| !line.is_empty());
        let line: String = line.unwrap_or_default().chars().take(160).collect();
        println!("{row}, {tracer}: {line}");
    }
    if table.fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

#[derive(Default)]
struct Table {
    /// The row, the tracer, and the reason of each failed cell.
    remarks: Vec<(String, &'static str, String)>,
    fails: bool,
    /// The number of times that nopal comes to a program in each way.
    runs: usize,
    peers: &'static [Peer],
}

impl Table {
    /// Whether a word of the command line is for the table, not for the choice of rows.
    fn takes(&mut self, word: &str) -> bool {
        if let Some(runs) = word.strip_prefix("runs=") {
            self.runs = runs.parse().expect("runs= takes a number");
        } else if word == "alone" {
            self.peers = &[];
        } else {
            return false;
        }
        true
    }

    fn row(&mut self, name: &str, case: fn() -> Case, libs: bool) {
        print!("| {name:<46} |");
        let case = catch_unwind(case).map(|case| {
            let options: &[&str] = if libs { &["--libs"] } else { &[] };
            case.options(options)
        });
        match case {
            Ok(case) => self.tried(name, &case, libs),
            Err(panic) => {
                print!("{}", " - |".repeat(WAYS.len() + self.peers.len()));
                let why = words(panic.as_ref());
                self.remark(name, "all", &format!("it cannot be had here: {why}"));
            }
        }
        println!();
    }

    fn tried(&mut self, name: &str, case: &Case, libs: bool) {
        for way in WAYS {
            let verdicts = (0..self.runs).map(|_| guarded(|| (way.run)(case)));
            self.runs(name, way.name, verdicts.collect());
        }
        for peer in self.peers {
            // Other tracers have run in the row without `--libs`.
            if libs {
                print!(" - |");
            } else {
                self.cell(name, peer.name, &guarded(|| (peer.run)(case)));
            }
        }
    }

    /// Prints one cell for all runs in one way.
    fn runs(&mut self, row: &str, way: &'static str, verdicts: Vec<Verdict>) {
        let harmed = |verdict: &&Verdict| matches!(verdict, Verdict::Harmed(_));
        self.fails |= verdicts.iter().filter(harmed).count() > 0;
        if let [verdict] = &verdicts[..] {
            return self.cell(row, way, verdict);
        }
        let is_same = |verdict: &&Verdict| matches!(verdict, Verdict::Same);
        print!(
            " {} of {} |",
            verdicts.iter().filter(is_same).count(),
            verdicts.len()
        );
        let _ = std::io::stdout().flush();
        for why in verdicts.iter().filter_map(Verdict::why) {
            self.remark(row, way, why);
        }
    }

    fn cell(&mut self, row: &str, tracer: &'static str, verdict: &Verdict) {
        print!(" {} |", verdict.word());
        let _ = std::io::stdout().flush();
        if let Some(why) = verdict.why() {
            self.remark(row, tracer, why);
        }
    }

    fn remark(&mut self, row: &str, tracer: &'static str, why: &str) {
        self.remarks.push((row.into(), tracer, why.into()));
    }
}

/// Whether a tracer ended well, for a peer that hides the program's status.
pub fn ended_well(end: End) -> bool {
    end == End::Code(0)
}
