//! Several traces as one.
//!
//! Sites, images and events of markers are numbered anew, behind those of the traces before. Clocks stay as they are, so
//! all traces must be of one run of the system, in which the counter is the same.

use crate::clocks::Snapshot;
use crate::index::{self, Entry};
use crate::kernel_events::KernelEvent;
use crate::layout::HEADER_WORDS;
use crate::losses::Losses;
use crate::note::{Note, Session};
use crate::occurrences::Occurrences;
use crate::packet::Packet;
use crate::stream_file::StreamFile;
use crate::thread_key::ThreadKey;
use crate::trace::Trace;
use crate::writer::Writer;
use anyhow::{Context, Result, bail, ensure};
use nopal_abi::*;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use zerocopy::IntoBytes;

/// Clocks of one run of the system agree to this, and to this part of the time between them.
const PRECISION_NS: u64 = 1_000_000;
const PRECISION: u64 = 10_000;
/// The time at which the system was started, by the wall clock, moves by no more while the clock is set.
const SLEW_NS: u64 = 10_000_000_000;
/// Snapshots of the clocks that are nearer to each other do not tell the rate of the counter.
const APART_NS: u64 = 100_000_000;

/// The numbers that are added to those of a trace.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bases {
    site: u32,
    image: u32,
    event: u32,
}

impl Bases {
    fn site(&self, site: u32) -> u32 {
        // What a trace has beyond the limit is no site.
        let renumbered = site
            .checked_add(self.site)
            .filter(|site| *site < SITE_LIMIT);
        match site {
            0 => 0,
            _ => renumbered.unwrap_or(0),
        }
    }

    fn event(&self, event: u32) -> u32 {
        match event % EVENT_LIMIT >= EVENT_DEFINED {
            true => event + self.event,
            false => event,
        }
    }

    /// The bases of the trace behind this one.
    fn behind(&self, trace: &Trace) -> Result<Bases> {
        let sites = trace.sites().map(|site| site.site).max().unwrap_or(0);
        let mut next = Bases {
            site: self.site + sites,
            ..*self
        };
        for note in trace.notes() {
            match note {
                Note::Image { image, .. } => {
                    let image = self.image.checked_add(*image);
                    next.image = next.image.max(image.context(TOO_MANY)?);
                }
                Note::Marker { event, .. } => {
                    let which = event % EVENT_LIMIT;
                    next.event = next
                        .event
                        .max(self.event + which - which.min(EVENT_DEFINED) + 1);
                }
                _ => {}
            }
        }
        ensure!(
            next.site < SITE_LIMIT && next.event < EVENT_LIMIT - EVENT_DEFINED,
            TOO_MANY
        );
        Ok(next)
    }

    /// Renumbers records, up to one whose length is not known, which ends them for readers, too.
    pub fn renumber(&self, words: &mut [u64], occurring: &mut Occurrences) {
        let mut at = 0;
        while let Some((first, rest)) = words.get_mut(at..).and_then(<[u64]>::split_first_mut) {
            let word = Word(*first);
            let Some(length) = word.words(rest) else {
                return;
            };
            if word.has_site() || word.is_call_site() {
                *first = word.with_site(self.site(word.site())).0;
            } else if word.kind() == KIND_EXTENDED && !word.is_resync() {
                let low = Word::extended(self.event(word.event()), u64::from(word.low_clock()));
                *first = low.0;
                if word.event() == SHORT_CALLS {
                    let sites = rest.iter_mut().take(length - 1).skip(2);
                    for word in sites {
                        let (site, calls) = short_calls_of(*word);
                        *word = u64::from(self.site(site)) | u64::from(calls) << 32;
                    }
                }
            }
            if word.kind() != KIND_HOLE && !word.is_resync() {
                occurring.insert(*first);
            }
            at += length;
        }
    }

    /// None if the note is not to be in the merged trace.
    fn note(&self, note: &Note) -> Option<Note> {
        let mut note = note.clone();
        match &mut note {
            Note::Session(_)
            | Note::Clock { .. }
            | Note::Cost { .. }
            | Note::Files { .. }
            | Note::End { .. } => return None,
            Note::State { sites, .. } => {
                sites.iter_mut().for_each(|site| *site = self.site(*site));
            }
            Note::Counted { memory, calls, .. } => {
                // Another trace may have a memory of this number.
                *memory ^= u64::from(self.image) << 32;
                calls
                    .iter_mut()
                    .for_each(|(site, _)| *site = self.site(*site));
            }
            Note::Sites { image, sites } => {
                *image += self.image;
                sites.iter_mut().for_each(|site| site.0 = self.site(site.0));
            }
            Note::Open { calls, place, .. } => {
                let aside = place.aside.iter_mut().flat_map(|aside| &mut aside.calls);
                for call in calls.iter_mut().chain(aside) {
                    call.site = self.site(call.site);
                }
                for key in &mut place.given_up {
                    *key = key_of(self.site(site_of(*key)), tag_of(*key));
                }
            }
            Note::Marker { event, image, .. } => {
                *event = self.event(*event);
                *image += self.image;
            }
            Note::Module { image, .. }
            | Note::Unload { image, .. }
            | Note::Image { image, .. }
            | Note::Refused { image, .. } => *image += self.image,
            _ => {}
        }
        Some(note)
    }
}

