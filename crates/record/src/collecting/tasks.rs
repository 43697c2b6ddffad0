//! Makes chunks of tasks out of those of a kernel's processors.
//!
//! A processor's chunk holds records of whatever tasks it ran: *runs* of records of the same task. Within a run, the task
//! may have been on other processors, if what this one ran meanwhile is not recorded. So the records of a task are put in
//! order by their clocks: a run is split where the task's next run on another processor begins. A record waits until every
//! processor has been read up to its clock.

use crate::collecting::collect::Collector;
use anyhow::Result;
use nopal_abi::*;
use nopal_trace::{Note, ThreadKey, Writer};
use std::collections::{BTreeMap, HashMap, VecDeque};
use zerocopy::IntoBytes;

/// Words of records in a chunk.
const ROOM: usize = (CHUNK_BYTES - CHUNK_HEADER_BYTES) / 8;

/// A task by its process and its own number; of the task that has number 0 on each processor, the processor's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Task {
    process: u32,
    thread: u32,
    processor: u64,
}

#[derive(Debug)]
struct Run {
    task: Task,
    /// Of its first record, and of its last.
    clock: u64,
    last: u64,
    words: Vec<u64>,
    /// Events lost on its processor right before.
    discarded: u64,
}

#[derive(Debug, Default)]
struct Processor {
    /// The chunk that is read, if any has been, and how many words of it have been.
    sequence: Option<u64>,
    words: usize,
    clock: u64,
    task: Option<Task>,
    discarded: u64,
    runs: VecDeque<Run>,
    /// A record of its last chunk is reserved and not stored.
    is_waiting: bool,
    /// All of its records before this clock have been read.
    complete: u64,
}

/// The records that are to become a chunk of a task.
#[derive(Debug)]
struct Growing {
    key: ThreadKey,
    words: Vec<u64>,
    first_clock: u64,
    clock: u64,
    sequence: u64,
    discarded: u64,
    /// Gaps of any processor that it knows of.
    gaps: u64,
}

/// A chunk of a task, as a process would have filled it.
#[derive(Debug, PartialEq)]
pub struct TaskChunk {
    pub header: ChunkHeader,
    pub words: Vec<u64>,
}

impl TaskChunk {
    /// Writes it, and the note of its thread before the first.
    pub fn write(self, collector: &mut Collector, writer: &mut Writer) -> Result<()> {
        if self.header.sequence == 0 {
            writer.note(&Note::Thread {
                process: self.header.process,
                thread: self.header.thread,
                begin: self.header.thread_begin,
                name: name_of(&self.header),
                kernel: true,
            })?;
        }
        let mut bytes = self.header.as_bytes().to_vec();
        bytes.extend_from_slice(self.words.as_bytes());
        collector.write_chunk_of_task(&mut bytes, writer)
    }
}

fn name_of(header: &ChunkHeader) -> String {
    match header.thread {
        0 => format!("swapper/{}", header.thread_begin & 0xffff),
        thread => {
            nopal_process::thread_name(header.process as i32, thread as i32).unwrap_or_default()
        }
    }
}

#[derive(Debug, Default)]
pub struct Tasks {
    /// By the mark that their chunks bear.
    processors: BTreeMap<u64, Processor>,
    tasks: HashMap<Task, Growing>,
    /// Gaps on any processor so far: whose records are missing there is not known.
    gaps: u64,
}

