//! Reads a trace directory. Everything in it may be cut short, damaged or malicious.

use crate::alive::Alive;
use crate::clocks::{Clocks, Snapshot};
use crate::cuts::Cuts;
use crate::directory::{self, METADATA, SESSION};
use crate::files::Files;
use crate::index::{self, Entry, Expected};
use crate::info::{Damage, ProcessInfo, ProcessorInfo, SiteInfo, ThreadInfo};
use crate::kernel_events::PROCESSOR_STREAM;
use crate::layout::THREAD_STREAM;
use crate::mapping::Mapping;
use crate::markers::Markers;
use crate::nesting::{Parts, nest};
use crate::note::{Note, OpenCall, Session};
use crate::packet::PacketId;
use crate::packets::{FilePackets, Packets};
use crate::processes;
use crate::session::{self, Notes};
use crate::stream_file::StreamFile;
use crate::thread_key::ThreadKey;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Flaws that are kept; further ones are only counted.
const MOST_FLAWS: usize = 100;

#[derive(Clone, Copy, Debug)]
struct SiteId {
    site: u32,
    note: u32,
    index: u32,
}

/// Files of one class of streams.
struct Class {
    stream: u32,
    name: fn(u32) -> String,
    /// The numbers of the files that exist, in order.
    files: Vec<u32>,
    /// The expected lengths of files, and whether they list all files.
    announced: BTreeMap<u32, u64>,
    is_all: bool,
}

/// An open trace.
pub struct Trace {
    directory: PathBuf,
    session: Session,
    uuid: Uuid,
    notes: Vec<Note>,
    sites: Vec<SiteId>,
    clocks: Clocks,
    streams: Vec<StreamFile>,
    processors: Vec<(u32, StreamFile)>,
    /// In order of the thread, then of time.
    threads: Vec<(ThreadKey, Vec<PacketId>)>,
    /// The notes that name threads, and images.
    names: HashMap<ThreadKey, u32>,
    /// What processes and threads are called in PID namespaces of their own; none if that is what they are known by. A
    /// process, with thread 0: so it is for all its threads.
    inside: HashMap<(u32, u32), Option<u32>>,
    images: HashMap<u32, u32>,
    alive: Alive,
    markers: Markers,
    damage: Vec<Damage>,
    damage_count: u64,
    /// Bytes of files that were skipped, or are missing.
    left_out: u64,
    missing_files: u64,
    /// Being written by another process, which may have written a line or a packet only in part.
    is_written: bool,
}

/// The cost of recording a call, in thousandths of a tick: in all, and the part between the clocks of entry and exit,
/// which is not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub call: u64,
    pub within: u64,
}

/// Which of the packets that are known before a trace is read are taken for its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Belief {
    /// All: this process has read them.
    All,
    /// Those of files of the same version, where they may be.
    Unchanged,
    /// Those that may be. Of others, only the headers are read.
    Possible,
}

impl Trace {
    pub fn open(directory: &Path) -> Result<Trace> {
        Trace::open_known(directory, Packets::default())
    }

    /// Opens a trace by packets that were read before. Those of files that nobody has written to since are not compared
    /// with their checksums again.
    pub fn open_known(directory: &Path, packets: Packets) -> Result<Trace> {
        Trace::read(directory, packets, Belief::Unchanged)
    }

    /// Opens a trace by packets that are said to be its own. Where they cannot be, and behind them, the headers in the
    /// files are read. Damage is not noticed: only [`Trace::open`] shows it, and whether these were the packets.
    pub fn open_by_packets(directory: &Path, packets: Packets) -> Result<Trace> {
        Trace::read(directory, packets, Belief::Possible)
    }

    /// The current state of the same trace. Packets that had been read are not checked again; only damage of the others
    /// is reported.
    pub fn again(self) -> Result<Trace> {
        let Trace {
            directory,
            streams,
            processors,
            ..
        } = self;
        let processors = processors.into_iter().map(|(_, stream)| stream);
        let files = streams.into_iter().chain(processors);
        Trace::read(
            &directory,
            Packets(files.map(FilePackets::of).collect()),
            Belief::All,
        )
    }

