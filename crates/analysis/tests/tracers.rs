//! Cases of locks and sections, in records made by hand: all cases are known.

use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::names::Names;
use nopal_analysis::tracers::{Case, Past, Tracer, of_trace};
use nopal_analysis::values::ValueSelection;
use nopal_trace::synthetic::{Recorder, clock};
use nopal_trace::{Field, FieldKind, Note, Session, Trace, Writer};

const BEGIN: u64 = 0x1_0000_0000;
const SLOT: u64 = 0x7ffd_0000_8008;

const LOCK: u32 = 1;
const UNLOCK: u32 = 2;
const TRY: u32 = 3;
const TIMED: u32 = 4;
const WAIT: u32 = 5;
const GET: u32 = 6;
const PUT: u32 = 7;

const EVENT: u32 = abi::EVENT_DEFINED | 2 << abi::EVENT_WORDS_SHIFT;

/// A marker of the same name, without a field.
const BARE: u32 = (abi::EVENT_DEFINED + 2) | 1 << abi::EVENT_WORDS_SHIFT;

const MASK: u32 = (abi::EVENT_DEFINED + 1) | 5 << abi::EVENT_WORDS_SHIFT;

const SITES: [(u32, &str); 7] = [
    (LOCK, "pthread_mutex_lock"),
    (UNLOCK, "pthread_mutex_unlock"),
    (TRY, "pthread_mutex_trylock"),
    (TIMED, "__pthread_mutex_timedlock@@GLIBC_2.34"),
    (WAIT, "pthread_cond_wait"),
    (GET, "get"),
    (PUT, "put"),
];

/// One thread that records.
struct Thread(Recorder);

impl Thread {
    fn new(number: u32) -> Thread {
        Thread(Recorder::new(100, number, BEGIN + u64::from(number)))
    }

    fn enter(&mut self, clock: u64, site: u32, first: u64, second: u64) {
        let arguments = [first, second, 0, 0, 0, 0];
        self.0
            .record(BEGIN + clock, abi::KIND_ENTRY_ARGS, site, SLOT, &arguments);
    }

    fn leave(&mut self, clock: u64, site: u32, result: u64) {
        self.0
            .record(BEGIN + clock, abi::KIND_EXIT_RESULT, site, SLOT, &[result]);
    }

    fn call(&mut self, clock: u64, until: u64, site: u32, first: u64, result: u64) {
        self.enter(clock, site, first, 0);
        self.leave(until, site, result);
    }

    /// A marker `served`; without a request, the one that has no such field.
    fn serve(&mut self, clock: u64, request: Option<u64>) {
        let clock = BEGIN + clock;
        let event = if request.is_some() { EVENT } else { BARE };
        let word = clock & 0xffff_ffff | u64::from(abi::KIND_EXTENDED | event << 4) << 32;
        self.0.words().extend([word, clock]);
        self.0.words().extend(request);
    }

    /// A call of pthread_sigmask; without a mask, of one whose set cannot be read.
    fn change_mask(&mut self, clock: u64, how: u64, set: u64, mask: Option<u64>) {
        let clock = BEGIN + clock;
        let missing = u64::from(mask.is_none()) << 2;
        let word = clock & 0xffff_ffff | u64::from(abi::KIND_EXTENDED | MASK << 4) << 32;
        self.0
            .words()
            .extend([word, clock, how, set, mask.unwrap_or(0), missing]);
    }

    fn unlock(&mut self, clock: u64, lock: u64) {
        let arguments = [lock, 0, 0, 0, 0, 0];
        self.0
            .record(BEGIN + clock, abi::KIND_ONLY_ARGS, UNLOCK, SLOT, &arguments);
    }
}

