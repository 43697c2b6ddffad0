//! Compares a trace that leaves out short calls with the trace that has all of them.
//!
//! `NOPAL_SEED=N` tries one seed; each failure says its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nopal_abi as abi;
use nopal_analysis::calls::{CallRebuilder, Ending, Frame, Sink, Style};
use nopal_analysis::drive::Drive;
use nopal_analysis::report;
use nopal_trace::synthetic::{Random, Recorder, bytes_mut};
use nopal_trace::{ChunkCursor, ChunkPhase, Note, Session, Trace, Writer};

const BEGIN: u64 = 0x1_ffff_f000;
const SITES: u32 = 6;
/// The counter has a tick each nanosecond.
const LEAST: u64 = 40;

/// A chunk as its thread leaves it, and the lengths that it had when it was written before.
type Made = (Vec<u64>, Vec<usize>);

/// The progress of a writer before it is killed: chunks, and parts of the next one.
type Killed = (usize, usize);

fn begin(path: &Path, least: u64) -> Writer {
    let session = Session {
        least_duration_ns: least,
        ..Session::default()
    };
    let mut writer = Writer::create(path, session).unwrap();
    for counter in [BEGIN, BEGIN + 1_000_000_000] {
        let clock = Note::Clock {
            counter,
            monotonic_ns: counter,
            realtime_ns: counter,
        };
        writer.note(&clock).unwrap();
    }
    let image = Note::Image {
        image: 1,
        path: "/program".into(),
        identity: String::new(),
    };
    let sites = (1..=SITES).map(|site| (site, u64::from(site) * 16, 16, format!("f{site}")));
    let sites = Note::Sites {
        image: 1,
        sites: sites.collect(),
    };
    for note in [image, sites] {
        writer.note(&note).unwrap();
    }
    writer
}

fn write_parts(writer: &mut Writer, (chunk, parts): &Made, cursor: &mut ChunkCursor) {
    for &part in parts {
        let mut grown = chunk[..part].to_vec();
        grown.resize(chunk.len(), 0);
        let written = writer.rest(bytes_mut(&mut grown), ChunkPhase::Growing, cursor);
        written.unwrap();
    }
}

fn write(path: &Path, least: u64, chunks: &[Made], killed: Option<Killed>) -> Trace {
    let mut writer = begin(path, least);
    if let Some((whole, parts)) = killed {
        for chunk in &chunks[..whole] {
            write_whole(&mut writer, chunk);
        }
        if let Some((chunk, all)) = chunks.get(whole) {
            let some = (chunk.clone(), all[..parts.min(all.len())].to_vec());
            write_parts(&mut writer, &some, &mut ChunkCursor::default());
        }
        drop(writer);
        writer = Writer::adopt(path).unwrap();
    }
    // A chunk that was read in part is there with all that was read of it.
    let read = killed.map_or(0, |(whole, _)| whole + 1).min(chunks.len());
    for (chunk, _) in &chunks[..read] {
        write_whole(&mut writer, &(chunk.clone(), Vec::new()));
    }
    for chunk in &chunks[read..] {
        write_whole(&mut writer, chunk);
    }
    let end = Note::End {
        counter: BEGIN + 1_000_000_000,
        complete: true,
        why: String::new(),
    };
    writer.note(&end).unwrap();
    drop(writer);
    Trace::open(path).unwrap()
}

fn write_whole(writer: &mut Writer, made: &Made) {
    let mut cursor = ChunkCursor::default();
    write_parts(writer, made, &mut cursor);
    let whole = &mut made.0.clone();
    let written = writer.rest(bytes_mut(whole), ChunkPhase::Settled, &mut cursor);
    written.unwrap();
}

