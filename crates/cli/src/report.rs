//! `nopal report`: functions, with their numbers of calls and times.

use std::io::Write;

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::graph;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::report::{self, Related, Relation};
use nopal_analysis::waits::{OF_THE_CLOCK, Waits};
use nopal_trace::{Cost, Trace};

use crate::arguments::Report;
use crate::open::driven;
use crate::output::{self, finish, width};

const READING: &str = "reading calls";

/// The assumption of net times.
const NET: &str = "# net times assume that each call computes: one that waits or spins until a given time took up to its time without --net";

pub fn run(arguments: &Report) -> Result<()> {
    let trace = arguments.input.open()?;
    let filter = &arguments.filter.of(&trace)?;
    let net = match arguments.net {
        true => Some(trace.cost().context(
            "the cost of recording is not in the trace: it was recorded by an older nopal, or the cost could not be measured",
        )?),
        false => None,
    };
    let mut out = output::stdout()?;
    if !arguments.json {
        out.write_all(losses::comment(&trace).as_bytes())?;
        if net.is_some() {
            writeln!(out, "{NET}")?;
        }
    }
    let written = if arguments.threads {
        let rows = driven(READING, filter, |drive| {
            report::threads(&trace, &of_net(drive, net))
        })?;
        let shown = limited(&rows, arguments.limit);
        match arguments.json {
            true => report::write_threads_json(shown, &trace, &mut out),
            false => {
                let any = rows.iter().any(|row| row.is_timed);
                out.write_all(losses::untimed(&trace, any).as_bytes())?;
                report::write_threads(shown, &mut out, width())
            }
        }
    } else if arguments.processes {
        let rows = driven(READING, filter, |drive| {
            report::processes(&trace, &of_net(drive, net))
        })?;
        let shown = limited(&rows, arguments.limit);
        match arguments.json {
            true => report::write_processes_json(shown, &trace, &mut out),
            false => {
                let any = rows.iter().any(|row| row.is_timed);
                out.write_all(losses::untimed(&trace, any).as_bytes())?;
                report::write_processes(shown, &mut out, width())
            }
        }
    } else if arguments.hot_path {
        let names = Names::new(&trace);
        let waits = waits(&trace, net);
        let tree = driven(READING, filter, |drive| {
            graph::tree(&trace, &names, &with_waits(drive, net, waits.as_ref()))
        })?;
        out.write_all(losses::untimed(&trace, tree.has_times()).as_bytes())?;
        let has_waits = waits.is_some();
        graph::write_hot_path(&mut out, &tree, &names, trace.clocks(), has_waits, width())
    } else if arguments.kernel {
        let rows = driven(READING, filter, |drive| report::kernel(&trace, drive))?;
        report::write_kernel(limited(&rows, arguments.limit), &mut out, width())
    } else if let Some((pattern, relation)) = related(arguments) {
        let rows = driven(READING, filter, |drive| {
            report::related(&trace, pattern, relation, &of_net(drive, net))
        })?;
        let any = rows.iter().any(Related::is_timed);
        out.write_all(losses::untimed(&trace, any || rows.is_empty()).as_bytes())?;
        report::write_related(limited(&rows, arguments.limit), relation, &mut out, width())
    } else {
        let waits = waits(&trace, net);
        let mut report = driven(READING, filter, |drive| {
            report::functions(&trace, &with_waits(drive, net, waits.as_ref()))
        })?;
        if net.is_some() && arguments.json {
            report.bound_by(&driven(READING, filter, |drive| {
                report::functions(&trace, drive)
            })?);
        }
        let unexplained = match arguments.json {
            true => Vec::new(),
            false => report::unexplained(&trace, &report),
        };
        report.sort(arguments.sort());
        if let Some(rows) = arguments.limit {
            report.limit(rows);
        }
        match arguments.json {
            true => report.write_json(&trace, &mut out),
            false => out
                .write_all(losses::untimed(&trace, report.has_times()).as_bytes())
                .and_then(|()| report.write_table(&mut out, width()))
                .and_then(
                    |()| match net.is_none() && !report.has_waits() && report.has_times() {
                        true => writeln!(out, "{OF_THE_CLOCK}"),
                        false => Ok(()),
                    },
                )
                .and_then(|()| {
                    let mut lines = unexplained.iter();
                    lines.try_for_each(|line| writeln!(out, "{line}"))
                }),
        }
    };
    finish(out, written.map_err(Into::into))
}

fn of_net<'a>(drive: &Drive<'a>, net: Option<Cost>) -> Drive<'a> {
    Drive { net, ..*drive }
}

/// The cost of recording is not known by waits.
fn waits(trace: &Trace, net: Option<Cost>) -> Option<Waits> {
    Waits::new(trace).filter(|_| net.is_none())
}

fn with_waits<'a>(drive: &Drive<'a>, net: Option<Cost>, waits: Option<&'a Waits>) -> Drive<'a> {
    Drive {
        net,
        waits,
        ..*drive
    }
}

fn related(arguments: &Report) -> Option<(&str, Relation)> {
    let callers = arguments
        .callers
        .as_deref()
        .map(|function| (function, Relation::Callers));
    callers.or(arguments
        .callees
        .as_deref()
        .map(|function| (function, Relation::Callees)))
}

fn limited<Row>(rows: &[Row], limit: Option<usize>) -> &[Row] {
    &rows[..limit.unwrap_or(rows.len()).min(rows.len())]
}
