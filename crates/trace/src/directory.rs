//! The trace directory: its files, and when one may be replaced.

use crate::metadata;
use anyhow::{Context, Result, bail};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, fcntl_lock};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const METADATA: &str = "metadata";
/// Becomes `metadata` by rename. Readers of CTF take every file for a stream, but for hidden ones.
pub const NEW_METADATA: &str = ".metadata.new";
/// In a directory of its own, for the same reason.
pub const SESSION: &str = "session/notes";
const SESSION_DIRECTORY: &str = "session";
/// The begin of notes; `#` is a digit of the checksum.
const NOTES_BEGINNING: &str = "[\"########\",0,{\"Session\":";
const STREAM: &str = "stream-";
/// A trace in a trace: the contents of a flight recorder at one moment.
const SNAPSHOT: &str = "snapshot-";
const PROCESSOR: &str = "cpu-";

pub fn stream_name(number: u32) -> String {
    format!("{STREAM}{number}")
}

pub fn stream_number(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix(STREAM)?.parse().ok()?;
    (stream_name(number).as_str() == name).then_some(number)
}

pub fn processor_name(number: u32) -> String {
    format!("{PROCESSOR}{number}")
}

pub fn processor_number(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix(PROCESSOR)?.parse().ok()?;
    (processor_name(number).as_str() == name).then_some(number)
}

/// Numbers count from 1.
pub fn snapshot_name(number: u32) -> String {
    format!("{SNAPSHOT}{number}")
}

fn snapshot_number(name: &OsStr) -> Option<u32> {
    let number = name.to_str()?.strip_prefix(SNAPSHOT)?.parse().ok()?;
    (snapshot_name(number).as_str() == name).then_some(number)
}

