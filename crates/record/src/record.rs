//! A recording from start to end.

use crate::options::{Options, Outcome, Target, WhenFull};
use crate::program;
use crate::running;
use crate::session::handle::Handle;
use crate::sites::markers;
use crate::tracee::Settings;
use anyhow::{Result, bail, ensure};
use nopal_abi::{CHUNK_BYTES, Capture, WHEN_FULL_BLOCK, WHEN_FULL_DROP};
use nopal_agent::DEPTH_LIMIT;
use nopal_trace::Subscriber;

/// How far the buffer of a session can grow: this many times, but not beyond `MOST_ROOM` unless it begins so. All of it
/// is address space of the process, which may limit itself later, and memory if that locks what it has mapped.
const ROOM: u64 = 4;
const MOST_ROOM: u64 = 64 << 20;

/// A chunk for the thread that records, and one that is being written.
const LEAST_BUFFER: u64 = 2 * CHUNK_BYTES as u64;

/// What the user is told when a session has begun.
#[derive(Default)]
pub struct Beginning {
    /// A line for each process that is not traced, with the reason.
    pub left_out: Vec<String>,
    /// The risk of the breakpoints that were taken.
    pub risk: Option<&'static str>,
    /// A line for each end of a section that is nothing yet.
    pub missing: Vec<String>,
}

/// Records a program that it starts, or processes that run. `started` gets the session when all is in place: before
/// the program runs, or when the processes are traced. The calling process must have one thread only, and some memory
/// is not given back before it ends.
pub fn record(options: &Options, started: impl FnOnce(Handle, Beginning)) -> Result<Outcome> {
    begin(options, None, started)
}

/// The same, but the records go to a subscriber, and no file gets them. Notes go to both.
pub fn watch(
    options: &Options,
    subscriber: Box<dyn Subscriber>,
    started: impl FnOnce(Handle, Beginning),
) -> Result<Outcome> {
    begin(options, Some(subscriber), started)
}

fn begin(
    options: &Options,
    subscriber: Option<Box<dyn Subscriber>>,
    started: impl FnOnce(Handle, Beginning),
) -> Result<Outcome> {
    let settings = settings(options)?;
    // Errors that are errors in any process are refused at once.
    options.commands()?;
    match &options.target {
        Target::Program { program, arguments } => {
            program::record(options, settings, program, arguments, subscriber, started)
        }
        Target::Processes(processes) => {
            running::record(options, settings, processes, subscriber, started)
        }
    }
}

fn settings(options: &Options) -> Result<Settings> {
    ensure!(
        options.snapshot_when.is_empty() || options.when_full == WhenFull::Flight,
        "--snapshot-when needs --flight: a snapshot is of a flight recorder"
    );
    ensure!(
        options.keep_slowest.is_none() || options.when_full == WhenFull::Flight,
        "--keep-slowest needs --flight: it keeps snapshots of a flight recorder"
    );
    ensure!(
        options.buffer_bytes >= LEAST_BUFFER,
        "a buffer of {} bytes is too small: it needs 128K, two chunks, at least",
        options.buffer_bytes
    );
    if options.events.functions()
        && !nopal_kernel::Device::is_there()
        && let Some(missing) = nopal_kernel_events::missing_for_functions()
    {
        bail!("functions of the kernel cannot be recorded (-k): {missing}");
    }
    ensure!(
        !options.events.markers() || nopal_kernel::Device::is_there(),
        "--kernel-markers needs nopal's module in the kernel (as root, modprobe nopal loads it)"
    );
    if let Some(depth) = options.depth {
        ensure!(
            (1..=DEPTH_LIMIT).contains(&depth),
            "the depth must be from 1 to {DEPTH_LIMIT}"
        );
        ensure!(
            !options.entry_only,
            "a depth needs exits: it cannot be combined with --entry-only"
        );
    }
    Ok(Settings {
        markers: markers::Wanted::new([])?,
        capture: Capture {
            arguments: options.record_arguments,
            ends: !options.entry_only,
            call_sites: options.call_sites,
        },
        buffer: options.buffer_bytes,
        room: options
            .buffer_bytes
            .saturating_mul(ROOM)
            .min(MOST_ROOM)
            .max(options.buffer_bytes),
        // The flight recorder gives up the oldest records: threads wait for that, rather than lose the newest.
        when_full: match options.when_full {
            WhenFull::Drop => WHEN_FULL_DROP,
            WhenFull::Block | WhenFull::Flight => WHEN_FULL_BLOCK,
        },
        depth: options.depth.unwrap_or(0),
        ordered: options.ordered,
    })
}
