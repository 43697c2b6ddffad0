//! Sums of calls.

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::hist::{self, By, Scale};
use nopal_analysis::values::ValueSelection;
use nopal_analysis::{graph, report};
use serde::Serialize;

use super::query::{Query, number};
use crate::shown::State;

const MOST_NODES: usize = 4000;

/// The time and the threads that are asked for: all without `from`, `until` and `threads`.
pub fn filter(state: &State, query: &Query) -> Result<Filter> {
    let moment = |name: &str| match query.text(name) {
        None => Ok(None),
        Some(text) => number(text).map(|ns| Some(state.counter(ns))),
    };
    let mut filter = Filter::all(&state.trace);
    filter.narrow(moment("from")?, moment("until")?);
    filter.checkpoints = Some(state.checkpoints());
    if query.text("threads").is_some() {
        filter.select_threads(&query.numbers("threads")?, &state.trace);
    }
    Ok(filter)
}

/// `functions?from=&until=&threads=`: the rows of `nopal report --json`, with the same options.
pub fn functions(state: &State, query: &Query) -> Result<Vec<u8>> {
    let filter = filter(state, query)?;
    let drive = Drive {
        filter: Some(&filter),
        ..Drive::default()
    };
    let mut text = Vec::new();
    report::functions(&state.trace, &drive)?.write_json(&state.trace, &mut text)?;
    Ok(text)
}

#[derive(Serialize)]
pub struct Graph {
    /// Function, parent by its place, calls, total and own nanoseconds, and those of the calls made in it that are left
    /// out; a parent comes before its children. The first is not a call: its total is that of all outermost calls.
    nodes: Vec<(u32, u32, u64, u64, u64, u64)>,
    /// Calls that are left out, since those on their path took the least time.
    left_out: u64,
}

/// `graph?from=&until=&threads=`: the calls by the path that led to them.
pub fn graph(state: &State, query: &Query) -> Result<Graph> {
    let filter = filter(state, query)?;
    let drive = Drive {
        filter: Some(&filter),
        ..Drive::default()
    };
    let (trace, names) = (&state.trace, &state.names);
    let found = graph::heaviest(trace, names, &drive, MOST_NODES, graph::Limits::default())?;
    let ns = |ticks| state.trace.clocks().duration_ns(ticks);
    let node = |node: &graph::Heavy| {
        let times = [node.total, node.own, node.left_out].map(ns);
        let [total, own, left_out] = times;
        (node.function, node.parent, node.calls, total, own, left_out)
    };
    Ok(Graph {
        nodes: found.nodes.iter().map(node).collect(),
        left_out: found.left_out,
    })
}

/// `hist?function=&from=&until=&threads=`, or `of=` with what `nopal hist` takes: the object of `nopal hist --json`.
pub fn hist(state: &State, query: &Query) -> Result<Vec<u8>> {
    let filter = filter(state, query)?;
    let (trace, names) = (&state.trace, &state.names);
    let what = match query.unescaped("of")? {
        Some(text) => ValueSelection::new(Some(&text), names, trace.markers())?,
        None => ValueSelection::of_function(query.number("function")? as u32, names)?,
    };
    let drive = Drive {
        filter: Some(&filter),
        ..Drive::default()
    };
    let (groups, notes) = hist::distributions(trace, names, &what, &filter, By::Nothing, &drive)?;
    let mut text = Vec::new();
    hist::write_json(&mut text, trace, &what, &groups, &notes, Scale::Log2)?;
    Ok(text)
}