fn written(directory: &Path, threads: Vec<Thread>) -> Trace {
    let mut writer = Writer::create(directory, Session::default()).unwrap();
    let image = Note::Image {
        image: 1,
        path: "/usr/lib/libc.so.6".into(),
        identity: String::new(),
    };
    let sites = SITES.map(|(site, name)| (site, u64::from(site) * 16, 16, name.to_owned()));
    let sites = Note::Sites {
        image: 1,
        sites: sites.into(),
    };
    let marker = Note::Marker {
        image: 1,
        event: EVENT,
        name: "served".into(),
        format: String::new(),
        fields: vec![Field {
            name: "request".into(),
            kind: FieldKind::Unsigned(64),
            labels: Vec::new(),
        }],
        file: "server.c".into(),
        line: 1,
        tracepoint: false,
    };
    let field = |name: &str, kind| Field {
        name: name.into(),
        kind,
        labels: Vec::new(),
    };
    let bare = Note::Marker {
        image: 1,
        event: BARE,
        name: "served".into(),
        format: String::new(),
        fields: Vec::new(),
        file: "server.c".into(),
        line: 2,
        tracepoint: false,
    };
    let mask = Note::Marker {
        image: 1,
        event: MASK,
        name: "nopal:sigmask".into(),
        format: String::new(),
        fields: vec![
            field("how", FieldKind::Signed(32)),
            field("set", FieldKind::Hexadecimal(64)),
            field("mask", FieldKind::Hexadecimal(64)),
            field("missing", FieldKind::Missing),
        ],
        file: String::new(),
        line: 0,
        tracepoint: false,
    };
    for note in [
        clock(BEGIN),
        image,
        sites,
        marker,
        bare,
        mask,
        clock(BEGIN + 1_000_000),
    ] {
        writer.note(&note).unwrap();
    }
    for thread in threads {
        thread.0.finish(&mut writer).unwrap();
    }
    writer.sync_metadata().unwrap();
    drop(writer);
    Trace::open(directory).unwrap()
}

/// The cases as (key, ticks, thread in which they ended), in the order of their ends.
type Found = Vec<(u64, u64, u32)>;

fn found(tracer: &str, threads: Vec<Thread>) -> anyhow::Result<(Found, Past)> {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(&directory.path().join("made"), threads);
    let names = Names::new(&trace);
    let numbers: Vec<u32> = trace.threads().iter().map(|thread| thread.thread).collect();
    let mut cases = Vec::new();
    let tracer = Tracer::parse(tracer).unwrap();
    let past = of_trace(&trace, &names, &tracer, |case: Case| {
        cases.push((case.key, case.ticks(), numbers[case.end_thread as usize]));
    })?;
    Ok((cases, past))
}

#[test]
fn a_lock_is_held_from_its_return_to_the_call_that_gives_it_back() {
    let mut one = Thread::new(1);
    one.call(100, 150, LOCK, 0xa0, 0);
    one.call(160, 170, TRY, 0xb0, 16);
    one.call(200, 210, TRY, 0xc0, 0);
    one.unlock(300, 0xa0);
    one.call(400, 450, TIMED, 0xd0, 110);
    one.unlock(500, 0xc0);
    one.call(600, 620, LOCK, 0xe0, 130);
    one.unlock(630, 0xe0);
    // Its thread did not take this lock.
    one.unlock(640, 0xf0);
    let mut two = Thread::new(2);
    two.call(120, 310, LOCK, 0xa0, 0);
    two.unlock(320, 0xa0);
    let (cases, past) = found("lockhold", vec![one, two]).unwrap();
    let expected = [(0xa0, 150, 1), (0xa0, 10, 2), (0xc0, 290, 1), (0xe0, 10, 1)];
    assert_eq!(cases, expected);
    assert_eq!((past.open, past.missing), Default::default());
}

#[test]
fn a_recursive_lock_is_held_until_it_is_given_back_as_often() {
    let mut one = Thread::new(1);
    one.call(100, 110, LOCK, 0xa0, 0);
    one.call(120, 130, LOCK, 0xa0, 0);
    one.unlock(140, 0xa0);
    one.unlock(150, 0xa0);
    let (cases, _) = found("lockhold", vec![one]).unwrap();
    assert_eq!(cases, [(0xa0, 40, 1)]);
}

#[test]
fn who_waits_for_a_condition_does_not_hold_the_mutex() {
    let mut one = Thread::new(1);
    one.call(100, 110, LOCK, 0xa0, 0);
    one.enter(200, WAIT, 0xc0, 0xa0);
    one.leave(900, WAIT, 0);
    one.unlock(930, 0xa0);
    let (cases, _) = found("lockhold", vec![one]).unwrap();
    assert_eq!(cases, [(0xa0, 90, 1), (0xa0, 30, 1)]);
}

#[test]
fn waiting_ends_also_without_the_lock() {
    let mut one = Thread::new(1);
    one.call(100, 150, LOCK, 0xa0, 0);
    one.call(160, 170, TRY, 0xb0, 0);
    one.call(400, 470, TIMED, 0xd0, 110);
    one.enter(500, LOCK, 0xa0, 0);
    let (cases, past) = found("lockwait", vec![one]).unwrap();
    assert_eq!(cases, [(0xa0, 50, 1), (0xd0, 70, 1)]);
    assert_eq!(past.open, 1, "the last one waits still");
}

