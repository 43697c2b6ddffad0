//! The packets of a trace, for a reader that need not look for them again.

use crate::index::Entry;
use crate::mapping::Version;
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
    /// Of the file when they were read, if it can be told from any later one.
    pub version: Option<Version>,
}

impl FilePackets {
    pub fn of(file: StreamFile) -> FilePackets {
        FilePackets {
            version: file.file.version(),
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
            version: file.file.version(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Trace;
    use crate::synthetic::{self, Shape};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn known_packets_are_believed_until_their_file_is_written_to() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("trace");
        synthetic::write(&directory, &Shape::default()).unwrap();
        // All packets but the last, by which it is seen whether the files were read.
        let known = || {
            let mut packets = Trace::open(&directory).unwrap().packets();
            packets.0.iter_mut().for_each(|file| {
                file.packets.pop();
            });
            Trace::open_known(&directory, packets).unwrap()
        };
        let number = |trace: &Trace| {
            let threads = trace.threads();
            let packets = threads.iter().map(|thread| thread.packets().len());
            packets.sum::<usize>()
        };
        let all = number(&Trace::open(&directory).unwrap());
        std::thread::sleep(Duration::from_secs(4));
        assert!(number(&known()) < all, "nobody has written since");

        let trace = Trace::open(&directory).unwrap();
        let packets = trace.packets();
        let written = |stream: &Path, offset: u64, bytes: &[u8]| {
            let file = File::options().write(true).open(stream).unwrap();
            file.write_all_at(bytes, offset).unwrap();
        };
        written(&directory.join("stream-0"), 3000, &[0x5a; 2000]);
        let damaged = Trace::open_known(&directory, packets).unwrap();
        assert!(damaged.damage_count() > 0);
        assert_eq!(damaged.damage(), Trace::open(&directory).unwrap().damage());
    }
}
