//! The packets of a trace, for a reader that need not look for them again.

use crate::index::Entry;
use crate::stream_file::StreamFile;
use serde::{Deserialize, Serialize};

/// The packets of each file of a trace.
#[derive(Default, Serialize, Deserialize)]
pub struct Packets(pub(crate) Vec<FilePackets>);

/// The packets of a file, and the end of the last whole one, in words.
#[derive(Serialize, Deserialize)]
pub(crate) struct FilePackets {
    pub name: String,
    pub packets: Vec<Entry>,
    pub whole: usize,
}

impl FilePackets {
    pub fn of(file: StreamFile) -> FilePackets {
        FilePackets {
            name: file.name,
            packets: file.packets,
            whole: file.whole,
        }
    }

    pub fn copy(file: &StreamFile) -> FilePackets {
        FilePackets {
            name: file.name.clone(),
            packets: file.packets.clone(),
            whole: file.whole,
        }
    }
}
