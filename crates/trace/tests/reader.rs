//! The reader finds everything that was written.

mod support;

use nopal_abi::*;
use nopal_trace::synthetic::{Recorder, Shape, Totals, Truth, write};
use nopal_trace::{Event, Note, Style, ThreadKey, Trace};
use support::*;

/// The claims of `synthetic::write`, worked out from the trace.
fn truth(trace: &Trace, functions: u32) -> Truth {
    let mut truth = Truth {
        functions: vec![Totals::default(); functions as usize + 1],
        ..Truth::default()
    };
    for thread in trace.threads() {
        let mut calls: Vec<(u32, u8, u64, u64)> = Vec::new();
        for record in thread.packets().flat_map(|packet| packet.records()) {
            truth.end = truth.end.max(record.clock);
            match record.event {
                Event::Entry {
                    site, tag, style, ..
                } => {
                    assert_eq!(style, Style::Wrapped);
                    calls.push((site, tag, record.clock, 0));
                }
                Event::Exit {
                    site, tag, unwound, ..
                } => {
                    let (entered, its_tag, begin, inside) = calls.pop().unwrap();
                    assert_eq!((site, tag, unwound), (entered, its_tag, false));
                    let duration = record.clock - begin;
                    if let Some(caller) = calls.last_mut() {
                        caller.3 += duration;
                    }
                    let totals = &mut truth.functions[site as usize];
                    totals.shortest = if totals.calls == 0 {
                        duration
                    } else {
                        totals.shortest.min(duration)
                    };
                    totals.longest = totals.longest.max(duration);
                    totals.calls += 1;
                    totals.total += duration;
                    totals.own += duration - inside;
                }
                Event::Resync { .. } => continue,
                Event::CallSite { .. }
                | Event::Marker { .. }
                | Event::ShortCalls { .. }
                | Event::Hole => {
                    panic!("no call")
                }
            }
            truth.events += 1;
        }
        assert_eq!(calls, []);
    }
    truth
}

#[test]
fn a_made_trace_holds_what_is_told_of_it() {
    for arguments in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let shape = Shape {
            seed: 5,
            calls_per_thread: 40_000,
            threads: 3,
            functions: 30,
            depth: 9,
            arguments,
            ..Shape::default()
        };
        let described = write(&path, &shape).unwrap();
        assert_eq!(described.events, 2 * 3 * 40_000);
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.damage(), []);
        assert_eq!(truth(&trace, shape.functions), described);
        trace
            .threads()
            .iter()
            .flat_map(|thread| thread.packets())
            .for_each(|packet| packet.release());
        assert_eq!(
            truth(&trace, shape.functions),
            described,
            "it is read again"
        );
        let span = described.end - (1 << 40);
        assert_eq!(trace.clocks().duration_ns(span), span);
        assert!(trace.is_complete());
        let names: Vec<&str> = trace.threads().iter().map(|thread| thread.name).collect();
        assert_eq!(names, ["thread 0", "thread 1", "thread 2"]);

        let again = place.path().join("again");
        assert_eq!(
            write(&again, &shape).unwrap(),
            described,
            "the same seed makes the same trace"
        );
        let records = |trace: &Trace| -> Vec<Vec<u64>> {
            trace
                .threads()
                .iter()
                .flat_map(|thread| thread.packets().map(|packet| packet.words().to_vec()))
                .collect()
        };
        assert_eq!(records(&Trace::open(&again).unwrap()), records(&trace));
        let other = Shape { seed: 6, ..shape };
        assert_ne!(write(&again, &other).unwrap(), described);
    }
}

#[test]
fn every_kind_of_record_is_decoded() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    let values = [1, 2, u64::MAX, 0, 1 << 63, 6];
    let (site, tag, slot) = (SITE_LIMIT - 1, 0xbc, 0xabc8);
    for (kind, clock) in (KIND_ENTRY..=KIND_PENDING_CALL_SITE).zip(BEGIN..) {
        let more = match kind {
            KIND_ENTRY_ARGS | KIND_TAIL_ARGS | KIND_ONLY_ARGS | KIND_PENDING_ARGS => &values[..],
            KIND_EXIT_RESULT | KIND_PENDING_RESULT => &values[2..3],
            KIND_CALL_SITE | KIND_PENDING_CALL_SITE => &values[4..5],
            _ => &[],
        };
        recorder.record(clock, kind, site, slot, more);
    }
    recorder.resync(BEGIN + 100, 0x7ffd_1238, RESYNC_JUMP);
    recorder.finish(&mut writer).unwrap();
    end(&mut writer, BEGIN + 1000);

    let trace = Trace::open(&path).unwrap();
    let threads = trace.threads();
    let events: Vec<Event> = threads[0]
        .packets()
        .flat_map(|packet| packet.records())
        .map(|record| record.event)
        .collect();
    let entry = |style, arguments| Event::Entry {
        site,
        tag,
        style,
        arguments,
    };
    let exit = |result, unwound| Event::Exit {
        site,
        tag,
        result,
        unwound,
    };
    let call_site = |return_address| Event::CallSite {
        site,
        tag,
        return_address,
    };
    let stack = 0x7ffd_0000_0000;
    let expected = [
        Event::Resync {
            slot,
            stack,
            reason: RESYNC_CHUNK,
        },
        entry(Style::Wrapped, None),
        exit(None, false),
        entry(Style::Tail, None),
        entry(Style::Only, None),
        entry(Style::Wrapped, Some(&values)),
        entry(Style::Tail, Some(&values)),
        entry(Style::Only, Some(&values)),
        exit(Some(u64::MAX), false),
        exit(None, true),
        entry(Style::Wrapped, None),
        exit(None, false),
        Event::Hole,
        call_site(Some(1 << 63)),
        call_site(None),
        Event::Resync {
            slot: 0x7ffd_1238,
            stack,
            reason: RESYNC_JUMP,
        },
    ];
    assert_eq!(events, expected);
}

