//! Writes a trace directory.

use crate::append::{self, append};
use crate::checksum::Sum;
use crate::chunk_cursor::{ChunkCursor, ChunkPhase};
use crate::clocks::{Clocks, Snapshot};
use crate::directory::{self, METADATA, NEW_METADATA, Place, SESSION};
use crate::header;
use crate::kernel_events::{KernelEvent, KernelRecord};
use crate::labels::Named;
use crate::layout::*;
use crate::markers::Markers;
use crate::metadata::{self, Function};
use crate::named_sites::{NamedSite, NamedSites};
use crate::note::{Note, Session, SiteState, SitesLine};
use crate::occurrences::Occurrences;
use crate::output::Output;
use crate::processors::Processors;
use crate::random::random_uuid;
use crate::scan::{Content, Known, Unfinished, scan};
use crate::session::{self, FORMAT_VERSION, Line};
use crate::short_calls::{Kept, ShortCalls};
use crate::site_counts::SiteCounts;
use crate::streams::Streams;
use crate::subscriber::{Batch, Subscriber};
use crate::subscribers::{SubscriberId, Subscribers};
use crate::thread_key::ThreadKey;
use crate::watched::Watched;
use anyhow::{Context, Result, bail};
use nopal_abi::*;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// The clock in `metadata` is rewritten when its rate is off by more than one part in this number.
const RATE_PRECISION: u64 = 1_000_000;

/// Clocks this far beyond the last snapshot are invalid: an hour of a counter of 5 GHz.
const FUTURE: u64 = 1 << 44;

/// The outcome of writing a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// It is a packet of the trace. `damage` counts its invalid words, which were left out, `short` the calls that were
    /// left out since they were short.
    Written {
        events: u64,
        holes: u64,
        damage: u64,
        short: u64,
    },
    /// It holds no unwritten event.
    Empty,
    /// All of it had been written by the writer whose trace was adopted.
    Repeated,
    /// A record is reserved and not stored. Nothing was written; try again later.
    Unfinished,
}

/// A trace being written.
pub struct Writer {
    output: Output,
    pub(crate) session: Session,
    pub(crate) uuid: Uuid,
    pub(crate) notes: File,
    pub(crate) notes_length: u64,
    /// Lines of notes.
    pub(crate) notes_count: u64,
    pub(crate) streams: Streams,
    processors: Processors,
    pub(crate) occurring: Occurrences,
    sites: NamedSites,
    pub(crate) markers: Markers,
    images: HashMap<u32, String>,
    snapshots: Vec<Snapshot>,
    described: Described,
    readable: fn(&str) -> Cow<'_, str>,
    place: Option<Place>,
    subscriber: Option<Box<dyn Subscriber>>,
    subscribers: Subscribers,
    site_counts: Option<SiteCounts>,
    events: u64,
    short_calls: ShortCalls,
    watched: Watched,
    counted_sites: Arc<BTreeSet<u32>>,
}

/// The contents of `metadata`.
#[derive(Default)]
struct Described {
    occurring: usize,
    markers: usize,
    frequency: u64,
}

impl Writer {
    /// Begins a trace. An older one in `directory` is moved to `DIRECTORY.old`; other files are never overwritten. The
    /// writer fills in the session's version, chunk size and, when empty, uuid.
    pub fn create(directory: &Path, session: Session) -> Result<Writer> {
        let mut writer = Writer::create_for_now(directory, session)?;
        writer.keep()?;
        Ok(writer)
    }

    /// The same, but if the writer is dropped before [`Writer::keep`], there is no trace, and the older ones are where
    /// they were.
    pub fn create_for_now(directory: &Path, session: Session) -> Result<Writer> {
        let place = directory::prepare(directory)?;
        let directory = fs::canonicalize(directory).context("cannot find the trace's directory")?;
        directory::create_session(&directory)?;
        let mut writer = Writer::create_in(Output::Directory(directory), session)?;
        writer.place = Some(place);
        Ok(writer)
    }

    /// Keeps the trace, and removes the one before the last.
    pub fn keep(&mut self) -> Result<()> {
        self.place.as_mut().map_or(Ok(()), Place::keep)
    }

