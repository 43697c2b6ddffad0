//! `cells?from=&until=&columns=&rows=THREAD:FIRST:DEPTHS,…&exact=1`: pictures of threads.
//!
//! The answer has little-endian words of 32 bits: columns, rows, and 1 if everything wider than a column was read from the
//! records. Then the rows, in the order asked for, as [`Grid::packed`] gives them. Then a row for each thread, with the
//! markers of each column (4).

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use nopal_index::{DEPTHS, Grid};

use super::query::{Query, number};
use crate::shown::State;

const MOST_COLUMNS: u64 = 8192;
const MOST_CELLS: usize = 1 << 22;

/// The most words of records that are read for an answer, and for an exact one.
const QUICK: u64 = 1 << 18;
const EXACT: u64 = 1 << 25;

/// The counter at the begin of each column, and at the end of the last one.
pub fn bounds(state: &State, query: &Query) -> Result<Vec<u64>> {
    let (from, until) = (query.number("from")?, query.number("until")?);
    let columns = query.number("columns")?;
    ensure!(from < until, "an empty time");
    ensure!((1..=MOST_COLUMNS).contains(&columns), "too many columns");
    let width = u128::from(until - from);
    let bound = |column: u64| {
        let ns = width * u128::from(column) / u128::from(columns);
        state.counter(from + ns as u64)
    };
    Ok((0..=columns).map(bound).collect())
}

struct Rows {
    thread: usize,
    depths: Range<usize>,
}

fn rows(state: &State, query: &Query) -> Result<Vec<Rows>> {
    let parts = query.text("rows").unwrap_or_default().split(',');
    let parts = parts.filter(|part| !part.is_empty());
    let rows = parts.map(|part| {
        let numbers: Vec<u64> = part.split(':').map(number).collect::<Result<_>>()?;
        let &[thread, first, depths] = numbers.as_slice() else {
            anyhow::bail!("rows are THREAD:FIRST:DEPTHS");
        };
        let known = state.index.threads.len() as u64;
        ensure!(thread < known, "no such thread");
        let first = first.min(DEPTHS as u64) as usize;
        Ok(Rows {
            thread: thread as usize,
            depths: first..first + depths.min(DEPTHS as u64) as usize,
        })
    });
    rows.collect()
}

pub fn cells(state: &State, query: &Query) -> Result<Vec<u8>> {
    let bounds = bounds(state, query)?;
    let columns = bounds.len() - 1;
    let rows = rows(state, query)?;
    let all: usize = rows.iter().map(|rows| rows.depths.len()).sum();
    ensure!(all.saturating_mul(columns) <= MOST_CELLS, "too many cells");
    let budget = match query.text("exact") {
        Some("1") => EXACT,
        _ => QUICK,
    };
    let grids = grids(state, &rows, &bounds, budget / rows.len().max(1) as u64)?;
    let is_exact = grids.iter().all(|(grid, _)| grid.is_exact);
    let mut bytes = Vec::with_capacity(12 + all * columns * 8 + rows.len() * columns * 4);
    for number in [columns as u32, all as u32, u32::from(is_exact)] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for (_, rows) in &grids {
        bytes.extend_from_slice(rows);
    }
    for (grid, _) in &grids {
        grid.packed_markers()
            .for_each(|markers| bytes.extend_from_slice(&markers));
    }
    Ok(bytes)
}

/// Pictures and their rows. Makes two at a time.
fn grids(
    state: &State,
    rows: &[Rows],
    bounds: &[u64],
    budget: u64,
) -> Result<Vec<(Grid, Vec<u8>)>> {
    let infos = state.trace.threads();
    let one = |rows: &Rows| {
        let thread = infos.get(rows.thread).context("no such thread")?;
        let index = &state.index.threads[rows.thread];
        let grid = index.grid(thread, bounds.to_vec(), rows.depths.clone(), budget);
        let rows = grid.packed(&state.names);
        Ok((grid, rows))
    };
    let all = |rows: &[Rows]| rows.iter().map(one).collect::<Result<Vec<_>>>();
    let (first, second) = rows.split_at(rows.len() / 2);
    let (first, second) = match first.is_empty() {
        true => (Ok(Vec::new()), all(second)),
        false => nopal_beside::both(|| all(first), || all(second)),
    };
    let mut grids = first?;
    grids.extend(second?);
    Ok(grids)
}
