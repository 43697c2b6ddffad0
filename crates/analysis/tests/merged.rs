//! Several traces read as one, and those that cannot be.

use std::path::Path;

use nopal_abi::Word;
use nopal_analysis::drive::Drive;
use nopal_analysis::report;
use nopal_analysis::waits::Waits;
use nopal_trace::synthetic::Recorder;
use nopal_trace::{
    Field, FieldKind, KernelEvent, KernelRecord, Note, Session, Task, TaskState, Trace, Writer,
    event_number, merge,
};

const TOP: u64 = 0x7ffd_0000_8008;

/// Begins at `start`, in nanoseconds as the counter; `image` has the functions `NAME_1` and `NAME_2`.
fn begun(path: &Path, start: u64, image: &str, name: &str) -> Writer {
    let session = Session {
        hostname: "here".into(),
        ..Session::default()
    };
    let mut writer = Writer::create(path, session).unwrap();
    for ns in [start, start + 1_000_000_000] {
        let clock = Note::Clock {
            counter: ns,
            monotonic_ns: ns,
            realtime_ns: ns + 5_000_000_000_000,
        };
        writer.note(&clock).unwrap();
    }
    let file = Note::Image {
        image: 1,
        path: image.into(),
        identity: image.into(),
    };
    writer.note(&file).unwrap();
    let sites = (1..=2).map(|site| (site, 0x1000 * u64::from(site), 16, format!("{name}_{site}")));
    let sites = Note::Sites {
        image: 1,
        sites: sites.collect(),
    };
    writer.note(&sites).unwrap();
    writer
}

fn end(mut writer: Writer, counter: u64) {
    let why = String::new();
    let end = Note::End {
        counter,
        complete: true,
        why,
    };
    writer.note(&end).unwrap();
}

/// `calls` calls of the second function of 10 ns each in one of the first, in a thread with this number.
fn record(writer: &mut Writer, start: u64, thread: u32, calls: u64) -> u64 {
    let mut recorder = Recorder::new(thread, thread, start + 1);
    let mut clock = start + 100;
    recorder.entry(clock, 1, TOP);
    for _ in 0..calls {
        clock += 5;
        recorder.entry(clock, 2, TOP - 0x40);
        clock += 10;
        recorder.exit(clock, 2, TOP - 0x40);
    }
    clock += 5;
    recorder.exit(clock, 1, TOP);
    recorder.finish(writer).unwrap();
    clock
}

fn made(path: &Path, start: u64, image: &str, name: &str, thread: u32, calls: u64) -> Trace {
    let mut writer = begun(path, start, image, name);
    let clock = record(&mut writer, start, thread, calls);
    end(writer, clock);
    Trace::open(path).unwrap()
}

fn merged(traces: &[Trace], path: &Path) -> Trace {
    merge(traces, path).unwrap();
    let trace = Trace::open(path).unwrap();
    assert!(trace.damage().is_empty(), "{:?}", trace.damage());
    assert!(trace.is_complete());
    trace
}

#[test]
fn calls_of_all_are_there_and_those_of_one_function_together() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    // The second one is of another program, the third one of the first one's, later. More calls than a packet has.
    let traces = [
        made(&path("a"), 1_000_000_000, "/program", "f", 7, 20_000),
        made(&path("b"), 1_000_500_000, "/other", "g", 8, 300),
        made(&path("c"), 900_000_000_000, "/program", "f", 9, 5),
    ];
    let trace = merged(&traces, &path("all"));
    let report = report::functions(&trace, &Drive::default()).unwrap();
    let row = |name: &str| report.rows.iter().find(|row| row.function == name).unwrap();
    assert_eq!((row("f_1").calls, row("f_2").calls), (2, 20_005));
    assert_eq!((row("g_1").calls, row("g_2").calls), (1, 300));
    assert_eq!((row("f_2").total_ns, row("f_2").max_ns), (200_050, 10));
    assert_eq!(row("f_1").self_ns, 5 * 20_001 + 5 * 6);
    assert_eq!(row("g_2").module, "other");
    assert_eq!(report.rows.len(), 4);
    let threads = report::threads(&trace, &Drive::default()).unwrap();
    let threads: Vec<_> = threads.iter().map(|row| (row.thread, row.calls)).collect();
    assert_eq!(threads, [(7, 20_001), (8, 301), (9, 6)]);
    // In order of the time that is common to all.
    let processes = report::processes(&trace, &Drive::default()).unwrap();
    let starts: Vec<_> = processes
        .iter()
        .map(|row| (row.process, row.start_ns))
        .collect();
    assert_eq!(starts, [(7, 0), (8, 499_901), (9, 898_999_999_901)]);
}

/// An end without a status was noticed late: it is not taken for the time of the end. That of a process whose number
/// another one got is not the other one's.
#[test]
fn an_end_without_a_status_is_no_time() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = begun(&path, 1_000, "/program", "f");
    for (process, counter, status) in [
        (7, 500_000_000, Some(3 << 8)),
        (8, 500_000_000, None),
        (9, 500, Some(7 << 8)),
    ] {
        record(&mut writer, 1_000, process, 3);
        let exit = Note::Exit {
            process,
            counter,
            status,
        };
        writer.note(&exit).unwrap();
    }
    end(writer, 600_000_000);
    let trace = Trace::open(&path).unwrap();
    let mut processes = report::processes(&trace, &Drive::default()).unwrap();
    processes.sort_by_key(|row| row.process);
    let ends: Vec<_> = processes
        .iter()
        .map(|row| (row.duration_ns, row.duration_is_least, row.exit))
        .collect();
    assert_eq!(
        ends,
        [
            (499_998_999, false, Some(3 << 8)),
            (149, true, None),
            (149, true, None)
        ]
    );
    let mut text = Vec::new();
    report::write_processes(&processes, &mut text, 100).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("status 3") && text.contains("≥ 149 ns") && text.contains(" ? "));
}