    /// As [`Writer::create`], where there is nothing.
    pub(crate) fn create_in(output: Output, session: Session) -> Result<Writer> {
        let uuid = match session.uuid.as_str() {
            "" => random_uuid()?,
            text => Uuid::parse_str(text).context("the session's uuid cannot be read")?,
        };
        let session = Session {
            version: FORMAT_VERSION,
            chunk_bytes: CHUNK_BYTES as u32,
            uuid: uuid.to_string(),
            ..session
        };
        let notes = output.create(SESSION)?;
        let mut writer = Writer::new(output, session.clone(), uuid, notes)?;
        writer.note(&Note::Session(session))?;
        writer.write_metadata()?;
        Ok(writer)
    }

    /// Fails if [`Writer::create`] would refuse the directory. Changes nothing.
    pub fn could_create(directory: &Path) -> Result<()> {
        directory::could_prepare(directory)
    }

    /// The data to begin traces within this one, with all notes so far.
    pub fn seed(&self) -> Result<Seed> {
        Ok(Seed {
            directory: self.directory().to_owned(),
            session: Session {
                uuid: String::new(),
                ..self.session.clone()
            },
            notes: self.text_of_notes()?,
            readable: self.readable,
            site_counts: self.site_counts.as_ref().map(SiteCounts::without_counts),
            watched: self.watched.clone(),
        })
    }

    pub(crate) fn new(output: Output, session: Session, uuid: Uuid, notes: File) -> Result<Writer> {
        if !directory::lock(&notes)? {
            bail!(
                "the trace {} is being written by another process",
                output.directory().display()
            );
        }
        Ok(Writer {
            streams: Streams::new(output.clone()),
            processors: Processors::new(output.clone(), uuid),
            output,
            session,
            uuid,
            notes,
            notes_length: 0,
            notes_count: 0,
            occurring: Occurrences::new(),
            sites: NamedSites::default(),
            markers: Markers::default(),
            images: HashMap::new(),
            snapshots: Vec::new(),
            described: Described::default(),
            readable: |name| Cow::Borrowed(name),
            place: None,
            subscriber: None,
            subscribers: Subscribers::new(),
            site_counts: None,
            events: 0,
            short_calls: ShortCalls::default(),
            watched: Watched::default(),
            counted_sites: Arc::default(),
        })
    }

    /// Sets the function that makes names readable for `metadata`, for instance by demangling.
    pub fn set_readable(&mut self, readable: fn(&str) -> Cow<'_, str>) {
        self.readable = readable;
    }

    /// From now on records go to this subscriber, and not into files. It gets the notes, too, except the session's.
    pub fn set_subscriber(&mut self, subscriber: Box<dyn Subscriber>) {
        self.subscriber = Some(subscriber);
    }

    /// From now on [`Writer::publish`] also passes records to this subscriber. It gets all notes, from the trace's first
    /// on.
    pub fn subscribe(&mut self, mut subscriber: Box<dyn Subscriber>) -> Result<SubscriberId> {
        for note in session::parse(&self.text_of_notes()?)?.notes {
            subscriber.note(&note);
        }
        Ok(self.subscribers.add(subscriber))
    }

    pub fn unsubscribe(&mut self, id: SubscriberId) {
        self.subscribers.remove(id);
    }

    /// Subscribers get nothing more of a thread.
    pub fn published_all_of(&mut self, thread: ThreadKey) {
        self.subscribers.thread_ended(thread);
    }

    /// Subscribers have got all records up to this value of the counter.
    pub fn complete_until(&mut self, counter: u64) {
        self.subscribers.complete_until(counter);
    }

    /// Whether there are subscribers for [`Writer::publish`].
    pub fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    fn text_of_notes(&self) -> Result<Vec<u8>> {
        let mut text = vec![0; self.notes_length as usize];
        let read = self.notes.read_exact_at(&mut text, 0);
        read.context("cannot read the trace's notes")?;
        Ok(text)
    }

    /// From now on only records of these are written to the trace.
    pub fn watch(&mut self, watched: Watched) {
        self.watched = watched;
    }

    /// The counts of records, which begin with the first call of this.
    pub fn site_counts(&mut self) -> &mut SiteCounts {
        self.site_counts.get_or_insert_default()
    }

    /// Whether records are counted by site: [`Writer::site_counts`] was called.
    pub fn counts_sites(&self) -> bool {
        self.site_counts.is_some()
    }

    /// The number of events of threads that were written: entries, exits, markers, probes, tracepoints of the kernel.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The readable name of a site; empty if it is not known.
    pub fn name_of(&self, site: u32) -> String {
        (self.readable)(self.sites.name_of(site)).into_owned()
    }

