//! `nopal report`: what was called, how often, how long.

use anyhow::Result;
use nopal_analysis::report;

use crate::arguments::Report;
use crate::open::driven;
use crate::output::{self, finish, flushed, width};

pub fn run(arguments: &Report) -> Result<()> {
    let trace = arguments.input.open()?;
    let mut report = driven("reading calls", |drive| report::functions(&trace, drive))?;
    report.sort(arguments.sort());
    if let Some(rows) = arguments.limit {
        report.limit(rows);
    }
    let mut out = output::stdout();
    let written = match arguments.json {
        true => report.write_json(&mut out),
        false => report.write_table(&mut out, width()),
    };
    finish(flushed(out, written))
}
