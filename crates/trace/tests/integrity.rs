//! Files of a trace that were overwritten, cut, taken away, mixed up or made to take time.
//!
//! `NOPAL_SEED` repeats a run.

mod support;

use nopal_trace::synthetic::{self, Random, Recorder, Shape};
use nopal_trace::{Note, ThreadKey, Trace};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use support::*;

const THREADS: u32 = 3;

fn made(place: &Path) -> PathBuf {
    let path = place.join("trace");
    let shape = Shape {
        threads: THREADS,
        calls_per_thread: 40_000,
        sleeps: 3000,
        ..Shape::default()
    };
    synthetic::write(&path, &shape).unwrap();
    path
}

fn seed() -> u64 {
    let given = std::env::var("NOPAL_SEED").ok();
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or(time);
    println!("NOPAL_SEED={seed}");
    seed
}

/// A packet as a reader gets it, and whether records are missing before it.
type Got = (ThreadKey, Vec<u64>, bool);

fn packets(trace: &Trace) -> Vec<Got> {
    let threads = trace.threads();
    let packets = threads.iter().flat_map(|thread| thread.packets());
    let packets = packets.map(|packet| {
        (
            packet.thread(),
            packet.words().to_vec(),
            packet.is_behind_loss(),
        )
    });
    packets.collect()
}

fn whats(trace: &Trace) -> Vec<&'static str> {
    trace.damage().iter().map(|damage| damage.what).collect()
}

/// The remaining packets are as they were written. Wherever some are left out between two packets of a thread, the
/// second one says so.
fn is_part_of(whole: &[Got], left: &[Got]) {
    let mut rest = whole.iter();
    for (thread, words, behind_loss) in left {
        let mut gap = false;
        let found = rest.by_ref().find(|(of, these, _)| {
            let is_it = of == thread && these == words;
            gap |= !is_it && of == thread;
            is_it
        });
        assert!(found.is_some(), "a packet that was never written");
        assert_eq!(*behind_loss, gap, "{thread:?}");
    }
}

#[test]
fn what_is_overwritten_is_left_out_and_told() {
    let mut random = Random::new(seed());
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let whole = packets(&Trace::open(&path).unwrap());
    assert_eq!(Trace::open(&path).unwrap().damage(), []);
    for round in 0..60 {
        let number = random.below(u64::from(THREADS));
        let file = path.join(format!("stream-{number}"));
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        let length = [1, 50, 50_000][round % 3];
        let at = random.below((good.len() - length) as u64) as usize;
        for byte in &mut bad[at..at + length] {
            *byte = byte.wrapping_add(1 + random.below(255) as u8);
        }
        fs::write(&file, &bad).unwrap();
        let trace = Trace::open(&path).unwrap();
        let left = packets(&trace);
        assert!(left.len() < whole.len() && left.len() + 3 >= whole.len());
        is_part_of(&whole, &left);
        assert!(!trace.damage().is_empty());
        assert!(trace.left_out() >= length as u64, "{}", trace.left_out());
        fs::write(&file, &good).unwrap();
    }
}

#[test]
fn each_bit_is_covered() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let shape = Shape {
        threads: 1,
        calls_per_thread: 20,
        sleeps: 5,
        ..Shape::default()
    };
    synthetic::write(&path, &shape).unwrap();
    let is_whole = || Trace::open(&path).is_ok_and(|trace| trace.damage().is_empty());
    assert!(is_whole());
    for name in ["stream-0", "cpu-0", "session/notes"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &bad).unwrap();
            assert!(!is_whole(), "{name}, bit {bit}");
        }
        fs::write(&file, [&good[..], b"\n"].concat()).unwrap();
        assert!(!is_whole(), "{name} with a line feed more");
        fs::write(&file, &good).unwrap();
    }
}

