//! `cells?from=&until=&columns=&rows=THREAD:FIRST:DEPTHS,…&exact=1`: pictures of threads.
//!
//! The answer has little-endian words of 32 bits: columns, rows, and 1 if everything wider than a column was read from the
//! records. Then the rows, in the order asked for, each with eight bytes a column: function (4), covered part of the
//! column (1; 255 is all of it, and 0 only if there is none), the part that the function covers (1), and the calls that
//! begin (2; 65,535 or more). Then a row for each thread, with the markers of each column (4).

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use nopal_index::{DEPTHS, Grid, GridCell};

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
    let is_exact = grids.iter().all(|grid| grid.is_exact);
    let mut bytes = Vec::with_capacity(12 + all * columns * 8 + rows.len() * columns * 4);
    for number in [columns as u32, all as u32, u32::from(is_exact)] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let widths: Vec<f64> = bounds
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).max(1) as f64)
        .collect();
    for grid in &grids {
        for at in 0..grid.depths.len() {
            for (column, width) in widths.iter().enumerate() {
                let cell = &grid.column(column)[at];
                bytes.extend_from_slice(&packed(state, cell, *width));
            }
        }
    }
    for grid in &grids {
        let markers = grid.markers.iter().map(|markers| markers.ceil() as u32);
        markers.for_each(|markers| bytes.extend_from_slice(&markers.to_le_bytes()));
    }
    Ok(bytes)
}

/// Makes two at a time.
fn grids(state: &State, rows: &[Rows], bounds: &[u64], budget: u64) -> Result<Vec<Grid>> {
    let infos = state.trace.threads();
    let one = |rows: &Rows| {
        let thread = infos.get(rows.thread).context("no such thread")?;
        let index = &state.index.threads[rows.thread];
        Ok(index.grid(thread, bounds.to_vec(), rows.depths.clone(), budget))
    };
    let all = |rows: &[Rows]| rows.iter().map(one).collect::<Result<Vec<Grid>>>();
    let (first, second) = rows.split_at(rows.len() / 2);
    let (first, second) = match first.is_empty() {
        true => (Ok(Vec::new()), all(second)),
        false => nopal_beside::both(|| all(first), || all(second)),
    };
    let mut grids = first?;
    grids.extend(second?);
    Ok(grids)
}

fn packed(state: &State, cell: &GridCell, width: f64) -> [u8; 8] {
    let part = |ticks: f64| match ticks > 0.0 {
        true => (ticks / width * 255.0).clamp(1.0, 255.0) as u8,
        false => 0,
    };
    let mut bytes = [0; 8];
    if cell.covered > 0.0 || cell.calls > 0.0 {
        bytes[..4].copy_from_slice(&state.names.number(cell.site).to_le_bytes());
        bytes[4] = part(cell.covered);
        bytes[5] = part(cell.most);
        bytes[6..].copy_from_slice(&(cell.calls.ceil().min(65535.0) as u16).to_le_bytes());
    }
    bytes
}
