//! `nopal flame`: a flame graph.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nopal_analysis::graph::Per;
use nopal_analysis::names::Names;
use nopal_plot::flame::{self, Look, Old};
use nopal_trace::Trace;

use crate::arguments::{Flame, FlameBy, Input, More};
use crate::open::driven;

pub fn run(arguments: &Flame) -> Result<()> {
    arguments.output.check()?;
    let trace = arguments.input.open()?;
    let filter = arguments.filter.of(&trace)?;
    ensure!(
        arguments.against.is_none() || !matches!(arguments.by, FlameBy::Own),
        "--against shows self times by colour: --by self has them at the base, where all stacks are one"
    );
    let look = Look {
        icicle: arguments.icicle,
        weight: arguments.by.weight(),
    };
    let old = match &arguments.against {
        Some(directory) => Some(old(arguments, directory, look)?),
        None => None,
    };
    let (names, per) = names(arguments, &trace)?;
    let picture = driven("reading calls", &filter, |drive| {
        flame::draw(&trace, &names, &per, look, old.as_ref(), drive)
    })?;
    arguments.output.write(&picture)
}

fn names(arguments: &Flame, trace: &Trace) -> Result<(Names, Per)> {
    let mut names = Names::new(trace);
    if arguments.call_sites {
        names.tell_call_sites_apart(trace)?;
    }
    let per = Per::new(trace, &mut names, arguments.per.apart());
    Ok((names, per))
}

fn old(arguments: &Flame, directory: &Path, look: Look) -> Result<Old> {
    let name = directory.display().to_string();
    let input = Input::new([directory.to_owned()], &More::default());
    let trace = input.open()?;
    let old = || {
        let filter = arguments.filter.of(&trace)?;
        let (names, per) = names(arguments, &trace)?;
        driven("reading calls", &filter, |drive| {
            Old::new(&name, &trace, &names, &per, look, drive)
        })
    };
    old().with_context(|| name.clone())
}
