//! `nopal dump`: every event as text.

use std::io::Write;

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::dump::{self, Place};
use nopal_analysis::losses;

use crate::arguments::Dump;
use crate::open::driven;
use crate::output::{self, finish};

pub fn run(arguments: &Dump) -> Result<()> {
    let trace = arguments.input.open()?;
    let format = arguments.format();
    let mut out = output::stdout()?;
    match format.losses() {
        Place::Comment => out.write_all(losses::comment(&trace).as_bytes())?,
        Place::Apart => {
            if let Some(line) = losses::line(&trace) {
                eprintln!("nopal: {line}");
            }
        }
        Place::Within => {}
    }
    let written = driven("writing events", |drive| {
        dump::dump(&trace, format, drive, &mut out)
    });
    finish(out, written)
}
