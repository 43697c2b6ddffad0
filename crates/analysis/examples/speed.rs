//! How many records a second the report and the chrome dump take: `speed DIR [WORKERS]`, or `speed --make DIR RECORDS`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::report;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--make", directory, records, threads] => {
            let threads = threads.parse()?;
            let calls_per_thread = records.parse::<u64>()? / 2 / u64::from(threads);
            let shape = Shape { threads, calls_per_thread, functions: 500, ..Shape::default() };
            synthetic::write(Path::new(directory), &shape)?;
            Ok(())
        }
        [directory] => measure(directory, Drive::default()),
        [directory, workers] => measure(directory, Drive { workers: workers.parse()?, progress: None }),
        _ => anyhow::bail!("speed DIR [WORKERS] | speed --make DIR RECORDS THREADS"),
    }
}

fn measure(directory: &str, drive: Drive) -> Result<()> {
    let start = Instant::now();
    let trace = Trace::open(Path::new(directory)).context("cannot open the trace")?;
    println!("open: {:.3} s", start.elapsed().as_secs_f64());
    let words: u64 = trace.threads().iter().flat_map(|thread| thread.packets()).map(|p| p.words().len() as u64).sum();
    for _ in 0..3 {
        let start = Instant::now();
        let report = report::functions(&trace, &drive)?;
        let seconds = start.elapsed().as_secs_f64();
        let calls: u64 = report.rows.iter().map(|row| row.calls).sum();
        println!("report: {:.1} million words a second, {calls} calls", words as f64 / seconds / 1e6);
    }
    Ok(())
}
