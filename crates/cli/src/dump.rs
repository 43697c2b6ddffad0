//! `nopal dump`: every event as text.

use anyhow::Result;
use nopal_analysis::dump;

use crate::arguments::Dump;
use crate::open::driven;
use crate::output::{self, finish};

pub fn run(arguments: &Dump) -> Result<()> {
    let trace = arguments.input.open()?;
    let mut out = output::stdout()?;
    let written = driven("writing events", |drive| {
        dump::dump(&trace, arguments.format(), drive, &mut out)
    });
    finish(out, written)
}
