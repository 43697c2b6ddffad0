//! `nopal hist`: how values of calls, or the cases of a tracer, are distributed.

use std::io::Write;

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::hist::{self, Group};
use nopal_analysis::losses;
use nopal_analysis::values::ValueSelection;
use nopal_trace::Trace;

use crate::arguments::{ByArgument, Hist};
use crate::open::driven;
use crate::output::{self, finish, width};

pub fn run(arguments: &Hist) -> Result<()> {
    let (trace, names, mut what) = arguments.subject.open()?;
    let filter = arguments.filter.of(&trace)?;
    let by = ByArgument::by(arguments.by.as_ref(), &mut what, trace.markers())?;
    let (groups, notes) = driven("reading calls", &filter, |drive| {
        hist::distributions(&trace, &names, &what, &filter, by, drive)
    })?;
    write(arguments, &trace, &what, &groups, &notes)?;
    for line in notes {
        eprintln!("nopal: {line}");
    }
    Ok(())
}

fn write(
    arguments: &Hist,
    trace: &Trace,
    what: &ValueSelection,
    groups: &[Group],
    notes: &[String],
) -> Result<()> {
    let scale = arguments.scale.scale();
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => hist::write_json(&mut out, trace, what, groups, notes, scale),
        false => out
            .write_all(losses::comment(trace, None).as_bytes())
            .and_then(|()| hist::write_text(&mut out, what, groups, scale, width())),
    };
    finish(out, written.map_err(Into::into))
}