#[test]
fn markers_keep_their_names_and_values() {
    let place = tempfile::tempdir().unwrap();
    let traces = ["a", "b"].map(|name| {
        let path = place.path().join(name);
        let start = if name == "a" {
            1_000_000
        } else {
            3_000_000_000
        };
        let mut writer = begun(&path, start, "/program", "f");
        let fields = vec![Field {
            name: "value".into(),
            kind: FieldKind::Unsigned(64),
            labels: Vec::new(),
        }];
        let event = event_number(32, &fields);
        let marker = Note::Marker {
            event,
            image: 1,
            name: format!("of_{name}"),
            format: "value=%lu".into(),
            fields,
            file: String::new(),
            line: 0,
            tracepoint: false,
        };
        writer.note(&marker).unwrap();
        let mut recorder = Recorder::new(u32::from(name == "b") + 7, 7, start + 1);
        recorder.entry(start + 10, 1, TOP);
        let record = [Word::extended(event, start + 20).0, start + 20, start];
        recorder.words().extend(record);
        recorder.exit(start + 30, 1, TOP);
        recorder.finish(&mut writer).unwrap();
        end(writer, start + 40);
        Trace::open(&path).unwrap()
    });
    let trace = merged(&traces, &place.path().join("all"));
    let mut found = Vec::new();
    for thread in trace.threads() {
        for record in thread.packets().flat_map(|packet| packet.records()) {
            if let nopal_trace::Event::Marker { event, payload } = record.event {
                let marker = trace.markers().get(event).unwrap();
                found.push((marker.name.clone(), payload.to_vec()));
            }
        }
    }
    let expected = [("of_a", 1_000_000), ("of_b", 3_000_000_000)];
    assert_eq!(
        found,
        expected.map(|(name, value)| (name.to_string(), vec![value]))
    );
}

/// A thread that leaves its processor in one trace does not wait until the other begins.
#[test]
fn waits_are_known_where_all_have_kernel_events_and_else_of_none() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let with_switches = |name: &str, start: u64, thread: u32| {
        let mut writer = begun(&path(name), start, "/program", "f");
        let mut recorder = Recorder::new(thread, thread, start + 1);
        recorder.entry(start + 10, 1, TOP);
        recorder.exit(start + 1010, 1, TOP);
        recorder.finish(&mut writer).unwrap();
        let task = |thread| Task {
            thread,
            ..Task::default()
        };
        let switch = |clock, previous, next| KernelRecord {
            clock,
            event: KernelEvent::Switch {
                previous: task(previous),
                process: previous,
                state: TaskState(b'S'),
                next: task(next),
                flags: None,
            },
        };
        let away = [
            switch(start + 100, thread, 0),
            switch(start + 700, 0, thread),
        ];
        writer.system(0, &away).unwrap();
        writer.end_kernel_events().unwrap();
        end(writer, start + 2000);
        Trace::open(&path(name)).unwrap()
    };
    let traces = [
        with_switches("a", 1_000_000_000, 7),
        with_switches("b", 4_000_000_000, 8),
    ];
    let trace = merged(&traces, &path("all"));
    let waits = Waits::new(&trace).unwrap();
    let drive = Drive {
        waits: Some(&waits),
        ..Drive::default()
    };
    let report = report::functions(&trace, &drive).unwrap();
    let waited = report.rows[0].waited.unwrap().total;
    assert_eq!((report.rows[0].total_ns, waited.blocked), (2000, 1200));
    let [a, b] = traces;
    let plain = made(&path("c"), 8_000_000_000, "/program", "f", 9, 3);
    let trace = merged(&[a, b, plain], &path("some"));
    assert!(Waits::new(&trace).is_none());
}

#[test]
fn what_cannot_be_read_as_one_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let refused = |traces: &[Trace]| merge(traces, &path("all")).unwrap_err().to_string();
    let first = || made(&path("a"), 1_000_000_000, "/program", "f", 7, 3);
    let again = Trace::open(first().directory()).unwrap();
    let said = refused(&[first(), again]);
    assert!(
        said.contains("records of thread 7 that another one has, too"),
        "{said}"
    );

    let mut writer = begun(&path("stopped"), 1_000_000_000, "/program", "f");
    record(&mut writer, 1_000_000_000, 8, 3);
    writer
        .note(&Note::Stopped {
            counter: 1_000_000_500,
        })
        .unwrap();
    end(writer, 1_000_000_900);
    let stopped = Trace::open(&path("stopped")).unwrap();
    let said = refused(&[first(), stopped]);
    assert!(said.contains("was stopped meanwhile"), "{said}");

    // The system was started again: the counter is another one.
    let mut writer = Writer::create(
        &path("later"),
        Session {
            hostname: "here".into(),
            ..Session::default()
        },
    )
    .unwrap();
    let clock = Note::Clock {
        counter: 1_000_000_000,
        monotonic_ns: 1_000_000_000,
        realtime_ns: 9_000_000_000_000,
    };
    writer.note(&clock).unwrap();
    end(writer, 1_000_000_900);
    let later = Trace::open(&path("later")).unwrap();
    let said = refused(&[first(), later]);
    assert!(said.contains("different runs of the system"), "{said}");
}
