//! `nopal flame`: a flame graph.

use anyhow::Result;
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
    let picture = driven("reading calls", &filter, |drive| {
        flame::draw(&trace, look, drive)
    })?;
    arguments.output.write(&picture)
}
