//! A selected part of a trace as a trace: a directory, or an archive of one.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nopal_analysis::drive::Drive;
use nopal_analysis::selection;
use nopal_trace::{Output, Trace, Unnamed};
use tempfile::TempDir;

/// The directory in an archive.
const NAME: &str = "nopal.data";

/// Writes the selected part of a trace to a directory that must not be there. It gets its name when it is whole;
/// `go_on` may end the work before, by an error: then nothing is left.
pub fn write_trace(
    trace: &Trace,
    drive: &Drive,
    directory: &Path,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    if fs::symlink_metadata(directory).is_ok() {
        bail!(
            "{} exists: a selection is written to a new directory",
            directory.display()
        );
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut write = || -> Result<()> {
        let place = temporary(parent)?;
        let output = Output::Directory(place.path().to_owned());
        selection::write(trace, drive, output, go_on)?;
        for file in files(place.path())? {
            File::open(place.path().join(file))?.sync_data()?;
        }
        go_on()?;
        fs::rename(place.path(), directory)?;
        // It is not there under this name any more.
        let _ = place.keep();
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", directory.display()))
}

/// Writes the same as an archive (`tar`). Its files are made beside the trace, or where temporary files are, without
/// names: whatever happens to nopal, nothing is left.
pub fn write_archive(trace: &Trace, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let beside = trace.directory().parent();
    let beside = beside.filter(|beside| tempfile::tempfile_in(beside).is_ok());
    let unnamed = Unnamed::new(beside.unwrap_or(&std::env::temp_dir()));
    let output = Output::Unnamed(unnamed.clone());
    selection::write(trace, drive, output, &mut || Ok(()))?;
    for directory in [NAME.to_owned(), format!("{NAME}/session")] {
        out.write_all(&header(&format!("{directory}/"), 0, 0o700, b'5')?)?;
    }
    for (name, mut file) in unnamed.take() {
        let length = file.metadata()?.len();
        file.rewind()?;
        let path = format!("{NAME}/{name}");
        out.write_all(&header(&path, length, 0o600, b'0')?)?;
        let copied = io::copy(&mut file, out)?;
        if copied != length {
            bail!("a file of the selection has changed");
        }
        let rest = length.next_multiple_of(BLOCK as u64) - length;
        out.write_all(&[0; BLOCK][..rest as usize])?;
    }
    Ok(out.write_all(&[0; 2 * BLOCK])?)
}

fn temporary(parent: &Path) -> Result<TempDir> {
    let place = tempfile::Builder::new()
        .prefix(".nopal-")
        .tempdir_in(parent);
    place.with_context(|| format!("cannot make a directory in {}", parent.display()))
}

/// The files of a trace, by their places in its directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![PathBuf::from("session/notes")];
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.file_name().into());
        }
    }
    files.sort_unstable();
    Ok(files)
}

const BLOCK: usize = 512;

/// The block before a file in an archive.
fn header(name: &str, length: u64, mode: u32, kind: u8) -> Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    if name.len() > 100 {
        bail!("{name:?} is too long for an archive");
    }
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    for owner in [108, 116] {
        put(owner, b"0000000");
    }
    // What does not fit in octal digits is binary.
    match length >> 33 {
        0 => put(124, format!("{length:011o}").as_bytes()),
        _ => {
            put(124, &[0x80, 0, 0, 0]);
            put(128, &length.to_be_bytes());
        }
    }
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::{self, Shape};
    use std::process::Command;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn made(place: &Path) -> Trace {
        let path = place.join("whole");
        let shape = Shape {
            calls_per_thread: 1000,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        Trace::open(&path).unwrap()
    }

    #[test]
    fn what_is_interrupted_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let trace = made(place.path());
        let mut calls = 0;
        let written = |end: usize, calls: &mut usize| {
            let mut go_on = || {
                *calls += 1;
                anyhow::ensure!(*calls < end, "interrupted");
                Ok(())
            };
            let part = place.path().join("part");
            write_trace(&trace, &Drive::default(), &part, &mut go_on)
        };
        written(usize::MAX, &mut calls).unwrap();
        assert!(Trace::open(&place.path().join("part")).is_ok());
        fs::remove_dir_all(place.path().join("part")).unwrap();
        for end in 1..=calls {
            let error = written(end, &mut 0).unwrap_err();
            assert!(format!("{error:#}").contains("interrupted"), "{error:#}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{end}");
        }
    }

    #[test]
    fn an_archive_holds_the_trace() {
        let place = tempfile::tempdir().unwrap();
        let trace = made(place.path());
        let mut archive = Vec::new();
        let progressed = AtomicUsize::new(0);
        let only_the_trace = |_, _| {
            progressed.fetch_add(1, Ordering::Relaxed);
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        };
        let drive = Drive {
            progress: Some(&only_the_trace),
            ..Drive::default()
        };
        write_archive(&trace, &drive, &mut archive).unwrap();
        assert!(progressed.into_inner() > 1);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        let file = place.path().join("archive");
        fs::write(&file, archive).unwrap();
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xf").arg(&file).arg("-C").arg(place.path());
        assert!(tar.status().unwrap().success());
        let found = Trace::open(&place.path().join(NAME)).unwrap();
        assert_eq!(found.threads().len(), trace.threads().len());
        assert_eq!(found.damage(), []);
    }

    #[test]
    fn files_of_any_length_have_a_header() {
        let block = |length| header("name", length, 0o600, b'0').unwrap();
        assert_eq!(&block(10)[124..136], b"00000000012\0");
        let long = 1 << 40;
        assert_eq!(block(long)[124], 0x80);
        assert_eq!(block(long)[128..136], long.to_be_bytes());
    }
}
