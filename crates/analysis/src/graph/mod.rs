//! `nopal graph`: calls summed up by the path that led to them.

mod heaviest;
mod hot;
mod list;
mod per;
mod places;
mod tree;
mod write;

pub use heaviest::{Heaviest, Heavy, Limits, heaviest};
pub use hot::{hot_path, write_hot_path};
pub use per::{Apart, Per};
pub use tree::{Node, ROOT, Tree};
pub use write::{Shown, write_tree};

use anyhow::Result;
use nopal_trace::Trace;

use crate::drive::Drive;
use crate::names::Names;
use crate::off::Off;
use tree::Grower;

/// All calls of a trace.
pub fn tree(trace: &Trace, names: &Names, drive: &Drive) -> Result<Tree> {
    tree_per(trace, names, &Per::default(), drive)
}

/// All calls of a trace, grouped.
pub fn tree_per(trace: &Trace, names: &Names, per: &Per, drive: &Drive) -> Result<Tree> {
    let mut workers: Vec<Grower> = (0..drive.workers.max(1))
        .map(|_| Grower::new(names, per))
        .collect();
    drive.run(trace, &mut workers)?;
    Ok(sum(workers).mark_off(&Off::new(trace, names, drive.filter)))
}

fn sum(workers: Vec<Grower>) -> Tree {
    let mut trees = workers.into_iter().map(Grower::into_tree);
    let mut sum = trees.next().unwrap_or_default();
    trees.for_each(|tree| sum.add(&tree));
    sum
}

/// The calls within the functions that `pattern` matches, wherever they were called.
pub fn tree_of(trace: &Trace, names: &Names, pattern: &str, drive: &Drive) -> Result<Tree> {
    let wanted = names.wanted(pattern)?;
    let tree = tree(trace, names, drive)?.under(&wanted);
    Ok(tree.mark_off(&Off::new(trace, names, drive.filter)))
}
