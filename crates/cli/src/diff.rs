//! `nopal diff`: how functions differ between traces.

use anyhow::{Context, Result};
use nopal_analysis::diff::{self, Run};

use crate::arguments::{Diff, Input};
use crate::open::driven;
use crate::output::{self, finish, width};

pub fn run(arguments: &Diff) -> Result<()> {
    let [before, after] = arguments.sides()?;
    let runs = |side: &[Input]| -> Result<Vec<Run>> {
        let runs = side.iter().map(|input| read(arguments, input));
        runs.collect()
    };
    let (before, after) = (runs(&before)?, runs(&after)?);
    let mut comparison = diff::compare(&before, &after);
    if let Some(rows) = arguments.limit {
        comparison.limit(rows);
    }
    let sides = [before.as_slice(), after.as_slice()];
    let per = arguments.per.as_deref();
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => diff::write_json(&comparison, sides, per, &mut out),
        false => diff::write_text(&comparison, sides, per, &mut out, width()),
    };
    finish(out, written.map_err(Into::into))
}

fn read(arguments: &Diff, input: &Input) -> Result<Run> {
    let name = input.name();
    let trace = input.open()?;
    let per = arguments.per.as_deref();
    let run = || {
        let filter = arguments.filter.of(&trace)?;
        driven("reading calls", &filter, |drive| {
            Run::new(&name, &trace, per, drive)
        })
    };
    run().with_context(|| name.clone())
}
