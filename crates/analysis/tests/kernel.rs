//! Functions of the kernel, in the calls that made them.

use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Excerpt, Format, Look, dump, function};
use nopal_analysis::{replay, report};
use nopal_trace::synthetic::Recorder;
use nopal_trace::{KernelEvent, KernelRecord, Note, Session, Trace, Writer};

const THREAD: u32 = 1000;
const READ: u64 = 0xffff_ffff_8100_0000;
const UNNAMED: u64 = 0xffff_ffff_8200_0000;

/// `outer` calls `inner`, with functions of the kernel before, in and behind both.
fn made() -> (tempfile::TempDir, Trace) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = Writer::create(&path, Session::default()).unwrap();
    let notes = [
        Note::Clock {
            counter: 1000,
            monotonic_ns: 1000,
            realtime_ns: 1000,
        },
        Note::Image {
            image: 1,
            path: "/usr/bin/reads".into(),
            identity: "00".into(),
        },
        Note::Sites {
            image: 1,
            sites: vec![
                (1, 0x40, 0x40, "outer".into()),
                (2, 0x80, 0x40, "inner".into()),
            ],
        },
        Note::KernelFunction {
            address: READ,
            name: "vfs_read".into(),
        },
        Note::KernelFunction {
            address: READ + 0x100,
            name: "ksys_read\x1b".into(),
        },
    ];
    for note in notes {
        writer.note(&note).unwrap();
    }
    let mut recorder = Recorder::new(THREAD, THREAD, 1000);
    recorder.entry(2000, 1, 100);
    recorder.entry(3000, 2, 90);
    recorder.exit(4000, 2, 90);
    recorder.exit(5000, 1, 100);
    recorder.end_chunk();
    recorder.write_full(&mut writer).unwrap();
    let entered = |(clock, thread, function)| KernelRecord {
        clock,
        event: KernelEvent::Function {
            thread,
            function,
            caller: READ + 0x100,
            flags: None,
        },
    };
    let entered = [
        (1500, THREAD, READ),
        (2500, THREAD, READ),
        (3500, THREAD, READ),
        (3600, THREAD, READ),
        (3700, 7, READ),
        (4500, THREAD, UNNAMED),
        (5500, THREAD, READ),
    ]
    .map(entered);
    writer.system(0, &entered).unwrap();
    writer.end_kernel_events().unwrap();
    let note = Note::Clock {
        counter: 6000,
        monotonic_ns: 6000,
        realtime_ns: 6000,
    };
    writer.note(&note).unwrap();
    writer.sync_metadata().unwrap();
    let trace = Trace::open(&path).unwrap();
    (place, trace)
}

#[test]
fn each_counts_in_the_innermost_call() {
    let (_place, trace) = made();
    let rows = report::kernel(&trace, &Drive::default()).unwrap();
    let mut text = Vec::new();
    report::write_kernel(&rows, &mut text, 100).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        "entries function of the kernel in module",
        "2 vfs_read inner reads",
        "1 0xffffffff82000000 outer reads",
        "1 vfs_read outer reads",
        "3 vfs_read (no traced function) -",
    ];
    assert_eq!(
        lines.iter().map(|line| line.join(" ")).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_trace_without_them_says_how_to_record_them() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let writer = Writer::create(&path, Session::default()).unwrap();
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    let error = report::kernel(&trace, &Drive::default()).unwrap_err();
    assert!(error.to_string().contains("nopal record -k"), "{error}");
}

#[test]
fn they_are_lines_between_those_of_calls() {
    let (_place, trace) = made();
    let mut text = Vec::new();
    function(&trace, Excerpt::ALL, Look::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let own = text.lines().filter(|line| line.contains(":1000 "));
    let names = own.map(|line| line.split([' ', '+']).nth(3).unwrap());
    let expected = [
        "vfs_read", "outer", "vfs_read", "inner", "vfs_read", "vfs_read",
    ];
    assert_eq!(names.take(6).collect::<Vec<_>>(), expected, "{text}");
    let mut text = Vec::new();
    replay::replay(&trace, &replay::Look::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let inside = text.split("inner() {").nth(1).unwrap();
    let inside = inside.split("} /* inner */").next().unwrap();
    let notes = "/* kernel: vfs_read <-- ksys_read\u{fffd} */";
    assert_eq!(inside.matches(notes).count(), 2, "{text}");
    assert_eq!(
        text.matches(notes).count(),
        5,
        "not those of another thread"
    );
    assert!(text.contains("kernel: 0xffffffff82000000 <-- "), "{text}");
}

#[test]
fn they_are_moments_in_the_track_of_their_thread() {
    let (_place, trace) = made();
    let mut text = Vec::new();
    dump(&trace, Format::Chrome, &Drive::default(), &mut text).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |thread: u32, process: u32| {
        let moments = events.iter().filter(|event| event["ph"] == "i");
        moments
            .filter(|event| event["tid"] == thread && event["pid"] == process)
            .count()
    };
    assert_eq!(
        (of(THREAD, THREAD), of(0, 0)),
        (6, 1),
        "the other's is the processor's"
    );
}

/// A trampoline of BPF calls the rest of a function that has been entered: its exit has another slot.
#[test]
fn an_exit_in_the_kernel_ends_the_topmost_call_of_its_function_wherever_its_slot_is() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = Writer::create(&path, Session::default()).unwrap();
    for note in [
        Note::Image {
            image: 1,
            path: "kernel".into(),
            identity: String::new(),
        },
        Note::Sites {
            image: 1,
            sites: vec![
                (1, READ, 0x40, "vfs_read".into()),
                (2, UNNAMED, 0x40, "ksys_read".into()),
            ],
        },
        Note::Thread {
            process: THREAD,
            thread: THREAD,
            begin: 1000,
            name: "reads".into(),
            kernel: true,
        },
    ] {
        writer.note(&note).unwrap();
    }
    let mut recorder = Recorder::new(THREAD, THREAD, 1000);
    for clock in [2000, 3000] {
        recorder.entry(clock, 2, 0x9000);
        recorder.entry(clock + 100, 1, 0x8000);
        recorder.exit(clock + 200, 1, 0x7f80);
        recorder.exit(clock + 300, 2, 0x8f80);
    }
    recorder.end_chunk();
    recorder.write_full(&mut writer).unwrap();
    writer.sync_metadata().unwrap();
    let trace = Trace::open(&path).unwrap();
    let rows = report::functions(&trace, &Drive::default()).unwrap().rows;
    let told: Vec<_> = rows.iter().map(|row| (row.calls, row.unfinished)).collect();
    assert_eq!(told, [(2, 0), (2, 0)]);
}