impl Tasks {
    /// Takes the records of a chunk, all words from its first on, that have come since the last time, up to the first
    /// that is not stored. Returns whether these are all: if not, no later chunk of the processor may be taken before the
    /// rest has been. Of a chunk that is not the one behind the last, nothing is taken: whoever looked for chunks has missed
    /// one.
    pub fn take(&mut self, header: &ChunkHeader, words: &[u64]) -> bool {
        let mark = header.thread_begin;
        let processor = self.processors.entry(mark).or_default();
        match processor.sequence {
            Some(known) if known == header.sequence => {}
            Some(known) if known + 1 != header.sequence => return false,
            _ => {
                processor.sequence = Some(header.sequence);
                processor.words = 0;
            }
        }
        let mut discarded = match processor.words {
            0 => header.discarded.saturating_sub(processor.discarded),
            _ => 0,
        };
        self.gaps += u64::from(discarded > 0);
        processor.discarded = processor.discarded.max(header.discarded);
        let mut at = processor.words;
        // A run goes on where the last one of its task ended; only a pause between the readings parts them.
        let mut run: Option<Run> = None;
        while let Some((&first, rest)) = words.get(at..).and_then(<[u64]>::split_first) {
            let word = Word(first);
            let Some(length) = word.words(rest).filter(|_| word.is_written()) else {
                break;
            };
            let Some(record) = words.get(at..at + length) else {
                break;
            };
            let whole = Resync::clock_of(record);
            // Its clock is stored last.
            let is_marker = whole.is_none() && word.kind() == KIND_EXTENDED;
            if whole == Some(0) || word.is_pending() || is_marker && record[1] == 0 {
                break;
            }
            processor.clock = match whole {
                Some(clock) => clock.max(processor.clock),
                None => word.clock_after(processor.clock),
            };
            if whole.is_some() {
                let (process, thread) = (record[4] as u32, (record[4] >> 32) as u32);
                let processor_of_idle = if thread == 0 { mark } else { 0 };
                processor.task = Some(Task {
                    process,
                    thread,
                    processor: processor_of_idle,
                });
            }
            self.gaps += u64::from(word.kind() == KIND_HOLE);
            at += length;
            let Some(task) = processor.task else {
                continue;
            };
            match &mut run {
                Some(run) if run.task == task => {
                    run.words.extend_from_slice(record);
                    run.last = processor.clock;
                }
                _ => {
                    processor.runs.extend(run.replace(Run {
                        task,
                        clock: processor.clock,
                        last: processor.clock,
                        words: record.to_vec(),
                        discarded: std::mem::take(&mut discarded),
                    }));
                }
            }
        }
        processor.runs.extend(run);
        processor.words = at;
        processor.is_waiting = words[at..].iter().any(|word| *word != 0);
        !processor.is_waiting
    }

    /// The chunks that the processor had at `clock` have been taken, as far as they are stored. What comes is not before
    /// `clock`, or, behind a record that is not stored, not before what has come.
    pub fn complete(&mut self, mark: u64, clock: u64) {
        let processor = self.processors.entry(mark).or_default();
        let until = match processor.is_waiting {
            true => processor.clock.saturating_add(1),
            false => clock,
        };
        processor.complete = processor.complete.max(until);
    }

    /// No record is stored any more: those that are not will never be. Returns on how many processors there is one. All
    /// behind it there is lost, of whatever tasks: each that is known gets a gap.
    pub fn end(&mut self) -> (u64, Vec<TaskChunk>) {
        let mut waiting = 0;
        for processor in self.processors.values_mut() {
            waiting += u64::from(processor.is_waiting);
            processor.complete = u64::MAX;
        }
        let mut chunks = Vec::new();
        if waiting > 0 {
            for task in self.tasks.values_mut() {
                let clock = task.clock;
                task.push(&[Word::hole(clock).0], clock, &mut chunks);
            }
        }
        (waiting, chunks)
    }

    /// Forgets the records that have been taken, which are of before.
    pub fn forget(&mut self) {
        for processor in self.processors.values_mut() {
            processor.runs.clear();
        }
    }

    /// The chunks that are full, of all that no other processor can still come before. A processor that has had no chunk
    /// yet has recorded nothing before `clock`.
    pub fn settle(&mut self, clock: u64) -> Vec<TaskChunk> {
        let complete = self.processors.values().map(|known| known.complete);
        let until = complete.min().unwrap_or(clock).min(clock);
        let mut chunks = Vec::new();
        while let Some(run) = self.next_run(until) {
            self.append(run, &mut chunks);
        }
        chunks
    }

