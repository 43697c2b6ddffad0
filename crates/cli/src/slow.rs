//! `nopal slow`: the longest calls of a function.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::slow;
use nopal_record::Options;

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
    let mut out = output::stdout()?;
    let directory = input.directory.display().to_string();
    let directory = Some(directory.as_str()).filter(|name| *name != Options::DIRECTORY);
    let written = match arguments.json {
        true => slow::write_json(&calls, &trace, &names, &mut out),
        false => out
            .write_all(losses::comment(&trace).as_bytes())
            .and_then(|()| slow::write_text(&calls, &trace, &names, directory, &mut out)),
    };
    finish(out, written.map_err(Into::into))
}
