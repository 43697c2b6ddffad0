//! `nopal report`: functions, with their numbers of calls and times.

use std::collections::HashSet;
use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::graph;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::off;
use nopal_analysis::report::{self, Column, Related, Relation};
use nopal_analysis::waits::{OF_THE_CLOCK, Waits};
use nopal_plan::Plan;
use nopal_symbols::Image;
use nopal_trace::{Cost, Trace};

use crate::arguments::Report;
use crate::open::driven;
use crate::output::{self, finish, width};

const READING: &str = "reading calls";

/// The assumption behind net times.
const NET: &str = "# net times assume that each call computes: one that waits or spins until a given time took up to its time without --net";

pub fn run(arguments: &Report) -> Result<()> {
    let trace = &arguments.input.open()?;
    let filter = &arguments.filter.of(trace)?;
    let net = net(arguments, trace)?;
    let waits = Waits::new(trace).filter(|_| net.is_none());
    let reading = Reading {
        arguments,
        trace,
        filter,
        net,
        waits,
    };
    let mut out = output::stdout()?;
    if !arguments.json {
        out.write_all(losses::comment(trace, Some(filter)).as_bytes())?;
        if net.is_some() {
            writeln!(out, "{NET}")?;
        }
    }
    let written = reading.write(&mut out);
    finish(out, written)
}

fn net(arguments: &Report, trace: &Trace) -> Result<Option<Cost>> {
    if !arguments.net {
        return Ok(None);
    }
    ensure!(
        trace.short_calls() == 0,
        "no net times: calls were left out at recording (-t), and the cost of recording them is in the times of their callers"
    );
    let cost = trace.cost().context(
        "the cost of recording is not in the trace: it was recorded by an older nopal, or the cost could not be measured",
    )?;
    Ok(Some(cost))
}

/// A report of a trace.
struct Reading<'a> {
    arguments: &'a Report,
    trace: &'a Trace,
    filter: &'a Filter,
    net: Option<Cost>,
    waits: Option<Waits>,
}

