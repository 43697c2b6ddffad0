//! Readers of a part of a trace show the same with checkpoints and without.

use std::io::Write;
use std::sync::Arc;

use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Sink};
use nopal_analysis::drive::{Drive, Worker};
use nopal_analysis::dump::{Format, Weight, dump};
use nopal_analysis::filter::{Filter, Wanted};
use nopal_analysis::hist::{self, By, Scale};
use nopal_analysis::names::Names;
use nopal_analysis::range::Checkpoints;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::values::ValueSelection;
use nopal_analysis::{graph, report, selection, span};
use nopal_export as export;
use nopal_trace::synthetic::Random;
use nopal_trace::{Cost, Output, Trace};

use super::made::{made_with, seeds};
use crate::Index;
use crate::chart::{Chart, Open, Pieces};

struct Nothing;

impl Pieces for Nothing {
    fn call(&mut self, _depth: usize, _site: u32, _clock: u64) {}
    fn piece(&mut self, _depth: usize, _open: Open, _end: u64) {}
}

/// The checkpoints of an index with one before about one packet in `every`.
fn dense(trace: &Trace, random: &mut Random, every: u64) -> Checkpoints {
    let mut checkpoints = Index::make(trace, 1, None).checkpoints();
    for thread in trace.threads() {
        let of_thread = checkpoints.get_mut(&thread.key()).unwrap();
        of_thread.states.clear();
        let mut rebuilder = CallRebuilder::new();
        let mut chart = Chart::new(&[], 0, Nothing);
        for (number, packet) in thread.packets().enumerate() {
            if number > 0 && random.below(every) == 0 {
                let state = rebuilder.checkpoint(&mut chart.past).unwrap();
                of_thread.states.push((number, state));
                chart.kept = packet.clock_begin();
            }
            rebuilder.packet(&packet, &mut chart);
        }
        rebuilder.end(thread.alive_until, &mut chart);
        of_thread.lost = chart.lost;
        of_thread.lost.sort_unstable();
    }
    checkpoints
}

/// The output of all readers.
pub fn shown(trace: &Trace, filter: &Filter, net: Option<Cost>) -> Vec<(&'static str, String)> {
    let names = Names::new(trace);
    let drive = Drive {
        workers: 1,
        filter: Some(filter),
        net,
        ..Drive::default()
    };
    let mut all = Vec::new();
    let mut show = |reader, write: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut text = Vec::new();
        write(&mut text);
        all.push((reader, String::from_utf8(text).unwrap()));
    };
    show("report", &mut |out| {
        let report = report::functions(trace, &drive).unwrap();
        report.write_json(trace, out).unwrap();
    });
    show("threads", &mut |out| {
        let rows = report::threads(trace, &drive).unwrap();
        out.extend(format!("{rows:?}").bytes());
    });
    show("graph", &mut |out| {
        let tree = graph::tree(trace, &names, &drive).unwrap();
        let look = graph::Shown {
            least_percent: 0.0,
            ..graph::Shown::default()
        };
        graph::write_tree(out, &tree, &names, trace.clocks(), look).unwrap();
    });
    let look = Look {
        filter: filter.clone(),
        ..Look::default()
    };
    let has_markers = trace.markers().iter().next().is_some();
    let field = has_markers.then_some(Some("marker.value"));
    let of_calls = [None, Some("function_1"), Some("function_2.result")];
    for what in of_calls.into_iter().chain(field) {
        let what = ValueSelection::new(what, &names, trace.markers()).unwrap();
        show("hist", &mut |out| {
            let by = By::Function;
            match hist::distributions(trace, &names, &what, filter, by, &drive) {
                Ok((groups, notes)) => {
                    hist::write_json(out, trace, &what, &groups, &notes, Scale::Log2).unwrap()
                }
                Err(error) => write!(out, "{error:#}").unwrap(),
            }
        });
    }
    show("replay", &mut |out| replay(trace, &look, out).unwrap());
    let formats = [
        ("chrome", Format::Chrome),
        ("folded", Format::Folded(Weight::Time)),
        ("raw", Format::Raw),
    ];
    for (name, format) in formats {
        if name == "raw" && (filter.has_functions() || filter.least_ns > 0) {
            continue;
        }
        show(name, &mut |out| {
            dump(trace, format.clone(), &drive, out).unwrap()
        });
    }
    let exports = [
        ("perfetto", export::Format::Perfetto),
        ("speedscope", export::Format::Speedscope),
        ("csv", export::Format::Csv),
        ("otlp", export::Format::Otlp),
    ];
    for (name, format) in exports {
        if !["csv", "otlp"].contains(&name) && filter.least_ns > 0 {
            continue;
        }
        let mut options = export::Options::new(format);
        if ["csv", "otlp"].contains(&name) {
            options.request = Some("function_2.arg1".into());
        }
        if name == "otlp" {
            options.spans = vec!["function_[1-4]".into()];
        }
        show(name, &mut |out| {
            let mut bytes = Vec::new();
            let left_out = export::write(trace, &options, &drive, &mut bytes).unwrap();
            writeln!(out, "{left_out:?}").unwrap();
            out.extend(String::from_utf8_lossy(&bytes).bytes());
        });
    }
    all
}