/// A program of one thread: calls in calls, jumps from function to function, functions that are only entered,
/// exceptions, `longjmp`, and stacks between which it switches.
struct Program {
    random: Random,
    recorder: Recorder,
    clock: u64,
    /// By stack, the open calls: the site that returns, its slot, and whether it returns.
    stacks: [Vec<(u32, u64)>; 2],
    on: usize,
    arguments: bool,
    call_sites: bool,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut random = Random::new(seed);
        let arguments = random.below(3) == 0;
        let call_sites = random.below(3) == 0;
        Program {
            random,
            recorder: Recorder::new(7, 7, BEGIN),
            clock: BEGIN,
            stacks: [Vec::new(), Vec::new()],
            on: 0,
            arguments,
            call_sites,
        }
    }

    fn wait(&mut self) {
        let most = [3, 3, 30, 300][self.random.below(4) as usize];
        self.clock += 1 + self.random.below(most);
    }

    fn top(&self) -> u64 {
        let bottom = 0x7ffd_0000_0000 + self.on as u64 * 0x100_0000;
        self.stacks[self.on]
            .last()
            .map_or(bottom, |(_, slot)| *slot)
    }

    fn site(&mut self) -> u32 {
        1 + self.random.below(u64::from(SITES)) as u32
    }

    fn record(&mut self, kind: u32, site: u32, slot: u64) {
        let with = [
            abi::KIND_ENTRY_ARGS,
            abi::KIND_TAIL_ARGS,
            abi::KIND_ONLY_ARGS,
        ];
        if self.call_sites && matches!(kind, abi::KIND_ENTRY | abi::KIND_ONLY) {
            // Of no other call.
            let address = [self.clock];
            self.recorder
                .record(self.clock, abi::KIND_CALL_SITE, site, slot, &address);
        }
        let kind = match kind {
            abi::KIND_ENTRY if self.arguments => with[0],
            abi::KIND_TAIL if self.arguments => with[1],
            abi::KIND_ONLY if self.arguments => with[2],
            abi::KIND_EXIT if self.arguments => abi::KIND_EXIT_RESULT,
            kind => kind,
        };
        let more: &[u64] = match kind {
            abi::KIND_EXIT_RESULT => &[5],
            kind if with.contains(&kind) => &[1, 2, 3, 4, 5, 6],
            _ => &[],
        };
        self.recorder.record(self.clock, kind, site, slot, more);
    }

    fn call(&mut self) {
        let (site, slot) = (self.site(), self.top() - 16 * (1 + self.random.below(12)));
        self.record(abi::KIND_ENTRY, site, slot);
        self.stacks[self.on].push((site, slot));
    }

    fn leave(&mut self, kind: u32) {
        if let Some((site, slot)) = self.stacks[self.on].pop() {
            self.record(kind, site, slot);
        }
    }

    fn step(&mut self) {
        self.wait();
        let open = self.stacks[self.on].len() as u64;
        match self.random.below(100) {
            0..40 if open < 12 => self.call(),
            0..75 => self.leave(abi::KIND_EXIT),
            75..80 if open > 0 => {
                let (site, slot) = (self.site(), self.top());
                self.record(abi::KIND_TAIL, site, slot);
            }
            80..85 => {
                let (site, slot) = (self.site(), self.top() - 16 * (1 + self.random.below(12)));
                self.record(abi::KIND_ONLY, site, slot);
            }
            85..88 => self.leave(abi::KIND_UNWIND),
            88..90 if open > 1 => {
                let kept = 1 + self.random.below(open - 1) as usize;
                self.stacks[self.on].truncate(kept);
                let (site, slot) = (self.site(), self.top() - 64);
                let returns = self.random.below(2) == 0;
                let next = if returns { self.top() } else { slot };
                self.recorder.resync(self.clock, next, abi::RESYNC_JUMP);
                match returns {
                    true => self.leave(abi::KIND_EXIT),
                    false => {
                        self.record(abi::KIND_ENTRY, site, slot);
                        self.stacks[self.on].push((site, slot));
                    }
                }
            }
            90..93 => {
                self.on = 1 - self.on;
                let slot = self.top() - 32;
                let site = self.site();
                self.recorder.resync(self.clock, slot, abi::RESYNC_STACK);
                self.record(abi::KIND_ENTRY, site, slot);
                self.stacks[self.on].push((site, slot));
            }
            93..95 => self.recorder.end_chunk(),
            95 => self.recorder.end_chunk(),
            96 => self.clock += 0x8000,
            _ => self.wait(),
        }
    }

    fn run(mut self, steps: u64) -> Vec<Made> {
        for _ in 0..steps {
            self.step();
        }
        self.recorder.end_chunk();
        let mut random = self.random;
        let chunks = self.recorder.take_full().into_iter();
        let parted = chunks.map(|chunk| {
            let ends = ends(&chunk);
            let mut parts: Vec<usize> = (0..random.below(4))
                .map(|_| ends[random.below(ends.len() as u64) as usize])
                .collect();
            parts.sort_unstable();
            (chunk, parts)
        });
        parted.collect()
    }
}

/// The ends of the records of a chunk.
fn ends(chunk: &[u64]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = abi::CHUNK_HEADER_BYTES / 8;
    while let Some(word) = chunk.get(at).filter(|word| **word != 0) {
        at += abi::Word(*word).words(&chunk[at + 1..]).unwrap();
        ends.push(at);
    }
    ends
}

/// The result, whether by an exception, and where to.
type How = (Option<u64>, bool, u64);

/// The calls of the thread, as a trace tells them.
#[derive(Default, Debug)]
struct Seen {
    /// Begin, end and site.
    calls: BTreeMap<(u64, u64, u32), How>,
    /// Site, begin, and the time until which it is known to have been open.
    lost: BTreeMap<(u64, u32), u64>,
    strays: Vec<(u64, u32)>,
    only: BTreeSet<(u64, u32)>,
    short: BTreeMap<u32, u64>,
    /// Of the call that begins next, and of all others, by the notes of their frames.
    return_address: u64,
    return_addresses: Vec<u64>,
}

