//! A scheduler's benchmark by itself, with nopal in it and all tracers off, with each on, and with functions on.
//! `NOPAL_HACKBENCH` is how often each is run (10).
//!
//! The time of a run by itself differs from that of the next by more than what is measured, and drifts. So each traced
//! run is compared with the two by itself around it, and these two with each other, which tells what differs by chance.

use crate::run::{Paths, Ran, remove, run};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::{Context, Result};
use nopal_trace::Trace;
use std::process::Command;

/// The number of messages takes about two seconds on two cores.
const ARGUMENTS: [&str; 6] = ["-g", "10", "-l", "300", "-s", "100"];
const PROGRAM: &str = "hackbench";

/// The overhead of entering the first tracer of all functions of a kernel, in percent.
const OF_KERNEL: f64 = 49.74;

/// How a run is traced.
struct Kind {
    name: &'static str,
    /// The arguments of nopal.
    words: &'static [&'static str],
    /// The bound of the added time, in percent.
    bound: Option<f64>,
    /// The time that the first tracer of its kind for kernels added, in percent.
    theirs: &'static str,
}

const fn kind(name: &'static str, words: &'static [&'static str], theirs: &'static str) -> Kind {
    Kind {
        name,
        words,
        bound: None,
        theirs,
    }
}

/// In a process, held locks stand for disabled preemption, and blocked signals for disabled interrupts.
const KINDS: [Kind; 10] = [
    Kind {
        bound: Some(0.5),
        ..kind(
            "tracers off",
            &["record", "-M", "none@none"],
            "1.66; registered but not enabled: events 1.82, wakeup 2.36, sched_switch 2.78, preemptoff 11.5, irqsoff 13.8, \
             mcount 15.9",
        )
    },
    kind(
        "events",
        &["record", "-M", "none@none", "-e", "sched"],
        "3.09",
    ),
    kind(
        "sched_switch",
        &["record", "-M", "none@none", "-e", "sched_switch"],
        "1.43",
    ),
    Kind {
        bound: Some(5.0),
        ..kind(
            "wakeup",
            &["run", "-w"],
            "2.79; its histogram always on, 1.73",
        )
    },
    kind(
        "lockhold",
        &["run", "-p"],
        "preemptoff, 119; its histogram always on, 40.5",
    ),
    kind(
        "sigoff",
        &["run", "-i"],
        "irqsoff, 147; its histogram always on, 64.6",
    ),
    kind(
        "lockhold and sigoff",
        &["run", "-p", "-i"],
        "irqsoff with preemptoff compiled in, 282",
    ),
    kind(
        "critical",
        &["run", "-b"],
        "preemptirqsoff, 280; both histograms always on, 253",
    ),
    Kind {
        bound: Some(OF_KERNEL / 10.0),
        ..kind(
            "functions",
            &["record"],
            "49.7 to enter mcount, 501 to trace",
        )
    },
    kind("functions and sched", &["record", "-e", "sched"], ""),
];

/// The label of hackbench's time, in seconds.
const TIME: &str = "Time:";

/// The wall time of one run, and the processor time of all processes that ran for it, in seconds.
#[derive(Clone, Copy)]
struct Spent {
    clock: f64,
    processors: f64,
}

impl Spent {
    fn of(ran: &Ran) -> Result<Spent> {
        Ok(Spent {
            clock: ran.printed.get(TIME)?,
            processors: ran.processors.as_secs_f64(),
        })
    }
}

/// Runs of one kind.
#[derive(Default)]
struct Runs {
    clock: Vec<f64>,
    /// The added wall time, in percent of that of the runs around each.
    added: Vec<f64>,
    added_processors: Vec<f64>,
    lost: u64,
}

impl Runs {
    fn add(&mut self, spent: Spent, around: [Spent; 2]) {
        let percent = |of: fn(&Spent) -> f64| {
            let alone = around.iter().map(of).sum::<f64>() / 2.0;
            (of(&spent) / alone - 1.0) * 100.0
        };
        self.clock.push(spent.clock);
        self.added.push(percent(|spent| spent.clock));
        self.added_processors
            .push(percent(|spent| spent.processors));
    }

    fn rows(self, name: &str, bound: Option<f64>, theirs: &str) -> [Row; 3] {
        let samples = |values: Vec<f64>| Samples::from_iter(values);
        let theirs = match theirs {
            "" => String::new(),
            theirs => format!("; theirs: {theirs}"),
        };
        let lost = format!("{} events lost{theirs}", self.lost);
        let added = format!("{name}: added");
        let mut row = Row::new(added.as_str(), "%", samples(self.added)).note(lost);
        if let Some(bound) = bound {
            row = row.bound(Bound::AtMost(bound));
        }
        let processors = samples(self.added_processors);
        [
            Row::new(name, "s", samples(self.clock)),
            row,
            Row::new(format!("{added} of processors"), "%", processors)
                .note("nopal's own included"),
        ]
    }
}

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let rounds: usize = match std::env::var("NOPAL_HACKBENCH") {
        Ok(text) => text.parse().context("NOPAL_HACKBENCH is no number")?,
        Err(_) => 10,
    };
    let alone = || Spent::of(&run(Command::new(PROGRAM).args(ARGUMENTS))?);
    let mut plain = Runs::default();
    let mut traced: [Runs; KINDS.len()] = Default::default();
    let mut before = alone()?;
    for _ in 0..rounds {
        for (runs, kind) in traced.iter_mut().zip(&KINDS) {
            remove(&paths.trace())?;
            let mut command = Command::new(&paths.nopal);
            command
                .args(kind.words)
                .arg("-o")
                .arg(paths.trace())
                .arg(PROGRAM);
            let spent = Spent::of(&run(command.args(ARGUMENTS))?)?;
            let after = alone()?;
            plain.add(after, [before; 2]);
            runs.add(spent, [before, after]);
            before = after;
            let trace = Trace::open(&paths.trace())?;
            runs.lost += trace.lost() + trace.processors().map(|one| one.lost()).sum::<u64>();
        }
    }
    let [time, chance, ..] = plain.rows("hackbench by itself", None, "");
    let mut rows = vec![
        time,
        chance.note("against the run before: what differs by chance"),
    ];
    for (runs, kind) in traced.into_iter().zip(&KINDS) {
        let name = format!("hackbench, {}", kind.name);
        rows.extend(runs.rows(&name, kind.bound, kind.theirs));
    }
    Ok(rows)
}
