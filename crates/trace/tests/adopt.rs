//! A trace whose writer was killed is taken up by another one.

mod support;

use nopal_abi::CHUNK_BYTES;
use nopal_trace::synthetic::{Recorder, bytes_mut};
use nopal_trace::{Chunk, ChunkCursor, ChunkPhase, Event, Note, Session, Trace, Writer};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use support::*;

/// A thread whose chunks each hold one call, written as far as `chunks` tells.
fn thread(writer: &mut Writer, thread: u32, site: u32, chunks: u64) -> Recorder {
    let mut recorder = Recorder::new(10, thread, BEGIN);
    for number in 0..chunks {
        call(&mut recorder, BEGIN + number * 1000, site);
        recorder.lose(3);
    }
    recorder.write_full(writer).unwrap();
    recorder
}

#[test]
fn what_was_half_written_is_cut_off_and_the_rest_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut first = writer(&path, &["main", "leaf", "late"]);
    let mut recorders = [thread(&mut first, 11, 1, 2), thread(&mut first, 12, 2, 2)];
    first
        .note(&Note::Lost {
            process: 10,
            events: 12,
            reasons: Default::default(),
        })
        .unwrap();
    call(&mut recorders[1], BEGIN + 4000, 2);
    recorders[1].end_chunk();
    let chunk = recorders[1].take_full().remove(0);
    first.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
    drop(first);
    let notes = OpenOptions::new()
        .append(true)
        .open(path.join("session/notes"));
    notes
        .unwrap()
        .write_all(b"{\"type\":\"Clock\",\"coun")
        .unwrap();
    let stream = OpenOptions::new()
        .write(true)
        .open(path.join("stream-1"))
        .unwrap();
    stream
        .set_len(stream.metadata().unwrap().len() - 5)
        .unwrap();

    let torn = Trace::open(&path).unwrap();
    let damage: Vec<_> = torn.damage().iter().map(|damage| damage.what).collect();
    assert_eq!(
        damage,
        [
            "a line that is cut short",
            "a packet that is cut short",
            "an end that is cut short"
        ]
    );
    let events = |trace: &Trace| {
        trace.threads()[1]
            .packets()
            .map(|packet| packet.records().count())
            .sum::<usize>()
    };
    assert_eq!(events(&torn), 3 * 2, "all but the torn packet");
    drop(torn);

    let mut second = Writer::adopt(&path).unwrap();
    let outcome = second.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
    assert_eq!(
        outcome,
        Chunk::Written {
            events: 2,
            holes: 0,
            damage: 0,
            short: 0
        }
    );
    for (recorder, site) in recorders.iter_mut().zip([1, 3]) {
        call(recorder, BEGIN + 5000, site);
        recorder.end_chunk();
        assert_eq!(recorder.write_full(&mut second).unwrap(), 2);
    }
    second
        .note(&Note::End {
            counter: BEGIN + 6000,
            complete: false,
            why: "nopal was killed".into(),
        })
        .unwrap();
    end(&mut second, BEGIN + 7000);
    let files = ["session/notes", "stream-0", "stream-1"];
    let bytes: u64 = files
        .iter()
        .map(|file| path.join(file).metadata().unwrap().len())
        .sum();
    assert_eq!(second.bytes(), bytes);
    drop(second);

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.damage(), []);
    let packets: Vec<usize> = trace
        .threads()
        .iter()
        .map(|thread| thread.packets().len())
        .collect();
    assert_eq!(packets, [3, 4]);
    let missing = |thread: &nopal_trace::ThreadInfo| {
        thread
            .packets()
            .map(|packet| packet.missing_before())
            .sum::<u64>()
    };
    assert_eq!(trace.threads().iter().map(missing).sum::<u64>(), 0);
    assert_eq!(
        trace
            .threads()
            .iter()
            .map(|thread| thread.lost())
            .collect::<Vec<_>>(),
        [6, 6]
    );
    assert!(trace.notes().contains(&Note::Lost {
        process: 10,
        events: 12,
        reasons: Default::default(),
    }));
    assert!(!path.join("stream-2").exists(), "threads keep their files");

    let (lines, _) = babeltrace_with_warnings(&path);
    for name in ["\"main\"", "\"leaf\"", "\"late\""] {
        assert!(lines.iter().any(|line| line.contains(name)), "{name}");
    }
}

