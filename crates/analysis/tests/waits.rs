//! Random programs that wait at random: how long each function waited, and how long it waited itself.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::collections::HashMap;

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, Wanted};
use nopal_analysis::graph;
use nopal_analysis::names::Names;
use nopal_analysis::report;
use nopal_analysis::waits::{InCall, Waited, Waits};
use nopal_trace::synthetic::{Random, Recorder};
use nopal_trace::{KernelEvent, KernelRecord, Note, Session, Task, TaskState, Trace, Writer};

const SITES: u32 = 5;
const TOP: u64 = 0x7ffd_0000_8008;
const THREAD: u32 = 7;

/// A trace of functions `f1`, `f2` and so on, whose counter is in nanoseconds.
fn begun(path: &std::path::Path) -> Writer {
    let mut writer = Writer::create(path, Session::default()).unwrap();
    for ns in [0, 1_000_000_000] {
        let clock = Note::Clock {
            counter: ns,
            monotonic_ns: ns,
            realtime_ns: ns,
        };
        writer.note(&clock).unwrap();
    }
    let image = Note::Image {
        image: 1,
        path: "/program".into(),
        identity: String::new(),
    };
    writer.note(&image).unwrap();
    let sites = (1..=SITES).map(|site| (site, 0x1000 * u64::from(site), 16, format!("f{site}")));
    let sites = Note::Sites {
        image: 1,
        sites: sites.collect(),
    };
    writer.note(&sites).unwrap();
    writer
}

/// The true times of each function, and the trace.
fn made(random: &mut Random, path: &std::path::Path) -> (HashMap<u32, InCall>, Trace) {
    let mut writer = begun(path);
    let mut recorder = Recorder::new(THREAD, THREAD, 1);
    let mut events = Vec::new();
    let mut truth: HashMap<u32, InCall> = HashMap::new();
    let mut open: Vec<u32> = Vec::new();
    let mut clock = 1000;
    let slot = |depth: usize| TOP - 0x40 * depth as u64;
    recorder.entry(clock, 1, slot(0));
    open.push(1);
    for _ in 0..400 {
        clock += 10 + random.below(100);
        if random.below(3) == 0 {
            let waited = wait(random, &mut clock, &mut events);
            truth.entry(open[open.len() - 1]).or_default().own += waited;
            let mut functions = open.clone();
            functions.sort_unstable();
            functions.dedup();
            for function in functions {
                truth.entry(function).or_default().total += waited;
            }
        }
        if open.len() > 1 && random.below(2) == 0 {
            let site = open.pop().unwrap();
            recorder.exit(clock, site, slot(open.len()));
        } else {
            let site = 1 + random.below(SITES.into()) as u32;
            recorder.entry(clock, site, slot(open.len()));
            open.push(site);
        }
    }
    while let Some(site) = open.pop() {
        clock += 5;
        recorder.exit(clock, site, slot(open.len()));
    }
    recorder.finish(&mut writer).unwrap();
    writer.system(0, &events).unwrap();
    writer.flush_kernel_events().unwrap();
    let why = String::new();
    writer
        .note(&Note::End {
            counter: clock,
            complete: true,
            why,
        })
        .unwrap();
    drop(writer);
    (truth, Trace::open(path).unwrap())
}

fn wait(random: &mut Random, clock: &mut u64, events: &mut Vec<KernelRecord>) -> Waited {
    let task = |thread| Task {
        thread,
        ..Task::default()
    };
    let mut waited = Waited::default();
    let is_preempted = random.below(2) == 0;
    let state = match is_preempted {
        true => TaskState::PREEMPTED,
        false => TaskState(b'S'),
    };
    let mut at = |ticks: u64, event| {
        *clock += ticks;
        events.push(KernelRecord {
            clock: *clock,
            event,
        });
        ticks
    };
    let switch = |previous, state, next| KernelEvent::Switch {
        previous: task(previous),
        process: previous,
        state,
        next: task(next),
        flags: None,
    };
    at(3, switch(THREAD, state, 9));
    if is_preempted {
        waited.preempted = at(1 + random.below(500), switch(9, TaskState(b'S'), THREAD));
    } else {
        let woken = KernelEvent::Wakeup {
            task: task(THREAD),
            target: 0,
            waker_process: 9,
            waker: 9,
            is_new: false,
            flags: None,
        };
        waited.blocked = at(1 + random.below(500), woken);
        waited.runnable = at(1 + random.below(50), switch(9, TaskState(b'S'), THREAD));
    }
    *clock += 2;
    waited
}

