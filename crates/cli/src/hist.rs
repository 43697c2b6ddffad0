//! `nopal hist`: how values of calls, or the cases of a tracer, are distributed.

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::hist::{self, Group};
use nopal_analysis::values::What;

use crate::arguments::{ByArgument, Hist};
use crate::open::driven;
use crate::output::{self, finish, width};

pub fn run(arguments: &Hist) -> Result<()> {
    let (trace, names, mut what) = arguments.subject.open()?;
    let filter = arguments.filter.filter();
    let by = ByArgument::by(arguments.by.as_ref(), &mut what, trace.markers())?;
    let (groups, told) = driven("reading calls", |drive| {
        hist::distributions(&trace, &names, &what, &filter, by, drive)
    })?;
    write(arguments, &what, &groups, &told)?;
    for line in told {
        eprintln!("nopal: {line}");
    }
    Ok(())
}

fn write(arguments: &Hist, what: &What, groups: &[Group], told: &[String]) -> Result<()> {
    let scale = arguments.scale.scale();
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => hist::write_json(&mut out, what, groups, told, scale),
        false => hist::write_text(&mut out, what, groups, scale, width()),
    };
    finish(out, written.map_err(Into::into))
}
