//! `nopal hist`: how values of calls, or the cases of a tracer, are distributed.

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::hist::{self, Group};
use nopal_analysis::text::count;
use nopal_analysis::tracers::Past;
use nopal_analysis::values::What;

use crate::arguments::{ByArgument, Hist};
use crate::open::driven;
use crate::output::{self, finish, width};

pub fn run(arguments: &Hist) -> Result<()> {
    let (trace, names, mut what) = arguments.subject.open()?;
    let filter = arguments.filter.filter();
    let by = ByArgument::by(arguments.by.as_ref(), &mut what, trace.markers())?;
    let (groups, past) = match what.tracer() {
        Some(tracer) => hist::of_tracer(&trace, &names, tracer, &filter, by, |_| ())?,
        None => {
            let groups = driven("reading calls", |drive| {
                hist::distributions(&trace, &names, &what, &filter, by, drive)
            })?;
            (groups, Past::default())
        }
    };
    write(arguments, &what, &groups)?;
    for line in missing(&past) {
        eprintln!("nopal: {line}");
    }
    Ok(())
}

fn write(arguments: &Hist, what: &What, groups: &[Group]) -> Result<()> {
    let scale = arguments.scale.scale();
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => hist::write_json(&mut out, what, groups, scale),
        false => hist::write_text(&mut out, what, groups, scale, width()),
    };
    finish(out, written.map_err(Into::into))
}

/// What a tracer missed, in lines.
pub fn missing(past: &Past) -> Vec<String> {
    let told = [
        (past.open, "had begun and not ended when the trace did"),
        (
            past.missing.never_ended,
            "began and never ended: they began anew, or events of the system were lost",
        ),
        (past.missing.ends_alone, "ended without having begun"),
        (
            past.missing.begins_lost,
            "began while too many others were open, and are not among these",
        ),
        (
            past.missing.clock_went_back,
            "ended before they began, by a clock that went back, and are not among these",
        ),
    ];
    let told = told.into_iter().filter(|(number, _)| *number > 0);
    let told = told.map(|(number, what)| {
        let cases = if number == 1 { "case" } else { "cases" };
        format!("{} {cases} {what}", count(number))
    });
    told.collect()
}