    fn read(directory: &Path, known: Packets, belief: Belief) -> Result<Trace> {
        let name = directory.display();
        match fs::metadata(directory) {
            Ok(found) if found.is_dir() => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(error).with_context(|| format!("{name} is not readable"));
            }
            _ => bail!("{name} is not a directory"),
        }
        if !directory::is_trace(directory)? {
            bail!("{name} is not a trace: it needs the files {SESSION} and {METADATA}");
        }
        let file = directory.join(SESSION);
        let is_written = directory::seems_written(directory);
        let text = Mapping::open(&file)?;
        // Writers make no holes: there is nothing behind one.
        let end = text.hole_from(0) as usize;
        let Notes {
            session,
            uuid,
            notes,
            bad_lines,
            ..
        } = session::parse(&text.bytes()[..end])
            .with_context(|| format!("cannot read {}", file.display()))?;
        let mut trace = Trace {
            directory: directory.to_owned(),
            session,
            uuid,
            sites: sites(&notes),
            clocks: clocks(&notes),
            names: thread_names(&notes),
            inside: inside(&notes),
            images: images(&notes),
            alive: Alive::default(),
            markers: markers(&notes),
            notes,
            streams: Vec::new(),
            processors: Vec::new(),
            threads: Vec::new(),
            damage: Vec::new(),
            damage_count: 0,
            left_out: 0,
            missing_files: 0,
            is_written,
        };
        if end < text.bytes().len() {
            trace.damaged(
                &file,
                0,
                (text.bytes().len() - end) as u64,
                "a hole in the notes",
            );
        }
        if !directory::metadata_is_whole(directory) {
            let metadata = directory.join(METADATA);
            trace.damaged(&metadata, 0, 0, "the end of the file is missing");
        }
        for (line, what) in bad_lines {
            if !(is_written && what == session::CUT_SHORT) {
                trace.damaged(&file, line, 0, what);
            }
        }
        trace.read_streams(known, belief)?;
        trace.place_open_calls();
        trace.gather_threads();
        // Where something is missing, it may have been the ends of calls.
        if trace.damage_count == 0 {
            trace.alive = Alive::of(&trace.notes);
        }
        Ok(trace)
    }

    fn read_streams(&mut self, known: Packets, belief: Belief) -> Result<()> {
        let known = known.0.into_iter().map(|file| (file.name.clone(), file));
        let mut known: HashMap<String, FilePackets> = known.collect();
        let files = Files::of(&self.notes);
        // If notes are missing, an unlisted file may belong to the trace.
        let is_all = files.is_all && self.session.has_sums() && self.damage.is_empty();
        let threads = Class {
            stream: THREAD_STREAM,
            name: directory::stream_name,
            files: directory::streams(&self.directory)?,
            announced: files.streams,
            is_all,
        };
        let streams = self.read_class(threads, &mut known, belief)?;
        self.streams = streams.into_iter().map(|(_, stream)| stream).collect();
        let processors = Class {
            stream: PROCESSOR_STREAM,
            name: directory::processor_name,
            files: directory::processors(&self.directory)?,
            announced: files.processors,
            is_all,
        };
        self.processors = self.read_class(processors, &mut known, belief)?;
        for at in 0..self.processors.len() {
            let (number, stream) = &mut self.processors[at];
            let read = stream.packets.len();
            let is_its_own = |packet: &Entry| packet.thread.process == *number;
            stream.packets.retain(is_its_own);
            if stream.packets.len() < read {
                let path = self.directory.join(&stream.name);
                self.damaged(&path, 0, 0, "packets of another processor");
            }
        }
        Ok(())
    }

    /// Gives the first packets of threads the calls that were open before them.
    fn place_open_calls(&mut self) {
        for note in &self.notes {
            let Note::Open {
                process,
                thread,
                begin,
                sequence,
                calls,
                place,
            } = note
            else {
                continue;
            };
            let key = ThreadKey {
                process: *process,
                thread: *thread,
                begin: *begin,
            };
            let mut streams = self.streams.iter_mut();
            let first = streams.find_map(|stream| {
                let mut packets = stream.packets.iter_mut();
                packets.find(|packet| packet.thread == key)
            });
            let Some(first) = first else { continue };
            let is_sound = |calls: &[OpenCall]| OpenCall::are_sound(calls, first.clock_begin);
            if u64::from(first.missing_before) == *sequence
                && is_sound(calls)
                && place.aside.iter().all(|aside| is_sound(&aside.calls))
            {
                first.open = Some(Box::new((calls.clone(), place.clone())));
            }
        }
    }

    /// Reads the files of a class, and compares them with the notes.
    fn read_class(
        &mut self,
        class: Class,
        known: &mut HashMap<String, FilePackets>,
        belief: Belief,
    ) -> Result<Vec<(u32, StreamFile)>> {
        let mut streams = Vec::new();
        for &number in &class.files {
            let name = (class.name)(number);
            let path = self.directory.join(&name);
            let announced = class.announced.get(&number);
            if announced.is_none() && class.is_all {
                let length = fs::symlink_metadata(&path).map_or(0, |found| found.len());
                if length > 0 {
                    self.damaged(
                        &path,
                        0,
                        length,
                        "a file that does not belong to this trace",
                    );
                }
                continue;
            }
            let expected = Expected {
                by_headers: belief == Belief::Possible,
                ..Expected::new(class.stream, number, self.uuid, &self.session)
            };
            let known = known.remove(&name);
            let mut stream =
                self.read_stream(name, expected, known.map(|known| (known, belief)))?;
            let length = stream.file.bytes().len() as u64;
            if let Some(missing) = announced.and_then(|announced| announced.checked_sub(length))
                && missing > 0
            {
                self.damaged(&path, length, missing, "the end of the file is missing");
                if let Some(last) = stream.packets.last_mut() {
                    last.damage_behind = true;
                }
            }
            streams.push((number, stream));
        }
        for (number, length) in class.announced {
            if class.files.binary_search(&number).is_err() {
                let path = self.directory.join((class.name)(number));
                self.damaged(&path, 0, length, "the file is missing");
                self.missing_files += 1;
            }
        }
        Ok(streams)
    }

    fn read_stream(
        &mut self,
        name: String,
        expected: Expected,
        known: Option<(FilePackets, Belief)>,
    ) -> Result<StreamFile> {
        let path = self.directory.join(&name);
        let file = Mapping::open(&path)?;
        let is_believed = |(known, belief): &(FilePackets, Belief)| {
            let may_be = || index::may_be(&file, &known.packets, known.whole, expected);
            match belief {
                Belief::All => true,
                Belief::Possible => may_be(),
                Belief::Unchanged => {
                    known.version.is_some() && known.version == file.version() && may_be()
                }
            }
        };
        let known = known.filter(is_believed).map(|(known, _)| known);
        let (mut packets, known) = known.map_or((Vec::new(), 0), |one| (one.packets, one.whole));
        packets.truncate(packets.partition_point(|packet| packet.words().start < known));
        let is_written = self.is_written;
        let whole = index::index(&file, known, expected, &mut packets, |flaw| {
            if !(is_written && flaw.at_end) {
                self.damaged(&path, flaw.offset, flaw.bytes, flaw.what);
            }
        });
        let rest = file.bytes().len() % 8;
        if rest > 0 && !is_written {
            let at = file.bytes().len() as u64;
            self.damaged(&path, at, rest as u64, "an end that is cut short");
        }
        Ok(StreamFile {
            name,
            file,
            packets,
            whole,
        })
    }

    fn gather_threads(&mut self) {
        let mut threads: HashMap<ThreadKey, Vec<PacketId>> = HashMap::new();
        for (stream, file) in (0..).zip(&self.streams) {
            for (index, entry) in (0..).zip(&file.packets) {
                threads
                    .entry(entry.thread)
                    .or_default()
                    .push(PacketId::whole(stream, index, entry));
            }
        }
        for packets in threads.values_mut() {
            packets.sort_by_key(|id| id.clock_begin);
        }
        for packets in threads.values() {
            self.mark_damage_between(packets);
        }
        self.nest_work_in_kernel(&mut threads);
        if let Some(cuts) = Cuts::of(&self.notes) {
            for (key, packets) in &mut threads {
                *packets = cuts.cut(key.process, packets, &self.streams);
            }
        }
        // Kernel events describe the others.
        let recorded: HashSet<(u32, u32)> = threads
            .keys()
            .map(|key| (key.process, key.thread))
            .collect();
        for key in self.names.keys() {
            if !recorded.contains(&(key.process, key.thread)) {
                threads.insert(*key, Vec::new());
            }
        }
        self.threads = threads.into_iter().collect();
        self.threads.sort_by_key(|(key, _)| *key);
    }

    /// Puts the work of threads in the kernel among their own packets. Of several threads that have had a number, each
    /// has the work until the next one began.
    fn nest_work_in_kernel(&self, threads: &mut HashMap<ThreadKey, Vec<PacketId>>) {
        let of_kernel = kernel_threads(&self.notes);
        let numbers = |key: &ThreadKey| (key.process, key.thread);
        let mut begins: HashMap<(u32, u32), Vec<u64>> = HashMap::new();
        for key in threads.keys().filter(|key| !of_kernel.contains(key)) {
            begins.entry(numbers(key)).or_default().push(key.begin);
        }
        let mut work: HashMap<(u32, u32), Vec<PacketId>> = HashMap::new();
        for key in &of_kernel {
            let packets = threads.get_mut(key).into_iter().flatten();
            packets.for_each(|packet| packet.is_of_kernel = true);
            if begins.contains_key(&numbers(key)) {
                let packets = threads.remove(key).unwrap_or_default();
                work.entry(numbers(key)).or_default().extend(packets);
            }
        }
        for ((process, thread), mut packets) in work {
            packets.sort_by_key(|id| id.clock_begin);
            let mut kernel = Parts::new(&self.streams, packets);
            let mut begins = begins.remove(&(process, thread)).unwrap_or_default();
            begins.sort_unstable();
            for (at, &begin) in begins.iter().enumerate() {
                let key = ThreadKey {
                    process,
                    thread,
                    begin,
                };
                let until = begins.get(at + 1).copied().unwrap_or(u64::MAX);
                let own = threads.remove(&key).unwrap_or_default();
                let own = Parts::new(&self.streams, own);
                threads.insert(key, nest(own, &mut kernel, until));
            }
        }
    }

    /// If a thread continues in another file, missing packets may have been in the first file, or in a missing one.
    fn mark_damage_between(&mut self, packets: &[PacketId]) {
        for pair in packets.windows(2) {
            let [last, next] = pair else { continue };
            let entry = |id: &PacketId| (id.stream as usize, id.index as usize);
            let ((file, index), (next_file, next_index)) = (entry(last), entry(next));
            let behind = self.streams[file].packets[index].damage_behind;
            if file != next_file && (behind || self.missing_files > 0) {
                self.streams[next_file].packets[next_index].damage_before = true;
            }
        }
    }

    fn damaged(&mut self, file: &Path, offset: u64, bytes: u64, what: &'static str) {
        self.damage_count += 1;
        self.left_out = self.left_out.saturating_add(bytes);
        if self.damage.len() < MOST_FLAWS {
            self.damage.push(Damage {
                file: file.to_owned(),
                offset,
                bytes,
                what,
            });
        }
    }

    fn files(&self) -> impl Iterator<Item = &StreamFile> {
        let processors = self.processors.iter().map(|(_, stream)| stream);
        self.streams.iter().chain(processors)
    }

    /// Its packets, for [`Trace::open_by_packets`].
    pub fn packets(&self) -> Packets {
        Packets(self.files().map(FilePackets::copy).collect())
    }

    /// Whether both have the same packets in the same files.
    pub fn has_packets_of(&self, other: &Trace) -> bool {
        let files = self.files().map(|file| (&file.name, &file.packets));
        files.eq(other.files().map(|file| (&file.name, &file.packets)))
    }

    /// The threads whose records were made in the kernel.
    pub(crate) fn kernel_threads(&self) -> HashSet<ThreadKey> {
        kernel_threads(&self.notes)
    }

    pub(crate) fn streams(&self) -> &[StreamFile] {
        &self.streams
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Whether another process was still writing it when it was opened.
    pub fn is_growing(&self) -> bool {
        self.is_written
    }

    /// All notes but the session's, in the order in which they were written.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The cost of recording a call, if it was measured.
    pub fn cost(&self) -> Option<Cost> {
        self.notes.iter().find_map(|note| match *note {
            Note::Cost { call, within } => Some(Cost {
                call,
                within: within.min(call),
            }),
            _ => None,
        })
    }

    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The site with a number.
    pub fn site(&self, site: u32) -> Option<SiteInfo<'_>> {
        let index = self.sites.binary_search_by_key(&site, |id| id.site).ok()?;
        self.site_info(self.sites[index])
    }

    /// All sites, by their numbers.
    pub fn sites(&self) -> impl Iterator<Item = SiteInfo<'_>> {
        self.sites.iter().filter_map(|id| self.site_info(*id))
    }

    fn site_info(&self, id: SiteId) -> Option<SiteInfo<'_>> {
        let Note::Sites { image, sites } = self.notes.get(id.note as usize)? else {
            return None;
        };
        let (site, address, size, name) = sites.get(id.index as usize)?;
        Some(SiteInfo {
            site: *site,
            image: *image,
            address: *address,
            size: *size,
            name,
        })
    }

    /// The markers that may occur.
    pub fn markers(&self) -> &Markers {
        &self.markers
    }

    /// The path of an image.
    pub fn image(&self, number: u32) -> Option<&str> {
        match self.notes.get(*self.images.get(&number)? as usize)? {
            Note::Image { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The programs that ran in processes, in order of time: those that have notes, and of others those that have
    /// threads. A forked child runs its parent's program.
    pub fn processes(&self) -> Vec<ProcessInfo<'_>> {
        processes::processes(&self.notes, self.threads.iter().map(|(key, _)| *key))
    }

    /// The threads that have packets, or of which notes tell, by process, thread and begin.
    pub fn threads(&self) -> Vec<ThreadInfo<'_>> {
        self.threads
            .iter()
            .map(|(key, packets)| self.thread_info(key, packets))
            .collect()
    }

    /// The threads, and behind them the tasks of other processes that kernel events tell of, which have no records.
    pub fn tasks(&self) -> Vec<ThreadInfo<'_>> {
        let others = self.notes.iter().filter_map(|note| match note {
            Note::Other {
                process,
                thread,
                begin,
                name,
            } => Some(ThreadInfo {
                process: *process,
                thread: *thread,
                begin: *begin,
                name,
                in_namespace: false,
                alive_until: 0,
                streams: &self.streams,
                packets: &[],
            }),
            _ => None,
        });
        self.threads().into_iter().chain(others).collect()
    }

    fn thread_info<'a>(&'a self, key: &ThreadKey, packets: &'a [PacketId]) -> ThreadInfo<'a> {
        let note = self
            .names
            .get(key)
            .and_then(|&note| self.notes.get(note as usize));
        let name = match note {
            Some(Note::Thread { name, .. }) => name,
            _ => "",
        };
        ThreadInfo {
            process: key.process,
            thread: key.thread,
            begin: key.begin,
            name,
            in_namespace: self.is_inner(key.process, key.thread),
            alive_until: self.alive.until(key, packets.last()),
            streams: &self.streams,
            packets,
        }
    }

    /// What a thread is called in its own PID namespace, if it has one; a process, that is its first thread.
    pub fn inside(&self, process: u32, thread: u32) -> Option<u32> {
        let known = self.inside.get(&(process, thread)).copied().flatten();
        known.or_else(|| self.is_inner(process, thread).then_some(thread))
    }

    /// Whether the id of a thread, or, with 0, that of a process, is one of its own PID namespace, as that outside is not
    /// known.
    pub fn is_inner(&self, process: u32, thread: u32) -> bool {
        let mut ids = [0, thread].into_iter();
        ids.any(|id| self.inside.get(&(process, id)) == Some(&None))
    }

    /// The processors that have events, by number.
    pub fn processors(&self) -> impl Iterator<Item = ProcessorInfo<'_>> {
        self.processors.iter().map(|(number, stream)| {
            let announced = self.notes.iter().filter_map(|note| match note {
                Note::SystemLost { processor, events } if processor == number => Some(*events),
                _ => None,
            });
            ProcessorInfo {
                number: *number,
                stream,
                notes: &self.notes,
                lost: announced.max().unwrap_or(0),
            }
        })
    }

    /// The number of lost events: by the processes' counters or those of packets, whichever is larger.
    pub fn lost(&self) -> u64 {
        let counters = self.notes.iter().map(|note| match note {
            Note::Lost { events, .. } => *events,
            _ => 0,
        });
        let packets = self.threads().into_iter().map(|thread| thread.lost());
        let sum = |sum: u64, lost| sum.saturating_add(lost);
        counters.fold(0, sum).max(packets.fold(0, sum))
    }

    /// Calls that were left out since they were short.
    pub fn short_calls(&self) -> u64 {
        let threads = self.threads().into_iter();
        let packets = threads.flat_map(|thread| thread.packets());
        packets.fold(0, |sum, packet| sum.saturating_add(packet.short_calls()))
    }

    /// Whether the trace was ended in order.
    pub fn is_complete(&self) -> bool {
        self.notes
            .iter()
            .any(|note| matches!(note, Note::End { complete: true, .. }))
    }

    /// The first hundred flaws of the trace.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    pub fn damage_count(&self) -> u64 {
        self.damage_count
    }

    /// Bytes of its files that are left out because of damage, or missing.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether damage of its records would be noticed. Version 1 of the format had no checksums.
    pub fn has_check_sums(&self) -> bool {
        self.session.has_sums()
    }
}

