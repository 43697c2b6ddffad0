//! `nopal replay`: the calls in order.

use anyhow::Result;
use nopal_analysis::losses;
use nopal_analysis::replay::{self, Look};

use crate::arguments::Replay;
use crate::output::{Pages, colors, paged};

pub fn run(arguments: &Replay) -> Result<()> {
    let trace = arguments.input.open()?;
    let look = Look {
        color: colors(),
        sources: arguments.lines,
        words: arguments.words,
        filter: arguments.filter.of(&trace)?,
    };
    paged(Pages::Several, |out| {
        out.write_all(losses::comment(&trace, Some(&look.filter)).as_bytes())?;
        replay::replay(&trace, &look, out)
    })
}
