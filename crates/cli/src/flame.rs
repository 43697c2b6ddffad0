//! `nopal flame`: a flame graph.

use anyhow::Result;
use nopal_analysis::graph::Per;
use nopal_analysis::names::Names;
use nopal_plot::flame::{self, Look};

use crate::arguments::Flame;
use crate::open::driven;

pub fn run(arguments: &Flame) -> Result<()> {
    arguments.output.check()?;
    let trace = arguments.input.open()?;
    let filter = arguments.filter.of(&trace)?;
    let look = Look {
        icicle: arguments.icicle,
        weight: arguments.by.weight(),
    };
    let mut names = Names::new(&trace);
    let per = Per::new(&trace, &mut names, arguments.per.apart());
    let picture = driven("reading calls", &filter, |drive| {
        flame::draw(&trace, &names, &per, look, drive)
    })?;
    arguments.output.write(&picture)
}
