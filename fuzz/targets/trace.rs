//! A trace directory with any bytes in each of its files.
//!
//! The input: for each of `session/notes`, `metadata`, `stream-0`, `stream-1`, `cpu-0` and `cpu-1` in turn, a length of
//! two bytes and the file. An empty session is replaced by a whole one, so that readers reach the streams.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use nopal_trace::synthetic::{self, Shape};
use std::fs;
use std::sync::OnceLock;

/// The files of a whole trace.
fn whole() -> &'static [(String, Vec<u8>)] {
    static WHOLE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let directory = common::Directory::new();
        let shape = Shape {
            threads: 2,
            calls_per_thread: 50,
            functions: 8,
            depth: 5,
            arguments: true,
            sleeps: 30,
            ..Shape::default()
        };
        synthetic::write(directory.path(), &shape).unwrap();
        [
            "session/notes",
            "metadata",
            "stream-0",
            "stream-1",
            "cpu-0",
            "cpu-1",
        ]
        .into_iter()
        .map(|name| (name.into(), fs::read(directory.path().join(name)).unwrap()))
        .collect()
    })
}

fuzz_target!(|data: &[u8]| {
    let whole = whole();
    let directory = common::Directory::new();
    fs::create_dir_all(directory.path().join("session")).unwrap();
    let mut input = common::Input(data);
    for (name, bytes) in whole {
        let length = usize::from(input.word());
        let changes = input.bytes(length & 0x7fff);
        let bytes = match length & 0x8000 {
            0 => common::patched(bytes, common::Input(changes)),
            _ => changes.to_vec(),
        };
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    common::read_trace(directory.path());
    // Records with wrong checksums are read, too.
    if synthetic::sum_again(directory.path()).is_ok() {
        common::read_trace(directory.path());
    }
});
