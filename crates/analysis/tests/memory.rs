//! The memory kept after reading.

use std::fs;
use std::path::Path;

use nopal_analysis::drive::Drive;
use nopal_analysis::dump::{Format, dump};
use nopal_analysis::report;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};

/// Kilobytes of the files in `directory` that this process has in memory.
fn mapped(directory: &Path) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let path = directory.to_str().unwrap();
    let mut inside = false;
    let mut sum = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Rss:") if inside => sum += words.next().unwrap().parse::<u64>().unwrap(),
            Some(word) if word.contains('-') => inside = line.contains(path),
            _ => {}
        }
    }
    sum
}

#[test]
fn a_trace_is_not_kept_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    let shape = Shape {
        threads: 2,
        calls_per_thread: 300_000,
        ..Shape::default()
    };
    synthetic::write(&path, &shape).unwrap();
    let trace = Trace::open(&path).unwrap();
    let after_open = mapped(&path);
    report::functions(&trace, &Drive::default()).unwrap();
    let after_report = mapped(&path);
    dump(
        &trace,
        Format::Devtrace,
        &Drive::default(),
        &mut std::io::sink(),
    )
    .unwrap();
    let found = [after_open, after_report, mapped(&path)];
    assert!(found.iter().all(|&kb| kb < 1024), "{found:?} of 9.6 MB");
}
