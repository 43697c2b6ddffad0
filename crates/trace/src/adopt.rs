//! Continues a trace whose writer was killed.

use crate::chunk_cursor::{ChunkCursor, ChunkPhase};
use crate::directory::{self, SESSION};
use crate::index::{self, Expected};
use crate::layout::THREAD_STREAM;
use crate::mapping::Mapping;
use crate::occurrences::Occurrences;
use crate::output::Output;
use crate::packet::Packet;
use crate::scan::{Known, Unfinished, scan};
use crate::session::{self, Notes};
use crate::streams::Stream;
use crate::thread_key::ThreadKey;
use crate::writer::Writer;
use anyhow::{Context, Result, bail};
use nopal_abi::{ChunkHeader, RESYNC_WORDS};
use std::fs;
use std::path::Path;

impl Writer {
    /// Opens a trace whose writer was killed, to append the remaining records. Partial writes are cut off. Each thread
    /// keeps its file. All packets are read, to know which functions occur.
    pub fn adopt(directory: &Path) -> Result<Writer> {
        if !directory::is_trace(directory)? {
            bail!("{} is not a trace", directory.display());
        }
        let directory = fs::canonicalize(directory).context("cannot find the trace's directory")?;
        let path = directory.join(SESSION);
        let file = directory::open_to_write(&path, false)?;
        let text = Mapping::open(&path)?;
        let end = text.hole_from(0) as usize;
        let Notes {
            session,
            uuid,
            notes,
            whole,
            next,
            ..
        } = session::parse(&text.bytes()[..end])
            .with_context(|| format!("cannot read {}", path.display()))?;
        if !session.has_sums() {
            bail!("the trace {} has an older version", directory.display());
        }
        let mut writer = Writer::new(Output::Directory(directory), session, uuid, file)?;
        writer
            .notes
            .set_len(whole as u64)
            .context("cannot cut off a line that is half written")?;
        writer.notes_length = whole as u64;
        writer.notes_count = next;
        notes.iter().for_each(|note| writer.learn(note));
        for (number, expected) in directory::streams(writer.directory())?.into_iter().zip(0..) {
            if number != expected {
                bail!(
                    "the trace {} has no {}",
                    writer.directory().display(),
                    directory::stream_name(expected)
                );
            }
            writer.adopt_stream(number)?;
        }
        Ok(writer)
    }

    fn adopt_stream(&mut self, number: u32) -> Result<()> {
        let path = self.directory().join(directory::stream_name(number));
        let file = Mapping::open(&path)?;
        let expected = Expected::new(THREAD_STREAM, number, self.uuid, &self.session);
        let mut packets = Vec::new();
        let whole = index::index(&file, 0, expected, &mut packets, |_| ());
        let length = whole as u64 * 8;
        packets.retain(|packet| packet.words().end <= whole);
        for packet in &packets {
            let packet = Packet::whole(packet, &file);
            self.adopt_packet(packet);
            packet.release();
        }
        if let Some(last) = packets.last() {
            self.streams.thread(last.thread).stream = Some(number as usize);
        }
        let last = packets.last().and_then(|last| index::header(&file, last));
        self.streams.files.push(Stream {
            length,
            end: last.map_or(0, |last| last.clock_end),
            sequence: last.map(|last| last.sequence),
            discarded: last.map_or(0, |last| last.discarded),
            ..Stream::default()
        });
        let is_longer = file.bytes().len() as u64 > length;
        drop(file);
        if is_longer {
            let cut =
                directory::open_to_write(&path, false).and_then(|file| Ok(file.set_len(length)?));
            cut.context("cannot cut off a packet that is half written")?;
        }
        Ok(())
    }

    fn adopt_packet(&mut self, packet: Packet) {
        let begin = packet.clock_begin();
        let thread = self.streams.thread(packet.thread());
        thread.discarded = thread.discarded.saturating_add(packet.lost_before());
        thread.next_sequence = None;
        self.streams.adopt(&packet);
        let known = Known {
            reserved: 0,
            begin,
            future: u64::MAX,
            state: ChunkPhase::Settled,
            task: 0,
        };
        let words = &mut packet.words().to_vec();
        let _ = scan(words, known, &self.markers, &mut self.occurring);
    }

    /// Skips the part of a chunk that another writer had read. Returns whether there was one.
    pub(crate) fn skip_adopted(
        &self,
        header: &ChunkHeader,
        records: &mut [u64],
        cursor: &mut ChunkCursor,
        state: ChunkPhase,
    ) -> Result<Result<bool, Unfinished>> {
        let Some(adopted) = self.streams.adopted(ThreadKey::of(header)) else {
            return Ok(Ok(false));
        };
        let mut records = records.to_vec();
        let (records, known) = self.beyond(header, &mut records, *cursor, state)?;
        let scanned = scan(records, known, &self.markers, &mut Occurrences::default());
        Ok(scanned.map(|content| {
            let read = adopted.read(&records[..content.words], content.begin);
            let is_adopted = read >= RESYNC_WORDS;
            if is_adopted {
                *cursor = cursor.and(read, adopted.end);
            }
            is_adopted
        }))
    }
}
