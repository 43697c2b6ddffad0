//! A file of a trace, mapped for reading.

use crate::directory;
use anyhow::{Context, Result};
use memmap2::{Mmap, UncheckedAdvice};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zerocopy::{FromBytes, IntoBytes};

/// The size that the kernel maps around a page that is read (`fault_around_bytes`), a multiple of any page size.
const AROUND: usize = 1 << 16;

pub struct Mapping {
    /// None when the file is empty.
    map: Option<Mmap>,
    path: PathBuf,
    version: Option<Version>,
}

/// The content of a file, by the kernel's account: a write changes the time of its last change. A store through a mapping
/// may not, if its page was to be written anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// A file that was changed so short a time ago may be changed again at the same time of its file system's clock, which
/// goes by the ticks of the kernel's, or by seconds: then its times are whole milliseconds.
const SETTLED: Duration = Duration::from_millis(50);
const SETTLED_BY_SECONDS: Duration = Duration::from_secs(3);

impl Version {
    /// None if a later version may look the same.
    fn of(about: &Metadata) -> Option<Version> {
        let changed = (about.ctime(), about.ctime_nsec());
        let since = Duration::new(changed.0.try_into().ok()?, changed.1.try_into().ok()?);
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since);
        let settled = match changed.1 % 1_000_000 {
            0 => SETTLED_BY_SECONDS,
            _ => SETTLED,
        };
        (age.ok()? > settled).then_some(Version {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            changed,
        })
    }
}

impl Mapping {
    pub fn open(path: &Path) -> Result<Mapping> {
        let context = || format!("cannot read {}", path.display());
        let file = directory::open(path)?;
        let about = file.metadata().with_context(context)?;
        let (path, version) = (path.to_owned(), Version::of(&about));
        if about.len() == 0 {
            return Ok(Mapping {
                map: None,
                path,
                version,
            });
        }
        // SAFETY: a trace is private to its owner, and its writer only appends to what a reader may see.
        let map = unsafe { Mmap::map(&file) }.with_context(context)?;
        Ok(Mapping {
            map: Some(map),
            path,
            version,
        })
    }

    /// The version of the file when it was opened, if it can be told from any later one.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The first byte from `offset` on that is not in a hole of the file, or the end.
    pub fn data_from(&self, offset: u64) -> u64 {
        self.seek(offset, SeekFrom::Data(offset))
    }

    /// The first byte from `offset` on that is in a hole, or the end.
    pub fn hole_from(&self, offset: u64) -> u64 {
        self.seek(offset, SeekFrom::Hole(offset))
    }

    /// Reads words of the file without mapping them; none if it cannot be opened again.
    pub fn reader(&self) -> Option<Reader> {
        directory::open(&self.path).ok().map(Reader)
    }

    fn seek(&self, offset: u64, to: SeekFrom) -> u64 {
        let end = self.bytes().len() as u64;
        // Mappings of many files are kept, and their descriptors not.
        let seek = |file: File| match rustix::fs::seek(&file, to) {
            Ok(found) => found,
            Err(Errno::NXIO) => end,
            Err(_) => offset,
        };
        let found = directory::open(&self.path).map_or(offset, seek);
        found.clamp(offset.min(end), end)
    }

    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// The whole words.
    pub fn words(&self) -> &[u64] {
        let bytes = self.bytes();
        let whole = &bytes[..bytes.len() / 8 * 8];
        <[u64]>::ref_from_bytes(whole).unwrap_or_default()
    }

    /// Releases the memory of these words, and of those mapped around them, for a reader that goes on to later words.
    /// Reading them again reads the file again.
    pub fn release(&self, words: Range<usize>) {
        let begin = (words.start * 8 / AROUND).saturating_sub(1) * AROUND;
        let end = self.bytes().len().min(words.end * 8) / AROUND * AROUND;
        if let Some(map) = &self.map
            && begin < end
        {
            // SAFETY: the file is mapped shared and read-only, so dropping its pages changes nothing that can be read.
            let advised = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, end - begin)
            };
            // The memory stays taken at worst.
            let _ = advised;
        }
    }
}

/// A file of a trace, read piece by piece.
pub struct Reader(File);

impl Reader {
    /// Fills `words` from a byte of the file on. Returns whether it has so many.
    pub fn read(&self, offset: u64, words: &mut [u64]) -> bool {
        self.0.read_exact_at(words.as_mut_bytes(), offset).is_ok()
    }
}
