//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// A file under way. Only its owner may read it, since a trace may hold secrets.
pub struct WholeFile(UnderWay);

enum UnderWay {
    /// It has no name yet, so that nothing is left if nopal is killed.
    Nameless(File),
    /// For file systems without nameless files.
    Named(NamedTempFile),
    /// A device or a pipe, which is written to as it is.
    Device(File),
}

impl WholeFile {
    /// Opens a file that [`Self::finish`] may name `path`. Until then an older file of that name stays as it was.
    pub fn open(path: &Path) -> Result<WholeFile> {
        if let Ok(found) = fs::metadata(path)
            && !found.is_file()
        {
            let device = File::options().write(true).open(path)?;
            return Ok(WholeFile(UnderWay::Device(device)));
        }
        WholeFile::open_in(&directory(path))
    }

    /// A file that gets a name on the file system of a directory.
    pub fn open_in(directory: &Path) -> Result<WholeFile> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let under_way = match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => UnderWay::Nameless(file.into()),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                UnderWay::Named(NamedTempFile::new_in(directory)?)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(WholeFile(under_way))
    }

    pub fn file(&self) -> &File {
        match &self.0 {
            UnderWay::Nameless(file) | UnderWay::Device(file) => file,
            UnderWay::Named(named) => named.as_file(),
        }
    }

    /// Gives it its name, once all of it is on the disk.
    pub fn finish(self, path: &Path) -> Result<()> {
        match self.0 {
            UnderWay::Device(_) => {}
            UnderWay::Named(named) => {
                named.as_file().sync_data()?;
                named.persist(path)?;
            }
            UnderWay::Nameless(file) => {
                file.sync_data()?;
                // A link cannot replace a file, so it gets a name of its own, which is then renamed.
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
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