    /// All that has been settled.
    pub fn flush(&mut self, clock: u64) -> Vec<TaskChunk> {
        let mut chunks = self.settle(clock);
        for task in self.tasks.values_mut() {
            chunks.extend(task.end_chunk());
        }
        chunks.sort_unstable_by_key(|chunk| (chunk.header.clock_begin, chunk.header.thread));
        chunks
    }

    /// The earliest run, if it begins before `until`: as far as it is before that, and before the task's next run on
    /// another processor.
    fn next_run(&mut self, until: u64) -> Option<Run> {
        let first = |known: &Processor| known.runs.front().map(|run| run.clock);
        let firsts = self.processors.iter().filter_map(|(mark, known)| {
            let clock = first(known).filter(|clock| *clock < until)?;
            Some((clock, *mark))
        });
        let (_, mark) = firsts.min()?;
        let run = self.processors.get_mut(&mark)?.runs.pop_front()?;
        let others = self.processors.iter().filter(|(other, _)| **other != mark);
        let next = others.filter_map(|(_, known)| {
            let before_its_end = known
                .runs
                .iter()
                .take_while(|other| other.clock <= run.last);
            let of_task = before_its_end.filter(|other| other.task == run.task);
            of_task.map(|other| other.clock).next()
        });
        let limit = next.fold(until, u64::min);
        let (run, rest) = run.split(limit);
        if let Some(rest) = rest {
            self.processors.get_mut(&mark)?.runs.push_front(rest);
        }
        Some(run)
    }

    fn append(&mut self, run: Run, chunks: &mut Vec<TaskChunk>) {
        let gaps = self.gaps;
        let task = self.tasks.entry(run.task).or_insert_with(|| Growing {
            key: ThreadKey {
                process: run.task.process,
                thread: run.task.thread,
                begin: match run.task.processor {
                    0 => run.clock,
                    mark => mark,
                },
            },
            words: Vec::new(),
            first_clock: run.clock,
            clock: run.clock,
            sequence: 0,
            discarded: 0,
            gaps,
        });
        if run.discarded > 0 {
            chunks.extend(task.end_chunk());
            task.discarded += run.discarded;
            task.gaps = gaps;
        }
        if task.gaps != gaps {
            task.gaps = gaps;
            task.push(
                &[Word::hole(task.clock.max(run.clock)).0],
                run.clock,
                chunks,
            );
        }
        for (record, clock) in run.records() {
            task.push(record, clock, chunks);
        }
    }
}

impl Run {
    /// Its records with their clocks.
    fn records(&self) -> impl Iterator<Item = (&[u64], u64)> {
        let mut rest = &self.words[..];
        let mut clock = self.clock;
        std::iter::from_fn(move || {
            let (&first, after) = rest.split_first()?;
            let length = Word(first).words(after).unwrap_or(rest.len());
            let (record, next) = rest.split_at(length.min(rest.len()));
            clock = match Resync::clock_of(record) {
                Some(whole) => whole.max(clock),
                None => Word(first).clock_after(clock),
            };
            rest = next;
            Some((record, clock))
        })
    }

    /// The first record and those before `limit`, and the rest.
    fn split(mut self, limit: u64) -> (Run, Option<Run>) {
        if self.last < limit {
            return (self, None);
        }
        let (mut words, mut last, mut clock) = (0, self.clock, None);
        for (record, at) in self.records() {
            if words > 0 && at >= limit {
                clock = Some(at);
                break;
            }
            words += record.len();
            last = at;
        }
        let rest = clock.map(|clock| Run {
            task: self.task,
            clock,
            last: self.last,
            words: self.words.split_off(words),
            discarded: 0,
        });
        self.last = last;
        (self, rest)
    }
}

