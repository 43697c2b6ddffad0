//! Signal handlers of processes, in hand-made records: each process has its own.

use std::collections::HashSet;
use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::names::Names;
use nopal_analysis::tracers::handlers;
use nopal_trace::synthetic::{Recorder, clock};
use nopal_trace::{Field, FieldKind, Note, Session, Trace, Writer};

const BEGIN: u64 = 0x1_0000_0000;
const BASE: u64 = 0x40_0000;
const ONE: u32 = 1;
const TWO: u32 = 2;

const HANDLER: u32 = abi::EVENT_DEFINED | 3 << abi::EVENT_WORDS_SHIFT;

/// A thread of a process, from a clock on, and the handlers that it sets: the clock, the site, and whether its address
/// is read.
type Made<'a> = (u32, u64, &'a [(u64, u32, bool)]);

/// `begins`: process, parent, clock, and whether it runs a program of its own then. The image of both sites is at the
/// same place in all of them.
fn written(directory: &Path, begins: &[(u32, u32, u64, bool)], threads: &[Made]) -> Trace {
    let mut writer = Writer::create(directory, Session::default()).unwrap();
    let field = |name: &str, kind| Field {
        name: name.into(),
        kind,
        labels: Vec::new(),
    };
    let image = Note::Image {
        image: 1,
        path: "/opt/server".into(),
        identity: String::new(),
    };
    let sites = Note::Sites {
        image: 1,
        sites: [ONE, TWO]
            .map(|site| (site, u64::from(site) * 16, 16, format!("f{site}")))
            .into(),
    };
    let marker = Note::Marker {
        image: 1,
        event: HANDLER,
        name: "nopal:handler".into(),
        format: String::new(),
        fields: vec![
            field("handler", FieldKind::Hexadecimal(64)),
            field("missing", FieldKind::Missing),
        ],
        file: String::new(),
        line: 0,
        tracepoint: false,
    };
    for note in [clock(BEGIN), image, sites, marker] {
        writer.note(&note).unwrap();
    }
    for &(process, parent, counter, is_program) in begins {
        let counter = BEGIN + counter;
        let name = if is_program { "server" } else { "" };
        writer
            .note(&Note::Process {
                process,
                parent,
                counter,
                name: name.into(),
                executable: name.into(),
                arguments: Vec::new(),
            })
            .unwrap();
        if is_program {
            writer
                .note(&Note::Module {
                    process,
                    image: 1,
                    counter,
                    base: BASE,
                    path: "/opt/server".into(),
                })
                .unwrap();
        }
    }
    for &(process, begin, set) in threads {
        let begin = BEGIN + begin;
        let named = Note::Thread {
            process,
            thread: process,
            begin,
            name: String::new(),
            kernel: false,
        };
        writer.note(&named).unwrap();
        let mut recorder = Recorder::new(process, process, begin);
        recorder.resync(begin, 0x7ffd_0000_8008, abi::RESYNC_CHUNK);
        for &(clock, site, is_read) in set {
            let clock = BEGIN + clock;
            let word = clock & 0xffff_ffff | u64::from(abi::KIND_EXTENDED | HANDLER << 4) << 32;
            let address = BASE + u64::from(site) * 16;
            recorder
                .words()
                .extend([word, clock, address, u64::from(!is_read)]);
        }
        recorder.finish(&mut writer).unwrap();
    }
    writer.note(&clock(BEGIN + 1_000_000)).unwrap();
    writer.sync_metadata().unwrap();
    drop(writer);
    Trace::open(directory).unwrap()
}

/// The handlers of each thread, by process and begin.
fn found(begins: &[(u32, u32, u64, bool)], threads: &[Made]) -> Vec<HashSet<u32>> {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(&directory.path().join("made"), begins, threads);
    assert_eq!(trace.threads().len(), threads.len());
    handlers(&trace, &Names::new(&trace), &trace.threads())
}

#[test]
fn a_handler_of_one_process_is_none_of_another_one() {
    let begins = [(100, 1, 0, true), (200, 1, 0, true), (300, 1, 0, true)];
    let threads: [Made; 3] = [
        (100, 10, &[(20, ONE, true)]),
        (200, 10, &[(30, TWO, true)]),
        (300, 10, &[(30, TWO, false)]),
    ];
    assert_eq!(
        found(&begins, &threads),
        [HashSet::from([ONE]), HashSet::from([TWO]), HashSet::new()]
    );
}

#[test]
fn a_forked_child_has_the_handlers_that_its_parent_had() {
    let begins = [
        (100, 1, 0, true),
        (200, 100, 50, false),
        (300, 200, 70, false),
    ];
    let threads: [Made; 3] = [
        (100, 10, &[(20, ONE, true), (60, TWO, true)]),
        (200, 50, &[]),
        (300, 70, &[(80, TWO, true)]),
    ];
    assert_eq!(
        found(&begins, &threads),
        [
            HashSet::from([ONE, TWO]),
            HashSet::from([ONE]),
            HashSet::from([ONE, TWO])
        ]
    );
}

#[test]
fn a_program_that_is_executed_has_no_handlers_yet() {
    let begins = [
        (100, 1, 0, true),
        (100, 1, 50, true),
        (200, 100, 30, false),
        (200, 100, 60, true),
        (300, 100, 90, true),
    ];
    let threads: [Made; 5] = [
        (100, 10, &[(20, ONE, true)]),
        (100, 55, &[(70, TWO, true)]),
        (200, 30, &[]),
        (200, 65, &[]),
        // Before it executes a program; its fork is not recorded.
        (300, 80, &[]),
    ];
    assert_eq!(
        found(&begins, &threads),
        [
            HashSet::from([ONE]),
            HashSet::from([TWO]),
            HashSet::from([ONE]),
            HashSet::new(),
            HashSet::from([TWO]),
        ]
    );
}
