//! `nopal hist`: how values of calls are distributed.

use anyhow::Result;
use nopal_analysis::hist;

use crate::arguments::{ByArgument, Hist};
use crate::open::driven;
use crate::output::{self, finish, width};

pub fn run(arguments: &Hist) -> Result<()> {
    let (trace, names, what) = arguments.subject.open()?;
    let (filter, by) = (arguments.filter.filter(), ByArgument::by(arguments.by));
    let groups = driven("reading calls", |drive| {
        hist::distributions(&trace, &names, &what, &filter, by, drive)
    })?;
    let scale = arguments.scale.scale();
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => hist::write_json(&mut out, &what, &groups, scale),
        false => hist::write_text(&mut out, &what, &groups, scale, width()),
    };
    finish(out, written.map_err(Into::into))
}
