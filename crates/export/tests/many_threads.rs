//! An archive of a trace has more files than a process may have open at first. The limit is the process's: this test is
//! alone in its own.

use nopal_analysis::drive::Drive;
use nopal_export::write_archive;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn an_archive_of_many_threads_is_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("whole");
    let shape = Shape {
        threads: 150,
        calls_per_thread: 10,
        ..Shape::default()
    };
    synthetic::write(&path, &shape).unwrap();
    let trace = Trace::open(&path).unwrap();
    let limit = |soft, hard| {
        let (current, maximum) = (Some(soft), Some(hard));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(4096);
    limit(64, hard);
    let mut archive = Vec::new();
    write_archive(&trace, &Drive::default(), &mut archive).unwrap();
    assert!(archive.len() > 150 * 1024);
    limit(64, 64);
    let mut archive = Vec::new();
    let error = write_archive(&trace, &Drive::default(), &mut archive).unwrap_err();
    assert!(format!("{error:#}").contains("Too many open files"));
    assert!(archive.is_empty());
}