#[test]
fn each_wait_is_told_of_the_calls_that_were_open() {
    let seeds = match std::env::var("NOPAL_SEED") {
        Ok(seed) => seed.parse().unwrap()..=seed.parse().unwrap(),
        Err(_) => 1..=60,
    };
    for seed in seeds {
        let place = tempfile::tempdir().unwrap();
        let (truth, trace) = made(&mut Random::new(seed), &place.path().join("trace"));
        let waits = Waits::new(&trace).unwrap();
        let drive = Drive {
            workers: 1,
            waits: Some(&waits),
            ..Drive::default()
        };
        let of = |report: &report::Report, site: u32| {
            let name = format!("f{site}");
            let row = report.rows.iter().find(|row| row.function == name);
            row.map(|row| row.waited.unwrap()).unwrap_or_default()
        };
        let report = report::functions(&trace, &drive).unwrap();
        for site in 1..=SITES {
            let expected = truth.get(&site).copied().unwrap_or_default();
            assert_eq!(of(&report, site), expected, "seed {seed}, f{site}");
        }
        // The tree has the same waits, each in one place.
        let names = Names::new(&trace);
        let tree = graph::tree(&trace, &names, &drive).unwrap();
        let all = tree.waited()[0].total;
        assert_eq!(all, truth[&1].total, "seed {seed}");
        let own = |site: u32| {
            let nodes = tree.nodes().iter().zip(tree.waited());
            let of = nodes.filter(|(node, _)| node.function == names.number(site));
            of.fold(Waited::default(), |sum, (_, waited)| sum + waited.own)
        };
        for site in 1..=SITES {
            assert_eq!(own(site), of(&report, site).own, "seed {seed}, f{site}");
        }
        // All those of a thread; those of a function, by caller.
        let threads = report::threads(&trace, &drive).unwrap();
        assert_eq!(threads[0].waited, Some(all), "seed {seed}");
        let processes = report::processes(&trace, &drive).unwrap();
        assert_eq!(processes[0].waited, Some(all), "seed {seed}");
        for site in 1..=SITES {
            let name = format!("f{site}");
            let callers = report::related(&trace, &name, report::Relation::Callers, &drive);
            let callers = callers.unwrap();
            let own = callers
                .iter()
                .fold(Waited::default(), |sum, row| sum + row.waited.unwrap().own);
            assert_eq!(own, of(&report, site).own, "seed {seed}, f{site}");
        }
        let callees = report::related(&trace, "f*", report::Relation::Callees, &drive).unwrap();
        let own = callees
            .iter()
            .fold(Waited::default(), |sum, row| sum + row.waited.unwrap().own);
        // Nobody called the outermost.
        let nobody = report::related(&trace, "f*", report::Relation::Callers, &drive).unwrap();
        let outermost = nobody.iter().find(|row| row.module == "-").unwrap();
        let outermost = outermost.waited.unwrap();
        assert_eq!(outermost.total, all, "seed {seed}");
        assert_eq!(own + outermost.own, all, "seed {seed}");
        // Both halves of the time together have all of it; if a call and a wait in it cross the middle, each half has
        // its part.
        let middle =
            nopal_analysis::span::begin(&trace).midpoint(nopal_analysis::span::end(&trace));
        let halves = [(None, Some(middle)), (Some(middle), None)].map(|(from, until)| {
            let mut filter = Filter::new(&trace, &Wanted::default()).unwrap();
            (filter.from, filter.until) = (from, until);
            let drive = Drive {
                filter: Some(&filter),
                ..drive
            };
            of(&report::functions(&trace, &drive).unwrap(), 1).total
        });
        assert_eq!(halves[0] + halves[1], truth[&1].total, "seed {seed}");
    }
}

/// Kernel events show that a thread leaves its processor, but not when it runs again: until its next record, it may
/// have waited or run.
#[test]
fn a_return_that_is_not_told_makes_parts_the_least() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = begun(&path);
    let mut recorder = Recorder::new(THREAD, THREAD, 1);
    let record = [
        (1000, 1, true),
        (1100, 2, true),
        (1900, 2, false),
        (2500, 1, false),
    ];
    for (clock, site, is_entry) in record {
        let slot = TOP - 0x40 * u64::from(site);
        match is_entry {
            true => recorder.entry(clock, site, slot),
            false => recorder.exit(clock, site, slot),
        }
    }
    recorder.finish(&mut writer).unwrap();
    let leave = |clock, next| KernelRecord {
        clock,
        event: KernelEvent::Switch {
            previous: Task {
                thread: THREAD,
                ..Task::default()
            },
            process: THREAD,
            state: TaskState(b'S'),
            next: Task {
                thread: next,
                ..Task::default()
            },
            flags: None,
        },
    };
    // It returns from neither.
    writer.system(0, &[leave(1200, 9), leave(2400, 9)]).unwrap();
    writer.flush_kernel_events().unwrap();
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    let waits = Waits::new(&trace).unwrap();
    let drive = Drive {
        workers: 1,
        waits: Some(&waits),
        ..Drive::default()
    };
    let report = report::functions(&trace, &drive).unwrap();
    let of = |calls_ns: u64| {
        let row = report.rows.iter().find(|row| row.total_ns == calls_ns);
        row.unwrap().waited.unwrap()
    };
    let unknown = |unknown| Waited {
        unknown,
        ..Waited::default()
    };
    let inner = of(800);
    assert_eq!((inner.total, inner.own), (unknown(700), unknown(700)));
    let outer = of(1500);
    assert_eq!((outer.total, outer.own), (unknown(800), unknown(100)));
    let parts = outer.total.parts_of(1500);
    assert_eq!((parts.cpu, parts.wait, parts.are_least), (700, 0, true));
}