const TOO_MANY: &str = "they have too many functions or markers";

/// Merges traces into one. Where not all of them have kernel events, it has none: it would not be known when the
/// threads of the others waited.
pub fn merge(traces: &[Trace], directory: &Path) -> Result<()> {
    could_merge(traces)?;
    let Some(first) = traces.first() else {
        bail!("there is no trace to read");
    };
    let least = traces.iter().map(|trace| trace.session().least_duration_ns);
    let session = Session {
        uuid: String::new(),
        least_duration_ns: least.max().unwrap_or(0),
        ..first.session().clone()
    };
    let mut writer = Writer::create(directory, session)?;
    for clock in clocks(traces) {
        writer.note(&clock)?;
    }
    let mut bases = vec![Bases::default()];
    for trace in traces {
        let own = bases[bases.len() - 1];
        // Where something is missing, it may have been the ends of calls.
        let is_known =
            |note: &&Note| trace.damage_count() == 0 || !matches!(note, Note::Alive { .. });
        let notes = trace.notes().iter().filter(is_known);
        for note in notes.filter_map(|note| own.note(note)) {
            writer.note(&note)?;
        }
        bases.push(own.behind(trace)?);
    }
    for (trace, bases) in traces.iter().zip(&bases) {
        write_threads(trace, bases, &mut writer)?;
    }
    if traces.iter().all(has_kernel_events) {
        write_kernel_events(traces, &mut writer)?;
    }
    writer.sync_metadata()?;
    writer.note(&end(traces))
}

/// Snapshots of all, in order of time.
fn clocks(traces: &[Trace]) -> Vec<Note> {
    let snapshots = traces.iter().flat_map(|trace| trace.clocks().snapshots());
    let mut snapshots: Vec<Snapshot> = snapshots.copied().collect();
    snapshots.sort_by_key(|snapshot| snapshot.counter);
    let last = snapshots.last().copied();
    let mut kept: Vec<Snapshot> = Vec::new();
    for snapshot in snapshots {
        let is_apart = |before: &Snapshot| {
            snapshot.monotonic_ns >= before.monotonic_ns.saturating_add(APART_NS)
        };
        if kept.last().is_none_or(is_apart) {
            kept.push(snapshot);
        }
    }
    if let Some(last) = last.filter(|last| kept.last() != Some(last)) {
        if kept.len() > 1 {
            kept.pop();
        }
        kept.push(last);
    }
    let note = |snapshot: Snapshot| Note::Clock {
        counter: snapshot.counter,
        monotonic_ns: snapshot.monotonic_ns,
        realtime_ns: snapshot.realtime_ns,
    };
    kept.into_iter().map(note).collect()
}

fn has_kernel_events(trace: &Trace) -> bool {
    trace.processors().next().is_some()
}

/// Refuses traces that cannot be told apart, or not be compared.
fn could_merge(traces: &[Trace]) -> Result<()> {
    let mut threads: HashSet<ThreadKey> = HashSet::new();
    let mut processes: HashSet<u32> = HashSet::new();
    for trace in traces {
        let name = trace.directory().display();
        if let Some(first) = traces.first() {
            ensure!(
                is_of_one_run(first, trace),
                "{} and {name} are of different runs of the system, whose clocks have nothing in common",
                first.directory().display()
            );
        }
        ensure!(
            trace.session().chunk_bytes <= CHUNK_BYTES as u32,
            "{name} has larger packets than this version of nopal writes"
        );
        let is_stop = |note: &Note| matches!(note, Note::Stopped { .. });
        ensure!(
            !trace.notes().iter().any(is_stop),
            "the recording of {name} was stopped meanwhile"
        );
        let mut own = HashSet::new();
        for thread in trace.threads() {
            let (process, begin) = (thread.process, thread.begin);
            own.insert(process);
            ensure!(
                !(thread.in_namespace && processes.contains(&process)),
                "process {process} of {name} is known by its number in a PID namespace, which a process of another trace has, too"
            );
            let key = ThreadKey {
                process,
                thread: thread.thread,
                begin,
            };
            ensure!(
                thread.packets().len() == 0 || threads.insert(key),
                "{name} has records of thread {} that another one has, too",
                thread.thread
            );
        }
        processes.extend(own);
    }
    Ok(())
}

