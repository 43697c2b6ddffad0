//! Sums of calls.

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::{graph, report};
use serde::Serialize;

use super::query::Query;
use crate::shown::State;

const MOST_NODES: usize = 4000;

/// `functions`: the rows of `nopal report --json`.
pub fn functions(state: &State, _query: &Query) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    report::functions(&state.trace, &Drive::default())?.write_json(&state.trace, &mut text)?;
    Ok(text)
}

#[derive(Serialize)]
pub struct Graph {
    /// Function, parent by its place, calls, total and own nanoseconds; a parent comes before its children. The first is
    /// not a call.
    nodes: Vec<(u32, u32, u64, u64, u64)>,
    /// Nodes that are left out, since they took the least time.
    left_out: usize,
}

/// `graph`: the calls by the path that led to them.
pub fn graph(state: &State, _query: &Query) -> Result<Graph> {
    let tree = graph::tree(&state.trace, &state.names, &Drive::default())?;
    let clocks = state.trace.clocks();
    let mut totals: Vec<u64> = tree.nodes().iter().map(|node| node.total).collect();
    totals.sort_unstable_by_key(|total| std::cmp::Reverse(*total));
    let least = totals.get(MOST_NODES).copied().unwrap_or(0);
    let mut places = vec![u32::MAX; tree.nodes().len()];
    let mut nodes = Vec::new();
    for (at, node) in tree.nodes().iter().enumerate() {
        let parent = places
            .get(node.parent as usize)
            .copied()
            .unwrap_or(u32::MAX);
        let is_root = at == graph::ROOT as usize;
        if !is_root && (node.total < least || parent == u32::MAX) {
            continue;
        }
        places[at] = nodes.len() as u32;
        let parent = if is_root { 0 } else { parent };
        let (total, own) = (clocks.duration_ns(node.total), clocks.duration_ns(node.own));
        nodes.push((node.function, parent, node.calls, total, own));
    }
    Ok(Graph {
        left_out: tree.nodes().len() - nodes.len(),
        nodes,
    })
}
