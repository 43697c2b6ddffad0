//! Traces made without any program, for tests and measurements: what is in them is known.

use crate::header;
use crate::layout::*;
use crate::note::{Note, Session};
use crate::writer::{Chunk, Writer};
use anyhow::Result;
use nopal_abi::*;
use std::path::Path;

/// Records into chunks as a traced thread does.
pub struct Recorder {
    header: ChunkHeader,
    words: Vec<u64>,
    clock: u64,
    stack: u64,
    full: Vec<Vec<u64>>,
}

impl Recorder {
    pub fn new(process: u32, thread: u32, begin: u64) -> Recorder {
        let header = ChunkHeader {
            process,
            thread,
            thread_begin: begin,
            ..ChunkHeader::default()
        };
        Recorder {
            header,
            words: Vec::new(),
            clock: 0,
            stack: 0x7ffd_0000_0000,
            full: Vec::new(),
        }
    }

    pub fn entry(&mut self, clock: u64, site: u32, slot: u64) {
        self.record(clock, KIND_ENTRY, site, slot, &[]);
    }

    pub fn exit(&mut self, clock: u64, site: u32, slot: u64) {
        self.record(clock, KIND_EXIT, site, slot, &[]);
    }

    /// A record of any kind but an extended one, with what follows its first word.
    pub fn record(&mut self, clock: u64, kind: u32, site: u32, slot: u64, more: &[u64]) {
        if self.words.is_empty() {
            self.begin(clock, slot);
        } else if self.words.len() + 1 + more.len() > CHUNK_BYTES / 8 {
            self.end_chunk();
            self.begin(clock, slot);
        } else if clock >> 32 != self.clock >> 32 {
            self.resync(clock, slot, RESYNC_CLOCK);
            return self.record(clock, kind, site, slot, more);
        }
        let (kind, site, tag) = (u64::from(kind), u64::from(site), slot >> 4 & 0xff);
        self.words
            .push(clock & 0xffff_ffff | kind << 32 | site << 36 | tag << 56);
        self.words.extend_from_slice(more);
        self.clock = clock;
    }

    pub fn resync(&mut self, clock: u64, slot: u64, reason: u32) {
        if self.words.len() + RESYNC_WORDS > CHUNK_BYTES / 8 {
            self.end_chunk();
        }
        if self.words.is_empty() {
            return self.begin(clock, slot);
        }
        self.push_resync(clock, slot, reason);
    }

    /// Events that found no chunk free.
    pub fn lose(&mut self, events: u64) {
        self.end_chunk();
        self.header.discarded += events;
    }

    /// The words of the chunk being filled, header and all, to be damaged.
    pub fn words(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Goes on in a new chunk.
    pub fn end_chunk(&mut self) {
        if self.words.is_empty() {
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        words.resize(CHUNK_BYTES / 8, 0);
        self.full.push(words);
        self.header.sequence += 1;
    }

    /// The chunks that are full.
    pub fn take_full(&mut self) -> Vec<Vec<u64>> {
        std::mem::take(&mut self.full)
    }

    /// Writes the chunks that are full. Returns how many events they held.
    pub fn write_full(&mut self, writer: &mut Writer) -> Result<u64> {
        let mut sum = 0;
        for mut words in self.full.drain(..) {
            if let Chunk::Written { events, .. } = writer.chunk(bytes_mut(&mut words), true)? {
                sum += events;
            }
        }
        Ok(sum)
    }

    /// Writes all chunks, and ends the thread.
    pub fn finish(mut self, writer: &mut Writer) -> Result<u64> {
        self.end_chunk();
        let events = self.write_full(writer)?;
        writer.thread_ended(
            self.header.process,
            self.header.thread,
            self.header.thread_begin,
        );
        Ok(events)
    }

    fn begin(&mut self, clock: u64, slot: u64) {
        let mut words = [0; HEADER_WORDS];
        header::write(
            &ChunkHeader {
                clock_begin: clock,
                ..self.header
            },
            &mut words,
        );
        self.words.reserve_exact(CHUNK_BYTES / 8);
        self.words.extend_from_slice(&words);
        self.push_resync(clock, slot, RESYNC_CHUNK);
    }

    fn push_resync(&mut self, clock: u64, slot: u64, reason: u32) {
        let first =
            clock & 0xffff_ffff | u64::from(KIND_EXTENDED) << 32 | u64::from(EVENT_RESYNC) << 36;
        let identity = u64::from(self.header.process) | u64::from(self.header.thread) << 32;
        self.words.extend_from_slice(&[
            first,
            clock,
            slot,
            self.stack,
            identity,
            u64::from(reason),
        ]);
        self.clock = clock;
    }
}

/// The bytes of a chunk's words.
pub fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any u64 is bytes, and any bytes are a u64.
    unsafe { words.align_to_mut().1 }
}

/// Numbers that look random, the same ones for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }
}

/// What a made trace shall be like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    pub threads: u32,
    pub calls_per_thread: u64,
    /// Sites 1 to this number, named `function_1` and so on.
    pub functions: u32,
    /// The deepest nesting.
    pub depth: usize,
    /// Whether calls have arguments and results.
    pub arguments: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            seed: 1,
            threads: 2,
            calls_per_thread: 100_000,
            functions: 100,
            depth: 20,
            arguments: false,
        }
    }
}

/// What is true of one function of a made trace, in ticks, which are nanoseconds. A call inside a call of the same
/// function counts in both totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub calls: u64,
    pub total: u64,
    pub own: u64,
    pub shortest: u64,
    pub longest: u64,
}

impl Totals {
    fn add(&mut self, duration: u64, inside: u64) {
        self.shortest = if self.calls == 0 {
            duration
        } else {
            self.shortest.min(duration)
        };
        self.longest = self.longest.max(duration);
        self.calls += 1;
        self.total += duration;
        self.own += duration - inside;
    }
}

