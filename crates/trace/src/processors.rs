//! Writes the stream files of processors.

use crate::append::append;
use crate::checksum::Sum;
use crate::directory;
use crate::header;
use crate::kernel_events::{KernelRecord, MOST_WORDS, PROCESSOR_STREAM};
use crate::layout::*;
use crate::output::Output;
use anyhow::Result;
use nopal_abi::*;
use std::collections::BTreeMap;
use std::fs::File;
use uuid::Uuid;
use zerocopy::IntoBytes;

pub struct Processors {
    output: Output,
    uuid: Uuid,
    files: BTreeMap<u32, Processor>,
}

/// The state of a stream file, and its next packet.
struct Processor {
    file: File,
    length: u64,
    /// The length that a note has announced.
    announced: u64,
    sequence: u64,
    /// Discarded events of the written packets and of the next one.
    discarded: u64,
    /// The last clock.
    end: u64,
    /// Room for a header, and records.
    words: Vec<u64>,
    begin: u64,
}

impl Processors {
    pub fn new(output: Output, uuid: Uuid) -> Processors {
        Processors {
            output,
            uuid,
            files: BTreeMap::new(),
        }
    }

    /// The lengths of all files.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.length).sum()
    }

    /// The lengths of files that have grown since `announced`.
    pub fn grown(&self) -> Vec<(u32, u64)> {
        let files = self.files.iter();
        let grown = files.filter(|(_, file)| file.length != file.announced);
        grown
            .map(|(processor, file)| (*processor, file.length))
            .collect()
    }

    pub fn announce(&mut self) {
        let files = self.files.values_mut();
        files.for_each(|file| file.announced = file.length);
    }

    /// Takes events of a processor, in order of time. They are in the file when they fill a packet, or by `flush`.
    pub fn add(&mut self, processor: u32, records: &[KernelRecord]) -> Result<()> {
        let uuid = self.uuid;
        let file = self.file(processor)?;
        for record in records {
            if (file.words.len() + MOST_WORDS) * 8 > CHUNK_BYTES {
                file.write(processor, uuid)?;
            }
            // A clock never goes back within a file.
            let clock = record.clock.max(file.end);
            if file.words.len() == HEADER_WORDS {
                file.begin = clock;
            }
            file.end = clock;
            KernelRecord { clock, ..*record }.push(&mut file.words);
        }
        Ok(())
    }

    /// Events of a processor are missing between those that were added and those to come. Gives the last clock.
    pub fn lose(&mut self, processor: u32, events: u64) -> Result<u64> {
        let uuid = self.uuid;
        let file = self.file(processor)?;
        file.write(processor, uuid)?;
        file.discarded = file.discarded.saturating_add(events);
        Ok(file.end)
    }

    pub fn flush(&mut self) -> Result<()> {
        let uuid = self.uuid;
        let mut files = self.files.iter_mut();
        files.try_for_each(|(processor, file)| file.write(*processor, uuid))
    }

    /// Events that were lost, by processor.
    pub fn lost(&self) -> impl Iterator<Item = (u32, u64)> {
        self.files
            .iter()
            .map(|(processor, file)| (*processor, file.discarded))
    }

    fn file(&mut self, processor: u32) -> Result<&mut Processor> {
        use std::collections::btree_map::Entry;
        match self.files.entry(processor) {
            Entry::Occupied(file) => Ok(file.into_mut()),
            Entry::Vacant(place) => {
                let name = directory::processor_name(processor);
                Ok(place.insert(Processor {
                    file: self.output.create(&name)?,
                    length: 0,
                    announced: 0,
                    sequence: 0,
                    discarded: 0,
                    end: 0,
                    words: vec![0; HEADER_WORDS],
                    begin: 0,
                }))
            }
        }
    }
}

impl Processor {
    /// Appends the packet, unless it is empty. If it cannot be written, it is lost.
    fn write(&mut self, processor: u32, uuid: Uuid) -> Result<()> {
        if self.words.len() == HEADER_WORDS {
            return Ok(());
        }
        let bits = self.words.len() as u64 * 64;
        let mut header = ChunkHeader {
            magic: MAGIC,
            stream_id: PROCESSOR_STREAM,
            uuid: *uuid.as_bytes(),
            clock_begin: self.begin,
            clock_end: self.end,
            content_bits: bits,
            packet_bits: bits,
            discarded: self.discarded,
            sequence: self.sequence,
            process: processor,
            ..ChunkHeader::default()
        };
        if let Some((first, records)) = self.words.split_first_chunk_mut() {
            header.checksum = header::checksum(Sum::new().words(records), &header, processor);
            header::write(&header, first);
        }
        let written = append(&self.file, self.length, self.words.as_bytes());
        let length = self.words.len() as u64 * 8;
        self.words.truncate(HEADER_WORDS);
        written?;
        self.length += length;
        self.sequence += 1;
        Ok(())
    }
}
