//! A disk that is full. A test program of its own, since the limit that stands for it holds for a whole process.

mod support;

use nopal_trace::synthetic::{Recorder, bytes_mut};
use nopal_trace::{Chunk, Note, Trace, Writer};
use support::*;

/// Limits the size of files that this process writes.
fn limit(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

fn records(trace: &Trace) -> usize {
    trace.threads()[0]
        .packets()
        .map(|packet| packet.records().count())
        .sum()
}

#[test]
fn what_does_not_fit_is_taken_back_and_may_be_tried_again() {
    // SAFETY: ignoring a signal needs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    for number in 0..20_000 {
        call(&mut recorder, BEGIN + number * 20, 1);
    }
    let mut chunks = recorder.take_full();
    assert!(chunks.len() > 3);
    let mut failed = Vec::new();
    limit(150_000);
    for (index, chunk) in chunks.iter_mut().enumerate() {
        let before = chunk.clone();
        if let Err(error) = writer.chunk(bytes_mut(chunk), true) {
            assert!(Writer::is_full(&error), "{error:#}");
            assert_eq!(*chunk, before, "a chunk that was not written is as it was");
            failed.push(index);
        }
    }
    assert_eq!(failed, (2..chunks.len()).collect::<Vec<_>>());
    let notes = std::fs::read(path.join("session/notes")).unwrap();
    limit(notes.len() as u64 + 10);
    let name = "a long name ".repeat(100);
    let note = Note::Thread {
        process: 10,
        thread: 11,
        begin: BEGIN,
        name,
        kernel: false,
    };
    assert!(Writer::is_full(&writer.note(&note).unwrap_err()));
    assert_eq!(std::fs::read(path.join("session/notes")).unwrap(), notes);
    limit(100);
    let error = writer.sync_metadata().unwrap_err();
    assert!(Writer::is_full(&error), "{error:#}");
    limit(libc::RLIM_INFINITY);

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.damage(), []);
    assert_eq!(trace.threads()[0].packets().len(), 2);
    assert_eq!(babeltrace(&path).len(), records(&trace));
    drop(trace);

    for index in failed {
        let outcome = writer.chunk(bytes_mut(&mut chunks[index]), true).unwrap();
        assert!(matches!(outcome, Chunk::Written { .. }));
    }
    writer.note(&note).unwrap();
    end(&mut writer, BEGIN + 1_000_000);
    assert!(!Writer::is_full(&anyhow::anyhow!("something else")));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.threads()[0].packets().len(), chunks.len());
    assert_eq!(
        trace.threads()[0]
            .packets()
            .map(|packet| packet.missing_before())
            .sum::<u64>(),
        0
    );
    assert_eq!(babeltrace(&path).len(), records(&trace));
}
