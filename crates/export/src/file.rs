//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

const BUFFER: usize = 1 << 18;

/// A file under way. Only its owner may read it, since a trace may hold secrets.
enum UnderWay {
    /// It has no name yet, so that nothing is left if nopal is killed.
    Nameless(File),
    /// Where the file system has no files without a name.
    Named(NamedTempFile),
    /// A device or a pipe, which is written to as it is.
    Device(File),
}

/// Writes the file `path`. If `write` fails, or the disk is full, an older file of that name stays as it was.
pub fn write<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let written = || -> Result<T> {
        let under_way = open(path)?;
        let file = match &under_way {
            UnderWay::Nameless(file) | UnderWay::Device(file) => file,
            UnderWay::Named(named) => named.as_file(),
        };
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let value = write(&mut out)?;
        out.flush()?;
        drop(out);
        finish(under_way, path)?;
        Ok(value)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn open(path: &Path) -> Result<UnderWay> {
    if let Ok(found) = fs::metadata(path)
        && !found.is_file()
    {
        return Ok(UnderWay::Device(File::options().write(true).open(path)?));
    }
    let directory = directory(path);
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(&directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(UnderWay::Nameless(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            Ok(UnderWay::Named(NamedTempFile::new_in(&directory)?))
        }
        Err(error) => Err(error.into()),
    }
}

fn finish(under_way: UnderWay, path: &Path) -> Result<()> {
    match under_way {
        UnderWay::Device(_) => {}
        UnderWay::Named(named) => {
            named.as_file().sync_data()?;
            named.persist(path)?;
        }
        UnderWay::Nameless(file) => {
            file.sync_data()?;
            // A link replaces nothing: it gets a name of its own, which is then renamed.
            let place = tempfile::Builder::new().make_in(directory(path), |name| {
                let from = format!("/proc/self/fd/{}", file.as_raw_fd());
                let linked = rustix::fs::linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW);
                linked.map_err(Into::into)
            })?;
            place.persist(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let failed = write(&path, |out| -> Result<()> {
            out.write_all(&[7; 1 << 20])?;
            assert_eq!(names(), 0);
            bail!("no more")
        });
        assert!(failed.is_err());
        assert_eq!(names(), 0);
        write(&path, |out| Ok(out.write_all(b"old")?)).unwrap();
        let failed = write(&path, |out| -> Result<()> {
            out.write_all(b"new")?;
            bail!("no more")
        });
        let message = format!("{:#}", failed.unwrap_err());
        assert!(message.contains("file: no more"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
