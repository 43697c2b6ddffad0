//! `nopal graph`: the calls summed up as a tree.

use std::io::Write;

use anyhow::{Result, bail};
use nopal_analysis::drive::Drive;
use nopal_analysis::graph::{self, Apart, Per, Shown};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::off;
use nopal_analysis::waits::{OF_THE_CLOCK, Waits};

use crate::arguments::Graph;
use crate::open::driven;
use crate::output::{self, finish};

pub fn run(arguments: &Graph) -> Result<()> {
    let (input, function) = arguments.parts();
    let trace = input.open()?;
    let mut names = Names::new(&trace);
    if arguments.call_sites {
        names.tell_call_sites_apart(&trace)?;
    }
    let per = Per::new(&trace, &mut names, arguments.per.apart());
    let filter = arguments.filter.of(&trace)?;
    if function.is_some() && arguments.per.apart() != Apart::Nothing {
        bail!("--per shows all calls of each: -F FUNCTION selects those of a function");
    }
    let waits = Waits::new(&trace);
    let tree = driven("reading calls", &filter, |drive| {
        let drive = &Drive {
            waits: waits.as_ref(),
            ..*drive
        };
        match function {
            Some(function) => graph::tree_of(&trace, &names, function, drive),
            None => graph::tree_per(&trace, &names, &per, drive),
        }
    })?;
    let defaults = Shown::default();
    let shown = Shown {
        depth: arguments.depth.unwrap_or(defaults.depth),
        least_percent: arguments.least.unwrap_or(defaults.least_percent),
        has_waits: waits.is_some(),
    };
    let left_out = match function {
        Some(function) => off::left_out(&trace, &names, function, Some(&filter))?,
        None => Vec::new(),
    };
    let mut out = output::stdout()?;
    let losses =
        losses::comment(&trace, Some(&filter)) + &losses::untimed(&trace, tree.lacks_times());
    let written = out
        .write_all(losses.as_bytes())
        .and_then(|()| graph::write_tree(&mut out, &tree, &names, trace.clocks(), shown))
        .and_then(|()| left_out.iter().try_for_each(|line| writeln!(out, "{line}")))
        .and_then(|()| match waits.is_none() && tree.has_times() {
            true => writeln!(out, "{OF_THE_CLOCK}"),
            false => Ok(()),
        });
    finish(out, written.map_err(Into::into))
}
