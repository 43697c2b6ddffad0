//! A part of a trace as a trace of its own.
//!
//! Records are copied one by one: those of the selected threads after one value of the counter and before another. A
//! thread that had begun before has a RESYNC at the begin, where notes tell which of its calls were open.

use crate::index::{self, Entry};
use crate::kernel_events::{KernelEvent, KernelRecord};
use crate::layout::HEADER_WORDS;
use crate::merge::{self, Bases};
use crate::note::{Note, Selection, Session};
use crate::output::Output;
use crate::packet::Packet;
use crate::stream_file::StreamFile;
use crate::streams::positions;
use crate::thread_key::ThreadKey;
use crate::trace::Trace;
use crate::writer::Writer;
use anyhow::{Context, Result, ensure};
use nopal_abi::*;
use std::borrow::Cow;
use std::collections::HashSet;
use std::slice;
use zerocopy::IntoBytes;

/// What a selection has.
pub struct Select<'a> {
    pub selection: Selection,
    /// In place of the trace's own: calls that are open at the ends ([`Note::Open`], [`Note::Alive`]), and pauses of
    /// kernel events.
    pub notes: Vec<Note>,
    /// With their processors, and in order of time.
    pub kernel_events: &'a mut dyn Iterator<Item = (u32, KernelRecord)>,
    /// Makes names readable for `metadata`.
    pub readable: fn(&str) -> Cow<'_, str>,
    /// Called with the number of words that have been read since the last call.
    pub pause: &'a mut dyn FnMut(u64) -> Result<()>,
}

/// Writes a part of a trace. A directory must be empty or not there.
pub fn select(trace: &Trace, output: Output, select: Select) -> Result<()> {
    let Select {
        selection,
        notes,
        kernel_events,
        readable,
        pause,
    } = select;
    let session = Session {
        uuid: String::new(),
        selection: Some(Box::new(selection.clone())),
        ..trace.session().clone()
    };
    let mut writer = match output {
        Output::Directory(directory) => Writer::create(&directory, session)?,
        unnamed => Writer::create_in(unnamed, session)?,
    };
    writer.set_readable(readable);
    let threads = Threads::of(&selection, trace);
    let kept = trace.notes().iter().filter(|note| threads.keep(note));
    let kept = kept.filter(|note| selection.keeps(note));
    for note in kept.chain(&notes) {
        writer.note(note)?;
    }
    let open: HashSet<ThreadKey> = notes.iter().filter_map(opened).collect();
    for ((_, key), packets) in merge::by_thread(trace) {
        if threads.has(key) {
            let is_in_kernel = threads.kernel.contains(&key) && !open.contains(&key);
            write_thread(&selection, &packets, !is_in_kernel, &mut writer, pause)?;
            writer.thread_ended(key.process, key.thread, key.begin);
        }
    }
    for (processor, event) in kernel_events {
        match event.event {
            // Pauses are in notes.
            KernelEvent::Lost { events: 0 } => {}
            KernelEvent::Lost { events } => writer.kernel_events_lost(processor, events)?,
            _ => writer.system(processor, &[event])?,
        }
    }
    writer.flush_kernel_events()?;
    writer.sync_metadata()?;
    writer.note(&end(trace))
}

/// The selected threads.
struct Threads {
    own: Option<HashSet<ThreadKey>>,
    /// Those whose records were made in the kernel. They belong to other threads of the same numbers.
    kernel: HashSet<ThreadKey>,
    /// Kernel events name threads that are not selected.
    has_kernel_events: bool,
}

impl Threads {
    fn of(selection: &Selection, trace: &Trace) -> Threads {
        let key = |(process, thread, begin): &(u32, u32, u64)| ThreadKey {
            process: *process,
            thread: *thread,
            begin: *begin,
        };
        let own = selection.threads.as_ref();
        Threads {
            own: own.map(|threads| threads.iter().map(key).collect()),
            kernel: trace.kernel_threads(),
            has_kernel_events: trace.processors().next().is_some(),
        }
    }

    fn has(&self, key: ThreadKey) -> bool {
        let is_same = |own: &ThreadKey| (own.process, own.thread) == (key.process, key.thread);
        self.own.as_ref().is_none_or(|own| {
            own.contains(&key) || self.kernel.contains(&key) && own.iter().any(is_same)
        })
    }

    fn keep(&self, note: &Note) -> bool {
        match *note {
            Note::Thread {
                process,
                thread,
                begin,
                ..
            } => {
                let key = ThreadKey {
                    process,
                    thread,
                    begin,
                };
                self.has_kernel_events || self.has(key)
            }
            _ => true,
        }
    }
}

impl Selection {
    fn keeps(&self, note: &Note) -> bool {
        match note {
            Note::Session(_)
            | Note::Files { .. }
            | Note::Open { .. }
            | Note::Alive { .. }
            | Note::SystemPause { .. }
            | Note::End { .. } => false,
            Note::Text { counter, .. } => {
                self.from.is_none_or(|from| *counter > from)
                    && self.until.is_none_or(|until| *counter < until)
            }
            _ => true,
        }
    }
}

