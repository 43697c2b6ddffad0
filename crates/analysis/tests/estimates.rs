//! Times of counted calls, estimated from calls that were recorded at random, against the truth.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::path::Path;

use nopal_analysis::drive::Drive;
use nopal_analysis::report::{self, Estimate, Report, Row, Sort};
use nopal_trace::synthetic::{Random, Recorder, clock};
use nopal_trace::{Note, Session, SiteState, Trace, Writer};

const BEGIN: u64 = 0x1_ffff_f000;
const CALLER: u32 = 1;
const COUNTED: u32 = 2;
const CALLEE: u32 = 3;
const CALLS: u64 = 50_000;
/// One call in so many is recorded, on average.
const DISTANCE: u64 = 100;
/// Ticks that a sample takes more than a timed call.
const COLD: u64 = 20;

/// The true sums of the calls' times.
#[derive(Default)]
struct Truth {
    total: u64,
    own: u64,
}

/// A caller and its calls of a function that is counted, of which some are recorded with their callee. Before, it is
/// timed, and its calls take about as long, by a third of `COLD`; the last ones take far longer. With `inside`, each
/// recorded call has another one within it.
fn write(path: &Path, random: &mut Random, inside: bool) -> Truth {
    let mut writer = Writer::create(path, Session::default()).unwrap();
    writer.note(&clock(BEGIN)).unwrap();
    writer
        .note(&Note::Image {
            image: 1,
            path: "/program".into(),
            identity: String::new(),
        })
        .unwrap();
    let sites = [(CALLER, "caller"), (COUNTED, "counted"), (CALLEE, "callee")];
    let sites = sites.map(|(site, name)| (site, u64::from(site) * 16, 16, name.to_owned()));
    writer
        .note(&Note::Sites {
            image: 1,
            sites: sites.into(),
        })
        .unwrap();
    let mut truth = Truth::default();
    let mut recorder = Recorder::new(7, 7, BEGIN);
    let mut now = BEGIN + 1000;
    let slot = |depth: u64| 0x7000_0000 - depth * 64;
    recorder.entry(now, CALLER, slot(0));
    let mut record = |now: u64, own: u64, inner: u64, inside: bool| {
        recorder.entry(now, COUNTED, slot(1));
        if inside {
            recorder.entry(now, COUNTED, slot(2));
            recorder.exit(now, COUNTED, slot(2));
        }
        recorder.entry(now + own / 2, CALLEE, slot(3));
        recorder.exit(now + own / 2 + inner, CALLEE, slot(3));
        recorder.exit(now + own + inner, COUNTED, slot(1));
    };
    let mut called = |now: &mut u64, own: u64, inner: u64| {
        truth.total += own + inner;
        truth.own += own;
        *now += own + inner + 10;
    };
    for _ in 0..1000 {
        let (own, inner) = (500 + random.below(200), random.below(500));
        record(now, own, inner, false);
        called(&mut now, own, inner);
    }
    let counted_from = now;
    // Still timed, until the switch.
    for _ in 0..10 {
        record(now, 1_000_000, 10, false);
        called(&mut now, 1_000_000, 10);
    }
    let sampled_from = now;
    let (mut next, mut counted) = (1 + random.below(2 * DISTANCE), 0);
    let least = 500 - 10 + random.below(21);
    for call in 0..CALLS {
        let (own, inner) = (least + random.below(200), random.below(500));
        if call == next {
            next += 1 + random.below(2 * DISTANCE);
            record(now, own + COLD, inner, inside);
            now += COLD;
        } else {
            counted += 1;
        }
        called(&mut now, own, inner);
    }
    recorder.exit(now, CALLER, slot(0));
    let state = |counter, sampled| Note::State {
        counter,
        state: SiteState::Counted,
        sites: vec![COUNTED],
        kept: false,
        sampled,
    };
    let counts = Note::Counted {
        counter: now,
        memory: 1,
        calls: vec![(COUNTED, counted)],
    };
    let end = Note::End {
        counter: now,
        complete: true,
        why: String::new(),
    };
    let cost = Note::Cost { call: 0, within: 0 };
    for note in [
        cost,
        state(counted_from, false),
        state(sampled_from, true),
        counts,
        clock(now),
        end,
    ] {
        writer.note(&note).unwrap();
    }
    recorder.finish(&mut writer).unwrap();
    writer.sync_metadata().unwrap();
    truth
}

fn row(path: &Path) -> Row {
    let trace = Trace::open(path).unwrap();
    let report = report::functions(&trace, &Drive::default()).unwrap();
    let mut rows = report.rows.into_iter();
    rows.find(|row| row.function == "counted").unwrap()
}

#[test]
fn estimates_lie_within_their_errors() {
    let seed = match std::env::var("NOPAL_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
    };
    let mut random = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut within = 0;
    const TURNS: usize = 50;
    for turn in 0..TURNS {
        let path = directory.path().join(turn.to_string());
        let truth = write(&path, &mut random, false);
        let row = row(&path);
        assert_eq!(row.calls, CALLS + 1010, "seed {seed}");
        let all = row.estimate.expect("enough calls are sampled");
        assert_eq!(row.counted + all.samples, CALLS, "seed {seed}");
        for (estimated, error, true_time) in [
            (all.total_ns, all.total_error_ns, truth.total),
            (all.self_ns, all.self_error_ns, truth.own),
        ] {
            let off = estimated.abs_diff(true_time);
            assert!(off <= 5 * error, "seed {seed}: {row:?}, {true_time}");
            assert!(error < true_time / 50, "seed {seed}: {row:?}");
            within += usize::from(off <= error);
        }
    }
    // Two thirds of all, as the error is a standard one.
    assert!((45..=95).contains(&within), "seed {seed}: {within}");
}

/// What is estimated with an error as large as itself may be nothing.
#[test]
fn estimates_rank_by_what_they_are_at_least() {
    let row = |function: &str, ns: u64, estimate: Option<(u64, u64)>| Row {
        function: function.into(),
        total_ns: ns,
        self_ns: ns,
        estimate: estimate.map(|(ns, error)| Estimate {
            total_ns: ns,
            total_error_ns: error,
            self_ns: ns,
            self_error_ns: error,
            samples: 100,
        }),
        ..Row::default()
    };
    let mut report = Report {
        rows: vec![
            row("unsure", 10, Some((2000, 1990))),
            row("recorded", 300, Some((310, 400))),
            row("certain", 200, None),
            row("sure", 10, Some((1000, 50))),
        ],
        left_out: 0,
    };
    for by in [Sort::Function, Sort::Total, Sort::Function, Sort::Own] {
        report.sort(by);
        let names: Vec<&str> = report
            .rows
            .iter()
            .map(|row| row.function.as_str())
            .collect();
        let expected = match by {
            Sort::Function => ["certain", "recorded", "sure", "unsure"],
            _ => ["sure", "recorded", "certain", "unsure"],
        };
        assert_eq!(names, expected);
    }
}

/// A counted call within a sampled one would count twice.
#[test]
fn nothing_is_estimated_of_a_function_that_calls_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    write(&path, &mut Random::new(1), true);
    assert_eq!(row(&path).estimate, None);
}