    /// The functions that were called so far, each with the name of its module, its own name, and its calls: those of
    /// [`Writer::site_counts`] and `more`, by site.
    pub fn called_functions(&mut self, more: &HashMap<u32, u64>) -> Vec<(String, String, u64)> {
        self.sites.sort();
        let counts = self.site_counts.get_or_insert_default();
        let called = self.sites.iter().filter_map(|site| {
            let counted = more.get(&site.number).copied().unwrap_or(0);
            let calls = counts.calls(site.number).entries.wrapping_add(counted);
            let module = self.images.get(&site.image).map_or("?", String::as_str);
            let name = || (self.readable)(self.sites.name(site)).into_owned();
            (calls > 0).then(|| (module.to_owned(), name(), calls))
        });
        called.collect()
    }

    pub fn directory(&self) -> &Path {
        self.output.directory()
    }

    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The bytes written, without the metadata.
    pub fn bytes(&self) -> u64 {
        self.notes_length + self.bytes_of_records()
    }

    /// The length of the files of threads and processors.
    pub fn bytes_of_records(&self) -> u64 {
        self.streams.bytes() + self.processors.bytes()
    }

    /// Appends a note, which is with the kernel when this returns.
    pub fn note(&mut self, note: &Note) -> Result<()> {
        if let Note::End { .. } = note {
            self.note_files()?;
        }
        self.append_note(0, note)?;
        self.learn(note);
        self.publish_note(note);
        Ok(())
    }

    /// Appends a `Note::Sites` of many, as [`Writer::note`] does. Names are copied only where somebody listens.
    pub fn sites<'a, I>(&mut self, image: u32, sites: I) -> Result<()>
    where
        I: ExactSizeIterator<Item = (u32, u64, u64, Cow<'a, str>)> + Clone,
    {
        /// Usual bytes of a site.
        const BYTES: usize = 64;
        let line = SitesLine::Sites {
            image,
            sites: sites.clone(),
        };
        self.append_note(BYTES * sites.len(), &line)?;
        self.sites.learn(image, sites.clone());
        if self.subscriber.is_some() || self.has_subscribers() {
            let owned = sites.map(|(site, address, size, name)| (site, address, size, name.into()));
            let sites = owned.collect();
            self.publish_note(&Note::Sites { image, sites });
        }
        Ok(())
    }

    /// `room`: its usual length.
    fn append_note(&mut self, room: usize, note: &impl Serialize) -> Result<()> {
        let mut line = Line::begin(self.notes_count, room);
        serde_json::to_writer(&mut line.0, note).context("cannot write a note")?;
        let line = line.end();
        append(&self.notes, self.notes_length, &line).context("cannot write a note")?;
        self.notes_length += line.len() as u64;
        self.notes_count += 1;
        Ok(())
    }

    /// Writes the lengths of the files that have grown since the last such note.
    fn note_files(&mut self) -> Result<()> {
        let (streams, processors) = (self.streams.grown(), self.processors.grown());
        if streams.is_empty() && processors.is_empty() {
            return Ok(());
        }
        let note = Note::Files {
            streams,
            processors,
        };
        self.append_note(0, &note)?;
        self.streams.announce();
        self.processors.announce();
        Ok(())
    }

    fn publish_note(&mut self, note: &Note) {
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.note(note);
        }
        self.subscribers.note(note);
    }

