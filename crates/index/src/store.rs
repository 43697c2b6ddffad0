//! The index as a file beside the trace.
//!
//! It holds the version, a checksum of the rest, the state of the trace, and the index, by `postcard`. An index of
//! another version, of another trace or of an earlier state of this one is not used, nor one whose parts do not fit
//! together.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nopal_trace::Trace;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::thread_index::ThreadIndex;

/// Changes whenever an index is made or written differently.
const VERSION: &[u8; 8] = b"nopal-x4";

const HEADER: usize = 16;

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

pub fn read(trace: &Trace) -> Result<Vec<ThreadIndex>> {
    let mut file = File::options()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path(trace))?;
    ensure!(file.metadata()?.is_file(), "not a file");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (header, rest) = bytes.split_at_checked(HEADER).context("cut short")?;
    ensure!(
        header == self::header(rest),
        "damaged, or of another version"
    );
    let (origin, rest): (Origin, _) = postcard::take_from_bytes(rest)?;
    ensure!(origin == Origin::of(trace), "of another trace");
    let threads: Vec<ThreadIndex> = postcard::from_bytes(rest)?;
    let infos = trace.threads();
    let mut both = threads.iter().zip(&infos);
    ensure!(
        threads.len() == infos.len() && both.all(|(index, thread)| index.is_sound(thread)),
        "parts that do not fit together"
    );
    Ok(threads)
}

/// Writes the file as a whole, or not at all.
pub fn write(trace: &Trace, threads: &[ThreadIndex]) -> Result<()> {
    let mut bytes = postcard::to_stdvec(&Origin::of(trace))?;
    bytes = postcard::to_extend(threads, bytes)?;
    let path = path(trace);
    let directory = path.parent().context("no directory")?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&header(&bytes))?;
    file.write_all(&bytes)?;
    file.persist(path)?;
    Ok(())
}

fn header(rest: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(VERSION);
    header[8..].copy_from_slice(&xxh3_64(rest).to_le_bytes());
    header
}