/// A part of a call: its site, its begin and end within a time, and whether these are the call's own.
type Part = (u32, u64, u64, bool);

/// A marker: its clock and field, and the site and the begin of the innermost call there.
type Mark = (u64, u64, Option<(u32, u64)>);

/// Calls, those of them whose entries are not known, and markers.
#[derive(Default)]
struct Parts(Vec<Part>, Vec<Part>, Vec<Mark>);

impl Parts {
    fn add(&mut self, frame: &Frame, end: u64, is_whole: bool) {
        self.0.push((frame.site(), frame.clock, end, is_whole));
    }

    fn sorted(mut self) -> (Vec<Part>, Vec<Mark>) {
        self.0.sort_unstable();
        self.2.sort_unstable();
        (self.0, self.2)
    }
}

impl Sink for Parts {
    fn enter(&mut self, _: &[Frame], _: Option<[u64; 6]>) -> u32 {
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        self.add(frame, ending.clock, true);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _: bool) {
        self.add(frame, clock, false);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.add(frame, ending.clock, false);
        self.1.extend(self.0.last());
    }

    fn mark(&mut self, clock: u64, _event: u32, fields: &[u64], frames: &[Frame]) {
        let innermost = frames.last().map(|frame| (frame.site(), frame.clock));
        self.2.push((clock, fields[0], innermost));
    }
}

impl Worker for Parts {}

/// All calls of a trace, by all of its records.
fn all(trace: &Trace) -> Parts {
    let mut all = Parts::default();
    for thread in trace.threads() {
        let mut rebuilder = CallRebuilder::new();
        let packets = thread.packets();
        packets.for_each(|packet| rebuilder.packet(&packet, &mut all));
        rebuilder.end(thread.alive_until, &mut all);
    }
    all
}

/// The parts of all calls and the markers within a time, by all records of a trace.
fn replayed(trace: &Trace, time: (u64, u64)) -> (Vec<Part>, Vec<Mark>) {
    let Parts(calls, strays, marks) = all(trace);
    Parts(within(calls, time), strays, marks_within(marks, time)).sorted()
}

fn within(parts: Vec<Part>, (from, until): (u64, u64)) -> Vec<Part> {
    let within = |(site, begin, end, is_whole): Part| {
        let is_whole = is_whole && begin > from && end < until;
        let is_in = end > from && begin < until;
        is_in.then_some((site, begin.max(from), end.min(until), is_whole))
    };
    parts.into_iter().filter_map(within).collect()
}

