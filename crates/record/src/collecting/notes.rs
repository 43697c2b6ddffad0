//! The notes of a recording.

use crate::collecting::fair_mutex::FairMutex;
use crate::memory::control_block::own_number;
use crate::sites::choose::Loaded;
use anyhow::Result;
use nopal_trace::{Note, Session, ThreadKey, Writer};
use rustix::time::ClockId;
use std::borrow::Cow;
use std::time::Duration;

/// Writes a note. A full disk is not this note's matter: the collector meets it too, and says so.
pub fn note(writer: &FairMutex<Writer>, note: &Note) -> Result<()> {
    unless_full(writer.lock().note(note))
}

/// The same for many sites of an image.
pub fn sites<'a>(
    writer: &FairMutex<Writer>,
    image: u32,
    sites: impl ExactSizeIterator<Item = (u32, u64, u64, Cow<'a, str>)> + Clone,
) -> Result<()> {
    unless_full(writer.lock().sites(image, sites))
}

fn unless_full(written: Result<()>) -> Result<()> {
    match written {
        Err(error) if Writer::is_full(&error) => Ok(()),
        other => other,
    }
}

pub fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn clock(id: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Of the calling thread.
pub fn processor_time() -> Duration {
    Duration::from_nanos(clock(ClockId::ThreadCPUTime))
}

/// The counter and the kernel's clocks at one moment: of some tries, the one that took least time.
pub fn snapshot() -> Note {
    let read = || {
        let before = counter();
        let monotonic_ns = clock(ClockId::Monotonic);
        let between = counter();
        let realtime_ns = clock(ClockId::Realtime);
        (
            between - before,
            Note::Clock {
                counter: before.midpoint(between),
                monotonic_ns,
                realtime_ns,
            },
        )
    };
    let (_, note) = (0..8)
        .map(|_| read())
        .min_by_key(|(ticks, _)| *ticks)
        .unwrap_or_else(read);
    note
}

/// The first notes of a trace.
pub fn session(command: Vec<String>, options: Vec<String>) -> Session {
    let file = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let processors = file("/proc/cpuinfo");
    let cpu = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Session {
        command,
        directory: std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string(),
        hostname: file("/proc/sys/kernel/hostname"),
        kernel: format!(
            "{} {}",
            file("/proc/sys/kernel/ostype"),
            file("/proc/sys/kernel/osrelease")
        ),
        cpu: cpu.map_or_else(String::new, |(_, name)| name.to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        start_realtime_ns: clock(ClockId::Realtime),
        least_duration_ns: 0,
        options,
        ..Session::default()
    }
}

/// A process as it is now.
pub fn process(process: i32, modules: &[Loaded]) -> Note {
    let program = modules.iter().find(|module| module.executable);
    Note::Process {
        process: process as u32,
        parent: nopal_process::parent(process).unwrap_or(0) as u32,
        counter: counter(),
        name: nopal_process::name(process).unwrap_or_default(),
        executable: program.map_or_else(String::new, |program| program.name.clone()),
        arguments: nopal_process::arguments(process)
            .unwrap_or_default()
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect(),
    }
}

/// What a process calls itself, if it has a PID namespace of its own.
pub fn inside(process: i32) -> Option<Note> {
    let number = own_number(process, process).ok()?;
    (number != process).then_some(Note::Inside {
        process: process as u32,
        thread: process as u32,
        number: number as u32,
    })
}

/// A process that was forked from `ancestor`, or from a child of it, and first recorded in this thread. What it runs is
/// its ancestor's program.
pub fn forked(thread: ThreadKey, ancestor: u32) -> Note {
    Note::Process {
        process: thread.process,
        parent: ancestor,
        counter: thread.begin,
        name: String::new(),
        executable: String::new(),
        arguments: Vec::new(),
    }
}
