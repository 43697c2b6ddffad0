//! Every text format against a file in `golden/`. `NOPAL_BLESS=1` writes the files.

mod made;

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use nopal_analysis::diff::{self, Comparison, Run};
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{self, Format, Latency, Weight, dump};
use nopal_analysis::filter::{Filter, Moment, Wanted};
use nopal_analysis::graph::{self, Shown};
use nopal_analysis::hist::{self, By, Group, Scale};
use nopal_analysis::names::Names;
use nopal_analysis::replay::{Look, replay};
use nopal_analysis::report::{self, Relation, Sort};
use nopal_analysis::values::ValueSelection;
use nopal_analysis::{info, text};
use nopal_trace::Trace;

const WIDTH: usize = 120;

fn drive() -> Drive<'static> {
    Drive {
        workers: 1,
        ..Drive::default()
    }
}

fn check(name: &str, write: impl FnOnce(&Trace, &mut Vec<u8>) -> Result<()>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made.data");
    let trace = made::trace(&path);
    let mut out = Vec::new();
    write(&trace, &mut out).unwrap();
    let found = String::from_utf8(out)
        .unwrap()
        .replace(&path.display().to_string(), "made.data");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("NOPAL_BLESS").is_some() {
        fs::write(&file, &found).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{name} has changed:\n{found}");
}

#[test]
fn report_table() {
    check("report.txt", |trace, out| {
        Ok(report::functions(trace, &drive())?.write_table(out, WIDTH)?)
    });
}

fn compared(trace: &Trace, write: impl FnOnce(&Comparison, [&[Run]; 2])) {
    let run = |name: &str, wanted: Wanted| {
        let filter = Filter::new(trace, &wanted).unwrap();
        let drive = Drive {
            filter: Some(&filter),
            ..drive()
        };
        Run::new(name, trace, None, &drive).unwrap()
    };
    let before = [run("old.data", Wanted::default())];
    let without = Wanted {
        not: vec!["read".into()],
        ..Wanted::default()
    };
    let after = [run("new.data", without)];
    write(&diff::compare(&before, &after), [&before, &after]);
}

#[test]
fn diff_table() {
    check("diff.txt", |trace, out| {
        compared(trace, |comparison, sides| {
            diff::write_text(comparison, sides, None, out, WIDTH).unwrap();
        });
        Ok(())
    });
}

#[test]
fn diff_json() {
    check("diff.json", |trace, out| {
        compared(trace, |comparison, sides| {
            diff::write_json(comparison, sides, None, out).unwrap();
        });
        Ok(())
    });
}

#[test]
fn report_by_calls_cut_short_on_a_narrow_terminal() {
    check("report-narrow.txt", |trace, out| {
        let mut report = report::functions(trace, &drive())?;
        report.sort(Sort::Calls);
        report.limit(3);
        Ok(report.write_table(out, 80)?)
    });
}

#[test]
fn report_json() {
    check("report.json", |trace, out| {
        Ok(report::functions(trace, &drive())?.write_json(trace, out)?)
    });
}

#[test]
fn report_threads() {
    check("threads.txt", |trace, out| {
        Ok(report::write_threads(
            &report::threads(trace, &drive())?,
            out,
            WIDTH,
        )?)
    });
}

#[test]
fn report_callers_and_callees() {
    check("related.txt", |trace, out| {
        for (function, relation) in [("read", Relation::Callers), ("main", Relation::Callees)] {
            let rows = report::related(trace, function, relation, &drive())?;
            report::write_related(&rows, relation, out, WIDTH)?;
        }
        Ok(())
    });
}

#[test]
fn replay_plain() {
    check("replay.txt", |trace, out| {
        replay(trace, &Look::default(), out)
    });
}

#[test]
fn replay_in_colour() {
    check("replay-colour.txt", |trace, out| {
        let look = Look {
            sources: false,
            color: true,
            ..Look::default()
        };
        replay(trace, &look, out)
    });
}

#[test]
fn replay_of_some_calls() {
    let functions = || vec!["made::parse".to_string()];
    check("replay-some.txt", |trace, out| {
        for wanted in [
            Wanted {
                only: functions(),
                ..Wanted::default()
            },
            Wanted {
                not: functions(),
                threads: vec![102],
                ..Wanted::default()
            },
            Wanted {
                least_ns: 10_000,
                ..Wanted::default()
            },
            Wanted {
                from: Some(Moment::Time(2_000)),
                until: Some(Moment::Time(4_000)),
                ..Wanted::default()
            },
        ] {
            let look = Look {
                sources: false,
                filter: Filter::new(trace, &wanted)?,
                ..Look::default()
            };
            replay(trace, &look, out)?;
            out.push(b'\n');
        }
        Ok(())
    });
}

#[test]
fn graph_of_all() {
    check("graph.txt", |trace, out| {
        let names = Names::new(trace);
        let tree = graph::tree(trace, &names, &drive())?;
        Ok(graph::write_tree(
            out,
            &tree,
            &names,
            trace.clocks(),
            Shown::default(),
        )?)
    });
}

#[test]
fn graph_of_one_function() {
    check("graph-one.txt", |trace, out| {
        let names = Names::new(trace);
        let tree = graph::tree_of(trace, &names, "made::parse", &drive())?;
        let shown = Shown {
            depth: 1,
            ..Shown::default()
        };
        Ok(graph::write_tree(
            out,
            &tree,
            &names,
            trace.clocks(),
            shown,
        )?)
    });
}

fn histograms(trace: &Trace, text: &str, by: By) -> Result<(ValueSelection, Vec<Group>)> {
    let names = Names::new(trace);
    let what = ValueSelection::new(Some(text), &names, trace.markers())?;
    let filter = Filter::default();
    let (groups, _) = hist::distributions(trace, &names, &what, &filter, by, &drive())?;
    Ok((what, groups))
}

#[test]
fn histograms_of_durations_and_results() {
    check("hist.txt", |trace, out| {
        for (text, by, scale) in [
            ("read", By::Nothing, Scale::Log2),
            ("read", By::Thread, Scale::Hdr),
            ("*@libmade*", By::Function, Scale::Linear),
            ("read.int(result)", By::Process, Scale::Log2),
            ("main.arg2 >> 12", By::Nothing, Scale::Linear),
        ] {
            let (what, groups) = histograms(trace, text, by)?;
            hist::write_text(out, &what, &groups, scale, WIDTH)?;
            out.push(b'\n');
        }
        Ok(())
    });
}

#[test]
fn histograms_as_json() {
    check("hist.json", |trace, out| {
        let (what, groups) = histograms(trace, "read", By::Thread)?;
        Ok(hist::write_json(
            out,
            trace,
            &what,
            &groups,
            &[],
            Scale::Log2,
        )?)
    });
}

#[test]
fn values_are_put_into_groups_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let trace = made::trace(&directory.path().join("made.data"));
    let names = Names::new(&trace);
    let mut what = ValueSelection::new(Some("read"), &names, trace.markers()).unwrap();
    what.group_by("duration", trace.markers()).unwrap();
    let filter = Filter::default();
    let (groups, _) =
        hist::distributions(&trace, &names, &what, &filter, By::Value, &drive()).unwrap();
    assert!(groups.len() > 1);
    let all = histograms(&trace, "read", By::Nothing).unwrap().1;
    let counts = groups.iter().map(|group| group.distribution.count());
    assert_eq!(counts.sum::<u64>(), all[0].distribution.count());
    for group in &groups {
        let values = [group.distribution.least(), group.distribution.most()];
        let as_named = values.map(|value| value.to_string());
        assert_eq!(as_named, [group.name.as_str(); 2]);
    }
    assert!(what.group_by("nonsense", trace.markers()).is_err());
}