#[test]
fn notes_are_found_by_what_they_tell_of() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main", "leaf"]);
    image(&mut writer, 2, "/lib/libz.so", 900_000, &["deflate"]);
    image(
        &mut writer,
        2,
        "/lib/libz.so",
        2,
        &["a number that is taken"],
    );
    let process = |name: &str, counter| Note::Process {
        process: 10,
        parent: 1,
        counter,
        name: name.into(),
        executable: format!("/bin/{name}"),
        arguments: vec![name.into(), "-x".into()],
    };
    writer.note(&process("sh", BEGIN)).unwrap();
    writer.note(&process("ls", BEGIN + 7)).unwrap();
    for name in ["first", "renamed"] {
        writer
            .note(&Note::Thread {
                process: 10,
                thread: 11,
                begin: BEGIN,
                name: name.into(),
                kernel: false,
            })
            .unwrap();
    }
    for events in [4, 3] {
        writer
            .note(&Note::Lost {
                process: 10,
                events,
                reasons: Default::default(),
            })
            .unwrap();
    }
    for (thread, begin) in [(11, BEGIN), (11, BEGIN + 500), (12, BEGIN)] {
        let mut recorder = Recorder::new(10, thread, begin);
        call(&mut recorder, begin, 1);
        recorder.finish(&mut writer).unwrap();
    }
    // Of two more processes, one has a note of its fork, the other none.
    for (process, parent, counter) in [(20, 10, BEGIN + 3), (20, 10, BEGIN + 9)] {
        writer
            .note(&Note::Process {
                process,
                parent,
                counter,
                name: String::new(),
                executable: String::new(),
                arguments: Vec::new(),
            })
            .unwrap();
    }
    let mut recorder = Recorder::new(30, 30, BEGIN + 5);
    call(&mut recorder, BEGIN + 5, 1);
    recorder.finish(&mut writer).unwrap();
    end(&mut writer, BEGIN + 2_000_000_000);

    let trace = Trace::open(&path).unwrap();
    let site = trace.site(2).unwrap();
    assert_eq!(
        (site.image, site.address, site.size, site.name),
        (1, 0x200, 0x80, "leaf")
    );
    assert_eq!(trace.site(900_000).unwrap().name, "deflate");
    assert_eq!(
        trace.image(trace.site(900_000).unwrap().image),
        Some("/lib/libz.so")
    );
    assert_eq!(
        (trace.site(3), trace.site(0), trace.image(3)),
        (None, None, None)
    );
    assert_eq!(
        trace.sites().map(|site| site.site).collect::<Vec<_>>(),
        [1, 2, 900_000]
    );
    let processes: Vec<_> = trace
        .processes()
        .into_iter()
        .map(|process| (process.process, process.executable, process.counter))
        .collect();
    assert_eq!(
        processes,
        [
            (10, "/bin/sh", BEGIN),
            (20, "/bin/sh", BEGIN + 3),
            (30, "", BEGIN + 5),
            (10, "/bin/ls", BEGIN + 7),
            (20, "/bin/ls", BEGIN + 9)
        ]
    );
    let threads: Vec<_> = trace
        .threads()
        .iter()
        .map(|thread| (thread.thread, thread.begin, thread.name))
        .collect();
    assert_eq!(
        threads,
        [
            (11, BEGIN, "renamed"),
            (11, BEGIN + 500, ""),
            (12, BEGIN, ""),
            (30, BEGIN + 5, "")
        ]
    );
    let key = ThreadKey {
        process: 10,
        thread: 12,
        begin: BEGIN,
    };
    assert_eq!(trace.threads()[2].packets().next().unwrap().thread(), key);
    assert_eq!(trace.lost(), 7);
    assert!(!trace.is_complete());
    assert_eq!(trace.session().command, ["/bin/program"]);
    assert_eq!(trace.session().uuid, trace.uuid().to_string());
    assert_eq!(
        trace.clocks().realtime_ns(BEGIN + 5),
        BEGIN + 5 + 1_700_000_000_000_000_000
    );
    assert_eq!(trace.clocks().frequency(), 1_000_000_000);
}

