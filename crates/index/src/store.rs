//! The index as a file beside the trace.
//!
//! It holds the version, the length of a head, checksums of the head and of the rest, the head by `postcard`, and parts of
//! the index that are decoded when they are needed. An index of another version, of another trace or of an earlier state of this one is not used, nor one
//! whose parts do not fit together.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nopal_trace::{Packets, Trace};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::part::Parts;
use crate::thread_index::ThreadIndex;

/// Changes whenever an index is made or written differently.
const VERSION: &[u8; 8] = b"nopal-xa";

const HEADER: usize = 32;

/// The file, among those of the trace's directory that do not belong to CTF.
const FILE: &str = "session/index";

/// The state of the trace that an index was made from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    uuid: u128,
    notes: u64,
    /// For each thread: packets, the words in them, and the counter at the last record.
    threads: Vec<(u64, u64, u64)>,
}

impl Origin {
    fn of(trace: &Trace) -> Origin {
        let threads = trace.threads().into_iter().map(|thread| {
            let packets = thread.packets();
            let words = packets.clone().map(|packet| packet.words().len() as u64);
            let last = packets.clone().next_back();
            let end = last.map_or(0, |packet| packet.clock_end());
            (packets.len() as u64, words.sum(), end)
        });
        Origin {
            uuid: trace.uuid().as_u128(),
            notes: trace.notes().len() as u64,
            threads: threads.collect(),
        }
    }
}

pub fn path(trace: &Trace) -> PathBuf {
    trace.directory().join(FILE)
}

/// What precedes the parts.
#[derive(Serialize, Deserialize)]
struct Head<Packets, Threads> {
    origin: Origin,
    /// The packets of an undamaged trace.
    packets: Option<Packets>,
    threads: Threads,
    /// The lengths of the parts, in the order of the threads.
    lengths: Vec<u32>,
}

const DAMAGED: &str = "damaged, or of another version";

/// The file, up to the end of its head.
struct Opened {
    file: File,
    head: Vec<u8>,
    /// Of the parts.
    sum: Sum,
}

impl Opened {
    fn new(directory: &Path) -> Result<Opened> {
        let mut file = File::options()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(directory.join(FILE))?;
        ensure!(file.metadata()?.is_file(), "not a file");
        let mut words = [Sum::default(); HEADER / 8];
        file.read_exact(words.as_flattened_mut())?;
        let [version, length, head_sum, sum] = words;
        let length = u64::from_le_bytes(length);
        ensure!(version == *VERSION, DAMAGED);
        let mut head = Vec::new();
        (&file).take(length).read_to_end(&mut head)?;
        ensure!(
            head.len() as u64 == length && self::sum(&head) == head_sum,
            DAMAGED
        );
        Ok(Opened { file, head, sum })
    }
}

/// The packets of an undamaged trace, as the index in its directory names them. The rest of the index is not read.
pub fn packets(directory: &Path) -> Result<Packets> {
    let head = Opened::new(directory)?.head;
    // The first fields of [`Head`].
    let ((_, packets), _): ((Origin, Option<Packets>), _) = postcard::take_from_bytes(&head)?;
    packets.context("of a damaged trace")
}

/// An index that was read from its file.
pub struct Kept {
    origin: Origin,
    /// The packets of the trace, if it was not damaged.
    pub packets: Option<Packets>,
    threads: Vec<ThreadIndex>,
}

impl Kept {
    /// The index in the directory of a trace.
    pub fn read(directory: &Path) -> Result<Kept> {
        let Opened {
            mut file,
            head,
            sum,
        } = Opened::new(directory)?;
        let mut parts = Vec::new();
        file.read_to_end(&mut parts)?;
        ensure!(sum == self::sum(&parts), DAMAGED);
        let Head {
            origin,
            packets,
            mut threads,
            lengths,
        }: Head<Packets, Vec<ThreadIndex>> = postcard::from_bytes(&head)?;
        let mut parts = Parts::new(parts, 0, lengths);
        let taken = threads
            .iter_mut()
            .try_for_each(|thread| thread.take_parts(&mut parts));
        ensure!(
            taken.is_some() && parts.is_over(),
            "parts that are cut short"
        );
        Ok(Kept {
            origin,
            packets,
            threads,
        })
    }

    /// Its threads, if they are those of a trace.
    pub fn of(self, trace: &Trace) -> Result<Vec<ThreadIndex>> {
        ensure!(self.origin == Origin::of(trace), "of another trace");
        let infos = trace.threads();
        let mut both = self.threads.iter().zip(&infos);
        ensure!(
            self.threads.len() == infos.len() && both.all(|(index, thread)| index.is_sound(thread)),
            "parts that do not fit together"
        );
        Ok(self.threads)
    }
}

/// Writes the file as a whole, or not at all.
pub fn write(trace: &Trace, threads: &[ThreadIndex]) -> Result<()> {
    let (mut parts, mut lengths) = (Vec::new(), Vec::new());
    for thread in threads {
        thread.write_parts(|part| {
            parts.extend_from_slice(part);
            lengths.push(part.len() as u32);
        })?;
    }
    let head = Head {
        origin: Origin::of(trace),
        packets: (trace.damage_count() == 0).then(|| trace.packets()),
        threads,
        lengths,
    };
    let head = postcard::to_stdvec(&head)?;
    let path = path(trace);
    let directory = path.parent().context("no directory")?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    for bytes in [&header(&head, &parts)[..], &head, &parts] {
        file.write_all(bytes)?;
    }
    file.persist(path)?;
    Ok(())
}

type Sum = [u8; 8];

fn sum(bytes: &[u8]) -> Sum {
    xxh3_64(bytes).to_le_bytes()
}

fn header(head: &[u8], parts: &[u8]) -> [u8; HEADER] {
    let words = [
        *VERSION,
        (head.len() as u64).to_le_bytes(),
        sum(head),
        sum(parts),
    ];
    let mut header = [0; HEADER];
    header.copy_from_slice(words.as_flattened());
    header
}

/// Gives an index whose bytes were changed the sums of these.
#[cfg(test)]
pub fn sum_again(bytes: &mut [u8]) {
    let (header, rest) = bytes.split_at_mut(HEADER);
    let length = u64::from_le_bytes(header[8..16].try_into().unwrap());
    let (head, parts) = rest.split_at(rest.len().min(length as usize));
    header.copy_from_slice(&self::header(head, parts));
}
