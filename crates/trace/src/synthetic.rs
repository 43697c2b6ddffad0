//! Traces with known contents, made without a program, for tests and measurements.

mod recorder;
mod scanner;
mod sums;

pub use recorder::{Recorder, bytes_mut};
pub use scanner::Scanner;
pub use sums::{notes_again, sum_again};

use crate::kernel_events::{KernelEvent, KernelRecord, Task, TaskState};
use crate::note::{Note, Session};
use crate::writer::Writer;
use anyhow::Result;
use nopal_abi::*;
use std::path::Path;

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

/// The parameters of a made trace.
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
    /// The number of times that the first thread sleeps and is woken, on each of two processors.
    pub sleeps: u64,
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
            sleeps: 0,
        }
    }
}

/// The true values of one function of a made trace, in ticks, which are nanoseconds. A call inside a call of the same
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

/// The true values of a made trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// The totals by site number; nothing has site 0.
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
            kernel: false,
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
        let events = walk.run(&mut recorder, &mut writer)?;
        let clock = walk.clock;
        truth.events += events;
        recorder.end_chunk();
        recorder.write_full(&mut writer)?;
        truth.end = truth.end.max(clock);
    }
    sleep(&mut writer, shape.sleeps)?;
    writer.note(&clock(truth.end))?;
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

/// Ticks from one event of a processor to the next.
pub const STEP: u64 = 100;

/// On each processor in turn the first thread goes to sleep, is woken, and runs again.
fn sleep(writer: &mut Writer, times: u64) -> Result<()> {
    let task = |thread: u32, name: &[u8]| {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name);
        Task {
            thread,
            priority: 120,
            name: bytes,
        }
    };
    let (own, idle) = (task(PROCESS, b"thread 0"), task(0, b"swapper"));
    for processor in 0..2u32 {
        let switch = |from: Task, to: Task, state: u8| KernelEvent::Switch {
            previous: from,
            process: from.thread,
            state: TaskState(state),
            next: to,
            flags: None,
        };
        let wakeup = KernelEvent::Wakeup {
            task: own,
            target: processor,
            waker_process: 0,
            waker: 0,
            is_new: false,
            flags: None,
        };
        let events = [switch(own, idle, b'S'), wakeup, switch(idle, own, b'R')];
        let rounds = u64::from(processor) * times..u64::from(processor + 1) * times;
        let clocks = (BEGIN + rounds.start * 3 * STEP..).step_by(STEP as usize);
        let events = rounds.flat_map(|_| events);
        let records: Vec<KernelRecord> = clocks
            .zip(events)
            .map(|(clock, event)| KernelRecord { clock, event })
            .collect();
        if !records.is_empty() {
            writer.system(processor, &records)?;
        }
    }
    writer.end_kernel_events()
}

/// A snapshot of a counter of 1 GHz that began in 2023.
pub fn clock(counter: u64) -> Note {
    Note::Clock {
        counter,
        monotonic_ns: counter,
        realtime_ns: counter + 1_700_000_000_000_000_000,
    }
}

fn describe(writer: &mut Writer, shape: &Shape) -> Result<()> {
    writer.note(&clock(BEGIN))?;
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
            recorder.write_full(writer)?;
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
