//! The heaviest path of a tree.

use std::io::{self, Write};

use nopal_trace::Clocks;

use super::tree::{ROOT, Tree};
use crate::names::Names;
use crate::text::{Align, Table, bound, count, percent};

/// From the outermost call inwards the one with most time, to a function that has more time of its own than any that it
/// calls.
pub fn hot_path(tree: &Tree) -> Vec<u32> {
    let nodes = tree.nodes();
    let children = tree.children();
    let mut path = Vec::new();
    let mut at = ROOT;
    while let Some(&heaviest) = children[at as usize]
        .iter()
        .max_by_key(|&&child| nodes[child as usize].total)
    {
        let (node, child) = (&nodes[at as usize], &nodes[heaviest as usize]);
        if at != ROOT && node.own >= child.total {
            break;
        }
        path.push(heaviest);
        at = heaviest;
    }
    path
}

/// A row for each function of the path.
pub fn write_hot_path(
    out: &mut dyn Write,
    tree: &Tree,
    names: &Names,
    clocks: &Clocks,
    width: usize,
) -> io::Result<()> {
    let nodes = tree.nodes();
    let all = tree.children()[ROOT as usize]
        .iter()
        .fold(0u64, |sum, &at| {
            sum.saturating_add(nodes[at as usize].total)
        });
    let numbers = ["total", "of all", "self", "calls"].map(|name| (name, Align::Right));
    let functions = [("function", Align::Left), ("module", Align::Left)];
    let mut table = Table::new(&[numbers.as_slice(), &functions].concat());
    for number in hot_path(tree) {
        let node = &nodes[number as usize];
        let function = &names.functions()[node.function as usize];
        table.row(vec![
            bound(clocks.duration_ns(node.total), node.total_is_least),
            percent(node.total, all),
            bound(clocks.duration_ns(node.own), node.own_is_least),
            count(node.calls),
            function.name.clone(),
            function.module.clone(),
        ]);
    }
    table.write(out, width)
}
