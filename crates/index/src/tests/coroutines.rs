//! A late part of a trace of coroutines takes no more records than there are in it, and some before.

use std::sync::Arc;

use nopal_abi::RESYNC_STACK;
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::names::Names;
use nopal_analysis::range::{Checkpoints, Start};
use nopal_analysis::{graph, report, span};
use nopal_trace::synthetic::{Random, Recorder, clock};
use nopal_trace::{Note, Session, ThreadInfo, Trace, Writer};
use tempfile::TempDir;

use super::made::seeds;
use crate::Index;

const TOP: u64 = 0x7ffd_0000_8008;
const HEAP: u64 = 0x5555_0000_0008;
const STACK: u64 = 0x4010;
const BEGIN: u64 = 1 << 32;

const MAIN: u32 = 1;
const RESUME: u32 = 2;
const COROUTINE: u32 = 3;
const SERVE: u32 = 4;
const LEAF: u32 = 5;
const YIELD: u32 = 6;
const NAMES: [&str; 6] = ["main", "resume", "coroutine", "serve", "leaf", "yield"];

/// The number of entries and exits of a trace.
const EVENTS: u64 = 2_000_000;

/// A thread whose coroutines take turns, in an order that changes; some of them end, and others begin on their stacks.
fn traced(number: u64, seed: u64) -> (TempDir, Trace) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let mut writer = Writer::create(&path, Session::default()).unwrap();
    writer.note(&clock(BEGIN)).unwrap();
    let image = Note::Image {
        image: 1,
        path: "/coroutines".into(),
        identity: "00".into(),
    };
    let sites = (1..).zip(NAMES);
    let sites = sites.map(|(site, name)| (site, u64::from(site) * 64, 64, name.to_owned()));
    let sites = sites.collect();
    for note in [image, Note::Sites { image: 1, sites }] {
        writer.note(&note).unwrap();
    }
    let mut recorder = Recorder::new(100, 100, BEGIN);
    let mut random = Random::new(seed);
    let mut clock_now = BEGIN;
    let mut tick = |random: &mut Random| {
        clock_now += 1 + random.below(50);
        clock_now
    };
    let mut is_begun = vec![false; number as usize];
    let mut events = 1;
    recorder.entry(tick(&mut random), MAIN, TOP);
    while events < EVENTS {
        let at = random.below(number);
        let slot = |depth: u64| HEAP + STACK * at - 0x40 * depth;
        recorder.entry(tick(&mut random), RESUME, TOP - 0x40);
        let arrived = tick(&mut random);
        let is_begun = &mut is_begun[at as usize];
        if *is_begun && random.below(500) > 0 {
            recorder.resync(arrived, slot(2), RESYNC_STACK);
            recorder.exit(arrived, YIELD, slot(2));
        } else {
            recorder.resync(arrived, slot(0), RESYNC_STACK);
            recorder.entry(arrived, COROUTINE, slot(0));
            recorder.entry(tick(&mut random), SERVE, slot(1));
            *is_begun = true;
        }
        for _ in 0..4 {
            recorder.entry(tick(&mut random), LEAF, slot(2));
            recorder.exit(tick(&mut random), LEAF, slot(2));
        }
        recorder.entry(tick(&mut random), YIELD, slot(2));
        let arrived = tick(&mut random);
        recorder.resync(arrived, TOP - 0x40, RESYNC_STACK);
        recorder.exit(arrived, RESUME, TOP - 0x40);
        events += 12;
        recorder.write_full(&mut writer).unwrap();
    }
    recorder.exit(tick(&mut random), MAIN, TOP);
    recorder.finish(&mut writer).unwrap();
    writer.note(&clock(clock_now)).unwrap();
    writer
        .note(&Note::End {
            counter: clock_now,
            complete: true,
            why: String::new(),
        })
        .unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    (directory, trace)
}

/// The words of records that a reader takes from a time on, and all of them.
fn words(thread: &ThreadInfo, from: u64, checkpoints: &Checkpoints) -> (u64, u64) {
    let words_from = |packet: usize| {
        let packets = thread.packets_in(packet..usize::MAX);
        packets.map(|packet| packet.words().len()).sum::<usize>()
    };
    let start = Start::before(Some(from), thread, checkpoints.get(&thread.key()));
    let read = start.words_before + words_from(start.packet);
    (read as u64, words_from(0) as u64)
}

/// What a report and a graph say.
fn shown(trace: &Trace, filter: &Filter) -> [String; 2] {
    let drive = Drive {
        workers: 1,
        filter: Some(filter),
        ..Drive::default()
    };
    let mut text = [Vec::new(), Vec::new()];
    let report = report::functions(trace, &drive).unwrap();
    report.write_json(trace, &mut text[0]).unwrap();
    let names = Names::new(trace);
    let tree = graph::tree(trace, &names, &drive).unwrap();
    let look = graph::Shown {
        least_percent: 0.0,
        ..graph::Shown::default()
    };
    graph::write_tree(&mut text[1], &tree, &names, trace.clocks(), look).unwrap();
    text.map(|text| String::from_utf8(text).unwrap())
}

/// Words between two checkpoints: they take one byte of 128, a coroutine some 100 bytes, and blocks end with packets.
fn words_between(coroutines: u64) -> u64 {
    coroutines * 100 * 128 / 8 + (1 << 15)
}

#[test]
fn the_last_tenth_of_a_trace_of_coroutines_takes_a_tenth_of_its_records() {
    for (number, seed) in [10, 100, 300].into_iter().zip(seeds(3)) {
        let (_directory, trace) = traced(number, seed);
        let index = Index::make(&trace, 1, None);
        let checkpoints = Arc::new(index.checkpoints());
        let (begin, end) = (span::begin(&trace), span::end(&trace));
        let from = end - (end - begin) / 10;
        let mut filter = Filter::default();
        filter.from = Some(from);
        let whole = shown(&trace, &filter);
        let (read, all) = words(&trace.threads()[0], from, &checkpoints);
        assert!(
            read <= all / 10 + all / 1000 + words_between(number),
            "{number} coroutines, seed {seed}: {read} words of {all}"
        );
        filter.checkpoints = Some(checkpoints);
        let part = shown(&trace, &filter);
        assert!(
            part == whole,
            "{number} coroutines, seed {seed}: {part:?} is not {whole:?}"
        );
    }
}
