//! A file of a stream, as it was read.

use crate::index::Entry;
use crate::mapping::Mapping;

pub(crate) struct StreamFile {
    pub name: String,
    pub file: Mapping,
    pub packets: Vec<Entry>,
    /// The end of the last whole packet, in words.
    pub whole: usize,
}
