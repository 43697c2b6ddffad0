use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Identifies a version of a file without reading it: files with equal stamps are equal, unless the file was changed
/// twice within the resolution of its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub facts: u64,
    /// The time of its last change, in whole seconds since 1970.
    pub changed: i64,
}

impl Stamp {
    pub(crate) fn of(file: &Metadata) -> Stamp {
        let facts = [
            file.dev().cast_signed(),
            file.ino().cast_signed(),
            file.len().cast_signed(),
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ];
        let nothing = Stamp {
            facts: 0,
            changed: file.mtime().max(file.ctime()),
        };
        nothing.with(facts.map(i64::to_le_bytes).as_flattened())
    }

    pub(crate) fn with(self, bytes: &[u8]) -> Stamp {
        Stamp {
            facts: xxh3_64_with_seed(bytes, self.facts),
            ..self
        }
    }

    pub(crate) fn and(self, other: Stamp) -> Stamp {
        Stamp {
            changed: self.changed.max(other.changed),
            ..self.with(&other.facts.to_le_bytes())
        }
    }
}