/// Whether the counter and the clocks of two traces go together.
fn is_of_one_run(one: &Trace, other: &Trace) -> bool {
    let start = |trace: &Trace| {
        let snapshot = trace.clocks().snapshots().first().copied()?;
        Some(snapshot.realtime_ns.wrapping_sub(snapshot.monotonic_ns))
    };
    let (Some(own), Some(others)) = (start(one), start(other)) else {
        return false;
    };
    let first = |trace: &Trace| trace.clocks().snapshots()[0];
    let (from, to) = (first(one), first(other));
    let apart = from.monotonic_ns.abs_diff(to.monotonic_ns);
    let expected = one.clocks().monotonic_ns(to.counter);
    one.session().hostname == other.session().hostname
        && own.abs_diff(others) < SLEW_NS
        && expected.abs_diff(to.monotonic_ns) <= PRECISION_NS + apart / PRECISION
}

/// The packets of each thread, in order of time, by the begin of the thread.
pub(crate) fn by_thread(trace: &Trace) -> ByThread<'_> {
    let mut threads = ByThread::new();
    for stream in trace.streams() {
        for entry in &stream.packets {
            let key = (entry.thread.begin, entry.thread);
            threads.entry(key).or_default().push((stream, entry));
        }
    }
    for packets in threads.values_mut() {
        packets.sort_by_key(|(_, entry)| entry.clock_begin);
    }
    threads
}

type ByThread<'a> = BTreeMap<(u64, ThreadKey), Vec<(&'a StreamFile, &'a Entry)>>;

/// Writes the packets of each thread, in order of time.
fn write_threads(trace: &Trace, bases: &Bases, writer: &mut Writer) -> Result<()> {
    for ((_, key), packets) in by_thread(trace) {
        let (mut sequence, mut discarded) = (0, 0);
        for (stream, entry) in packets {
            sequence += u64::from(entry.missing_before) + u64::from(entry.damage_before);
            discarded += entry.lost_before;
            let header = index::header(&stream.file, entry).context("a packet has no header")?;
            let words = Packet::whole(entry, &stream.file).words();
            let mut packet = vec![0u64; HEADER_WORDS];
            packet.extend(words);
            bases.renumber(&mut packet[HEADER_WORDS..], &mut writer.occurring);
            let header = ChunkHeader {
                sequence,
                discarded,
                ..header
            };
            writer.packet(&header, packet.as_mut_bytes())?;
            stream.file.release(entry.words());
            sequence += 1;
        }
        writer.thread_ended(key.process, key.thread, key.begin);
    }
    Ok(())
}

/// Writes the events of each processor, in order of time. Nothing is known of a processor before a trace begins.
fn write_kernel_events(traces: &[Trace], writer: &mut Writer) -> Result<()> {
    let mut by_processor: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (number, trace) in traces.iter().enumerate() {
        for processor in trace.processors() {
            let events = by_processor.entry(processor.number).or_default();
            events.extend(processor.events());
        }
        let clocks = trace.clocks().snapshots();
        let counter = clocks.first().map_or(0, |snapshot| snapshot.counter);
        if number > 0 {
            writer.note(&Note::SystemPause { counter })?;
        }
    }
    for (processor, mut events) in by_processor {
        events.sort_by_key(|event| event.clock);
        for event in events {
            match event.event {
                // Pauses are in notes.
                KernelEvent::Lost { events: 0 } => {}
                KernelEvent::Lost { events } => writer.kernel_events_lost(processor, events)?,
                _ => writer.system(processor, &[event])?,
            }
        }
    }
    writer.end_kernel_events()
}

/// The end of the merged trace: complete if all are, else with the reason of the first that is not.
pub(crate) fn end(traces: &[Trace]) -> Note {
    let counter = traces.iter().filter_map(|trace| {
        let last = trace.clocks().snapshots().last()?;
        Some(last.counter)
    });
    let mut why = Vec::new();
    for trace in traces {
        let losses = Losses::of(trace);
        let flaw = match trace.damage_count() {
            0 => losses.flaw,
            _ => Some("the trace is damaged".into()),
        };
        why.extend(flaw.map(|flaw| match flaw.as_str() {
            "" => format!("{}: not completed", trace.directory().display()),
            flaw => format!("{}: {flaw}", trace.directory().display()),
        }));
    }
    Note::End {
        counter: counter.max().unwrap_or(0),
        complete: why.is_empty(),
        why: why.join("; "),
    }
}