/// No lock is claimed to have been held while records are missing.
#[test]
fn a_lock_that_may_have_been_given_back_in_between_is_no_case() {
    let mut one = Thread::new(1);
    one.call(100, 110, LOCK, 0xa0, 0);
    one.0.end_chunk();
    one.0.lose(7);
    one.unlock(5000, 0xa0);
    one.call(6000, 6010, LOCK, 0xa0, 0);
    one.unlock(6020, 0xa0);
    let (cases, past) = found("lockhold", vec![one]).unwrap();
    assert_eq!(cases, [(0xa0, 10, 1)]);
    assert_eq!(past.missing.never_ended, 1);
}

/// The end that is seen may be that of another request, which began unseen.
#[test]
fn no_request_spans_missing_records() {
    let (mut one, mut two) = (Thread::new(1), Thread::new(2));
    one.call(100, 110, GET, 7, 0);
    one.call(200, 210, GET, 8, 0);
    one.0.end_chunk();
    one.0.lose(9);
    one.call(5000, 5010, PUT, 7, 0);
    two.call(6000, 6010, PUT, 8, 0);
    one.call(7000, 7010, GET, 7, 0);
    two.call(7020, 7030, PUT, 7, 0);
    let (cases, past) = found("get.arg1..put.arg1", vec![one, two]).unwrap();
    assert_eq!(cases, [(7, 20, 2)]);
    assert_eq!((past.missing.never_ended, past.missing.ends_alone), (2, 2));
    assert_eq!(past.open, 0);
}

#[test]
fn no_section_of_a_thread_spans_missing_records() {
    let (mut one, mut two) = (Thread::new(1), Thread::new(2));
    two.call(100, 110, GET, 0, 0);
    one.call(200, 210, GET, 0, 0);
    one.0.end_chunk();
    one.0.lose(9);
    one.call(5000, 5010, PUT, 0, 0);
    two.call(6000, 6010, PUT, 0, 0);
    let (cases, past) = found("get..put", vec![one, two]).unwrap();
    assert_eq!(cases, [(1, 5900, 2)], "the other thread's");
    assert_eq!((past.missing.never_ended, past.open), (1, 0));
}

/// As when its function had been recorded without arguments before.
#[test]
fn a_lock_may_have_been_given_back_where_it_is_not_known_which() {
    let mut one = Thread::new(1);
    one.call(100, 110, LOCK, 0xa0, 0);
    one.0.entry(BEGIN + 120, UNLOCK, SLOT);
    one.0.exit(BEGIN + 130, UNLOCK, SLOT);
    one.call(200, 210, LOCK, 0xa0, 0);
    one.unlock(220, 0xa0);
    let (cases, past) = found("lockhold", vec![one]).unwrap();
    assert_eq!(cases, [(0xa0, 10, 1)]);
    assert_eq!(past.missing.never_ended, 1);
}

#[test]
fn a_section_is_paired_by_a_value_across_threads() {
    let (mut one, mut two) = (Thread::new(1), Thread::new(2));
    for request in 1..=3 {
        one.call(request * 100, request * 100 + 5, GET, request, 0);
    }
    for (clock, request) in [(350, 3), (400, 1), (410, 9)] {
        two.call(clock, clock + 5, PUT, request, 0);
    }
    let (cases, past) = found("get.arg1..put.arg1", vec![one, two]).unwrap();
    assert_eq!(cases, [(3, 50, 2), (1, 300, 2)]);
    assert_eq!((past.missing.ends_alone, past.open), (1, 1));
}

#[test]
fn ends_of_a_section_without_its_value_are_told() {
    let mut one = Thread::new(1);
    one.call(100, 105, GET, 1, 0);
    one.call(110, 115, GET, 2, 0);
    one.serve(200, None);
    one.serve(210, Some(1));
    one.serve(220, None);
    let (cases, past) = found("get.arg1..served.request", vec![one]).unwrap();
    assert_eq!(cases, [(1, 110, 1)]);
    assert_eq!((past.unknown, past.open), (2, 1));
    let notes = "left out: 2 events without a value that the tracer needs".to_owned();
    assert!(past.describe().contains(&notes), "{:?}", past.describe());
}