#[test]
fn a_chunk_that_was_written_is_not_written_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut first = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    call(&mut recorder, BEGIN, 1);
    recorder.end_chunk();
    call(&mut recorder, BEGIN + 100, 1);
    recorder.end_chunk();
    let chunks = recorder.take_full();
    let outcomes = |writer: &mut Writer| -> Vec<Chunk> {
        chunks
            .clone()
            .iter_mut()
            .map(|chunk| writer.chunk(bytes_mut(chunk), true).unwrap())
            .collect()
    };
    let written = Chunk::Written {
        events: 2,
        holes: 0,
        damage: 0,
        short: 0,
    };
    assert_eq!(
        first
            .chunk(bytes_mut(&mut chunks[0].clone()), true)
            .unwrap(),
        written
    );
    drop(first);
    let mut second = Writer::adopt(&path).unwrap();
    assert_eq!(outcomes(&mut second), [Chunk::Repeated, written]);
    drop(second);
    assert_eq!(
        outcomes(&mut Writer::adopt(&path).unwrap())[1],
        Chunk::Repeated
    );
}

/// A packet has fewer words than the part of the chunk that it was made of.
#[test]
fn a_chunk_goes_on_behind_what_was_left_out_of_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut first = writer(&path, &["main", "silent"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for number in 0..4 {
        call(&mut recorder, BEGIN + number * 100, 1 + number as u32 % 2);
    }
    let part = recorder.words().len();
    call(&mut recorder, BEGIN + 1000, 1);
    recorder.end_chunk();
    let chunk = recorder.take_full().remove(0);
    let mut grown = chunk.clone();
    grown[part..].fill(0);
    first.site_counts().silence(2, true, 0);
    let mut cursor = ChunkCursor::default();
    first
        .rest(bytes_mut(&mut grown), ChunkPhase::Growing, &mut cursor)
        .unwrap();
    drop(first);
    let mut second = Writer::adopt(&path).unwrap();
    second.chunk(bytes_mut(&mut chunk.clone()), true).unwrap();
    drop(second);
    let trace = Trace::open(&path).unwrap();
    let sites: Vec<u32> = trace.threads()[0]
        .packets()
        .flat_map(|packet| packet.records().collect::<Vec<_>>())
        .filter_map(|record| match record.event {
            Event::Entry { site, .. } => Some(site),
            _ => None,
        })
        .collect();
    assert_eq!(sites, [1, 1, 1]);
}

#[test]
fn only_a_trace_is_adopted() {
    let place = tempfile::tempdir().unwrap();
    assert!(Writer::adopt(place.path()).is_err());
    let path = place.path().join("trace");
    drop(writer(&path, &[]));
    std::fs::write(path.join("stream-3"), [0; CHUNK_BYTES]).unwrap();
    let error = Writer::adopt(&path).err().unwrap();
    assert!(format!("{error:#}").contains("stream-0"), "{error:#}");
}

/// Runs as two processes: one writes the trace until it is killed, the other one wants it.
#[test]
fn a_trace_that_is_being_written_is_left_alone() {
    const HELD: &str = "NOPAL_TEST_HELD_TRACE";
    if let Ok(path) = std::env::var(HELD) {
        let mut writer = writer(Path::new(&path), &["main"]);
        thread(&mut writer, 11, 1, 1);
        println!("\nheld");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_trace_that_is_being_written_is_left_alone",
            "--nocapture",
        ])
        .env(HELD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "held"));
    let errors = [
        Writer::create(&path, Session::default()).err(),
        Writer::adopt(&path).err(),
    ];
    holder.kill().unwrap();
    holder.wait().unwrap();
    for error in errors {
        let error = format!("{:#}", error.expect("it is held"));
        assert!(
            error.contains("is being written by another process"),
            "{error}"
        );
    }
    assert_eq!(
        Trace::open(&path).unwrap().threads().len(),
        1,
        "it can be read at any time"
    );
    Writer::adopt(&path).unwrap();
}