impl Growing {
    fn push(&mut self, record: &[u64], clock: u64, chunks: &mut Vec<TaskChunk>) {
        if self.words.len() + record.len() > ROOM {
            chunks.extend(self.end_chunk());
        }
        if self.words.is_empty() {
            self.first_clock = clock;
            if !Word(record[0]).is_resync() {
                let of = (self.key.process, self.key.thread);
                let resync = Resync::new(clock, 0, 0, of, RESYNC_PART).words();
                self.words.extend_from_slice(&resync);
            }
        }
        self.words.extend_from_slice(record);
        self.clock = clock;
    }

    fn end_chunk(&mut self) -> Option<TaskChunk> {
        if self.words.is_empty() {
            return None;
        }
        let words = std::mem::take(&mut self.words);
        let header = ChunkHeader {
            clock_begin: self.first_clock,
            content_bits: ((words.len() * 8 + CHUNK_HEADER_BYTES) * 8) as u64,
            discarded: self.discarded,
            sequence: self.sequence,
            process: self.key.process,
            thread: self.key.thread,
            thread_begin: self.key.begin,
            ..ChunkHeader::default()
        };
        self.sequence += 1;
        Some(TaskChunk { header, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HIGH: u64 = 5 << 32;

    fn header(mark: u64, sequence: u64, discarded: u64) -> ChunkHeader {
        ChunkHeader {
            thread_begin: mark,
            sequence,
            discarded,
            ..ChunkHeader::default()
        }
    }

    fn switch(clock: u64, thread: u32) -> Vec<u64> {
        let (slot, stack) = (0x1000 * u64::from(thread) + 8, 0x1000 * u64::from(thread));
        Resync::new(HIGH + clock, slot, stack, (thread, thread), RESYNC_STACK)
            .words()
            .to_vec()
    }

    fn entry(clock: u64, site: u32) -> Vec<u64> {
        vec![Word::new(KIND_ENTRY, site, 8, clock).0]
    }

    /// The clocks of a task's entries, in order, over its chunks.
    fn clocks(chunks: &[TaskChunk], thread: u32) -> Vec<u64> {
        let mut found = Vec::new();
        for chunk in chunks.iter().filter(|chunk| chunk.header.thread == thread) {
            assert!(Word(chunk.words[0]).is_resync());
            let mut cursor = Cursor::new(&chunk.words);
            let mut clock = chunk.header.clock_begin;
            while let Some(record) = cursor.take(clock) {
                clock = record.clock;
                if let Event::Entry { .. } = record.event {
                    found.push(clock - HIGH);
                }
            }
            assert!(cursor.rest().is_empty());
        }
        found
    }

    fn holes(chunks: &[TaskChunk], thread: u32) -> usize {
        let of_thread = chunks.iter().filter(|chunk| chunk.header.thread == thread);
        let words = of_thread.flat_map(|chunk| &chunk.words);
        words
            .filter(|word| Word(**word).kind() == KIND_HOLE)
            .count()
    }

    #[test]
    fn a_task_that_moves_between_processors_keeps_its_order() {
        let mut tasks = Tasks::default();
        // Processor 2 is read first, and has the later run of task 7.
        let later = [switch(30, 7), entry(31, 1), entry(32, 1)].concat();
        assert!(tasks.take(&header(2, 0, 0), &later));
        tasks.complete(2, HIGH + 100);
        tasks.complete(1, HIGH);
        let waits = "the other processor may still have earlier ones";
        assert!(tasks.flush(u64::MAX).is_empty(), "{waits}");
        let earlier = [switch(10, 7), entry(11, 1), switch(12, 8), entry(40, 2)].concat();
        assert!(tasks.take(&header(1, 0, 0), &earlier));
        tasks.complete(1, HIGH + 100);
        let chunks = tasks.flush(u64::MAX);
        assert_eq!(clocks(&chunks, 7), [11, 31, 32]);
        assert_eq!(clocks(&chunks, 8), [40]);
        assert_eq!(chunks.len(), 2);
    }

    #[test]
    fn a_task_that_was_elsewhere_between_two_records_keeps_its_order() {
        let mut tasks = Tasks::default();
        // With a RESYNC where it comes back, as from the kernel's module, and without, as of kernel events.
        let here = [switch(10, 7), entry(11, 1), switch(40, 7), entry(41, 1)].concat();
        assert!(tasks.take(&header(1, 0, 0), &here));
        let there = [switch(20, 7), entry(21, 1), entry(60, 1)].concat();
        assert!(tasks.take(&header(2, 0, 0), &there));
        tasks.complete(1, HIGH + 50);
        tasks.complete(2, HIGH + 30);
        let later = "records of the other processor may still come";
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [11, 21], "{later}");
        (1..=2).for_each(|mark| tasks.complete(mark, HIGH + 70));
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [41, 60]);
    }

    #[test]
    fn records_that_are_not_stored_yet_are_taken_later() {
        let mut tasks = Tasks::default();
        let mut words = [switch(10, 7), entry(11, 1), vec![0], entry(13, 1)].concat();
        assert!(!tasks.take(&header(1, 0, 0), &words));
        tasks.complete(1, HIGH + 20);
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [11]);
        words[7] = entry(12, 1)[0];
        assert!(tasks.take(&header(1, 0, 0), &words));
        tasks.complete(1, HIGH + 20);
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [12, 13]);
    }

    #[test]
    fn a_record_that_is_not_stored_keeps_back_what_is_later_elsewhere() {
        let mut tasks = Tasks::default();
        let elsewhere = [switch(30, 7), entry(31, 1)].concat();
        assert!(tasks.take(&header(2, 0, 0), &elsewhere));
        // Of two chunks, the first is whole.
        let (first, mut second) = ([switch(10, 7), entry(11, 1)].concat(), [0, 0].to_vec());
        second.extend([entry(20, 1), switch(29, 8), entry(40, 2)].concat());
        assert!(tasks.take(&header(1, 0, 0), &first));
        assert!(!tasks.take(&header(1, 1, 0), &second));
        (1..=2).for_each(|mark| tasks.complete(mark, HIGH + 50));
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [11]);
        second.splice(..2, [entry(18, 1), entry(19, 1)].concat());
        assert!(tasks.take(&header(1, 1, 0), &second));
        tasks.complete(1, HIGH + 50);
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [18, 19, 20, 31]);
    }

    #[test]
    fn at_the_end_a_record_that_was_never_stored_is_a_gap_and_keeps_nothing_back() {
        let mut tasks = Tasks::default();
        let unstored = [switch(10, 7), entry(11, 1), vec![0], entry(13, 1)].concat();
        assert!(!tasks.take(&header(1, 0, 0), &unstored));
        let elsewhere = [switch(30, 8), entry(31, 1)].concat();
        assert!(tasks.take(&header(2, 0, 0), &elsewhere));
        (1..=2).for_each(|mark| tasks.complete(mark, HIGH + 50));
        let before = tasks.flush(u64::MAX);
        assert_eq!((clocks(&before, 7), clocks(&before, 8)), (vec![11], vec![]));
        assert_eq!(tasks.end(), (1, vec![]));
        let after = tasks.flush(u64::MAX);
        assert_eq!((clocks(&after, 7), clocks(&after, 8)), (vec![], vec![31]));
        assert_eq!(holes(&after, 7), 1);
    }

    #[test]
    fn a_chunk_behind_one_that_was_missed_is_taken_later() {
        let mut tasks = Tasks::default();
        let chunk = |clock| [switch(clock, 7), entry(clock + 1, 1)].concat();
        assert!(tasks.take(&header(1, 5, 0), &chunk(10)));
        assert!(!tasks.take(&header(1, 7, 0), &chunk(30)));
        tasks.complete(1, HIGH + 15);
        assert!(tasks.take(&header(1, 6, 0), &chunk(20)));
        assert!(tasks.take(&header(1, 7, 0), &chunk(30)));
        tasks.complete(1, HIGH + 40);
        assert_eq!(clocks(&tasks.flush(u64::MAX), 7), [11, 21, 31]);
    }

    #[test]
    fn what_a_processor_lost_is_a_gap_of_every_task() {
        let mut tasks = Tasks::default();
        let first = [switch(10, 7), entry(11, 1), switch(12, 8), entry(13, 1)].concat();
        assert!(tasks.take(&header(1, 0, 0), &first));
        tasks.complete(1, HIGH + 14);
        let before = tasks.flush(u64::MAX);
        assert!(before.iter().all(|chunk| chunk.header.discarded == 0));
        let second = [switch(20, 7), entry(21, 1), switch(22, 8), entry(23, 1)].concat();
        assert!(tasks.take(&header(1, 1, 5), &second));
        tasks.complete(1, HIGH + 30);
        let after = tasks.flush(u64::MAX);
        let discarded: Vec<_> = after
            .iter()
            .map(|chunk| (chunk.header.thread, chunk.header.discarded))
            .collect();
        assert_eq!(discarded, [(7, 5), (8, 0)], "they are counted once");
        assert_eq!((holes(&after, 7), holes(&after, 8)), (0, 1));
    }

    /// Tasks that run on random processors, whose chunks are read in random pieces.
    #[test]
    fn all_records_come_once_and_in_order() {
        let seed = std::env::var("NOPAL_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| std::process::id().into());
        println!("NOPAL_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        // The records of each processor.
        let mut streams: Vec<Vec<Vec<u64>>> = vec![Vec::new(); 3];
        let mut expected: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut runs_on: Vec<Option<u32>> = vec![None; 3];
        let mut last_on = [0; 3];
        for clock in 1..60_000 {
            let processor = random.usize(..3);
            let thread = match runs_on[processor] {
                Some(thread) if random.u8(..8) > 0 => thread,
                _ => {
                    runs_on[processor] = None;
                    if random.bool() {
                        continue;
                    }
                    let busy: BTreeSet<_> = runs_on.iter().flatten().copied().collect();
                    let free: Vec<_> = (1..6).filter(|thread| !busy.contains(thread)).collect();
                    let thread = free[random.usize(..free.len())];
                    runs_on[processor] = Some(thread);
                    if last_on[processor] != thread || random.bool() {
                        streams[processor].push(switch(clock, thread));
                    }
                    last_on[processor] = thread;
                    thread
                }
            };
            streams[processor].push(entry(clock, 1));
            expected.entry(thread).or_default().push(clock);
        }
        let mut tasks = Tasks::default();
        (1..=3).for_each(|mark| tasks.complete(mark, 0));
        let mut read = [0; 3];
        let mut chunks = Vec::new();
        while (0..3).any(|processor| read[processor] < streams[processor].len()) {
            let processor = random.usize(..3);
            let all = &streams[processor];
            read[processor] = all.len().min(read[processor] + random.usize(..3000));
            // A record that is not stored, and one behind it.
            let words = [&all[..read[processor]], &[vec![0, 1]]].concat().concat();
            assert!(!tasks.take(&header(processor as u64 + 1, 0, 0), &words));
            tasks.complete(processor as u64 + 1, u64::MAX);
            chunks.extend(match random.bool() {
                true => tasks.flush(u64::MAX),
                false => tasks.settle(u64::MAX),
            });
        }
        for (mark, all) in (1..).zip(&streams) {
            assert!(tasks.take(&header(mark, 0, 0), &all.concat()));
            tasks.complete(mark, u64::MAX);
        }
        chunks.extend(tasks.flush(u64::MAX));
        for (thread, expected) in expected {
            let found = clocks(&chunks, thread);
            let differs = found
                .iter()
                .zip(&expected)
                .position(|(one, other)| one != other);
            assert_eq!(
                (found.len(), differs),
                (expected.len(), None),
                "task {thread}"
            );
        }
        assert!(chunks.iter().all(|chunk| chunk.words.len() <= ROOM));
    }
}
