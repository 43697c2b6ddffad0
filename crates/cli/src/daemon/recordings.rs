//! The recordings of a service on the disk: a trace each, named after its begin, `2026-11-26T15-04-05`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nopal_analysis::sort;
use nopal_analysis::text::date;
use nopal_trace::{Note, Trace};
use rustix::process::{Pid, Signal, kill_process};

/// A snapshot that has not changed for so long is not being written.
const STILL: Duration = Duration::from_secs(60);
const SNAPSHOT: &str = "snapshot-";

/// The directory of a recording that begins now.
pub fn name_now(directory: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = date(now.unwrap_or_default().as_nanos() as u64);
    let name = now.replace(" UTC", "").replace(' ', "T").replace(':', "-");
    directory.join(name)
}

/// Whether a recording can have this name.
fn is_name(name: &str) -> bool {
    let pattern = "dddd-dd-ddTdd-dd-dd";
    let fits = |(letter, expected): (char, char)| match expected {
        'd' => letter.is_ascii_digit(),
        other => letter == other,
    };
    name.len() == pattern.len() && name.chars().zip(pattern.chars()).all(fits)
}

/// The recording of a service that began last.
pub fn last(directory: &Path) -> Option<PathBuf> {
    let all = below(directory).into_iter();
    let all = all.filter(|(name, _)| is_name(name));
    all.max().map(|(_, path)| path)
}

/// Whether the nopal of a recording was killed.
pub fn is_cut_off(trace: &Trace) -> bool {
    let end = trace.notes().iter().rev().find_map(|note| match note {
        Note::End { why, .. } => Some(why),
        _ => None,
    });
    !trace.is_growing() && end.is_none_or(|why| why == Note::KILLED)
}

/// Has all recordings end that go on in a directory of services, of a daemon that is no more. Does not wait.
pub fn end_all(directory: &Path) {
    let Ok(directory) = directory.canonicalize() else {
        return;
    };
    for tool in nopal_serve::tools() {
        let trace = trace_of(tool).unwrap_or_default();
        let is_ours = trace
            .file_name()
            .is_some_and(|name| name.to_str().is_some_and(is_name))
            && trace.starts_with(&directory);
        let tool = Pid::from_raw(tool).filter(|_| is_ours);
        if let Some(tool) = tool {
            let _ = kill_process(tool, Signal::INT);
        }
    }
}