/// The first note of each site number counts.
fn sites(notes: &[Note]) -> Vec<SiteId> {
    let mut ids = Vec::new();
    for (note, content) in (0..).zip(notes) {
        if let Note::Sites { sites, .. } = content {
            ids.extend((0..).zip(sites).map(|(index, site)| SiteId {
                site: site.0,
                note,
                index,
            }));
        }
    }
    ids.sort_by_key(|id| id.site);
    ids.dedup_by_key(|id| id.site);
    ids
}

fn clocks(notes: &[Note]) -> Clocks {
    Clocks::new(notes.iter().filter_map(|note| match *note {
        Note::Clock {
            counter,
            monotonic_ns,
            realtime_ns,
        } => Some(Snapshot {
            counter,
            monotonic_ns,
            realtime_ns,
        }),
        _ => None,
    }))
}

/// The note that names each thread.
fn thread_names(notes: &[Note]) -> HashMap<ThreadKey, u32> {
    let names = (0..).zip(notes).filter_map(|(index, note)| match *note {
        Note::Thread {
            process,
            thread,
            begin,
            ..
        } => Some((
            ThreadKey {
                process,
                thread,
                begin,
            },
            index,
        )),
        _ => None,
    });
    names.collect()
}

/// The threads whose records were made in the kernel.
fn kernel_threads(notes: &[Note]) -> HashSet<ThreadKey> {
    let threads = notes.iter().filter_map(|note| match *note {
        Note::Thread {
            process,
            thread,
            begin,
            kernel: true,
            ..
        } => Some(ThreadKey {
            process,
            thread,
            begin,
        }),
        _ => None,
    });
    threads.collect()
}

fn inside(notes: &[Note]) -> HashMap<(u32, u32), Option<u32>> {
    let numbers = notes.iter().filter_map(|note| match *note {
        Note::Inside {
            process,
            thread,
            number,
        } => Some(((process, thread), Some(number))),
        Note::Namespace { process, thread } => Some(((process, thread.unwrap_or(0)), None)),
        _ => None,
    });
    numbers.collect()
}

fn markers(notes: &[Note]) -> Markers {
    let mut markers = Markers::default();
    notes.iter().for_each(|note| markers.learn(note));
    markers
}

fn images(notes: &[Note]) -> HashMap<u32, u32> {
    let images = (0..).zip(notes).filter_map(|(index, note)| match *note {
        Note::Image { image, .. } => Some((image, index)),
        _ => None,
    });
    images.collect()
}
