//! Readers of a part of a trace show the same with checkpoints and without.

use std::io::Write;
use std::sync::Arc;

use nopal_analysis::calls::CallRebuilder;
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Format, Weight, dump};
use nopal_analysis::filter::{Filter, Wanted};
use nopal_analysis::names::Names;
use nopal_analysis::range::Checkpoints;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::{graph, report, span};
use nopal_export as export;
use nopal_trace::synthetic::Random;
use nopal_trace::{Cost, Trace};

use super::made::{made, seeds};
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
        let states = &mut checkpoints.get_mut(&thread.key()).unwrap().states;
        let mut rebuilder = CallRebuilder::new();
        let mut chart = Chart::new(&[], 0, Nothing);
        for (number, packet) in thread.packets().enumerate() {
            if number > 0 && random.below(every) == 0 {
                states.push((number, rebuilder.checkpoint(&chart.past).unwrap()));
            }
            rebuilder.packet(&packet, &mut chart);
        }
    }
    checkpoints
}

/// The output of all readers.
fn shown(trace: &Trace, filter: &Filter, net: Option<Cost>) -> Vec<(&'static str, String)> {
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
    ];
    for (name, format) in exports {
        if name != "csv" && filter.least_ns > 0 {
            continue;
        }
        let options = export::Options::new(format);
        show(name, &mut |out| {
            let mut bytes = Vec::new();
            let left_out = export::write(trace, &options, &drive, &mut bytes).unwrap();
            writeln!(out, "{left_out:?}").unwrap();
            out.extend(String::from_utf8_lossy(&bytes).bytes());
        });
    }
    all
}

#[test]
fn a_part_of_a_trace_is_the_same_with_checkpoints() {
    for seed in seeds(9) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made(seed, seed % 3 != 0);
        let checkpoints = Arc::new(dense(&trace, &mut random, 1 + seed % 5));
        let (begin, end) = (span::begin(&trace), span::end(&trace));
        for _ in 0..3 {
            // Records are dense at some times, and far from each other at others: a range begins and ends at records.
            let threads = trace.threads();
            let clocks = threads.iter().flat_map(|thread| thread.packets());
            let clocks: Vec<u64> = clocks.map(|packet| packet.clock_end()).collect();
            let mut times = [0; 2].map(|_| {
                let clock = clocks[random.below(clocks.len() as u64) as usize];
                (clock + random.below(60))
                    .saturating_sub(30)
                    .clamp(begin, end)
            });
            times.sort_unstable();
            let wanted = Wanted {
                only: match random.below(3) {
                    0 => vec![format!("function_{}", 1 + random.below(5))],
                    _ => Vec::new(),
                },
                least_ns: random.below(2) * random.below(60),
                ..Wanted::default()
            };
            let mut filter = Filter::new(&trace, &wanted).unwrap();
            filter.from = (random.below(5) > 0).then_some(times[0]);
            filter.until = (random.below(5) > 0).then_some(times[1]);
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
                    "seed {seed}, {reader}, {asked}, {net:?}: {:#?}",
                    differs()
                );
            }
        }
    }
}
