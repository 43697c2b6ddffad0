//! A part of a trace of coroutines takes no more records than there are in it, and some before and behind it.

use std::sync::{Arc, Mutex};

use nopal_abi::RESYNC_STACK;
use nopal_analysis::calls::{Ending, Frame, Sink};
use nopal_analysis::drive::{Drive, Times, Worker};
use nopal_analysis::filter::Filter;
use nopal_analysis::names::Names;
use nopal_analysis::range::{Checkpoints, Start};
use nopal_analysis::{graph, report, span};
use nopal_trace::synthetic::{Random, Recorder, clock};
use nopal_trace::{Note, Session, Trace, Writer};
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

/// The words of records that a reader of a part takes, and all of them.
fn words(trace: &Trace, filter: &Filter) -> (u64, u64) {
    let [thread] = &trace.threads()[..] else {
        panic!("one thread");
    };
    let done = Mutex::new(Vec::new());
    let progress = |words: u64, _: u64| done.lock().unwrap().push(words);
    let drive = Drive {
        workers: 1,
        filter: Some(filter),
        progress: Some(&progress),
        ..Drive::default()
    };
    report::functions(trace, &drive).unwrap();
    let done = done.into_inner().unwrap();
    let [before, .., read, all] = done[..] else {
        panic!("the words before the part, those in it and those behind it");
    };
    let checkpoints = filter
        .checkpoints
        .as_ref()
        .and_then(|all| all.get(&thread.key()));
    let start = Start::before(filter.from, thread, checkpoints);
    (read - before + start.words_before as u64, all)
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

/// A part of a trace is the same with checkpoints, and takes no more words than a part of them, and those between two
/// checkpoints so many times.
fn check(trace: &Trace, checkpoints: &Arc<Checkpoints>, part: Part, times: u64) {
    let (begin, end) = (span::begin(trace), span::end(trace));
    let moment = |tenths: u64| begin + (end - begin) / 10 * tenths;
    let mut filter = Filter::default();
    (filter.from, filter.until) = (part.from.map(moment), part.until.map(moment));
    let whole = shown(trace, &filter);
    filter.checkpoints = Some(Arc::clone(checkpoints));
    let of = format!("{} coroutines, seed {}", part.coroutines, part.seed);
    let (read, all) = words(trace, &filter);
    let tenths = part.until.unwrap_or(10) - part.from.unwrap_or(0);
    let most = all / 10 * tenths + all / 1000 + times * words_between(part.coroutines);
    assert!(read <= most, "{of}: {read} words of {all}");
    let shown = shown(trace, &filter);
    assert!(shown == whole, "{of}: {shown:?} is not {whole:?}");
}

/// A part in tenths.
struct Part {
    coroutines: u64,
    seed: u64,
    from: Option<u64>,
    until: Option<u64>,
}

#[test]
fn a_tenth_of_a_trace_of_coroutines_takes_a_tenth_of_its_records() {
    for (coroutines, seed) in [10, 100, 300].into_iter().zip(seeds(3, &[])) {
        let (_directory, trace) = traced(coroutines, seed);
        let checkpoints = Arc::new(Index::make(&trace, 1, None).checkpoints());
        for (from, until, times) in [
            (Some(9), None, 1),
            (None, Some(1), 1),
            (Some(4), Some(5), 2),
        ] {
            let part = Part {
                coroutines,
                seed,
                from,
                until,
            };
            check(&trace, &checkpoints, part, times);
        }
    }
}

/// Counts the calls that a reader of whole calls near a time is told of.
struct Near {
    /// The site whose calls it waits for; None: all.
    site: Option<u32>,
    calls: u64,
    /// The number of those that were open in the time, and ended.
    ended: u64,
    time: (u64, u64),
}

impl Sink for Near {
    fn enter(&mut self, _: &[Frame], _: Option<[u64; 6]>) -> u32 {
        self.calls += 1;
        7
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        let is_in = frame.clock < self.time.1 && ending.clock > self.time.0;
        let is_awaited = self.awaits(frame.site());
        self.ended += u64::from(is_in && is_awaited && frame.note == 7);
    }

    fn lose(&mut self, _: &Frame, _: u64, _: bool) {}
    fn stray(&mut self, _: &Frame, _: Ending) {}
}

impl Worker for Near {
    fn times(&self) -> Times {
        Times::Near
    }

    fn awaits(&self, site: u32) -> bool {
        self.site.is_none_or(|wanted| wanted == site)
    }
}

#[test]
fn what_is_behind_a_part_is_passed_over_until_the_calls_in_it_end() {
    let coroutines = 10;
    for seed in seeds(1, &[]) {
        let (_directory, trace) = traced(coroutines, seed);
        let (begin, end) = (span::begin(&trace), span::end(&trace));
        let moment = |tenths: u64| begin + (end - begin) / 10 * tenths;
        let checkpoints = Arc::new(Index::make(&trace, 1, None).checkpoints());
        // Each coroutine may end in another place.
        for (site, places) in [
            (Some(MAIN), 1),
            (Some(SERVE), coroutines),
            (None, coroutines + 1),
        ] {
            let time = (moment(4), moment(5));
            let mut filter = Filter::default();
            (filter.from, filter.until) = (Some(time.0), Some(time.1));
            let read = |filter: &Filter| {
                let mut worker = [Near {
                    site,
                    calls: 0,
                    ended: 0,
                    time,
                }];
                let drive = Drive {
                    workers: 1,
                    filter: Some(filter),
                    ..Drive::default()
                };
                drive.run(&trace, &mut worker).unwrap();
                (worker[0].calls, worker[0].ended)
            };
            let (all, ended) = read(&filter);
            filter.checkpoints = Some(Arc::clone(&checkpoints));
            let (calls, ended_near) = read(&filter);
            let of = format!("seed {seed}, {site:?}");
            assert_eq!(ended_near, ended, "{of}");
            let most = all / 10 + (2 + places) * words_between(coroutines) / 2;
            assert!(
                calls <= most,
                "{of}: {calls} calls of {all}, at most {most}"
            );
        }
    }
}