fn opened(note: &Note) -> Option<ThreadKey> {
    match *note {
        Note::Open {
            process,
            thread,
            begin,
            ..
        } => Some(ThreadKey {
            process,
            thread,
            begin,
        }),
        _ => None,
    }
}

/// Writes the packets of a thread, or the parts of them within the time. `resumes`: one that had begun before shows
/// that it had.
fn write_thread(
    selection: &Selection,
    packets: &[(&StreamFile, &Entry)],
    resumes: bool,
    writer: &mut Writer,
    pause: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (from, until) = (selection.from, selection.until.unwrap_or(u64::MAX));
    let begun = from.map_or(0, |from| {
        packets.partition_point(|(_, entry)| entry.clock_begin <= from)
    });
    let (mut sequence, mut discarded) = (0, 0);
    for (at, &(stream, entry)) in packets.iter().enumerate() {
        pause(entry.words().len() as u64)?;
        if at + 1 < begun || entry.clock_begin >= until {
            continue;
        }
        let packet = Packet::whole(entry, &stream.file);
        let header = index::header(&stream.file, entry).context("a packet has no header")?;
        let end = packet.words_before(until);
        let is_first = at + 1 == begun;
        let first = match from {
            Some(from) if is_first => packet.words_until(from).min(end),
            _ => 0,
        };
        let mut part = Part {
            words: vec![0; HEADER_WORDS],
            header,
        };
        match from.filter(|_| is_first) {
            Some(from) if resumes => {
                part.header.clock_begin = from;
                part.resume(from);
                // A packet that keeps its own RESYNC may be as long as one can be.
                if first < RESYNC_WORDS {
                    part.write((sequence, discarded), writer)?;
                    sequence += 1;
                    part.words.truncate(HEADER_WORDS);
                }
            }
            Some(from) => {
                let records = positions(packet.words(), entry.clock_begin);
                let mut kept = records.skip_while(|(_, at)| at.start < first);
                let begin = kept
                    .next()
                    .map_or(from, |(record, _)| record.clock.max(from));
                part.header.clock_begin = begin;
            }
            None => {}
        }
        if first == 0 {
            sequence += u64::from(entry.missing_before) + u64::from(entry.damage_before);
            discarded += entry.lost_before;
        }
        let begin = part.words.len();
        part.words.extend(&packet.words()[first..end]);
        if is_first {
            part.move_to(begin);
        }
        if part.words.len() > HEADER_WORDS {
            part.write((sequence, discarded), writer)?;
            sequence += 1;
        }
        stream.file.release(entry.words());
    }
    Ok(())
}

/// A packet that is being made of a part of another.
struct Part {
    words: Vec<u64>,
    header: ChunkHeader,
}

impl Part {
    fn resume(&mut self, clock: u64) {
        let of = (self.header.process, self.header.thread);
        let resync = Resync::new(clock, 0, 0, of, RESYNC_PART);
        self.words.extend(resync.words());
    }

    /// Moves the records that are before the packet's begin to it: only those can be that belong to a later event.
    fn move_to(&mut self, first: usize) {
        let clock = self.header.clock_begin;
        let mut at = first;
        while let Some([word, rest @ ..]) = self.words.get_mut(at..) {
            let read = Word(*word);
            if !read.is_resync() && read.kind() != KIND_HOLE {
                return;
            }
            let Some(length) = read.words(rest) else {
                return;
            };
            match rest.first_mut().filter(|_| read.is_resync()) {
                Some(whole) => {
                    *whole = clock.max(*whole);
                    *word = read.with_clock(*whole).0;
                }
                None => *word = read.with_clock(clock).0,
            }
            at += length;
        }
    }

    fn write(&mut self, (sequence, discarded): (u64, u64), writer: &mut Writer) -> Result<()> {
        let bytes = self.words.len() * 8;
        ensure!(bytes <= CHUNK_BYTES, "a packet of this trace is too long");
        let records = &self.words[HEADER_WORDS..];
        let mut end = self.header.clock_begin;
        let mut short_calls = 0;
        for (record, _) in positions(records, end) {
            end = record.clock;
            if let Event::ShortCalls { .. } = record.event {
                short_calls = self.header.short_calls;
            }
        }
        let header = ChunkHeader {
            sequence,
            discarded,
            clock_end: end,
            short_calls,
            ..self.header
        };
        Bases::default().renumber(&mut self.words[HEADER_WORDS..], &mut writer.occurring);
        writer.packet(&header, self.words.as_mut_bytes())
    }
}

/// The end of a selection: that of the trace.
fn end(trace: &Trace) -> Note {
    let own = trace.notes().iter().rev();
    let own = own
        .filter(|_| trace.damage_count() == 0)
        .find(|note| matches!(note, Note::End { .. }));
    let mut end = own
        .cloned()
        .unwrap_or_else(|| merge::end(slice::from_ref(trace)));
    if let Note::End { complete, why, .. } = &mut end
        && !trace.has_check_sums()
    {
        *complete = false;
        *why = "the trace that it was selected from has no checksums".into();
    }
    end
}