#[test]
fn a_section_begins_and_ends_where_it_is_said() {
    let one = || {
        let mut one = Thread::new(1);
        for at in [100, 200, 400] {
            one.call(at, at + 30, GET, 7, at);
        }
        vec![one]
    };
    for (tracer, expected) in [
        ("get..get.end", vec![30, 30, 30]),
        ("get..get", vec![100, 200]),
        ("get.end..get", vec![70, 170]),
        ("g[e]t.end..get@libc*", vec![70, 170]),
    ] {
        let (cases, _) = found(tracer, one()).unwrap();
        let ticks: Vec<u64> = cases.iter().map(|case| case.1).collect();
        assert_eq!(ticks, expected, "{tracer}");
    }
    for (tracer, expected) in [
        (
            "got..get",
            "no recorded function or marker is named \"got\"; the nearest are get, put",
        ),
        (
            "get..served.number",
            "the marker served has no number named \"number\"",
        ),
        (
            "get.arg7..put.arg1",
            "the function get has no \"arg7\", only end, result and arg1 to arg6",
        ),
        (
            "get.arg1..put",
            "a section is paired by a value that both ends have, or by the thread: only one of get.arg1 and put has a value",
        ),
        (
            "get.end..put",
            "get.end..put: no case began and ended: 3 begins without an end, 0 ends without a begin",
        ),
    ] {
        let error = found(tracer, one()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn locks_that_were_recorded_without_arguments_are_told_of() {
    let mut one = Thread::new(1);
    one.0.entry(BEGIN + 100, LOCK, SLOT);
    one.0.exit(BEGIN + 200, LOCK, SLOT);
    let error = found("lockhold", vec![one]).unwrap_err().to_string();
    assert!(error.contains("--args"), "{error}");
}

const BLOCK: u64 = 0;
const UNBLOCK: u64 = 1;
const SET: u64 = 2;

#[test]
fn signals_are_off_while_any_is_blocked() {
    let mut one = Thread::new(1);
    // The signals that were blocked before are not known: only a change tells.
    one.call(50, 60, GET, 0, 0);
    one.change_mask(100, BLOCK, 8, Some(1 << 9));
    one.change_mask(150, BLOCK, 8, Some(1 << 11));
    one.change_mask(170, UNBLOCK, 8, Some(1 << 9));
    // This call only asks.
    one.change_mask(180, SET, 0, None);
    one.change_mask(200, UNBLOCK, 8, Some(u64::MAX));
    // KILL and STOP, which no thread can block, and libc's own signals.
    one.change_mask(300, SET, 8, Some(1 << 8 | 1 << 18 | 1 << 31 | 1 << 32));
    one.change_mask(400, SET, 8, Some(1));
    one.change_mask(450, SET, 8, Some(0));
    // The result of the second call is not known, so neither is what the third ends.
    one.change_mask(500, BLOCK, 8, Some(1));
    one.change_mask(510, SET, 8, None);
    one.change_mask(900, UNBLOCK, 8, Some(1));
    let (cases, past) = found("sigoff", vec![one]).unwrap();
    assert_eq!(
        cases,
        [(1, 100, 1), (1, 50, 1)].map(|(_, ticks, thread)| (0, ticks, thread))
    );
    assert_eq!(past.open, 1);
}

#[test]
fn what_is_critical_begins_with_the_first_and_ends_with_the_last() {
    let mut one = Thread::new(1);
    one.call(100, 110, LOCK, 0xa0, 0);
    one.change_mask(120, BLOCK, 8, Some(1));
    one.unlock(130, 0xa0);
    one.call(140, 150, LOCK, 0xb0, 0);
    one.change_mask(160, UNBLOCK, 8, Some(1));
    one.unlock(200, 0xb0);
    one.call(300, 310, LOCK, 0xb0, 0);
    one.unlock(320, 0xb0);
    let (cases, _) = found("critical", vec![one]).unwrap();
    let ticks: Vec<u64> = cases.iter().map(|case| case.1).collect();
    assert_eq!(ticks, [90, 10]);
}

#[test]
fn a_marker_that_is_asked_for_without_a_field_tells_its_fields() {
    let directory = tempfile::tempdir().unwrap();
    let trace = written(&directory.path().join("made"), vec![Thread::new(1)]);
    let names = Names::new(&trace);
    let why = |text| ValueSelection::new(Some(text), &names, trace.markers()).err();
    let notes = why("served").unwrap().to_string();
    assert_eq!(
        notes,
        "served is a marker: use served.FIELD; it has request"
    );
    let notes = why("served.number").unwrap().to_string();
    assert!(notes.ends_with("; it has request"), "{notes}");
    assert!(why("served.request").is_none());
}
