//! A call of which only the entry was recorded may have ended before another one seems to be called in it.

use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Format, dump};
use nopal_analysis::graph;
use nopal_analysis::names::Names;
use nopal_analysis::replay::replay;
use nopal_analysis::report::{self, Relation};
use nopal_trace::synthetic::{Recorder, clock};
use nopal_trace::{Note, Session, Trace, Writer};

const PROCESS: u32 = 700;
const BEGIN: u64 = 0x1_0000_0000;
const UNLOCK: u32 = 1;
const LOCK: u32 = 2;
const SLOT: u64 = 0x7ffd_0000_8008;

/// `lock` after an entry of `unlock`, twice: of the kind `unlock`, and below it on the stack.
fn written(directory: &Path, unlock: u32) -> Trace {
    let mut writer = Writer::create(directory, Session::default()).unwrap();
    let image = Note::Image {
        image: 1,
        path: "/opt/server".into(),
        identity: String::new(),
    };
    let sites = [(UNLOCK, "unlock"), (LOCK, "lock")];
    let sites = Note::Sites {
        image: 1,
        sites: sites
            .map(|(site, name)| (site, u64::from(site) * 16, 16, name.to_owned()))
            .into(),
    };
    for note in [clock(BEGIN), image, sites] {
        writer.note(&note).unwrap();
    }
    let mut recorder = Recorder::new(PROCESS, PROCESS, BEGIN);
    recorder.resync(BEGIN, SLOT, abi::RESYNC_CHUNK);
    for turn in 0..2 {
        let at = |ticks| BEGIN + 1_000 * turn + ticks;
        recorder.record(at(100), unlock, UNLOCK, SLOT - 32, &[]);
        recorder.entry(at(200), LOCK, SLOT - 64);
        recorder.exit(at(300), LOCK, SLOT - 64);
        if unlock == abi::KIND_ENTRY {
            recorder.exit(at(400), UNLOCK, SLOT - 32);
        }
    }
    recorder.finish(&mut writer).unwrap();
    writer.note(&clock(BEGIN + 1_000_000)).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    Trace::open(directory).unwrap()
}

/// What readers say of the caller of `lock`: `report --callers` as text and as JSON, `replay`, and `dump --as function`.
fn told(unlock: u32) -> [String; 4] {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(&directory.path().join("made.data"), unlock);
    let relation = Relation::Callers;
    let rows = report::related(&trace, "lock", relation, &Drive::default()).unwrap();
    let mut out = [const { Vec::new() }; 4];
    report::write_related(&rows, relation, &mut out[0], 200).unwrap();
    report::write_related_json(&rows, &trace, &mut out[1]).unwrap();
    replay(&trace, &Default::default(), &mut out[2]).unwrap();
    let format = Format::Function(Default::default());
    dump(&trace, format, &Drive::default(), &mut out[3]).unwrap();
    out.map(|out| String::from_utf8(out).unwrap())
}

#[test]
fn readers_say_that_the_caller_is_estimated() {
    let [callers, json, replayed, lines] = told(abi::KIND_ONLY);
    assert!(callers.contains(" unlock ? "), "{callers}");
    assert!(callers.contains("\n? estimated: "), "{callers}");
    assert!(json.contains("\"is_estimated\":true"), "{json}");
    assert_eq!(replayed.matches("/* estimated: ").count(), 1, "{replayed}");
    let of_lock: Vec<_> = lines
        .lines()
        .filter(|line| line.contains(" lock+"))
        .collect();
    let is_unknown = |line: &&str| line.ends_with(" <-- -");
    assert_eq!(of_lock.len(), 2, "{lines}");
    assert!(of_lock.iter().all(is_unknown), "{lines}");
}

#[test]
fn a_caller_that_ends_is_certain() {
    let [callers, json, replayed, lines] = told(abi::KIND_ENTRY);
    assert!(callers.contains(" unlock "), "{callers}");
    assert!(!callers.contains('?'), "{callers}");
    assert!(!json.contains("is_estimated"), "{json}");
    assert!(!replayed.contains("estimated"), "{replayed}");
    assert!(
        lines.contains(" lock+0x0/0x10 <-- unlock+-/0x10"),
        "{lines}"
    );
}

#[test]
fn a_graph_knows_that_callers_are_estimated() {
    for (kind, is_estimated) in [(abi::KIND_ONLY, true), (abi::KIND_ENTRY, false)] {
        let directory = tempfile::tempdir().unwrap();
        let trace = written(&directory.path().join("made.data"), kind);
        let names = Names::new(&trace);
        let tree = graph::tree(&trace, &names, &Drive::default()).unwrap();
        assert_eq!(tree.has_estimated_callers(), is_estimated);
    }
}