#[test]
fn calls_without_a_result_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let trace = made::trace(&directory.path().join("made.data"));
    let names = Names::new(&trace);
    let notes = |text: &str| {
        let what = ValueSelection::new(Some(text), &names, trace.markers()).unwrap();
        let (filter, by) = (Filter::default(), By::Nothing);
        let (groups, notes) =
            hist::distributions(&trace, &names, &what, &filter, by, &drive()).unwrap();
        (groups[0].distribution.count(), notes)
    };
    let left_out = "left out: 2 calls whose arguments or results are not known";
    // One was open when events were lost, one when the thread began to be recorded.
    let unfinished = "left out: 2 calls whose begin or end is not known";
    let both = [left_out, unfinished].map(str::to_owned);
    assert_eq!(notes("read.result"), (4, both.to_vec()));
    assert_eq!(notes("read.duration"), (6, both[1..].to_vec()));
}

#[test]
fn what_has_no_values_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let trace = made::trace(&directory.path().join("made.data"));
    let names = Names::new(&trace);
    let why = |text: &str, wanted: Wanted| {
        let filter = Filter::new(&trace, &wanted)?;
        let what = ValueSelection::new(Some(text), &names, trace.markers())?;
        hist::distributions(&trace, &names, &what, &filter, By::Nothing, &drive()).map(drop)
    };
    let filter = |threads: &[u32], least_ns| Wanted {
        threads: threads.to_vec(),
        least_ns,
        ..Wanted::default()
    };
    let late = Wanted {
        from: Some(Moment::Time(1 << 40)),
        ..Wanted::default()
    };
    for (text, filter, expected) in [
        (
            "read",
            filter(&[7], 0),
            "no thread of this trace matches --pid, --tid and --comm: `nopal report --threads` shows all",
        ),
        (
            "read",
            filter(&[102], 1_000_000_000),
            "read: all 6 calls are left out: 5 of other threads, 1 shorter than 1.00 s",
        ),
        (
            "read",
            late,
            "read: all 6 calls are left out: 6 outside the time",
        ),
        (
            "made::parse.arg1",
            filter(&[], 0),
            "made::parse.arg1: the calls were recorded without arguments and results: record with --args",
        ),
        (
            "yield_too",
            filter(&[], 0),
            "no function of this trace is named \"yield_too\"; the nearest is yield_to",
        ),
        (
            "lockhld",
            filter(&[], 0),
            "no function of this trace is named \"lockhld\"; the nearest are lockhold, blocked",
        ),
        (
            "read.arg9",
            filter(&[], 0),
            "\"arg9\" is not a value: use arg1 to arg6, result, duration, self, numbers or int(…)",
        ),
    ] {
        let error = why(text, filter).unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
    }
}

