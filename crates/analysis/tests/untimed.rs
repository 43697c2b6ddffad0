//! What readers say of calls that were only counted, or made while their functions were off.

use std::path::Path;

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, Wanted};
use nopal_analysis::graph::{self, Shown};
use nopal_analysis::hist::{self, By};
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::off;
use nopal_analysis::prototypes::Prototypes;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::report;
use nopal_analysis::slow::{self, Places};
use nopal_analysis::values::ValueSelection;
use nopal_trace::synthetic::{Recorder, clock};
use nopal_trace::{Note, Session, SiteState, Trace, Writer};

const BEGIN: u64 = 0x1_ffff_f000;
const MS: u64 = 1_000_000;
const NAMES: [&str; 7] = ["caller", "leaf", "strcmp", "hash", "copy", "tiny", "off"];
const CALLER: u32 = 1;
const LEAF: u32 = 2;
const STRCMP: u32 = 3;
const HASH: u32 = 4;
const COPY: u32 = 5;
const TINY: u32 = 6;
const OFF: u32 = 7;

/// A thread's `caller`, which lasts for 400 ms and calls `leaf` at 50, 150 and 350 ms. Four functions are counted, with
/// looks at 100, 200 and 500 ms; one is off from 120 to 220 ms.
fn write(path: &Path, threads: u32, is_untimed: bool) {
    let mut writer = Writer::create(path, Session::default()).unwrap();
    let sites = (1..).zip(NAMES);
    let sites = sites.map(|(site, name)| (site, u64::from(site) * 16, 16, name.to_owned()));
    let image = Note::Image {
        image: 1,
        path: "/program".into(),
        identity: String::new(),
    };
    let sites = Note::Sites {
        image: 1,
        sites: sites.collect(),
    };
    for note in [clock(BEGIN), image, sites] {
        writer.note(&note).unwrap();
    }
    for thread in 0..threads {
        let mut recorder = Recorder::new(7, 7 + thread, BEGIN);
        let slot = |depth: u64| 0x7000_0000 - depth * 64;
        recorder.entry(BEGIN, CALLER, slot(0));
        for at in [50, 150, 350] {
            recorder.entry(BEGIN + at * MS, LEAF, slot(1));
            recorder.exit(BEGIN + (at + 1) * MS, LEAF, slot(1));
        }
        recorder.exit(BEGIN + 400 * MS, CALLER, slot(0));
        recorder.finish(&mut writer).unwrap();
    }
    if is_untimed {
        let state = |ms: u64, state, sites: &[u32]| Note::State {
            counter: BEGIN + ms * MS,
            state,
            sites: sites.into(),
            kept: false,
            sampled: false,
        };
        let counted = |ms: u64, calls: &[(u32, u64)]| Note::Counted {
            counter: BEGIN + ms * MS,
            memory: 1,
            calls: calls.into(),
        };
        for note in [
            state(10, SiteState::Counted, &[STRCMP, HASH, COPY, TINY]),
            counted(100, &[(STRCMP, 300), (HASH, 12)]),
            state(120, SiteState::Off, &[OFF]),
            counted(200, &[(STRCMP, 301), (HASH, 14), (COPY, 5), (TINY, 4)]),
            state(220, SiteState::Timed, &[OFF]),
            counted(500, &[(STRCMP, 1301)]),
        ] {
            writer.note(&note).unwrap();
        }
    }
    let end = Note::End {
        counter: BEGIN + 500 * MS,
        complete: true,
        why: String::new(),
    };
    for note in [clock(BEGIN + 500 * MS), end] {
        writer.note(&note).unwrap();
    }
    writer.sync_metadata().unwrap();
}

fn made(threads: u32, is_untimed: bool) -> (tempfile::TempDir, Trace) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    write(&path, threads, is_untimed);
    let trace = Trace::open(&path).unwrap();
    (directory, trace)
}

