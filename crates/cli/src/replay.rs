//! `nopal replay`: the calls in order.

use anyhow::Result;
use nopal_analysis::losses;
use nopal_analysis::replay::{self, Look};
use nopal_symbols::Selection;

use crate::arguments::Replay;
use crate::output::{colors, paged};

pub fn run(arguments: &Replay) -> Result<()> {
    let selection = |patterns: &[String]| match patterns {
        [] => Ok(None),
        patterns => Selection::new(patterns, &[]).map(Some),
    };
    let look = Look {
        color: colors(),
        only: selection(&arguments.functions.only)?,
        not: selection(&arguments.functions.not)?,
        filter: arguments.filter.filter(),
    };
    let trace = arguments.input.open()?;
    paged(|out| {
        out.write_all(losses::comment(&trace).as_bytes())?;
        replay::replay(&trace, &look, out)
    })
}