/// The directory that a `nopal attach` of a daemon records into.
fn trace_of(tool: i32) -> Option<PathBuf> {
    let process = Path::new("/proc").join(tool.to_string());
    let words = fs::read(process.join("cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0).skip(1);
    let begin = [words.next()?, words.next()?];
    let trace = Path::new(OsStr::from_bytes(words.next()?));
    let there = process.join("cwd").read_link().ok()?;
    (begin == [b"attach".as_slice(), b"-o"]).then(|| there.join(trace).canonicalize().ok())?
}

/// A recording that has ended, or a snapshot of one that goes on.
struct Kept {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

/// Removes recordings and snapshots that have not changed for `keep_for`, and the oldest while all would have more than
/// `keep` bytes if one had `most`: `running`, or the next one. `running` goes on, and stays; of it, snapshots go while
/// all have more than `keep` as they are. Returns the bytes that remain, and errors of removal.
pub fn limit(
    directory: &Path,
    running: Option<&Path>,
    keep: u64,
    keep_for: Duration,
    most: u64,
) -> (u64, Vec<String>) {
    let mut kept: Vec<Kept> = Vec::new();
    let (mut all, mut of_running) = (0, 0);
    for (name, path) in below(directory) {
        if !is_name(&name) {
            continue;
        }
        if Some(path.as_path()) != running {
            kept.extend(measured(path));
            continue;
        }
        let (snapshots, others): (Vec<_>, Vec<_>) = below(&path)
            .into_iter()
            .partition(|(name, _)| name.starts_with(SNAPSHOT));
        all += others
            .into_iter()
            .map(|(_, path)| bytes(&path))
            .sum::<u64>();
        let snapshots = snapshots.into_iter().filter_map(|(_, path)| measured(path));
        let snapshots: Vec<Kept> = snapshots.collect();
        of_running = all + snapshots.iter().map(|one| one.bytes).sum::<u64>();
        kept.extend(snapshots);
    }
    let room = most.saturating_sub(of_running);
    sort::by_key(&mut kept, |one| one.changed);
    all += kept.iter().map(|one| one.bytes).sum::<u64>();
    let now = SystemTime::now();
    let mut stays = Vec::new();
    for Kept {
        path,
        bytes,
        changed,
    } in kept
    {
        let age = now.duration_since(changed).unwrap_or_default();
        let is_running = running.is_some_and(|running| path.starts_with(running));
        let room = if is_running { 0 } else { room };
        let goes = age > keep_for || all.saturating_add(room) > keep;
        if !goes || is_running && age < STILL {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => all -= bytes,
            Err(error) => stays.push(format!("cannot remove {}: {error}", path.display())),
        }
    }
    (all, stays)
}

fn below(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named =
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    named.collect()
}

fn measured(path: PathBuf) -> Option<Kept> {
    let facts = fs::symlink_metadata(&path).ok()?;
    let session = fs::symlink_metadata(path.join("session/notes"));
    let changed = session
        .and_then(|notes| notes.modified())
        .or_else(|_| facts.modified());
    facts.is_dir().then_some(Kept {
        bytes: bytes(&path),
        changed: changed.ok()?,
        path,
    })
}

/// The bytes of all files below a path. Links are not followed.
fn bytes(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => below(path).iter().map(|(_, path)| bytes(path)).sum(),
        Ok(facts) => facts.len(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `bytes` that was changed `seconds` ago.
    fn put(path: &Path, bytes: usize, seconds: u64) {
        fs::create_dir_all(path.join("session")).unwrap();
        let notes = path.join("session/notes");
        fs::write(&notes, vec![0; bytes]).unwrap();
        let when = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::options()
            .write(true)
            .open(notes)
            .unwrap()
            .set_modified(when)
            .unwrap();
    }

    #[test]
    fn the_oldest_go_first_and_nothing_else_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let running = at("2026-11-26T00-00-00");
        put(&at("2026-11-25T00-00-00"), 100, 5000);
        put(&at("2026-11-25T01-00-00"), 100, 4000);
        put(&at("somebody's"), 1000, 9000);
        put(&running, 50, 0);
        put(&running.join("snapshot-1"), 100, 3000);
        put(&running.join("snapshot-2"), 100, 1);
        let limit_for = |running: Option<&PathBuf>, keep, seconds, most| {
            let running = running.map(PathBuf::as_path);
            let (all, stays) = limit(
                directory.path(),
                running,
                keep,
                Duration::from_secs(seconds),
                most,
            );
            assert_eq!(stays, [""; 0]);
            all
        };
        let limit = |running, keep, seconds| limit_for(running, keep, seconds, 0);
        assert_eq!(limit(Some(&running), 450, 10_000), 450);
        assert_eq!(limit(Some(&running), 449, 10_000), 350);
        assert!(!at("2026-11-25T00-00-00").exists() && at("2026-11-25T01-00-00").exists());
        assert_eq!(limit(Some(&running), 10_000, 3500), 250);
        assert_eq!(limit(Some(&running), 200, 10_000), 150);
        // A recording that goes on, and a snapshot that is being written, stay.
        assert_eq!(limit(Some(&running), 0, 0), 150);
        assert!(running.join("snapshot-2").exists() && at("somebody's").exists());
        assert_eq!(limit(None, 0, 0), 0);
    }

    /// One that goes on may grow, and the next one begins.
    #[test]
    fn there_is_room_for_the_recording_that_goes_on_or_begins() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let running = at("2026-11-26T00-00-00");
        put(&at("2026-11-25T00-00-00"), 100, 5000);
        put(&at("2026-11-25T01-00-00"), 100, 4000);
        put(&running, 50, 0);
        put(&running.join("snapshot-1"), 100, 3000);
        let left = |running: Option<&Path>, most| {
            let hour = Duration::from_secs(3600);
            limit(directory.path(), running, 400, 10 * hour, most).0
        };
        // It has 150 bytes already.
        assert_eq!(left(Some(&running), 200), 350);
        assert_eq!(left(Some(&running), 201), 250);
        assert!(running.join("snapshot-1").exists());
        // The recording that went on is over, too.
        assert_eq!(left(None, 150), 250);
        assert_eq!(left(None, 200), 150);
        assert!(!at("2026-11-25T01-00-00").exists() && running.exists());
    }

    #[test]
    fn names_tell_when_a_recording_began() {
        let path = name_now(Path::new("a"));
        assert!(is_name(path.file_name().unwrap().to_str().unwrap()));
        for name in [
            "",
            "2026-11-25",
            "2026-11-25T00:00:00",
            "2026-11-25T00-00-0x",
            "é026-11-25T00-00-0",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
