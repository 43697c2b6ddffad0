//! `nopal info`: facts about a trace.

use anyhow::Result;
use nopal_analysis::info;

use crate::arguments::Info;
use crate::output::{self, finish, width};

pub fn run(arguments: &Info) -> Result<()> {
    let trace = arguments.input.open_and_compare()?;
    let mut out = output::stdout()?;
    let written = info::info(&trace, &mut out, width());
    finish(out, written.map_err(Into::into))
}
