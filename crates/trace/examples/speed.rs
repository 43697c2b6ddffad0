//! Measures writing and decoding: `cargo run --release -p nopal-trace --example speed`.

use nopal_abi::CHUNK_BYTES;
use nopal_trace::synthetic::{Recorder, Shape, bytes_mut, write};
use nopal_trace::{Chunk, Event, Packet, Session, Trace, Writer};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let shape = Shape {
        threads: 2,
        calls_per_thread: 5_000_000,
        functions: 500,
        ..Shape::default()
    };
    let path = directory.path().join("decode");
    let (truth, made) = timed(|| write(&path, &shape));
    let truth = truth?;
    println!("make      {:7.1} M records/s", rate(truth.events, made));

    let (trace, opened) = timed(|| Trace::open(&path));
    println!("open      {:7.2} ms", opened.as_secs_f64() * 1e3);
    decode("at random", &trace?);

    let path = directory.path().join("loop");
    let mut writer = Writer::create(&path, Session::default())?;
    let mut recorder = Recorder::new(1, 1, 1);
    for number in 0..1_000_000 {
        let clock = 1 + number * 200;
        recorder.entry(clock, 1, 0x7000);
        for inner in 0..4 {
            recorder.entry(clock + 10 + inner * 20, 2, 0x6000);
            recorder.exit(clock + 20 + inner * 20, 2, 0x6000);
        }
        recorder.exit(clock + 100, 1, 0x7000);
        recorder.write_full(&mut writer)?;
    }
    recorder.finish(&mut writer)?;
    decode("in a loop", &Trace::open(&path)?);

    let mut chunks = chunks();
    for round in 0..ROUNDS {
        let path = directory.path().join("write");
        let mut writer = Writer::create(&path, Session::default())?;
        let (written, spent) = timed(|| write_all(&mut writer, &mut chunks, true));
        println!(
            "write     {:7.1} µs a chunk   round {round}",
            per(written?, spent)
        );
        drop(writer);
        std::fs::remove_dir_all(&path)?;
    }

    // A word that is half stored makes the writer look at the whole chunk, and write nothing.
    for chunk in &mut chunks {
        chunk[CHUNK_BYTES / 8 - 1] = 1;
    }
    let mut writer = Writer::create(&directory.path().join("scan"), Session::default())?;
    for round in 0..ROUNDS {
        let (scanned, spent) = timed(|| write_all(&mut writer, &mut chunks, false));
        println!(
            "scan      {:7.2} µs a chunk   round {round}",
            per(scanned?, spent)
        );
    }
    Ok(())
}

fn decode(calls: &str, trace: &Trace) {
    let packets: Vec<Packet> = trace
        .threads()
        .iter()
        .flat_map(|thread| thread.packets())
        .collect();
    let words: usize = packets.iter().map(|packet| packet.words().len()).sum();
    for round in 0..ROUNDS {
        let work = |packet: &Packet| {
            let sum = checksum(packet);
            if round % 2 == 1 {
                packet.release();
            }
            sum
        };
        let (sum, spent) = timed(|| packets.iter().map(work).fold(0, u64::wrapping_add));
        let rate = rate(words as u64, spent);
        let released = if round % 2 == 1 { ", released" } else { "" };
        println!(
            "decode    {rate:7.1} M records/s   calls {calls}, round {round}, {sum:x}{released}"
        );
    }
}

fn write_all(writer: &mut Writer, chunks: &mut [Vec<u64>], settled: bool) -> anyhow::Result<usize> {
    for chunk in chunks.iter_mut() {
        let outcome = writer.chunk(bytes_mut(chunk), settled)?;
        anyhow::ensure!(settled != (outcome == Chunk::Unfinished), "{outcome:?}");
    }
    Ok(chunks.len())
}

fn per(chunks: usize, spent: Duration) -> f64 {
    spent.as_secs_f64() * 1e6 / chunks as f64
}

fn checksum(packet: &Packet) -> u64 {
    packet.records().fold(0, |sum, record| {
        let part = match record.event {
            Event::Entry { site, tag, .. } => u64::from(site) + u64::from(tag),
            Event::Exit { site, tag, .. } => u64::from(site) ^ u64::from(tag),
            Event::Resync { slot, .. } => slot,
            Event::Marker { event, .. } => u64::from(event),
            Event::CallSite { .. } | Event::Hole | Event::ShortCalls { .. } => 1,
        };
        sum.wrapping_add(part ^ record.clock)
    })
}

fn chunks() -> Vec<Vec<u64>> {
    let mut recorder = Recorder::new(1, 1, 1);
    for number in 0..8_000_000 {
        recorder.entry(1 + number * 20, 1 + (number % 300) as u32, 0x7000);
    }
    recorder.take_full()
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn rate(events: u64, spent: Duration) -> f64 {
    events as f64 / spent.as_secs_f64() / 1e6
}
