//! The files that a new trace may replace, and those that it must not.

mod support;

use nopal_trace::synthetic::Recorder;
use nopal_trace::{Session, Trace, Writer};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use support::*;

fn make(path: &Path, process: u32) {
    recorded(&mut writer(path, &["main"]), process);
}

fn recorded(writer: &mut Writer, process: u32) {
    let mut recorder = Recorder::new(process, 1, BEGIN);
    call(&mut recorder, BEGIN, 1);
    recorder.finish(writer).unwrap();
    end(writer, BEGIN + 100);
}

fn process(path: &Path) -> u32 {
    Trace::open(path).unwrap().threads()[0].process
}

fn error(path: &Path) -> String {
    match Writer::create(path, Session::default()) {
        Ok(_) => panic!("{} was overwritten", path.display()),
        Err(error) => format!("{error:#}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_trace_is_private() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    make(&path, 1);
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("session")), 0o700);
    for file in ["metadata", "session/notes", "stream-0"] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
    let names: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn an_older_trace_is_moved_aside() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    for number in 1..=3 {
        make(&path, number);
    }
    assert_eq!(process(&path), 3);
    assert_eq!(process(&place.path().join("trace.old")), 2);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    make(&path.join(""), 4);
    assert_eq!(
        process(&place.path().join("trace.old")),
        3,
        "a slash at the end means the same"
    );
}

/// Nothing may have been recorded, as where the process has ended meanwhile.
#[test]
fn a_trace_that_is_not_kept_leaves_all_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let [old, older] = ["trace.old", "trace.old.old"].map(|name| place.path().join(name));
    let begin = || Writer::create_for_now(&path, Session::default()).unwrap();
    let count = || fs::read_dir(place.path()).unwrap().count();
    drop(begin());
    assert_eq!(count(), 0);
    make(&path, 1);
    drop(begin());
    assert_eq!((process(&path), count()), (1, 1));
    make(&path, 2);
    let mut writer = begin();
    assert_eq!((process(&old), process(&older)), (2, 1));
    recorded(&mut writer, 3);
    drop(writer);
    assert_eq!((process(&path), process(&old), count()), (2, 1, 2));
    let mut writer = begin();
    recorded(&mut writer, 3);
    writer.keep().unwrap();
    drop(writer);
    assert_eq!((process(&path), process(&old), count()), (3, 2, 2));

    // A nopal that was killed there left the older one.
    std::mem::forget(begin());
    assert_eq!((process(&old), process(&older)), (3, 2));
    make(&path, 4);
    assert_eq!(count(), 2);

    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    drop(Writer::create_for_now(&empty, Session::default()).unwrap());
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn an_empty_directory_is_used() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    make(place.path(), 1);
    assert_eq!(mode(place.path()), 0o700);
    assert_eq!(process(place.path()), 1);
}

#[test]
fn what_is_not_a_trace_is_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis"), "years of work").unwrap();
    assert!(error(&path).contains("is not a trace"), "{}", error(&path));

    fs::write(path.join("metadata"), "/* CTF 1.8 */\n").unwrap();
    assert!(error(&path).contains("is not a trace"), "no notes");

    fs::create_dir(path.join("session")).unwrap();
    fs::write(path.join("session/notes"), "").unwrap();
    fs::write(path.join("metadata"), "something else").unwrap();
    assert!(error(&path).contains("is not a trace"), "wrong metadata");
    fs::remove_file(path.join("metadata")).unwrap();
    symlink("/etc/passwd", path.join("metadata")).unwrap();
    assert!(
        error(&path).contains("is not a trace"),
        "metadata is a symbolic link"
    );
    assert_eq!(
        fs::read_to_string(path.join("thesis")).unwrap(),
        "years of work"
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);

    let file = place.path().join("file");
    fs::write(&file, "content").unwrap();
    assert!(error(&file).contains("not a directory"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
}

#[test]
fn symbolic_links_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (real, link) = (place.path().join("real"), place.path().join("link"));
    make(&real, 1);
    symlink(&real, &link).unwrap();
    assert!(error(&link).contains("symbolic link"));
    assert!(link.is_symlink());
    assert_eq!(process(&real), 1);
    symlink(place.path().join("nowhere"), place.path().join("dangling")).unwrap();
    assert!(error(&place.path().join("dangling")).contains("symbolic link"));
}

#[test]
fn what_lies_in_the_way_of_an_older_trace_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let (path, old) = (place.path().join("trace"), place.path().join("trace.old"));
    make(&path, 1);
    fs::write(&old, "a file").unwrap();
    assert!(error(&path).contains("is not a trace"));
    fs::remove_file(&old).unwrap();

    let elsewhere = place.path().join("elsewhere");
    make(&elsewhere, 7);
    symlink(&elsewhere, &old).unwrap();
    assert!(error(&path).contains("is not a trace"));
    assert_eq!(process(&elsewhere), 7);
    fs::remove_file(&old).unwrap();

    make(&old, 2);
    fs::write(old.join("stream-00"), "not a stream's name").unwrap();
    assert!(error(&path).contains("stream-00"));
    assert_eq!((process(&path), process(&old)), (1, 2));
    fs::remove_file(old.join("stream-00")).unwrap();
    fs::write(old.join("session/stream-1"), "not at its place").unwrap();
    assert!(error(&path).contains("session/stream-1"));
    fs::remove_file(old.join("session/stream-1")).unwrap();
    make(&path, 3);
    assert_eq!((process(&path), process(&old)), (3, 1));
}

#[test]
fn what_is_not_a_trace_is_not_read() {
    let place = tempfile::tempdir().unwrap();
    let error = |path: &Path| format!("{:#}", Trace::open(path).err().unwrap());
    assert!(error(&place.path().join("nothing")).contains("not a directory"));
    assert!(error(place.path()).contains("not a trace"));
    let path = place.path().join("trace");
    make(&path, 1);
    let notes = fs::read_to_string(path.join("session/notes")).unwrap();
    fs::write(
        path.join("session/notes"),
        notes.replacen("\"version\":2", "\"version\":3", 1),
    )
    .unwrap();
    assert!(error(&path).contains("version 3"), "{}", error(&path));
    fs::write(path.join("session/notes"), "").unwrap();
    assert!(error(&path).contains("empty"), "{}", error(&path));
    fs::write(path.join("session/notes"), notes).unwrap();
    fs::remove_file(path.join("stream-0")).unwrap();
    symlink("/dev/zero", path.join("stream-0")).unwrap();
    assert!(error(&path).contains("stream-0"), "{}", error(&path));
}