impl Reading<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<()> {
        let arguments = self.arguments;
        if arguments.threads {
            self.threads(out)
        } else if arguments.processes {
            self.processes(out)
        } else if arguments.hot_path {
            self.hot_path(out)
        } else if let Some(by) = &arguments.by_arg {
            self.by_argument(by, out)
        } else if arguments.kernel {
            let rows = driven(READING, self.filter, |drive| {
                report::kernel(self.trace, drive)
            })?;
            Ok(report::write_kernel(self.limited(&rows), out, width())?)
        } else if let Some((pattern, relation)) = related(arguments) {
            self.related(pattern, relation, out)
        } else {
            self.functions(out)
        }
    }

    fn driven<T>(&self, work: impl FnOnce(&Drive) -> Result<T>) -> Result<T> {
        driven(READING, self.filter, |drive| {
            work(&Drive {
                net: self.net,
                waits: self.waits.as_ref(),
                ..*drive
            })
        })
    }

    fn threads(&self, out: &mut dyn Write) -> Result<()> {
        let mut rows = self.driven(|drive| report::threads(self.trace, drive))?;
        self.order(&mut rows, &report::THREADS_BY)?;
        let shown = self.limited(&rows);
        if self.arguments.json {
            return Ok(report::write_threads_json(shown, self.trace, out)?);
        }
        let any = rows.iter().any(|row| row.is_timed);
        self.write_untimed(!any && rows.iter().any(|row| row.calls > 0), out)?;
        out.write_all(losses::of_no_thread(self.trace).as_bytes())?;
        report::write_threads(shown, out, width())?;
        self.write_of_the_clock(any, out)
    }

    fn processes(&self, out: &mut dyn Write) -> Result<()> {
        let mut rows = self.driven(|drive| report::processes(self.trace, drive))?;
        self.order(&mut rows, &report::PROCESSES_BY)?;
        let shown = self.limited(&rows);
        if self.arguments.json {
            return Ok(report::write_processes_json(shown, self.trace, out)?);
        }
        let any = rows.iter().any(|row| row.is_timed);
        self.write_untimed(!any && rows.iter().any(|row| row.calls > 0), out)?;
        report::write_processes(shown, out, width())?;
        self.write_of_the_clock(any, out)
    }

    fn related(&self, pattern: &str, relation: Relation, out: &mut dyn Write) -> Result<()> {
        let mut rows =
            self.driven(|drive| report::related(self.trace, pattern, relation, drive))?;
        self.order(&mut rows, &report::RELATED_BY)?;
        let shown = self.limited(&rows);
        if self.arguments.json {
            return Ok(report::write_related_json(shown, self.trace, out)?);
        }
        let any = rows.iter().any(Related::is_timed);
        self.write_untimed(!any && !rows.is_empty(), out)?;
        report::write_related(shown, relation, out, width())?;
        let names = Names::new(self.trace);
        for line in off::left_out(self.trace, &names, pattern, Some(self.filter))? {
            writeln!(out, "{line}")?;
        }
        self.write_of_the_clock(any, out)
    }

    fn hot_path(&self, out: &mut dyn Write) -> Result<()> {
        let names = Names::new(self.trace);
        let tree = self.driven(|drive| graph::tree(self.trace, &names, drive))?;
        self.write_untimed(tree.lacks_times(), out)?;
        let (clocks, has_waits) = (self.trace.clocks(), self.waits.is_some());
        Ok(graph::write_hot_path(
            out,
            &tree,
            &names,
            clocks,
            has_waits,
            width(),
        )?)
    }

    fn by_argument(&self, by: &str, out: &mut dyn Write) -> Result<()> {
        let (name, rows) = self.driven(|drive| report::by_argument(self.trace, by, drive))?;
        let shown = self.limited(&rows);
        if self.arguments.json {
            return Ok(report::write_by_argument_json(
                &name, shown, self.trace, out,
            )?);
        }
        let any = rows.iter().any(|row| row.timed > 0);
        self.write_untimed(!any && !rows.is_empty(), out)?;
        Ok(report::write_by_argument(&name, shown, out, width())?)
    }

    fn functions(&self, out: &mut dyn Write) -> Result<()> {
        let (arguments, trace) = (self.arguments, self.trace);
        let mut report = self.driven(|drive| report::functions(trace, drive))?;
        if self.net.is_some() && arguments.json {
            report.bound_by(&driven(READING, self.filter, |drive| {
                report::functions(trace, drive)
            })?);
        }
        let unexplained = match arguments.json {
            true => Vec::new(),
            false => report::unexplained(trace, &report, refused),
        };
        report.sort(arguments.sort()?);
        if let Some(rows) = arguments.limit {
            report.limit(rows);
        }
        if arguments.json {
            return Ok(report.write_json(trace, out)?);
        }
        self.write_untimed(report.lacks_times(), out)?;
        report.write_table(out, width())?;
        self.write_of_the_clock(report.has_times(), out)?;
        for line in unexplained {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn order<Row>(&self, rows: &mut [Row], columns: &[Column<Row>]) -> Result<()> {
        match &self.arguments.sort {
            Some(by) => report::order(rows, columns, by),
            None => Ok(()),
        }
    }

    fn limited<'r, Row>(&self, rows: &'r [Row]) -> &'r [Row] {
        let limit = self.arguments.limit.unwrap_or(rows.len());
        &rows[..limit.min(rows.len())]
    }

    /// Prints why the calls have no times, if they `lack` them.
    fn write_untimed(&self, lack: bool, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(losses::untimed(self.trace, lack).as_bytes())
    }

    /// Prints that times include waits, if there are `any` times.
    fn write_of_the_clock(&self, any: bool, out: &mut dyn Write) -> Result<()> {
        if any && self.net.is_none() && self.waits.is_none() {
            writeln!(out, "{OF_THE_CLOCK}")?;
        }
        Ok(())
    }
}

/// The addresses of a file's functions that cannot be recorded.
fn refused(image: &Image) -> HashSet<u64> {
    let refused = Plan::make(image).map(|plan| plan.refused);
    let refused = refused.unwrap_or_default().into_iter();
    refused.map(|function| function.address).collect()
}

fn related(arguments: &Report) -> Option<(&str, Relation)> {
    let relation = match arguments.call_sites {
        true => Relation::CallSites,
        false => Relation::Callers,
    };
    let callers = arguments
        .callers
        .as_deref()
        .map(|function| (function, relation));
    callers.or(arguments
        .callees
        .as_deref()
        .map(|function| (function, Relation::Callees)))
}