fn marks_within(mut marks: Vec<Mark>, (from, until): (u64, u64)) -> Vec<Mark> {
    marks.retain(|mark| mark.0 > from && mark.0 < until);
    marks
}

/// The same, without what only records behind the time tell: calls whose entry is not known, and how long calls went on
/// that have not ended.
fn told_before(trace: &Trace, time: (u64, u64)) -> (Vec<Part>, Vec<Mark>) {
    let mut all = all(trace);
    for stray in all.1.iter().filter(|stray| stray.2 >= time.1) {
        let at = all.0.iter().position(|part| part == stray);
        at.map(|at| all.0.swap_remove(at));
    }
    let mut parts = within(all.0, time);
    for part in parts.iter_mut().filter(|part| !part.3) {
        part.2 = time.1;
    }
    Parts(parts, all.1, marks_within(all.2, time)).sorted()
}

/// The parts that a worker gets.
fn read(trace: &Trace, filter: &Filter) -> (Vec<Part>, Vec<Mark>) {
    let mut workers = [Parts::default()];
    let drive = Drive {
        workers: 1,
        filter: Some(filter),
        ..Drive::default()
    };
    drive.run(trace, &mut workers).unwrap();
    let [parts] = workers;
    parts.sorted()
}

/// A time of a trace that begins and ends near records, which are dense at some times, and far from each other at others.
fn time(trace: &Trace, random: &mut Random) -> (u64, u64) {
    let (begin, end) = (span::begin(trace), span::end(trace));
    let threads = trace.threads();
    let packets = threads.iter().flat_map(|thread| thread.packets());
    let clocks: Vec<u64> = packets.map(|packet| packet.clock_end()).collect();
    let mut time = [0; 2].map(|_| {
        let clock = clocks[random.below(clocks.len() as u64) as usize];
        let near = (clock + random.below(60)).saturating_sub(30);
        near.clamp(begin, end)
    });
    time.sort_unstable();
    time.into()
}

/// Each seed for a trace without markers and functions of the kernel, and for one with them.
fn both(seeds: Vec<u64>) -> impl Iterator<Item = (u64, bool)> {
    seeds
        .into_iter()
        .flat_map(|seed| [(seed, false), (seed, true)])
}

#[test]
fn calls_in_a_part_of_a_trace_are_those_of_all_records() {
    for (seed, has_inside) in both(seeds(20, &[46, 50, 53])) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made_with(seed, seed % 3 != 0, has_inside);
        let Parts(calls, _, marks) = all(&trace);
        let has_kernel = calls.iter().any(|call| call.0 > 5 && call.3);
        assert_eq!((has_kernel, !marks.is_empty()), (has_inside, has_inside));
        let checkpoints = Arc::new(dense(&trace, &mut random, 1 + seed % 5));
        for _ in 0..8 {
            let time = time(&trace, &mut random);
            let mut filter = Filter::default();
            (filter.from, filter.until) = (Some(time.0), Some(time.1));
            let all = replayed(&trace, time);
            let part = read(&trace, &filter);
            assert!(all == part, "seed {seed}, inside: {has_inside}, {time:?}");
            filter.checkpoints = Some(Arc::clone(&checkpoints));
            let part = read(&trace, &filter);
            assert!(
                all == part,
                "seed {seed}, inside: {has_inside}, {time:?}, with checkpoints"
            );
        }
    }
}