/// The snapshots of a flight recorder that lie in its trace, the oldest first.
pub fn snapshots(directory: &Path) -> Result<Vec<PathBuf>> {
    let named = |path: PathBuf| Some((snapshot_number(path.file_name()?)?, path));
    let mut found: Vec<_> = entries(directory)?.into_iter().filter_map(named).collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The numbers of the stream files of threads, in order.
pub fn streams(directory: &Path) -> Result<Vec<u32>> {
    numbers(directory, stream_number)
}

/// The numbers of the processors that have stream files, in order.
pub fn processors(directory: &Path) -> Result<Vec<u32>> {
    numbers(directory, processor_number)
}

fn numbers<N: Ord>(directory: &Path, number: fn(&OsStr) -> Option<N>) -> Result<Vec<N>> {
    let mut numbers = Vec::new();
    for entry in entries(directory)? {
        numbers.extend(entry.file_name().and_then(number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The content of a new trace's place.
enum Found {
    Nothing,
    Empty,
    Trace,
    /// The files that nopal leaves if it ends before a trace has begun.
    Unfinished,
}

/// Makes `directory` an empty one for a new trace. An older trace there becomes `DIRECTORY.old`, in place of another
/// older trace. Anything else is left as it is, and is an error.
pub fn prepare(directory: &Path) -> Result<Place> {
    let mut place = Place {
        directory: std::path::absolute(directory).context("there is no working directory")?,
        is_new: false,
        was_empty: false,
        moved: Vec::new(),
        is_kept: false,
    };
    match find(directory)? {
        Found::Nothing => {}
        Found::Empty => {
            fs::set_permissions(directory, Permissions::from_mode(0o700))
                .with_context(|| format!("cannot make {} private", directory.display()))?;
            (place.is_new, place.was_empty) = (true, true);
            return Ok(place);
        }
        Found::Trace => {
            let old = old_name(directory)?;
            if fs::symlink_metadata(&old).is_ok() {
                removable(&old)?;
                let older = old_name(&old)?;
                if fs::symlink_metadata(&older).is_ok() {
                    remove_old(&older)?;
                }
                place.rename(&old, older)?;
            }
            place.rename(directory, old)?;
        }
        Found::Unfinished => remove_unfinished(directory)?,
    }
    create(directory)?;
    place.is_new = true;
    Ok(place)
}

/// The place of a new trace. Unless that is kept, it is removed again, and the older traces are put back.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    /// Before, `directory` may be an older trace.
    is_new: bool,
    was_empty: bool,
    /// Older traces, from where they were to where they are.
    moved: Vec<(PathBuf, PathBuf)>,
    is_kept: bool,
}

impl Place {
    fn rename(&mut self, from: &Path, to: PathBuf) -> Result<()> {
        let context = || format!("cannot move {} to {}", from.display(), to.display());
        let absolute = |path| std::path::absolute(path).with_context(context);
        let moved = (absolute(from)?, absolute(&to)?);
        fs::rename(from, &to).with_context(context)?;
        self.moved.push(moved);
        Ok(())
    }

    /// Keeps the new trace, and removes all older ones but the last.
    pub fn keep(&mut self) -> Result<()> {
        self.is_kept = true;
        let moved = std::mem::take(&mut self.moved);
        match moved.as_slice() {
            [(_, oldest), _] => remove_old(oldest),
            _ => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // What cannot be removed stays, and what was there before stays beside it.
        if self.is_new
            && fs::remove_dir(&self.directory).is_err()
            && remove_old(&self.directory).is_err()
        {
            return;
        }
        if self.was_empty {
            let _ = create(&self.directory);
        }
        for (from, to) in self.moved.iter().rev() {
            let _ = fs::rename(to, from);
        }
    }
}

/// Fails if [`prepare`] would refuse. Changes nothing.
pub fn could_prepare(directory: &Path) -> Result<()> {
    let found = find(directory)?;
    if matches!(found, Found::Trace)
        && let old = old_name(directory)?
        && fs::symlink_metadata(&old).is_ok()
    {
        removable(&old)?;
        let older = old_name(&old)?;
        if fs::symlink_metadata(&older).is_ok() {
            removable(&older)?;
        }
    }
    let inner = matches!(found, Found::Empty);
    let parent = directory.parent().filter(|_| !inner);
    let place = if inner {
        directory
    } else {
        parent
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    };
    // The check uses the rights with which files are made.
    accessat(
        CWD,
        place,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )
    .with_context(|| format!("cannot create the directory {}", directory.display()))
}

fn find(directory: &Path) -> Result<Found> {
    let name = directory.display();
    let found = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        found => found.with_context(|| format!("cannot look at {name}"))?,
    };
    if found.is_symlink() {
        bail!("{name} is a symbolic link; a trace is not written through one");
    }
    if !found.is_dir() {
        bail!("{name} exists and is not a directory");
    }
    if entries(directory)?.is_empty() {
        return Ok(Found::Empty);
    }
    let is_trace = is_trace(directory)?;
    if !is_trace && !is_unfinished(directory) {
        bail!("{name} exists and is not a trace, so it is not overwritten");
    }
    if directory.join(SESSION).exists() && is_being_written(directory)? {
        bail!("the trace {name} is being written by another process");
    }
    Ok(if is_trace {
        Found::Trace
    } else {
        Found::Unfinished
    })
}

/// Whether nopal made `directory` and ended before there was a trace: it holds notes, or a directory for them, and
/// otherwise only incomplete metadata.
fn is_unfinished(directory: &Path) -> bool {
    let only = |place: &Path, known: &[&str]| {
        let known: Vec<PathBuf> = known.iter().map(|name| directory.join(name)).collect();
        entries(place).is_ok_and(|found| found.iter().all(|entry| known.contains(entry)))
    };
    let session = directory.join(SESSION_DIRECTORY);
    let is_directory = fs::symlink_metadata(&session).is_ok_and(|found| found.is_dir());
    let begins = |file: File| {
        let mut beginning = Vec::new();
        let read = file
            .take(NOTES_BEGINNING.len() as u64)
            .read_to_end(&mut beginning);
        let fits = |(byte, expected): (&u8, u8)| match expected {
            b'#' => byte.is_ascii_hexdigit(),
            expected => *byte == expected,
        };
        read.is_ok() && beginning.iter().zip(NOTES_BEGINNING.bytes()).all(fits)
    };
    let notes = directory.join(SESSION);
    is_directory
        && only(directory, &[SESSION_DIRECTORY, NEW_METADATA])
        && only(&session, &[SESSION])
        && (!notes.exists() || open(&notes).is_ok_and(begins))
}

/// Removes the files that [`is_unfinished`] has found, and nothing else.
fn remove_unfinished(directory: &Path) -> Result<()> {
    if !is_unfinished(directory) {
        bail!("{} must not be removed", directory.display());
    }
    let remove = || -> std::io::Result<()> {
        for file in [SESSION, NEW_METADATA] {
            match fs::remove_file(directory.join(file)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::remove_dir(directory.join(SESSION_DIRECTORY))?;
        fs::remove_dir(directory)
    };
    remove().with_context(|| format!("cannot remove {}", directory.display()))
}

fn create(directory: &Path) -> Result<()> {
    let create = DirBuilder::new().mode(0o700).create(directory);
    create.with_context(|| format!("cannot create the directory {}", directory.display()))
}

/// Creates the directory for notes.
pub fn create_session(directory: &Path) -> Result<()> {
    create(&directory.join(SESSION_DIRECTORY))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || {
        fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let entries: std::io::Result<_> = read();
    entries.with_context(|| format!("cannot read the directory {}", directory.display()))
}

/// Whether `directory` holds a trace: a `session` and a `metadata` with the right beginnings. An error: it is not
/// readable.
pub fn is_trace(directory: &Path) -> Result<bool> {
    let begins = |file: File| {
        let mut beginning = Vec::new();
        let read = file
            .take(metadata::BEGINNING.len() as u64)
            .read_to_end(&mut beginning);
        read.is_ok() && beginning == metadata::BEGINNING.as_bytes()
    };
    let [metadata, session] =
        [METADATA, SESSION].map(|name| unless_denied(open(&directory.join(name))));
    Ok(metadata?.is_some_and(begins) && session?.is_some())
}

fn unless_denied(opened: Result<File>) -> Result<Option<File>> {
    let denied = |error: &anyhow::Error| {
        let cause = error.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
    };
    match opened {
        Err(error) if denied(&error) => Err(error.context("the trace is not readable")),
        opened => Ok(opened.ok()),
    }
}

/// The path of the previous trace.
fn old_name(directory: &Path) -> Result<PathBuf> {
    let Some(name) = directory.file_name() else {
        bail!(
            "the trace {} has no name under which it could be kept",
            directory.display()
        );
    };
    let mut name = name.to_owned();
    name.push(".old");
    Ok(directory.with_file_name(name))
}

/// Removes a trace, when nothing else lies beside its files.
fn remove_old(old: &Path) -> Result<()> {
    let (directories, files) = removable(old)?;
    let remove = || {
        files.iter().try_for_each(fs::remove_file)?;
        directories.iter().try_for_each(fs::remove_dir)
    };
    remove().with_context(|| format!("cannot remove the older trace {}", old.display()))
}

/// The files of an older trace, if it may be removed.
fn removable(old: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let is_directory = fs::symlink_metadata(old).is_ok_and(|found| found.is_dir());
    if !is_directory || !is_trace(old)? && !is_unfinished(old) {
        bail!(
            "{} is in the way and is not a trace, so it is not overwritten",
            old.display()
        );
    }
    contents(old)
}

/// The directories of a trace, inner ones first, and its files. Anything else in it is an error.
fn contents(trace: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let session = trace.join(SESSION_DIRECTORY);
    let snapshots = snapshots(trace)?;
    let mut files = entries(trace)?;
    files.retain(|file| *file != session && !snapshots.contains(file));
    files.extend(entries(&session)?);
    let known = [METADATA, NEW_METADATA, SESSION].map(|name| trace.join(name));
    let is_stream = |file: &Path| {
        let is_named = |name| stream_number(name).is_some() || processor_number(name).is_some();
        file.parent() == Some(trace) && file.file_name().is_some_and(is_named)
    };
    let unknown = files
        .iter()
        .find(|file| !known.contains(file) && !is_stream(file));
    if let Some(file) = unknown {
        bail!(
            "{} does not belong to a trace, so {} is not overwritten",
            file.display(),
            trace.display()
        );
    }
    let mut directories = Vec::new();
    for snapshot in snapshots {
        ensure_directory(&snapshot)?;
        let (inner, its_files) = contents(&snapshot)?;
        directories.extend(inner);
        files.extend(its_files);
    }
    directories.extend([session, trace.to_owned()]);
    Ok((directories, files))
}

fn ensure_directory(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        _ => bail!("{} is no directory", path.display()),
    }
}

/// Whether the end of `metadata` is there, which other readers of the Common Trace Format need.
pub fn metadata_is_whole(directory: &Path) -> bool {
    let read = || -> Result<bool> {
        let mut end = [0; metadata::END.len()];
        let mut file = open(&directory.join(METADATA))?;
        file.seek(SeekFrom::End(-(metadata::END.len() as i64)))?;
        file.read_exact(&mut end)?;
        Ok(end == *metadata::END.as_bytes())
    };
    read().unwrap_or(false)
}

/// Opens a regular file to read, not through a symbolic link, and without waiting for another end of a pipe.
pub fn open(path: &Path) -> Result<File> {
    let context = || format!("cannot open {}", path.display());
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .with_context(context)?;
    if !file.metadata().with_context(context)?.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    Ok(file)
}

/// Creates a private file to write, or opens an existing one.
pub fn open_to_write(path: &Path, new: bool) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Marks the trace of this `session` file as being written, as long as this process has the file open. A child made
/// by fork does not hold the mark.
pub fn lock(session: &File) -> Result<bool> {
    match fcntl_lock(session, FlockOperation::NonBlockingLockExclusive) {
        // File systems without locks.
        Ok(()) | Err(Errno::NOLCK) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) => Ok(false),
        Err(error) => Err(error).context("cannot lock the trace's session file"),
    }
}

fn is_being_written(directory: &Path) -> Result<bool> {
    let session = open_to_write(&directory.join(SESSION), false)?;
    Ok(!lock(&session)?)
}

/// Whether another process is writing the trace, checked with read access only.
pub fn seems_written(directory: &Path) -> bool {
    let asked = |file: File| {
        // SAFETY: zeroes are a value of this structure of integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        // SAFETY: the descriptor is open, and the structure lives through the call.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
        done == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    };
    open(&directory.join(SESSION)).is_ok_and(asked)
}
