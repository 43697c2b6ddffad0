//! The cost of packets' checksums for the writer.

use crate::run::{Paths, remove};
use crate::samples::Samples;
use crate::table::{Bound, Row};
use anyhow::Result;
use nopal_trace::synthetic::{Random, Recorder, Scanner, bytes_mut};
use nopal_trace::{Session, Writer};
use std::time::Instant;

const ROUNDS: usize = 9;
const CALLS: u64 = 4_000_000;
const FUNCTIONS: u64 = 500;

pub fn measure(paths: &Paths) -> Result<Vec<Row>> {
    let chunks = chunks();
    let mut buffer = vec![0; chunks[0].len()];
    let mut scanner = Scanner::new();
    let rounds = (0..ROUNDS).map(|_| round(paths, &chunks, &mut buffer, &mut scanner));
    let rounds: Vec<[f64; 3]> = rounds.collect::<Result<_>>()?;
    let of = |which: usize| -> Samples { rounds.iter().map(|round| round[which]).collect() };
    let [plain, summed, written] = [0, 1, 2].map(of);
    let share = summed
        .less(&plain)
        .with(&written, |sums, all| 100.0 * sums / all);
    let note = format!(
        "a chunk of 64 KiB: written in {:.1} µs, scanned in {:.2}, without the sum in {:.2}",
        written.median(),
        summed.median(),
        plain.median()
    );
    let row = Row::new("checksums, of the time to write records", "%", share);
    Ok(vec![row.bound(Bound::AtMost(2.0)).note(note)])
}

/// The median times over all chunks, in microseconds: scanned without a sum, scanned with one, and written. Each chunk
/// is in the cache, as after a copy out of a buffer.
fn round(
    paths: &Paths,
    chunks: &[Vec<u64>],
    buffer: &mut [u64],
    scanner: &mut Scanner,
) -> Result<[f64; 3]> {
    let directory = paths.directory.join("collected");
    remove(&directory)?;
    let mut writer = Writer::create(&directory, Session::default())?;
    let mut times = [const { Vec::new() }; 3];
    for chunk in chunks {
        for (way, times) in times.iter_mut().enumerate() {
            buffer.copy_from_slice(chunk);
            let begin = Instant::now();
            if way < 2 {
                scanner.scan(buffer, way == 1);
            } else {
                writer.chunk(bytes_mut(buffer), true)?;
            }
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    drop(writer);
    remove(&directory)?;
    Ok(times.map(|times| Samples::from_iter(times).median()))
}

/// Full chunks of a thread whose calls of many functions are nested at random.
fn chunks() -> Vec<Vec<u64>> {
    let mut recorder = Recorder::new(1, 1, 1);
    let mut random = Random::new(1);
    let mut open: Vec<u32> = Vec::new();
    for number in 0..2 * CALLS {
        let clock = 1 + number * 20;
        let slot = |depth: usize| 0x7f00_0000 - depth as u64 * 0x40;
        match open.pop() {
            Some(site) if open.len() == 20 || random.below(2) == 0 => {
                recorder.exit(clock, site, slot(open.len()));
            }
            top => {
                open.extend(top);
                let site = 1 + random.below(FUNCTIONS) as u32;
                recorder.entry(clock, site, slot(open.len()));
                open.push(site);
            }
        }
    }
    let mut full = recorder.take_full();
    let length = full[0].len();
    full.retain(|chunk| chunk.len() == length);
    full
}
