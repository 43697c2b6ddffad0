//! `nopal requests`: the cases of a section, the longest first, and where the time of each went.

use anyhow::Result;
use nopal_analysis::names::Names;
use nopal_analysis::requests;

use crate::arguments::Requests;
use crate::open::driven;
use crate::output::{self, finish};

pub fn run(arguments: &Requests) -> Result<()> {
    let (section, input) = arguments.parts();
    let trace = input.open()?;
    let names = Names::new(&trace);
    let filter = arguments.filter.of(&trace)?;
    let (value, number) = (arguments.value, arguments.limit as usize);
    let found = driven("reading calls", &filter, |drive| {
        requests::longest(&trace, &names, section, value, number, &filter, drive)
    })?;
    let mut out = output::stdout()?;
    let written = match arguments.json {
        true => requests::write_json(&found, &trace, &names, &mut out),
        false => requests::write_text(
            &found,
            &trace,
            &names,
            value.is_some(),
            &input.named(),
            &mut out,
        ),
    };
    finish(out, written.map_err(Into::into))
}