#[test]
fn events_of_processors_are_checked_too() {
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let file = path.join("cpu-1");
    let events = |trace: &Trace| trace.processors().nth(1).unwrap().events().count();
    let before = events(&Trace::open(&path).unwrap());
    let mut bytes = fs::read(&file).unwrap();
    bytes[1000] ^= 4;
    fs::write(&file, bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["a packet that does not match its checksum"]);
    let first = trace.processors().nth(1).unwrap().events().next().unwrap();
    assert!(events(&trace) < before);
    assert!(matches!(first.event, nopal_trace::KernelEvent::Lost { .. }));
}

#[test]
fn files_that_are_missing_cut_or_others_are_told() {
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let file = |number: u32| path.join(format!("stream-{number}"));
    let contents = [0, 1].map(|number| fs::read(file(number)).unwrap());
    let restore = || {
        for (number, content) in (0..).zip(&contents) {
            fs::write(file(number), content).unwrap();
        }
        assert_eq!(Trace::open(&path).unwrap().damage(), []);
    };

    fs::remove_file(file(1)).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["the file is missing"]);
    assert_eq!(trace.damage()[0].file, file(1));
    assert_eq!(trace.left_out(), contents[1].len() as u64);
    assert_eq!(trace.threads().len() as u32, THREADS, "all have names");
    restore();

    // At the end of a packet, so that nothing but the length tells.
    let bits = contents[1][48..56].try_into().unwrap();
    let packet = u64::from_le_bytes(bits) as usize / 8;
    fs::write(file(1), &contents[1][..packet]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["the end of the file is missing"]);
    assert_eq!(trace.left_out(), (contents[1].len() - packet) as u64);
    restore();

    let metadata = fs::read(path.join("metadata")).unwrap();
    fs::write(path.join("metadata"), &metadata[..metadata.len() / 2]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["the end of the file is missing"]);
    fs::write(path.join("metadata"), metadata).unwrap();

    fs::write(file(0), &contents[1]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(whats(&trace).contains(&"a packet that does not match its checksum"));
    assert_eq!(trace.threads()[0].packets().len(), 0);
    restore();

    fs::write(file(THREADS), &contents[1]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["a file that does not belong to this trace"]);
    fs::remove_file(file(THREADS)).unwrap();

    let twice = [&contents[1][..packet], &contents[1]].concat();
    fs::write(file(1), twice).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace).len(), 1);
    assert_eq!(trace.left_out(), packet as u64);
    restore();
}

/// A trace whose writer was killed may be longer than its notes tell, and not shorter.
#[test]
fn what_was_written_after_the_last_note_counts() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = writer(&path, &["main"]);
    let mut recorder = Recorder::new(10, 11, BEGIN);
    call(&mut recorder, BEGIN, 1);
    recorder.end_chunk();
    recorder.write_full(&mut writer).unwrap();
    writer.sync_metadata().unwrap();
    for (thread, clock) in [(11, BEGIN + 100), (12, BEGIN + 200)] {
        let mut other = Recorder::new(10, thread, BEGIN + u64::from(thread));
        call(&mut other, clock, 1);
        other.finish(&mut writer).unwrap();
    }
    drop(writer);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.damage(), []);
    assert_eq!(packets(&trace).len(), 3);
    let file = path.join("stream-0");
    let length = file.metadata().unwrap().len();
    let shorten = OpenOptions::new().write(true).open(&file).unwrap();
    shorten.set_len(length / 2 / 8 * 8).unwrap();
    assert_ne!(Trace::open(&path).unwrap().damage(), []);
}

#[test]
fn notes_that_were_changed_do_not_rename_functions() {
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let file = path.join("session/notes");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("function_7\""));
    fs::write(&file, text.replace("function_7\"", "function_8\"")).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(whats(&trace), ["a line that does not match its checksum"]);
    assert!(trace.site(7).is_none());
    assert!(
        trace
            .notes()
            .iter()
            .any(|note| matches!(note, Note::End { .. }))
    );
}