    /// Takes the data for `metadata` from a note.
    pub(crate) fn learn(&mut self, note: &Note) {
        match note {
            &Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns,
            } => {
                self.snapshots.push(Snapshot {
                    counter,
                    monotonic_ns,
                    realtime_ns,
                });
                self.judge_short_calls();
            }
            &Note::Process {
                process, parent, ..
            } => self.watched.forked(process, parent),
            Note::Image { image, path, .. } => {
                let name = Path::new(path)
                    .file_name()
                    .map_or(path.as_str().into(), |name| name.to_string_lossy());
                self.images.insert(*image, name.into_owned());
            }
            Note::Sites { image, sites } => {
                let borrowed = sites.iter().map(|(site, address, size, name)| {
                    (*site, *address, *size, Cow::Borrowed(name.as_str()))
                });
                self.sites.learn(*image, borrowed);
            }
            Note::State {
                state: SiteState::Counted,
                sites,
                ..
            } => Arc::make_mut(&mut self.counted_sites).extend(sites),
            _ => self.markers.learn(note),
        }
    }

    /// The sites whose calls were counted at any time.
    pub fn counted_sites(&self) -> Arc<BTreeSet<u32>> {
        self.counted_sites.clone()
    }

    /// With one clock, the rate of the counter is not known.
    fn judge_short_calls(&mut self) {
        let least_ns = self.session.least_duration_ns;
        if least_ns == 0 {
            return;
        }
        let clocks = self.clocks();
        if clocks.snapshots().len() > 1 {
            self.short_calls.below(clocks.ticks(least_ns));
        }
    }

    /// Writes a whole chunk as a packet: see [`Writer::rest`].
    pub fn chunk(&mut self, chunk: &mut [u8], settled: bool) -> Result<Chunk> {
        let state = if settled {
            ChunkPhase::Settled
        } else {
            ChunkPhase::HandedOver
        };
        self.rest(chunk, state, &mut ChunkCursor::default())
    }

    /// Passes subscribers the records of a chunk beyond those that they have, as a `batch`. `chunk` and `state` are as
    /// [`Writer::rest`] takes them; it is written nowhere. False: a record is reserved and not stored, and nobody was
    /// told anything.
    pub fn publish(
        &mut self,
        chunk: &mut [u8],
        state: ChunkPhase,
        published: &mut ChunkCursor,
    ) -> Result<bool> {
        let (header, records) = header::parts(chunk)?;
        let (records, known) = self.beyond(&header, records, *published, state)?;
        let occurring = &mut self.subscribers.occurring;
        let Ok(content) = scan(records, known, &self.markers, occurring) else {
            return Ok(false);
        };
        *published = published.and(content.words, content.end);
        let wanted = self.watched.has(header.process, header.thread);
        let last = state != ChunkPhase::Growing;
        self.subscribers
            .records(&header, records, content, last, wanted);
        Ok(true)
    }

    /// The part of a chunk beyond `cursor`, and facts about it.
    pub(crate) fn beyond<'a>(
        &self,
        header: &ChunkHeader,
        records: &'a mut [u64],
        cursor: ChunkCursor,
        state: ChunkPhase,
    ) -> Result<(&'a mut [u64], Known)> {
        let reserved = (header.content_bits / 64).saturating_sub(HEADER_WORDS as u64);
        let reserved = usize::try_from(reserved).unwrap_or(0).min(records.len());
        let Some(records) = records.get_mut(cursor.start()..) else {
            bail!("more of a chunk is taken than it has");
        };
        cursor.resume(records, header);
        let known = Known {
            reserved: reserved.saturating_sub(cursor.start()),
            begin: cursor.clock().unwrap_or(header.clock_begin),
            future: self.future(),
            state,
            task: u64::from(header.process) | u64::from(header.thread) << 32,
        };
        Ok((records, known))
    }

    /// Writes the part of a chunk beyond `cursor` as a packet: finds its end, fills in a header and appends it. `chunk`
    /// is as the runtime left it, aligned to 8 bytes; afterwards its content is of no use. Its header's `content_bits`
    /// may tell how much its thread had reserved. If the chunk is settled, holes become HOLE records.
    pub fn rest(
        &mut self,
        chunk: &mut [u8],
        state: ChunkPhase,
        cursor: &mut ChunkCursor,
    ) -> Result<Chunk> {
        let (header, records) = header::parts(chunk)?;
        let Ok(repeated) = self.skip_adopted(&header, records, cursor, state)? else {
            return Ok(Chunk::Unfinished);
        };
        let (records, known) = self.beyond(&header, records, *cursor, state)?;
        let content = match scan(records, known, &self.markers, &mut self.occurring) {
            Ok(content) => content,
            Err(Unfinished) => return Ok(Chunk::Unfinished),
        };
        let grows = state == ChunkPhase::Growing;
        // Packets of a thread are told apart by their first clocks.
        if content.events == 0 && content.holes == 0 || grows && content.end <= content.begin {
            if !grows {
                self.streams.skip(&header);
            }
            return Ok(if repeated {
                Chunk::Repeated
            } else {
                Chunk::Empty
            });
        }
        let (kept, left_out) = match &mut self.site_counts {
            _ if !self.watched.has(header.process, header.thread) => (0, content.events),
            Some(site_counts) => site_counts.pass(&mut records[..content.words], content.begin),
            None => (content.words, 0),
        };
        let next = cursor.and(content.words, content.end);
        let Kept {
            words: kept,
            events: of_short_calls,
            calls: short_calls,
        } = match self.short_calls.leaves_out() {
            true => self.short_calls.pass(&mut records[..kept], content.end),
            false => Kept {
                words: kept,
                ..Kept::default()
            },
        };
        let sum = match kept == content.words && short_calls == 0 {
            true => content.sum,
            false => Sum::new().words(&records[..kept]),
        };
        let content = Content {
            words: kept,
            events: content.events.saturating_sub(left_out + of_short_calls),
            sum,
            ..content
        };
        self.events = self.events.wrapping_add(content.events);
        if content.words == 0 || content.events == 0 && content.holes == 0 {
            if !grows {
                self.streams.skip(&header);
            }
            *cursor = next;
            return Ok(content.written(short_calls));
        }
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.records(Batch {
                thread: ThreadKey::of(&header),
                clock: content.begin,
                words: &records[..content.words],
                lossy: self.streams.pass(&header, !grows),
            });
            *cursor = next;
            return Ok(content.written(short_calls));
        }
        let bytes = HEADER_BYTES + content.words * 8;
        let packet = ChunkHeader {
            clock_begin: content.begin,
            clock_end: content.end,
            short_calls,
            ..header
        };
        let Some(piece) = chunk.get_mut(cursor.start() * 8..) else {
            bail!("a chunk is too short");
        };
        self.append_packet(&header, packet, content.sum, &mut piece[..bytes], !grows)?;
        *cursor = next;
        Ok(content.written(short_calls))
    }

    /// Appends a packet of another trace, whose sites and events have the numbers of this one.
    pub(crate) fn packet(&mut self, header: &ChunkHeader, packet: &mut [u8]) -> Result<()> {
        let records = header::words_mut(packet).and_then(|words| words.get(HEADER_WORDS..));
        let sum = Sum::new().words(records.context("a packet has no header")?);
        self.append_packet(header, *header, sum, packet, true)
    }

    /// `piece`: room for the packet's header, and its records, which have this sum. `chunk` is the header of their chunk,
    /// which stands there if it fails; `last` unless more packets will be made of the chunk.
    fn append_packet(
        &mut self,
        chunk: &ChunkHeader,
        packet: ChunkHeader,
        sum: Sum,
        piece: &mut [u8],
        last: bool,
    ) -> Result<()> {
        let bits = piece.len() as u64 * 8;
        let mut packet = ChunkHeader {
            magic: MAGIC,
            stream_id: 0,
            uuid: *self.uuid.as_bytes(),
            content_bits: bits,
            packet_bits: bits,
            ..packet
        };
        let stream = self.streams.place(&mut packet)?;
        packet.checksum = header::checksum(sum, &packet, stream as u32);
        header::put(&packet, piece);
        let appended = self.streams.append(stream, chunk, &packet, piece, last);
        if appended.is_err() {
            header::put(chunk, piece);
        }
        appended
    }

    /// Takes events of a processor, in order of time. They are in the trace by [`Writer::flush_kernel_events`] at the latest.
    pub fn system(&mut self, processor: u32, records: &[KernelRecord]) -> Result<()> {
        self.subscribers.system(processor, records);
        match &mut self.subscriber {
            Some(subscriber) => {
                subscriber.system(processor, records);
                Ok(())
            }
            None => self.processors.add(processor, records),
        }
    }

    /// Events of a processor are missing here.
    pub fn kernel_events_lost(&mut self, processor: u32, events: u64) -> Result<()> {
        let clock = self.processors.lose(processor, events)?;
        let event = KernelEvent::Lost { events };
        self.subscribers
            .system(processor, &[KernelRecord { clock, event }]);
        Ok(())
    }

    /// Kernel events are recorded again, after a pause from `counter` on.
    pub fn kernel_events_resumed(&mut self, counter: u64) -> Result<()> {
        let record = KernelRecord {
            clock: counter,
            event: KernelEvent::Lost { events: 0 },
        };
        for (processor, _) in self.processors.lost() {
            self.subscribers.system(processor, &[record]);
        }
        self.note(&Note::SystemPause { counter })
    }

    pub fn flush_kernel_events(&mut self) -> Result<()> {
        self.processors.flush()
    }

    /// Writes all remaining events of processors, and the number of missing ones.
    pub fn end_kernel_events(&mut self) -> Result<()> {
        self.processors.flush()?;
        let lost: Vec<(u32, u64)> = self.processors.lost().collect();
        for (processor, events) in lost.into_iter().filter(|(_, events)| *events > 0) {
            self.note(&Note::SystemLost { processor, events })?;
        }
        Ok(())
    }

    /// Events of threads that were recorded and given up: their next packets count them as lost.
    pub fn given_up(&mut self, events: &[(ThreadKey, u64)]) {
        for &(thread, events) in events {
            self.streams.thread(thread).given_up = events;
        }
    }

    /// A thread has ended, and all its chunks are written.
    pub fn thread_ended(&mut self, process: u32, thread: u32, begin: u64) {
        let thread = ThreadKey {
            process,
            thread,
            begin,
        };
        self.streams.ended(thread);
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.thread_ended(thread);
        }
    }

    /// All threads of a process have ended, and all their chunks are written.
    pub fn process_ended(&mut self, process: u32) {
        self.streams.process_ended(process);
    }

    /// Brings `metadata` up to date, if it is not: the functions that occurred, and the rate of the clock. Notes tell how
    /// long the files are now.
    pub fn sync_metadata(&mut self) -> Result<()> {
        self.note_files()?;
        let frequency = self.clocks().frequency();
        let drift = frequency.abs_diff(self.described.frequency);
        if self.described.occurring == self.occurring.len()
            && self.described.markers == self.markers.len()
            && drift <= frequency / RATE_PRECISION
        {
            return Ok(());
        }
        self.write_metadata()
    }

    /// A clock well beyond the time since the last snapshot.
    fn future(&self) -> u64 {
        self.snapshots
            .last()
            .map_or(u64::MAX, |last| last.counter.saturating_add(FUTURE))
    }

    fn clocks(&self) -> Clocks {
        Clocks::new(self.snapshots.iter().copied())
    }

    fn write_metadata(&mut self) -> Result<()> {
        let clocks = self.clocks();
        self.sites.sort();
        let described = Described {
            occurring: self.occurring.len(),
            markers: self.markers.len(),
            frequency: clocks.frequency(),
        };
        let known = self
            .occurring
            .iter()
            .filter_map(|(number, kinds)| Some((kinds, self.sites.get(number)?)));
        let names: Vec<(u16, &NamedSite, Cow<str>)> = known
            .map(|(kinds, site)| (kinds, site, (self.readable)(self.sites.name(site))))
            .collect();
        let module = |site: &NamedSite| self.images.get(&site.image).map_or("?", String::as_str);
        let functions: Vec<Function> = names
            .iter()
            .map(|(kinds, site, name)| {
                let named = Named {
                    site: site.number,
                    name,
                    module: module(site),
                    address: site.address,
                };
                Function {
                    named,
                    kinds: *kinds,
                }
            })
            .collect();
        let text = metadata::text(&self.session, self.uuid, &clocks, &functions, &self.markers);
        self.replace_metadata(&text)
            .context("cannot write the trace's metadata")?;
        self.described = described;
        Ok(())
    }

    fn replace_metadata(&self, text: &str) -> Result<()> {
        self.output.replace(METADATA, NEW_METADATA, text)
    }

    /// Whether an error of a writer means that the disk is full. The trace so far stays valid, and the failed write may
    /// be retried.
    pub fn is_full(error: &anyhow::Error) -> bool {
        append::is_full(error)
    }
}