impl Sink for Seen {
    fn call_site(&mut self, return_address: u64) {
        self.return_address = return_address;
    }

    fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
        let frame = frames.last().unwrap();
        if frame.style() == Style::Only {
            self.only.insert((frame.clock, frame.site()));
        }
        self.return_addresses
            .push(std::mem::take(&mut self.return_address));
        self.return_addresses.len() as u32 - 1
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
        let call = (frame.clock, ending.clock, frame.site());
        let return_address = self.return_addresses[frame.note as usize];
        let how = (ending.result, ending.unwound, return_address);
        self.calls.insert(call, how);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _: bool) {
        self.lost.insert((frame.clock, frame.site()), clock);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.strays.push((ending.clock, frame.site()));
    }

    fn short(&mut self, _: u64, site: u32, calls: u32) {
        *self.short.entry(site).or_default() += u64::from(calls);
    }
}

fn seen(trace: &Trace) -> Seen {
    let mut seen = Seen::default();
    for thread in trace.threads() {
        let mut rebuilder = CallRebuilder::new();
        for packet in thread.packets() {
            rebuilder.packet(&packet, &mut seen);
        }
        rebuilder.end(0, &mut seen);
    }
    seen
}

fn seeds() -> Vec<u64> {
    match std::env::var("NOPAL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..150).collect(),
    }
}

/// Returns how many calls are left out.
fn compare(all: &Seen, trace: &Trace, what: &str) -> u64 {
    let some = seen(trace);
    let mut short: BTreeMap<u32, u64> = BTreeMap::new();
    for (call @ (begin, end, site), how) in &all.calls {
        match some.calls.get(call) {
            Some(same) => assert_eq!(same, how, "{what}"),
            None => {
                assert!(end - begin < LEAST, "{what}: {call:?} is missing");
                *short.entry(*site).or_default() += 1;
            }
        }
    }
    let new = some.calls.keys().find(|call| !all.calls.contains_key(call));
    assert_eq!(new, None, "{what}");
    assert!(some.only.is_subset(&all.only), "{what}");
    for (_, site) in all.only.difference(&some.only) {
        *short.entry(*site).or_default() += 1;
    }
    assert_eq!(some.short, short, "{what}");
    assert_eq!(some.strays, all.strays, "{what}");
    let lost = |seen: &Seen| seen.lost.keys().copied().collect::<Vec<_>>();
    assert_eq!(lost(&some), lost(all), "{what}");
    for (call, clock) in &some.lost {
        assert!(*clock <= all.lost[call], "{what}: {call:?}");
    }
    let sum = short.values().sum::<u64>();
    assert_eq!(trace.short_calls(), sum, "{what}");
    sum
}

#[test]
fn only_short_calls_are_left_out_and_each_is_counted() {
    let mut left_out = 0;
    for seed in seeds() {
        let place = tempfile::tempdir().unwrap();
        let chunks = Program::new(seed).run(60 + seed % 300);
        let all = seen(&write(&place.path().join("all"), 0, &chunks, None));
        let some = write(&place.path().join("some"), LEAST, &chunks, None);
        left_out += compare(&all, &some, &format!("seed {seed}"));
        let mut random = Random::new(seed);
        let killed = (
            random.below(chunks.len() as u64) as usize,
            random.below(4) as usize,
        );
        let some = write(&place.path().join("killed"), LEAST, &chunks, Some(killed));
        compare(&all, &some, &format!("seed {seed}, killed"));
    }
    assert!(left_out > 1000 || seeds().len() == 1, "{left_out}");
}

#[test]
fn a_report_has_the_number_of_calls_that_were_left_out() {
    let place = tempfile::tempdir().unwrap();
    let chunks = Program::new(3).run(4000);
    let report = |name: &str, least| {
        let trace = write(&place.path().join(name), least, &chunks, None);
        let rows = report::functions(&trace, &Drive::default()).unwrap().rows;
        let rows = rows.into_iter().map(|row| (row.function.clone(), row));
        (rows.collect::<BTreeMap<_, _>>(), trace)
    };
    let (all, _) = report("all", 0);
    let (some, trace) = report("some", LEAST);
    assert_eq!(all.len(), some.len());
    for (function, row) in &some {
        assert_eq!(row.calls + row.short, all[function].calls, "{function}");
        assert!(row.short > 0, "{function}");
    }
    let line = nopal_analysis::losses::line(&trace).unwrap();
    assert!(line.contains("shorter than 40 ns were left out"), "{line}");
}
