//! The heaviest path of a tree.

use std::io::{self, Write};

use nopal_trace::Clocks;

use super::tree::{Node, ROOT, Tree};
use crate::names::Names;
use crate::off::{CALLS_OFF, WITH_UNTIMED, with_untimed};
use crate::text::{Align, Table, bound, bound_count, percent};
use crate::waits::PARTS;

/// From the outermost call inwards the one with most time, to a function that has more time of its own than any that it
/// calls. Empty if no call has a time.
pub fn hot_path(tree: &Tree) -> Vec<u32> {
    if !tree.has_times() {
        return Vec::new();
    }
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
    has_waits: bool,
    width: usize,
) -> io::Result<()> {
    let nodes = tree.nodes();
    let all = tree.children()[ROOT as usize]
        .iter()
        .fold(0u64, |sum, &at| {
            sum.saturating_add(nodes[at as usize].total)
        });
    let waited = match has_waits {
        true => tree.waited(),
        false => Vec::new(),
    };
    let parts: &[&str] = if has_waits { &PARTS } else { &[] };
    let numbers = [&["total", "of all", "self"], parts, &["calls"]].concat();
    let mut columns: Vec<_> = numbers
        .into_iter()
        .map(|name| (name, Align::Right))
        .collect();
    columns.extend([("function", Align::Left), ("module", Align::Left)]);
    let mut table = Table::new(&columns);
    for number in hot_path(tree) {
        let node = &nodes[number as usize];
        let function = &names.functions()[node.function as usize];
        let total = |ticks| bound(clocks.duration_ns(ticks), node.total_is_least);
        let mut cells = vec![
            total(node.total),
            percent(node.total, all),
            with_untimed(
                bound(clocks.duration_ns(node.own), node.own_is_least),
                node.own_with_untimed,
            ),
        ];
        if let Some(waited) = waited.get(number as usize) {
            let part = |ticks, is_least| bound(clocks.duration_ns(ticks), is_least);
            let of_total = waited.total.parts_of(node.total);
            cells.extend(of_total.cells(node.total_is_least, part));
        }
        cells.extend([
            bound_count(node.calls, node.was_off),
            function.name.clone(),
            function.module.clone(),
        ]);
        table.row(cells);
    }
    table.write(out, width)?;
    let has = |is: fn(&Node) -> bool| hot_path(tree).iter().any(|at| is(&nodes[*at as usize]));
    if has(|node| node.was_off) {
        writeln!(out, "{CALLS_OFF}")?;
    }
    if has(|node| node.own_with_untimed) {
        writeln!(out, "{WITH_UNTIMED}")?;
    }
    Ok(())
}
