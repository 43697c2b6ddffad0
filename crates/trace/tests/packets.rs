//! A trace is opened by packets that are said to be its own, and may be anything.

use nopal_trace::synthetic::{Random, Shape, write};
use nopal_trace::{Packets, Trace};
use serde_json::Value;
use std::path::Path;

fn made(directory: &Path, seed: u64) -> Trace {
    let shape = Shape {
        seed,
        calls_per_thread: 30_000,
        sleeps: 2000,
        ..Shape::default()
    };
    write(directory, &shape).unwrap();
    Trace::open(directory).unwrap()
}

#[test]
fn only_packets_that_may_be_the_trace_s_own_are_believed() {
    let place = tempfile::tempdir().unwrap();
    let trace = made(&place.path().join("trace"), 1);
    let other = made(&place.path().join("other"), 2);
    assert!(!trace.has_packets_of(&other));
    for packets in [trace.packets(), other.packets(), Packets::default()] {
        let opened = Trace::open_by_packets(trace.directory(), packets).unwrap();
        assert_eq!(opened.damage(), []);
        assert!(opened.has_packets_of(&trace));
    }

    // The first packet is gone, and the last one has another length.
    let stream = trace.directory().join("stream-0");
    let bytes = std::fs::read(&stream).unwrap();
    for cut in [1 << 16, bytes.len() - 8] {
        std::fs::write(&stream, &bytes[..cut]).unwrap();
        let opened = Trace::open_by_packets(trace.directory(), trace.packets()).unwrap();
        assert!(opened.damage_count() > 0 && !opened.has_packets_of(&trace));
    }
}

#[test]
fn hostile_packets_are_harmless() {
    let seed = std::env::var("NOPAL_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("NOPAL_SEED={seed}");
    let mut random = Random::new(seed);
    let place = tempfile::tempdir().unwrap();
    let trace = made(&place.path().join("trace"), 1);
    let good = serde_json::to_value(trace.packets()).unwrap();
    for _ in 0..200 {
        let mut bad = good.clone();
        for _ in 0..1 + random.below(3) {
            change(&mut bad, &mut random);
        }
        let Ok(packets) = serde_json::from_value(bad) else {
            continue;
        };
        let opened = Trace::open_by_packets(trace.directory(), packets).unwrap();
        for thread in opened.threads() {
            let records = thread.packets().flat_map(|packet| packet.records());
            assert!(records.count() < 1 << 20);
            thread.packets().for_each(|packet| packet.release());
        }
        for processor in opened.processors() {
            assert!(processor.events().count() < 1 << 20);
        }
    }
}

/// Changes a number somewhere.
fn change(value: &mut Value, random: &mut Random) {
    match value {
        Value::Array(all) if !all.is_empty() => {
            let at = random.below(all.len() as u64) as usize;
            change(&mut all[at], random);
        }
        Value::Object(all) => {
            let at = random.below(all.len() as u64) as usize;
            change(all.values_mut().nth(at).unwrap(), random);
        }
        Value::Number(number) => {
            let old = number.as_u64().unwrap_or(0);
            let new = [old ^ 1 << random.below(34), random.number(), 0, old + 1];
            *value = new[random.below(4) as usize].into();
        }
        _ => {}
    }
}