fn replayed(trace: &Trace, wanted: &Wanted) -> Vec<String> {
    let look = Look {
        filter: Filter::new(trace, wanted).unwrap(),
        ..Look::default()
    };
    let mut text = Vec::new();
    replay(trace, &look, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().skip(1).filter(|line| !line.starts_with("/*"));
    lines.map(str::to_owned).collect()
}

#[test]
fn replay_tells_unrecorded_calls_when_they_were_made() {
    let (_directory, trace) = made(1, true);
    let expected = "
 0.000000000        7                 caller() {
 0.050000000        7  1.00 ms !        leaf();
 0.100000000                   /* … 312 calls of strcmp, hash not shown, in the last 90.0 ms */
 0.150000000        7  1.00 ms !        leaf();
 0.200000000                   /* … 12 calls of copy, tiny, hash and 1 more not shown, in the last 100 ms */
 0.220000000                   /* … calls of off not known: off in the last 100 ms */
 0.350000000        7  1.00 ms !        leaf();
 0.400000000        7   400 ms #      } /* caller */
 0.500000000                   /* … 1,000 calls of strcmp not shown, in the last 300 ms */";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = replayed(&trace, &Wanted::default());
    let shown: Vec<String> = lines.iter().map(|line| words(line)).collect();
    let expected: Vec<String> = expected.lines().skip(1).map(words).collect();
    assert_eq!(shown, expected);
}

/// The counts are those of all threads together, also of those without records.
#[test]
fn replay_tells_of_no_thread_that_it_made_unrecorded_calls() {
    let (_directory, trace) = made(2, true);
    let lines = replayed(&trace, &Wanted::default());
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("… ")).collect();
    assert_eq!(told.len(), 4, "{lines:?}");
    for line in told {
        assert_eq!(line.split_whitespace().nth(1), Some("/*"), "{line}");
    }
    let of_one = Wanted {
        threads: vec![7],
        ..Wanted::default()
    };
    let lines = replayed(&trace, &of_one);
    assert!(!lines.iter().any(|line| line.contains("… ")), "{lines:?}");
}

#[test]
fn self_times_with_untimed_callees_are_marked() {
    for is_untimed in [true, false] {
        let (_directory, trace) = made(1, is_untimed);
        let (drive, names) = (Drive::default(), Names::new(&trace));
        let report = report::functions(&trace, &drive).unwrap();
        let mut table = Vec::new();
        report.write_table(&mut table, 200).unwrap();
        let mut json = Vec::new();
        report.write_json(&trace, &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let row = |name: &str| {
            let mut rows = json.as_array().unwrap().iter();
            rows.find(|row| row["function"] == name).unwrap()
        };
        let member = "self_with_untimed_callees";
        let marked = row("caller").get(member).and_then(|flag| flag.as_bool());
        assert_eq!(marked.is_some_and(|flag| flag), is_untimed, "{json}");
        // It calls nothing.
        assert!(row("leaf").get(member).is_none(), "{json}");

        let mut callees = Vec::new();
        let tree = graph::tree(&trace, &names, &drive).unwrap();
        graph::write_tree(
            &mut callees,
            &tree,
            &names,
            trace.clocks(),
            Shown::default(),
        )
        .unwrap();
        let mut hot = Vec::new();
        graph::write_hot_path(&mut hot, &tree, &names, trace.clocks(), false, 200).unwrap();
        let calls = slow::slowest(&trace, &names, "*", 9, &drive).unwrap();
        let places = Places::new(&trace, &names, &calls);
        let mut slow_calls = Vec::new();
        slow::write_text(
            &calls,
            &trace,
            &names,
            &mut Prototypes::default(),
            &places,
            &[],
            &mut slow_calls,
        )
        .unwrap();
        for text in [table, callees, hot, slow_calls] {
            let text = String::from_utf8(text).unwrap();
            let marks = text.matches(" †").count();
            let footers = text
                .lines()
                .filter(|line| line.starts_with("† self with untimed callees: "));
            assert_eq!(
                (marks, footers.count()),
                if is_untimed { (1, 1) } else { (0, 0) },
                "{text}"
            );
        }
    }
}

/// As a service that did nothing, or whose functions are all counted.
#[test]
fn times_of_a_trace_without_records_count_from_its_first_clock() {
    let (_directory, trace) = made(0, true);
    let mut text = Vec::new();
    nopal_analysis::info::info(&trace, &mut text, 200).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = |begin: &str| {
        let found = text.lines().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in\n{text}"))
    };
    assert!(line("time ").ends_with(" 500 ms"), "{text}");
    assert!(text.contains("10.0 ms  counted"), "{text}");
}

#[test]
fn a_distribution_tells_how_many_calls_it_lacks() {
    let (_directory, trace) = made(1, true);
    let names = Names::new(&trace);
    let found = |text: &str| {
        let what = ValueSelection::new(Some(text), &names, trace.markers()).unwrap();
        let filter = Filter::default();
        hist::distributions(
            &trace,
            &names,
            &what,
            &filter,
            By::Nothing,
            &Drive::default(),
        )
    };
    assert!(found("leaf").unwrap().1.is_empty());
    let (groups, notes) = found("*").unwrap();
    assert_eq!(groups[0].distribution.count(), 4);
    let expected = [
        "left out: 1,324 calls that were only counted",
        "left out: calls while the function was off, for 100 ms",
    ];
    assert_eq!(notes, expected);
    let error = found("hash").err().unwrap().to_string();
    assert_eq!(
        error,
        "hash: no call was recorded; left out: 14 calls that were only counted"
    );
}

#[test]
fn a_function_without_records_has_no_entries_either() {
    let (_directory, trace) = made(1, true);
    let names = Names::new(&trace);
    let (filter, drive) = (Filter::default(), Drive::default());
    for (function, expected) in [
        ("tiny", "left out: 4 calls that were only counted"),
        (
            "off",
            "left out: calls while the function was off, for 100 ms",
        ),
    ] {
        let tree = graph::tree_of(&trace, &names, function, &drive).unwrap();
        assert!(!tree.has_times() && !tree.lacks_times(), "{function}");
        let left_out = off::left_out(&trace, &names, function, Some(&filter)).unwrap();
        assert_eq!(left_out, [expected]);
    }
}

/// Of a function that is selected, all calls are, whoever made them; of those in it, that is not known.
#[test]
fn calls_without_records_of_selected_functions_are_told() {
    let (_directory, trace) = made(1, true);
    let of = |only: &[&str], not: &[&str]| {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let wanted = Wanted {
            only: words(only),
            not: words(not),
            ..Wanted::default()
        };
        Filter::new(&trace, &wanted).unwrap()
    };
    let said = |only: &[&str], not: &[&str]| off::left_out_by(&trace, &of(only, not));
    let counted = "14 calls that were only counted";
    assert_eq!(said(&["hash"], &[]).as_deref(), Some(counted));
    let off = "4 calls that were only counted, calls while the function was off, for 100 ms";
    assert_eq!(said(&["tiny", "off"], &[]).as_deref(), Some(off));
    let unknown = "calls that were only counted";
    assert_eq!(said(&["hash"], &["leaf"]).as_deref(), Some(unknown));
    assert_eq!(said(&["leaf"], &[]), None);
    assert_eq!(said(&[], &["leaf"]), None);
    let line = losses::comment(&trace, Some(&of(&["hash"], &[])));
    let end = format!("; left out of what -F selects: {counted}\n");
    assert!(line.starts_with("# ") && line.ends_with(&end), "{line}");

    let rows = |only: &[&str], not: &[&str]| -> Vec<(String, u64, bool)> {
        let drive = Drive {
            filter: Some(&of(only, not)),
            ..Drive::default()
        };
        let rows = report::functions(&trace, &drive).unwrap().rows;
        let row = |row: report::Row| (row.function, row.calls, row.calls_are_least);
        rows.into_iter().map(row).collect()
    };
    assert_eq!(rows(&["hash"], &[]), [("hash".into(), 14, false)]);
    assert_eq!(rows(&["off"], &[]), [("off".into(), 0, true)]);
    assert_eq!(rows(&["leaf"], &[]), [("leaf".into(), 3, false)]);
    assert_eq!(rows(&["hash", "off"], &["hash"]), [("off".into(), 0, true)]);
    let of_two = rows(&["caller", "hash"], &[]);
    assert_eq!(
        of_two[1..],
        [("leaf".into(), 3, false), ("hash".into(), 14, false)]
    );

    let of_hash = Wanted {
        only: vec!["hash".into()],
        ..Wanted::default()
    };
    let lines = replayed(&trace, &of_hash);
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let told: Vec<String> = lines.iter().map(words).collect();
    assert_eq!(
        told,
        [
            "0.100000000 /* … 12 calls of hash not shown, in the last 90.0 ms */",
            "0.200000000 /* … 2 calls of hash not shown, in the last 100 ms */",
        ]
    );
}
