//! `nopal slow`: the longest calls of a function.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::prototypes::Prototypes;
use nopal_analysis::slow;

use crate::arguments::Slow;
use crate::open::driven;
use crate::output::{self, finish};

pub fn run(arguments: &Slow) -> Result<()> {
    let (function, input) = arguments.parts();
    let trace = input.open()?;
    let names = Names::new(&trace);
    let filter = arguments.filter.of(&trace)?;
    let number = arguments.limit as usize;
    let calls = driven("reading calls", &filter, |drive| {
        slow::slowest(&trace, &names, function, number, drive)
    })?;
    let prototypes = &mut match arguments.words {
        true => Prototypes::default(),
        false => Prototypes::new(&trace, &names),
    };
    let places = &slow::Places::new(&trace, &names, &calls);
    let mut out = output::stdout()?;
    let directories = input.named();
    let written = match arguments.json {
        true => slow::write_json(&calls, &trace, &names, prototypes, places, &mut out),
        false => out
            .write_all(losses::comment(&trace, Some(&filter)).as_bytes())
            .and_then(|()| {
                slow::write_text(
                    &calls,
                    &trace,
                    &names,
                    prototypes,
                    places,
                    &directories,
                    &mut out,
                )
            }),
    };
    finish(out, written.map_err(Into::into))
}