/// Data to begin snapshots of a flight recorder, which takes a while, in another thread.
pub struct Seed {
    /// The directory of the trace that they are in.
    directory: PathBuf,
    session: Session,
    notes: Vec<u8>,
    readable: fn(&str) -> Cow<'_, str>,
    site_counts: Option<SiteCounts>,
    watched: Watched,
}

impl Seed {
    /// The directory for the snapshot of a number.
    pub fn directory(&self, number: u32) -> PathBuf {
        self.directory.join(directory::snapshot_name(number))
    }

    /// Makes the trace.
    pub fn begin(&self, number: u32) -> Result<Writer> {
        let mut writer = Writer::create(&self.directory(number), self.session.clone())?;
        writer.readable = self.readable;
        writer.watched = self.watched.clone();
        writer.site_counts = self.site_counts.as_ref().map(SiteCounts::without_counts);
        for note in session::parse(&self.notes)?.notes {
            // It has files of its own.
            if !matches!(note, Note::Files { .. }) {
                writer.note(&note)?;
            }
        }
        Ok(writer)
    }
}

impl Content {
    fn written(&self, short_calls: u32) -> Chunk {
        Chunk::Written {
            events: self.events,
            holes: self.holes,
            damage: self.damage,
            short: short_calls.into(),
        }
    }
}
