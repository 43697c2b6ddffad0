//! Readers show of a selection, written as a trace, what they show of the whole trace where the same is selected.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::path::Path;

use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Format, Weight, dump};
use nopal_analysis::filter::{Filter, Wanted};
use nopal_analysis::report;
use nopal_analysis::selection;
use nopal_analysis::span::{begin, end};
use nopal_analysis::waits::Waits;
use nopal_trace::synthetic::{self, Random, Recorder, Shape, clock};
use nopal_trace::{Note, Output, Session, SiteState, Trace, Writer};

fn select(trace: &Trace, filter: &Filter, directory: &Path) -> Trace {
    let output = Output::Directory(directory.to_owned());
    selection::write(trace, &drive(filter), output, &mut || Ok(())).unwrap();
    let selected = Trace::open(directory).unwrap();
    assert_eq!(selected.damage(), []);
    selected
}

fn drive(filter: &Filter) -> Drive<'_> {
    Drive {
        workers: 1,
        filter: Some(filter),
        ..Drive::default()
    }
}

/// What readers show of a trace.
fn shown(trace: &Trace, filter: &Filter) -> Vec<String> {
    let drive = drive(filter);
    let waits = Waits::new(trace);
    let with_waits = Drive {
        waits: waits.as_ref(),
        ..drive
    };
    let text = |format| {
        let mut out = Vec::new();
        dump(trace, format, &drive, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let rows = |drive| {
        let report = report::functions(trace, drive).unwrap();
        format!("{:#?}", report.rows)
    };
    vec![
        rows(&drive),
        rows(&with_waits),
        text(Format::Folded(Weight::Time)),
        text(Format::Folded(Weight::Calls)),
    ]
}

fn compare(whole: &[String], part: &[String], what: &str) {
    for (whole, part) in whole.iter().zip(part) {
        let mut lines = whole.lines().zip(part.lines());
        let other = lines.position(|(whole, part)| whole != part);
        let at = other.unwrap_or(whole.lines().count()).saturating_sub(12);
        let some = |text: &str| {
            let lines = text.lines().skip(at).take(30);
            lines.collect::<Vec<_>>().join("\n")
        };
        assert!(whole == part, "{what}:\n{}\n{}", some(whole), some(part));
    }
}

fn everything(trace: &Trace) -> Filter {
    Filter::new(trace, &Wanted::default()).unwrap()
}

fn try_seed(seed: u64) {
    let mut random = Random::new(seed);
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let shape = Shape {
        seed,
        threads: 1 + random.below(3) as u32,
        calls_per_thread: random.below(3_000),
        functions: 8,
        arguments: random.below(2) == 0,
        sleeps: random.below(2) * random.below(1000),
        ..Shape::default()
    };
    synthetic::write(&path("whole"), &shape).unwrap();
    let whole = Trace::open(&path("whole")).unwrap();
    let (first, last) = (begin(&whole), end(&whole));
    for number in 0..4 {
        let mut moment = || first + random.below(last - first + 2);
        let (one, other) = (moment(), moment());
        let from = (random.below(4) > 0).then_some(one.min(other));
        let until = (random.below(4) > 0).then_some(one.max(other));
        let mut filter = Filter::default();
        (filter.from, filter.until) = (from, until);
        if random.below(3) == 0 {
            filter.select_threads(&[0], &whole);
        }
        let selected = select(&whole, &filter, &path(&format!("part {number}")));
        let what = format!("seed {seed}, {shape:?}, {from:?} {until:?}");
        let all = everything(&selected);
        compare(&shown(&whole, &filter), &shown(&selected, &all), &what);
        // A part of the part is a part of the whole.
        let middle = from.unwrap_or(first).midpoint(until.unwrap_or(last));
        let mut inner = filter.clone();
        inner.until = Some(middle);
        let mut inner_all = all.clone();
        inner_all.until = Some(middle);
        let selected = select(&selected, &inner_all, &path(&format!("inner {number}")));
        let all = everything(&selected);
        let what = format!("{what}, of which until {middle}");
        compare(&shown(&whole, &inner), &shown(&selected, &all), &what);
    }
}

#[test]
fn readers_show_of_a_part_what_they_show_of_the_whole() {
    match std::env::var("NOPAL_SEED") {
        Ok(seed) => try_seed(seed.parse().unwrap()),
        Err(_) => (1..20).for_each(try_seed),
    }
}

/// A thread went to another program in a call.
#[test]
fn calls_of_threads_that_were_gone_are_not_open_in_a_part() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("whole");
    let mut writer = Writer::create(&directory, Session::default()).unwrap();
    writer.note(&clock(1_000)).unwrap();
    for (thread, end) in [(2, None), (3, Some(9_000))] {
        let mut recorder = Recorder::new(1, thread, 1_000);
        recorder.resync(1_000, 500, nopal_abi::RESYNC_CHUNK);
        recorder.entry(2_000, 1, 400);
        if let Some(end) = end {
            recorder.exit(end, 1, 400);
        }
        recorder.finish(&mut writer).unwrap();
    }
    writer.note(&clock(10_000)).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    let whole = Trace::open(&directory).unwrap();
    let mut from = Filter::default();
    from.from = Some(5_000);
    let part = select(&whole, &from, &place.path().join("part"));
    let open = part.threads().into_iter().map(|thread| {
        let packets = thread.packets();
        (
            thread.thread,
            packets.map(|packet| packet.open_calls().len()).sum(),
        )
    });
    assert_eq!(open.collect::<Vec<(u32, usize)>>(), [(2, 0), (3, 1)]);
}

/// A function is counted for a time, in which the part begins and ends.
#[test]
fn counted_calls_in_a_part_are_those_of_its_time() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("whole");
    let mut writer = Writer::create(&directory, Session::default()).unwrap();
    writer.note(&clock(1_000)).unwrap();
    let image = Note::Image {
        image: 1,
        path: "/none/program".into(),
        identity: String::new(),
    };
    let site = |site, name: &str| (site, u64::from(site) << 12, 0x40, name.to_owned());
    let sites = vec![site(1, "one"), site(2, "two")];
    for note in [image, Note::Sites { image: 1, sites }] {
        writer.note(&note).unwrap();
    }
    let state = |counter, state| Note::State {
        counter,
        state,
        sites: vec![2],
        kept: false,
        sampled: false,
    };
    let counted = |counter, calls| Note::Counted {
        counter,
        memory: 1,
        calls: vec![(2, calls)],
    };
    let mut recorder = Recorder::new(1, 2, 1_000);
    recorder.resync(1_000, 500, nopal_abi::RESYNC_CHUNK);
    for begin in (2_000..9_000).step_by(100) {
        recorder.entry(begin, 1, 400);
        recorder.exit(begin + 50, 1, 400);
    }
    recorder.finish(&mut writer).unwrap();
    let notes = [
        state(2_500, SiteState::Counted),
        counted(3_500, 10),
        counted(4_500, 110),
        counted(6_500, 1_110),
        state(8_000, SiteState::Timed),
        counted(8_500, 11_110),
    ];
    for note in notes {
        writer.note(&note).unwrap();
    }
    writer.note(&clock(10_000)).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    let whole = Trace::open(&directory).unwrap();
    let counted = |trace: &Trace, filter: &Filter| {
        let report = report::functions(trace, &drive(filter)).unwrap();
        let rows = report.rows.iter();
        let rows = rows.map(|row| (row.function.clone(), row.counted));
        rows.collect::<Vec<_>>()
    };
    let mut filter = Filter::default();
    let all = counted(&whole, &filter);
    assert!(all.contains(&("two".into(), 11_110)), "{all:?}");
    (filter.from, filter.until) = (Some(4_000), Some(7_000));
    let part = select(&whole, &filter, &place.path().join("part"));
    let within = counted(&whole, &filter);
    assert!(within.contains(&("two".into(), 1_100)), "{within:?}");
    assert_eq!(counted(&part, &everything(&part)), within);
    filter.select_threads(&[0], &whole);
    let part = select(&whole, &filter, &place.path().join("of one thread"));
    let of_one = counted(&whole, &filter);
    assert_eq!(counted(&part, &everything(&part)), of_one);
}