fn latency(of: &str, verbose: bool) -> Format {
    Format::Latency(Latency {
        of: Some(of.into()),
        look: dump::Look {
            addresses: true,
            verbose,
        },
    })
}

#[test]
fn a_latency_needs_a_call_that_ended() {
    let directory = tempfile::tempdir().unwrap();
    let trace = made::trace(&directory.path().join("made.data"));
    for (of, expected) in [
        (
            "once",
            "once: no such call was recorded to its end; this trace is incomplete: 3 events were lost (2 for lack of room, 1 for the reason other); calls that were open at a gap end there, with their least possible times",
        ),
        (
            "read.result",
            "read.result: a latency needs the duration of a function",
        ),
        ("nothing", "no function of this trace is named \"nothing\""),
    ] {
        let error = dump(&trace, latency(of, false), &drive(), &mut Vec::new()).unwrap_err();
        assert_eq!(format!("{error:#}"), expected);
    }
}

#[test]
fn dumps() {
    let formats = [
        ("devtrace.txt", Format::Devtrace),
        ("function.txt", Format::Function(dump::Look::default())),
        ("chrome.json", Format::Chrome),
        ("latency.txt", latency("made::parse", false)),
        ("latency-verbose.txt", latency("made::parse", true)),
        ("latency-all.txt", latency("function", false)),
        ("latency-all-verbose.txt", latency("function", true)),
        ("folded.txt", Format::Folded(Weight::Time)),
        ("folded-calls.txt", Format::Folded(Weight::Calls)),
        ("raw.txt", Format::Raw),
    ];
    for (name, format) in formats {
        check(name, |trace, out| dump(trace, format, &drive(), out));
    }
}

#[test]
fn trace_info() {
    check("info.txt", |trace, out| Ok(info::info(trace, out, WIDTH)?));
}

#[test]
fn json_is_json() {
    let directory = tempfile::tempdir().unwrap();
    let trace = made::trace(&directory.path().join("made.data"));
    let mut out = Vec::new();
    dump(&trace, Format::Chrome, &drive(), &mut out).unwrap();
    let chrome: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .all(|event| event["ph"].is_string() && event["name"].is_string())
    );
    out.clear();
    report::functions(&trace, &drive())
        .unwrap()
        .write_json(&trace, &mut out)
        .unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
    assert!(
        rows.iter()
            .all(|row| row["total_ns"].is_u64() && row["function"].is_string())
    );
    assert_eq!(text::count(rows.len() as u64), "9");
}
