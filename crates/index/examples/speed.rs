//! How fast the index of a trace is made, beside the report of the same trace, its size, and how fast views are answered:
//! `speed DIR [WORKERS]`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::report;
use nopal_index::Index;
use nopal_trace::Trace;
use nopal_trace::synthetic::Random;

const ROUNDS: usize = 3;
const VIEWS: u64 = 1000;
const COLUMNS: u64 = 2000;
/// Depths of a view, of all threads together.
const ROWS: usize = 40;
const BUDGET: u64 = 1 << 18;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("speed DIR [WORKERS]")?;
    let workers = arguments.next().map_or(Ok(2), |workers| workers.parse())?;
    let trace = Trace::open(Path::new(&directory))?;
    let drive = Drive {
        workers,
        ..Drive::default()
    };
    let mut index = Index::make(&trace, workers, None);
    let words: u64 = index.threads.iter().map(|thread| thread.words).sum();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        report::functions(&trace, &drive)?;
        let reported = start.elapsed();
        let start = Instant::now();
        index = Index::make(&trace, workers, None);
        let made = start.elapsed();
        let rate = |time: Duration| words as f64 / time.as_secs_f64() / 1e6;
        println!(
            "report {:.1}, index {:.1} million words a second: {:.2} times",
            rate(reported),
            rate(made),
            reported.as_secs_f64() / made.as_secs_f64()
        );
    }
    Index::open(&trace, workers, None);
    let bytes = std::fs::metadata(Index::path(&trace))?.len();
    let start = Instant::now();
    Index::open(&trace, workers, None);
    println!(
        "{:.4} bytes a word, read in {:?}",
        bytes as f64 / words as f64,
        start.elapsed()
    );
    views(&trace, &index);
    Ok(())
}

/// Random views of random width.
fn views(trace: &Trace, index: &Index) {
    let mut random = Random::new(1);
    let from = index.threads.iter().map(|thread| thread.from).min();
    let until = index.threads.iter().map(|thread| thread.until()).max();
    let (Some(from), Some(until)) = (from, until) else {
        return;
    };
    let infos = trace.threads();
    let mut times = Vec::new();
    let mut exact = 0;
    for _ in 0..VIEWS {
        let width = ((until - from) >> random.below(20)).max(COLUMNS);
        let begin = from + random.below((until - from - width).max(1));
        let bounds: Vec<u64> = (0..=COLUMNS)
            .map(|column| begin + width * column / COLUMNS)
            .collect();
        let rows = ROWS / index.threads.len().clamp(1, ROWS);
        let start = Instant::now();
        let budget = BUDGET / index.threads.len() as u64;
        let all = infos.iter().zip(&index.threads).take(ROWS);
        let grids = all.map(|(thread, index)| index.grid(thread, bounds.clone(), 0..rows, budget));
        exact += usize::from(grids.fold(true, |exact, grid| exact & grid.is_exact));
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "views: p50 {:?}, p99 {:?}, max {:?}; {exact} of {VIEWS} exact",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
}