/// Nothing but holes, far longer than anything that could be read.
#[test]
fn holes_are_not_read() {
    const FAR: u64 = 100 << 30;
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let whole = packets(&Trace::open(&path).unwrap()).len();
    let file = path.join("stream-0");
    let stream = OpenOptions::new().write(true).open(&file).unwrap();
    let packet = fs::read(&file).unwrap();
    let length = packet.len() as u64;
    stream.set_len(FAR).unwrap();
    stream.write_all_at(&packet[..100], FAR / 2).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(packets(&trace).len(), whole);
    assert_eq!(trace.left_out(), FAR - length);
    stream.set_len(length).unwrap();

    let notes = path.join("session/notes");
    let described = notes.metadata().unwrap().len();
    let notes = OpenOptions::new().write(true).open(&notes).unwrap();
    notes.set_len(FAR).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(
        whats(&trace).contains(&"a hole in the notes"),
        "{:?}",
        trace.damage()
    );
    assert!(trace.is_complete() && trace.left_out() >= FAR - described - (1 << 20));
    assert_eq!(packets(&trace).len(), whole);
}

/// Each header says that all behind it is its packet: sums of all would take hours.
#[test]
fn packets_within_packets_do_not_take_for_ever() {
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let file = path.join("stream-0");
    let mut header = fs::read(&file).unwrap()[..96].to_vec();
    header[40..48].copy_from_slice(&(60_000u64 * 8).to_le_bytes());
    header[48..56].copy_from_slice(&(60_000u64 * 8).to_le_bytes());
    fs::write(&file, header.repeat(100_000)).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.left_out(), 9_600_000);
    // As many sums of 60,000 bytes as fit into the file 16 times, and not 100,000.
    assert!(trace.damage_count() < 3000, "{}", trace.damage_count());
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    for name in ["stream-0", "cpu-0", "session/notes", "metadata"] {
        let path = made(place.path());
        let file = path.join(name);
        let refuse = |make: &dyn Fn()| {
            fs::remove_file(&file)
                .or_else(|_| fs::remove_dir(&file))
                .unwrap();
            make();
            assert!(Trace::open(&path).is_err(), "{name}");
        };
        refuse(&|| {
            let made = std::process::Command::new("mkfifo").arg(&file).status();
            assert!(made.unwrap().success());
        });
        refuse(&|| symlink("/dev/zero", &file).unwrap());
        refuse(&|| symlink(place.path(), &file).unwrap());
        refuse(&|| fs::create_dir(&file).unwrap());
        fs::remove_dir_all(&path).unwrap();
    }
}

/// One that is ended holds files of any names; they are no reason to open them.
#[test]
fn many_files_of_others_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    for number in 10..20_010 {
        fs::write(path.join(format!("stream-{number}")), "?").unwrap();
    }
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.damage_count(), 20_000);
    assert_eq!(trace.damage().len(), 100);
    assert!(!packets(&trace).is_empty());
}

/// The test runs itself as a user who may not read the trace.
#[test]
fn what_may_not_be_read_is_told_so() {
    const ASKED: &str = "NOPAL_TEST_DENIED_TRACE";
    if let Ok(path) = std::env::var(ASKED) {
        // SAFETY: a system call; where one is no user who may, one is already one who may not.
        unsafe { libc::setresuid(65534, 65534, 65534) };
        let path = Path::new(&path);
        let read = Trace::open(path).err().unwrap();
        let written = nopal_trace::Writer::create(path, Default::default())
            .err()
            .unwrap();
        for error in [read, written] {
            let error = format!("{error:#}");
            assert!(error.contains("Permission denied"), "{error}");
            assert!(!error.contains("is not a trace"), "{error}");
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path());
    let mode =
        |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(place.path(), 0o755);
    let denied = [
        (path.clone(), 0o644),
        (path.clone(), 0o000),
        (path.join("session"), 0o000),
        (path.join("metadata"), 0o000),
        (path.join("session/notes"), 0o000),
    ];
    for (what, none) in &denied {
        mode(&path, 0o755);
        mode(what, *none);
        let asked = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "what_may_not_be_read_is_told_so"])
            .env(ASKED, &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&asked.stdout);
        mode(what, 0o755);
        assert!(asked.status.success(), "{}: {text}", what.display());
    }
}
