//! How many records a second reports, folded stacks, the longest calls, the mere state of the stacks, and the chrome
//! dump take:
//! `throughput --make DIR RECORDS THREADS`, then `throughput DIR [WORKERS]`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use nopal_analysis::calls::CallRebuilder;
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Format, Weight, dump};
use nopal_analysis::names::Names;
use nopal_analysis::report;
use nopal_analysis::slow;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};

const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--make", directory, records, threads] => {
            let threads = threads.parse()?;
            let calls_per_thread = records.parse::<u64>()? / 2 / u64::from(threads);
            let shape = Shape {
                threads,
                calls_per_thread,
                functions: 500,
                ..Shape::default()
            };
            synthetic::write(Path::new(directory), &shape)?;
            Ok(())
        }
        [directory] => measure(directory, Drive::default()),
        [directory, workers] => measure(
            directory,
            Drive {
                workers: workers.parse()?,
                ..Drive::default()
            },
        ),
        _ => anyhow::bail!("throughput DIR [WORKERS] | throughput --make DIR RECORDS THREADS"),
    }
}

fn measure(directory: &str, drive: Drive) -> Result<()> {
    let trace = Trace::open(Path::new(directory)).context("cannot open the trace")?;
    let records: usize = trace
        .threads()
        .iter()
        .flat_map(|thread| thread.packets())
        .map(|packet| packet.words().len())
        .sum();
    for _ in 0..ROUNDS {
        time("report", records, || {
            report::functions(&trace, &drive).map(drop)
        })?;
        time("processes", records, || {
            report::processes(&trace, &drive).map(drop)
        })?;
        time("folded", records, || {
            dump(
                &trace,
                Format::Folded(Weight::Time),
                &drive,
                &mut std::io::sink(),
            )
        })?;
        time("slow", records, || {
            let names = Names::new(&trace);
            slow::slowest(&trace, &names, "function_7", 10, &drive).map(drop)
        })?;
        time("state", records, || {
            for thread in trace.threads() {
                let mut rebuilder = CallRebuilder::new();
                thread
                    .packets()
                    .for_each(|packet| rebuilder.packet(&packet, &mut ()));
            }
            Ok(())
        })?;
        time("chrome", records, || {
            dump(&trace, Format::Chrome, &drive, &mut std::io::sink())
        })?;
    }
    Ok(())
}

fn time(what: &str, records: usize, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    run()?;
    println!(
        "{what}: {:.1} million records a second",
        records as f64 / start.elapsed().as_secs_f64() / 1e6
    );
    Ok(())
}