/// What is true of a made trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// By site number; nothing has site 0.
    pub functions: Vec<Totals>,
    /// Entries and exits.
    pub events: u64,
    /// The counter at the end.
    pub end: u64,
}

/// The image that all functions of a made trace are in.
pub const IMAGE: &str = "/usr/bin/synthetic";

const PROCESS: u32 = 1000;
const BEGIN: u64 = 1 << 40;

/// Makes a trace in `directory`.
pub fn write(directory: &Path, shape: &Shape) -> Result<Truth> {
    let session = Session {
        command: vec![IMAGE.into()],
        cores: 2,
        ..Session::default()
    };
    let mut writer = Writer::create(directory, session)?;
    describe(&mut writer, shape)?;
    let mut truth = Truth {
        functions: vec![Totals::default(); shape.functions as usize + 1],
        ..Truth::default()
    };
    for number in 0..shape.threads {
        let (thread, begin) = (PROCESS + number, BEGIN + u64::from(number));
        let name = format!("thread {number}");
        writer.note(&Note::Thread {
            process: PROCESS,
            thread,
            begin,
            name,
        })?;
        let random = Random::new(
            shape
                .seed
                .wrapping_mul(1 << 20)
                .wrapping_add(u64::from(number)),
        );
        let mut walk = Walk {
            shape,
            random,
            clock: begin,
            calls: Vec::new(),
            truth: &mut truth,
        };
        let mut recorder = Recorder::new(PROCESS, thread, begin);
        truth.events += walk.run(&mut recorder, &mut writer)?;
        let clock = recorder.clock;
        recorder.end_chunk();
        recorder.write_full(&mut writer)?;
        truth.end = truth.end.max(clock);
    }
    clock(&mut writer, truth.end)?;
    writer.note(&Note::Exit {
        process: PROCESS,
        counter: truth.end,
        status: Some(0),
    })?;
    writer.note(&Note::End {
        counter: truth.end,
        complete: true,
        why: "the program ended".into(),
    })?;
    writer.sync_metadata()?;
    Ok(truth)
}

/// A counter of 1 GHz.
fn clock(writer: &mut Writer, counter: u64) -> Result<()> {
    writer.note(&Note::Clock {
        counter,
        monotonic_ns: counter,
        realtime_ns: counter + 1_700_000_000_000_000_000,
    })
}

fn describe(writer: &mut Writer, shape: &Shape) -> Result<()> {
    clock(writer, BEGIN)?;
    writer.note(&Note::Process {
        process: PROCESS,
        parent: 1,
        counter: BEGIN,
        name: "synthetic".into(),
        executable: IMAGE.into(),
        arguments: vec![IMAGE.into()],
    })?;
    writer.note(&Note::Image {
        image: 1,
        path: IMAGE.into(),
        identity: "00".into(),
    })?;
    let (process, base, path) = (PROCESS, 0x5555_5555_0000, IMAGE.into());
    writer.note(&Note::Module {
        process,
        image: 1,
        counter: BEGIN,
        base,
        path,
    })?;
    let site = |number: u32| {
        (
            number,
            u64::from(number) * 0x40,
            0x40,
            format!("function_{number}"),
        )
    };
    writer.note(&Note::Sites {
        image: 1,
        sites: (1..=shape.functions).map(site).collect(),
    })
}

/// A thread that calls and returns at random.
struct Walk<'a> {
    shape: &'a Shape,
    random: Random,
    clock: u64,
    calls: Vec<Call>,
    truth: &'a mut Truth,
}

struct Call {
    site: u32,
    slot: u64,
    begin: u64,
    inside: u64,
}

impl Walk<'_> {
    fn run(&mut self, recorder: &mut Recorder, writer: &mut Writer) -> Result<u64> {
        let mut left = self.shape.calls_per_thread;
        let mut events = 0;
        while left > 0 || !self.calls.is_empty() {
            let random = self.random.number();
            self.clock += 1 + (random & 0x3f);
            let deeper =
                self.calls.is_empty() || self.calls.len() < self.shape.depth && random >> 63 == 0;
            if left > 0 && deeper {
                self.enter(recorder);
                left -= 1;
            } else {
                self.leave(recorder);
            }
            events += 1;
            if !recorder.full.is_empty() {
                recorder.write_full(writer)?;
            }
        }
        Ok(events)
    }

    fn enter(&mut self, recorder: &mut Recorder) {
        let site = 1 + self.random.below(u64::from(self.shape.functions.max(1))) as u32;
        let slot = 0x7ffd_ffff_f008 - 0x30 * self.calls.len() as u64;
        match self.shape.arguments {
            true => {
                let arguments =
                    std::array::from_fn::<u64, ARGUMENTS, _>(|index| self.clock + index as u64);
                recorder.record(self.clock, KIND_ENTRY_ARGS, site, slot, &arguments);
            }
            false => recorder.entry(self.clock, site, slot),
        }
        self.calls.push(Call {
            site,
            slot,
            begin: self.clock,
            inside: 0,
        });
    }

    fn leave(&mut self, recorder: &mut Recorder) {
        let Some(call) = self.calls.pop() else { return };
        match self.shape.arguments {
            true => recorder.record(
                self.clock,
                KIND_EXIT_RESULT,
                call.site,
                call.slot,
                &[call.begin],
            ),
            false => recorder.exit(self.clock, call.site, call.slot),
        }
        let duration = self.clock - call.begin;
        if let Some(totals) = self.truth.functions.get_mut(call.site as usize) {
            totals.add(duration, call.inside);
        }
        if let Some(caller) = self.calls.last_mut() {
            caller.inside += duration;
        }
    }
}