#[test]
fn a_bad_packet_is_left_out_and_the_next_ones_are_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for number in 0..5 {
        call(&mut recorder, BEGIN + number * 100, 1);
        recorder.end_chunk();
    }
    recorder.finish(&mut writer).unwrap();
    let stream = path.join("stream-0");
    let good = std::fs::read(&stream).unwrap();
    let packet = good.len() / 5;
    // Words of the header, each with its replacement.
    let faults = [
        (0, 0, "no packet header of this trace"),
        (1, 0, "no packet header of this trace"),
        (3, 1, "a packet whose first clock is not its header's"),
        (4, 1, "a packet that ends before it begins"),
        (5, 96 * 8 + 1, "an impossible packet size"),
        (5, u64::MAX << 6, "an impossible packet size"),
        (6, 64, "an impossible packet size"),
    ];
    for (word, value, what) in faults {
        let mut bad = good.clone();
        bad[2 * packet + word * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
        std::fs::write(&stream, &bad).unwrap();
        let trace = Trace::open(&path).unwrap();
        let damage: Vec<_> = trace
            .damage()
            .iter()
            .map(|damage| (damage.offset as usize, damage.what))
            .collect();
        assert_eq!(damage, [(2 * packet, what)]);
        assert_eq!(trace.damage()[0].file, stream);
        let threads = trace.threads();
        let missing: Vec<u64> = threads[0]
            .packets()
            .map(|packet| packet.missing_before())
            .collect();
        assert_eq!(missing, [0, 0, 1, 0], "{what}");
    }

    let mut swapped = good.clone();
    swapped[packet..3 * packet].rotate_left(packet);
    std::fs::write(&stream, &swapped).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(
        trace.damage()[0].what,
        "a packet that is earlier than the one before"
    );
    assert_eq!(trace.threads()[0].packets().len(), 4);
}

/// The packets of that process, and of no other.
#[test]
fn packets_are_cut_where_calls_were_unwrapped() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main", "called"]);
    for thread in [11, 12] {
        let mut recorder = Recorder::new(10, thread, BEGIN);
        for at in 0..10 {
            call(&mut recorder, BEGIN + 100 * at, 1 + at as u32 % 2);
        }
        recorder.finish(&mut writer).unwrap();
    }
    let mut other = Recorder::new(20, 21, BEGIN);
    call(&mut other, BEGIN + 600, 1);
    other.finish(&mut writer).unwrap();
    // The second is before all records, the third behind them, and the last is equal to a record's clock.
    for counter in [BEGIN + 550, BEGIN - 1000, BEGIN + 5000, BEGIN + 700] {
        let process = 10;
        writer.note(&Note::Unwrapped { process, counter }).unwrap();
    }
    end(&mut writer, BEGIN + 10_000);

    let trace = Trace::open(&path).unwrap();
    for thread in trace.threads() {
        let packets = thread.packets().map(|packet| {
            let clocks = packet.records().map(|record| record.clock - BEGIN);
            let calls: Vec<u64> = clocks.collect();
            let marks = (packet.clock_begin() - BEGIN, packet.clock_end() - BEGIN);
            assert!(calls[0] >= marks.0 && calls[calls.len() - 1] == marks.1);
            (packet.is_behind_unwrapping(), calls.len())
        });
        let packets: Vec<(bool, usize)> = packets.collect();
        match thread.process {
            10 => assert_eq!(packets, [(true, 13), (true, 2), (true, 6)]),
            _ => assert_eq!(packets, [(false, 3)]),
        }
    }
}

#[test]
fn packets_are_cut_where_recording_was_stopped_and_started() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for at in 0..10 {
        call(&mut recorder, BEGIN + 100 * at, 1);
    }
    recorder.finish(&mut writer).unwrap();
    let stopped = |after| Note::Stopped {
        counter: BEGIN + after,
    };
    let started = |after| Note::Started {
        counter: BEGIN + after,
    };
    // The first does not follow from anything, nor does the second stop of three.
    let notes = [
        started(5),
        stopped(205),
        stopped(220),
        started(450),
        stopped(520),
        started(530),
        stopped(540),
        started(550),
        stopped(905),
    ];
    for note in notes {
        writer.note(&note).unwrap();
    }
    end(&mut writer, BEGIN + 10_000);

    let trace = Trace::open(&path).unwrap();
    let threads = trace.threads();
    let packets = threads[0].packets().map(|packet| {
        let records = packet.records().count();
        (packet.is_stopped(), packet.stopped_before(), records)
    });
    let packets: Vec<(bool, u64, usize)> = packets.collect();
    // A RESYNC comes first.
    let expected = [
        (false, 0, 6),
        (true, 5, 5),
        (false, 40, 2),
        (false, 20, 7),
        (true, 5, 1),
    ];
    assert_eq!(packets, expected);
    let from = |after| BEGIN + after;
    let stops = [
        (from(205), Some(from(450))),
        (from(520), Some(from(530))),
        (from(540), Some(from(550))),
        (from(905), None),
    ];
    assert_eq!(nopal_trace::Losses::of(&trace).stops, stops);
}