#[test]
fn a_part_of_a_trace_is_the_same_with_checkpoints() {
    for (seed, has_inside) in both(seeds(9, &[26, 32, 41])) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made_with(seed, seed % 3 != 0, has_inside);
        let checkpoints = Arc::new(dense(&trace, &mut random, 1 + seed % 5));
        for _ in 0..3 {
            let (from, until) = time(&trace, &mut random);
            let wanted = Wanted {
                only: match random.below(3) {
                    0 => vec![format!("function_{}", 1 + random.below(5))],
                    _ => Vec::new(),
                },
                least_ns: random.below(2) * random.below(60),
                ..Wanted::default()
            };
            let mut filter = Filter::new(&trace, &wanted).unwrap();
            filter.from = (random.below(5) > 0).then_some(from);
            filter.until = (random.below(5) > 0).then_some(until);
            let net = (random.below(4) == 0).then_some(Cost {
                call: 3000,
                within: 1000,
            });
            let whole = shown(&trace, &filter, net);
            let asked = format!("{wanted:?}, {:?} to {:?}", filter.from, filter.until);
            filter.checkpoints = Some(Arc::clone(&checkpoints));
            for (whole, part) in whole.iter().zip(shown(&trace, &filter, net)) {
                let reader = whole.0;
                let differs = || {
                    let lines = whole.1.lines().zip(part.1.lines());
                    let differs = lines.filter(|(whole, part)| whole != part);
                    differs.take(3).collect::<Vec<_>>()
                };
                assert!(
                    whole.1 == part.1,
                    "seed {seed}, inside: {has_inside}, {reader}, {asked}, {net:?}: {:#?}",
                    differs()
                );
            }
        }
    }
}

/// A part of a trace as a trace.
fn part(trace: &Trace, filter: &Filter) -> (tempfile::TempDir, Trace) {
    let place = tempfile::tempdir().unwrap();
    let drive = Drive {
        workers: 1,
        filter: Some(filter),
        ..Drive::default()
    };
    let directory = place.path().join("part");
    let output = Output::Directory(directory.clone());
    selection::write(trace, &drive, output, &mut || Ok(())).unwrap();
    let part = Trace::open(&directory).unwrap();
    assert_eq!(part.damage(), []);
    (place, part)
}

#[test]
fn calls_in_a_part_that_is_a_trace_are_those_of_the_whole() {
    for (seed, has_inside) in both(seeds(20, &[25, 26, 82, 226, 233, 248, 683])) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made_with(seed, seed % 5 != 0, has_inside);
        for number in 0..8 {
            let (from, until) = time(&trace, &mut random);
            let mut filter = Filter::default();
            filter.from = Some(from);
            filter.until = (number % 2 == 0).then_some(until);
            let (_place, part) = part(&trace, &filter);
            let within = (from, filter.until.unwrap_or(u64::MAX));
            let ((whole, marks), (part, marks_of_part)) = match filter.until {
                Some(_) => (told_before(&trace, within), told_before(&part, within)),
                None => (replayed(&trace, within), replayed(&part, within)),
            };
            let only = |some: &[Mark], other: &[Mark]| {
                let only = some.iter().filter(|mark| !other.contains(mark));
                only.copied().collect::<Vec<_>>()
            };
            assert!(
                marks == marks_of_part,
                "seed {seed}, inside: {has_inside}, {within:?}: markers {:?} of the whole, {:?} of the part",
                only(&marks, &marks_of_part),
                only(&marks_of_part, &marks)
            );
            let mut only = [without(&whole, &part), without(&part, &whole)];
            if filter.until.is_some() {
                // Whether calls that began before went on in the time is told only by records of their stack.
                let is_known = |part: &Part| part.3 || part.1 > from;
                only.iter_mut().for_each(|only| only.retain(is_known));
            }
            let [only_whole, only_part] = only;
            assert!(
                only_whole.is_empty() && only_part.is_empty(),
                "seed {seed}, inside: {has_inside}, {within:?}: {only_whole:?} of the whole, {only_part:?} of the part"
            );
        }
    }
}

/// What is in one and not in the other, both sorted.
fn without(some: &[Part], other: &[Part]) -> Vec<Part> {
    let mut other = other.iter().peekable();
    let is_only = |part: &&Part| {
        while other.next_if(|other| other < part).is_some() {}
        other.next_if(|other| other == part).is_none()
    };
    some.iter().filter(is_only).copied().collect()
}
