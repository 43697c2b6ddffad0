//! `nopal run`: runs a program under latency tracers, and prints their worst cases when it has ended.

use anyhow::Result;
use nopal_analysis::dump::{self, Look};
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{self, By};
use nopal_analysis::names::{Names, printable};
use nopal_analysis::text::{duration, several};
use nopal_analysis::tracers::{Case, Tracer};
use nopal_record::Outcome;
use nopal_trace::Trace;
use std::io::Write;

use crate::arguments::Run;
use crate::{message, record};

pub fn run(arguments: Run) -> Result<i32> {
    record::refuse_option(arguments.program())?;
    let options = arguments.options()?;
    record::run(&options, |outcome| {
        for tracer in &options.tracers {
            // The program has run: a missing result is no failure of it.
            if let Err(error) = show(tracer, outcome) {
                message::write(&format!("{error:#}"));
            }
        }
        let directory = printable(&outcome.directory.display().to_string());
        for name in &options.event_tracers {
            message::write(&format!(
                "`nopal dump --as latency --of {name} {directory}` shows what {name} recorded"
            ));
        }
        if options.tracers.is_empty() && options.event_tracers.is_empty() {
            message::write(&format!(
                "`nopal dump --as function {directory}` shows all of it, `nopal replay {directory}` as a tree"
            ));
        }
    })
}

/// On standard error: standard output is the program's.
fn show(tracer: &Tracer, outcome: &Outcome) -> Result<()> {
    let trace = Trace::open(&outcome.directory)?;
    let names = Names::new(&trace);
    let mut worst: Option<Case> = None;
    let all = Filter::default();
    let (groups, past) = hist::of_tracer(&trace, &names, tracer, &all, By::Nothing, |case| {
        if worst.is_none_or(|worst| case.ticks() > worst.ticks()) {
            worst = Some(*case);
        }
    })?;
    for group in groups {
        let [half, most] = [0.5, 0.99].map(|part| group.distribution.quantile(part));
        let [half, most] = [half, most].map(|value| duration(value.unsigned_abs()));
        let cases = several(group.distribution.count(), "case", "cases");
        message::write(&format!(
            "{}: {cases}, p50 {half}, p99 {most}; the worst:",
            tracer.name()
        ));
    }
    for line in past.describe() {
        message::write(&line);
    }
    let mut text = Vec::new();
    if let Some(worst) = worst {
        let look = Look {
            addresses: true,
            verbose: false,
        };
        dump::case(&trace, &names, tracer, &worst, None, look, &mut text)?;
    }
    // Standard error may have no reader.
    let _ = anstream::stderr().write_all(&text);
    Ok(())
}
