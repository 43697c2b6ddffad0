//! A recording from its beginning to the trace's end.

use crate::attach;
use crate::collecting::collect::{Collector, Keep, Limit};
use crate::collecting::drain::{Drain, Shared};
use crate::collecting::kernel_events::KernelEventKinds;
use crate::collecting::notes::{self, counter, snapshot};
use crate::guardian::Guardian;
use crate::memory::own_memory::refuse_without_memory;
use crate::options::{Options, Outcome, Target, WhenFull};
use crate::processes::Processes;
use crate::program;
use crate::session::handle::Handle;
use crate::session::signals::Signals;
use crate::session::unfollowed::Unfollowed;
use crate::session::{Service, Session, Subscribers};
use crate::sites::catalog::{Catalog, Listed};
use crate::sites::files::Files;
use crate::sites::fitting::Planned;
use crate::sites::markers;
use crate::tracee::{PatchContext, Settings};
use anyhow::{Error, Result, bail, ensure};
use nopal_abi::{CHUNK_BYTES, Capture, WHEN_FULL_BLOCK, WHEN_FULL_DROP};
use nopal_agent::DEPTH_LIMIT;
use nopal_control::{Control, Facts};
use nopal_kernel_events::Kinds;
use nopal_process::{Auxiliary, ExitWatch, StopError};
use nopal_symbols::demangle;
use nopal_trace::{Subscriber, Writer};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// How far the buffer of a session can grow: this many times, but not beyond `MOST_ROOM` unless it begins so. All of it
/// is address space of the process, which may limit itself later, and memory if that locks what it has mapped.
const ROOM: u64 = 4;
const MOST_ROOM: u64 = 64 << 20;

/// A chunk for the thread that records, and one that is being written.
const LEAST_BUFFER: u64 = 2 * CHUNK_BYTES as u64;

/// Records a program that it starts, or processes that run. `started` gets the session when all is in place: before
/// the program runs, or when the processes are traced; and a line for each process that is not, with the reason. The calling process must have one thread only, and some memory is
/// not given back before it ends.
pub fn record(options: &Options, started: impl FnOnce(Handle, &[String])) -> Result<Outcome> {
    begin(options, None, started)
}

/// The same, but the records go to an audience, and no file gets them. What else the trace tells goes to both.
pub fn watch(
    options: &Options,
    subscriber: Box<dyn Subscriber>,
    started: impl FnOnce(Handle, &[String]),
) -> Result<Outcome> {
    begin(options, Some(subscriber), started)
}

fn begin(
    options: &Options,
    subscriber: Option<Box<dyn Subscriber>>,
    started: impl FnOnce(Handle, &[String]),
) -> Result<Outcome> {
    let settings = settings(options)?;
    // What no process could make right is refused at once.
    options.commands()?;
    match &options.target {
        Target::Program { program, arguments } => {
            program::record(options, settings, program, arguments, subscriber, started)
        }
        Target::Processes(processes) => {
            record_processes(options, settings, processes, subscriber, started)
        }
    }
}

/// A process that runs, as it was when it was looked at first.
struct Candidate {
    process: i32,
    watch: ExitWatch,
    program: Auxiliary,
}

impl Candidate {
    fn of(process: i32) -> Result<Candidate> {
        attach::refuse_what_cannot_be(process)?;
        let watch = ExitWatch::new(process)?;
        let program = nopal_process::auxiliary(process)?;
        Ok(Candidate {
            process,
            watch,
            program,
        })
    }
}

/// The processes that are not traced, and why.
#[derive(Default)]
struct LeftOut(Vec<(i32, Error)>);

impl LeftOut {
    /// What came of a process, unless it is left out.
    fn unless<T>(&mut self, process: i32, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.0.push((process, error))).ok()
    }

    fn describe(&self) -> Vec<String> {
        let lines = self.0.iter();
        let lines =
            lines.map(|(process, error)| format!("process {process} is not traced: {error:#}"));
        lines.collect()
    }

    /// None is traced.
    fn all(mut self) -> Error {
        match self.0.len() {
            1 => self.0.remove(0).1,
            _ => Error::msg(self.describe().join("; ")),
        }
    }
}

/// Attaches to each process; one that cannot be traced does not stop the others.
fn record_processes(
    options: &Options,
    settings: Settings,
    processes: &[i32],
    subscriber: Option<Box<dyn Subscriber>>,
    started: impl FnOnce(Handle, &[String]),
) -> Result<Outcome> {
    ensure!(
        processes.len() == 1 || options.events == Kinds::default(),
        "kernel events can be recorded with one process only (-e, -k)"
    );
    let mut left_out = LeftOut::default();
    let examine = |process: &i32| left_out.unless(*process, Candidate::of(*process));
    let candidates: Vec<Candidate> = processes.iter().filter_map(examine).collect();
    if candidates.is_empty() {
        return Err(left_out.all());
    }
    refuse_without_memory(&settings)?;
    let signals = Signals::before_launch()?;
    let mut guardian = Guardian::start(&options.directory)?;
    signals.after_launch()?;
    let mut files = Files::new();
    let plan = |candidate: Candidate| {
        let planned = Planned::of(candidate.process, &mut files);
        let planned = planned.map_err(|error| or_gone(&candidate, error));
        Some((left_out.unless(candidate.process, planned)?, candidate))
    };
    let (plans, candidates): (Vec<Planned>, Vec<Candidate>) =
        candidates.into_iter().filter_map(plan).unzip();
    let Some(first) = candidates.first() else {
        guardian.dismiss();
        return Err(left_out.all());
    };
    let begun = first_control(options, &settings, &plans, &files).and_then(|control| {
        let command = nopal_process::arguments(first.process).unwrap_or_default();
        Ok((control, create(options, &command, subscriber)?))
    });
    let (control, created) = begun.map_err(|error| {
        guardian.dismiss();
        or_gone(first, error)
    })?;
    let begun = (control, created, files);
    let (mut session, handle) = session(options, settings, begun, guardian, first.process);
    if let Err(error) = session.set_up_first() {
        session.guardian.dismiss();
        return Err(error);
    }
    let drain = drain(&session).inspect_err(|_| session.guardian.dismiss())?;
    let mut main = None;
    for (candidate, planned) in candidates.into_iter().zip(plans) {
        let attached = session.attach_candidate(&candidate, planned);
        if left_out.unless(candidate.process, attached).is_some() {
            session.attached.push(candidate.process);
            main.get_or_insert(candidate.watch);
        }
    }
    let Some(mut main) = main else {
        let _ = drain.stop();
        session.guardian.dismiss();
        return Err(left_out.all());
    };
    session.processes.main = main.pid();
    session.serve(handle.clone());
    started(handle, &left_out.describe());
    let ran = session.run(&mut main, &signals, &drain);
    let (ended, left) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            for process in session.left() {
                session.let_go(process);
            }
            session.guardian.dismiss();
            return Err(drain.stop().err().unwrap_or(error));
        }
    };
    session.serve_no_more();
    session.finish(ended, &left, drain)
}

impl Session {
    /// Makes a process traced. Where that fails, nothing is left in it.
    fn attach_candidate(&mut self, candidate: &Candidate, planned: Planned) -> Result<()> {
        let process = candidate.process;
        // Control was begun with the first one's boundary. Another process may call other functions of the same library
        // from outside of it.
        let is_first = process == self.processes.main;
        let expected = match is_first {
            true => Ok(()),
            false => self.expect(&planned.modules, &planned.boundary),
        };
        let attached = expected
            .and_then(|()| self.attach(process, &candidate.program, planned))
            .and_then(|is_switched| self.arrived(is_switched));
        attached.map_err(|error| {
            self.let_go(process);
            self.processes.tracees.remove(&process);
            or_gone(candidate, error)
        })
    }
}

/// An error of a process, which may be that it has ended, or executed another program than this.
fn or_gone(candidate: &Candidate, error: Error) -> Error {
    let Candidate {
        process, program, ..
    } = candidate;
    if !nopal_process::alive(*process) {
        return StopError::Ended.into();
    }
    match nopal_process::auxiliary(*process) {
        Ok(now) if now != *program => StopError::Executes.into(),
        _ => error,
    }
}

pub(crate) fn session(
    options: &Options,
    settings: Settings,
    (control, writer, files): (Control, Writer, Files),
    guardian: Guardian,
    main: i32,
) -> (Session, Handle) {
    let shared = Arc::new(Shared::new(writer));
    let (handle, work_queue) = Handle::new(shared.clone());
    let session = Session {
        options: options.clone(),
        context: PatchContext {
            settings,
            files,
            shared,
            warnings: Vec::new(),
        },
        processes: Processes::new(main),
        control,
        guardian,
        service: Service::new(work_queue),
        kernel_events: KernelEventKinds::default(),
        subscribers: Subscribers::default(),
        unfollowed: Unfollowed::default(),
        attached: Vec::new(),
        lost_before: 0,
        any_silent: false,
        enough: false,
    };
    (session, handle)
}

/// Control of a session that does what the options ask for. An error says what fits nothing of what is loaded in all
/// processes.
pub(crate) fn first_control(
    options: &Options,
    settings: &Settings,
    plans: &[Planned],
    files: &Files,
) -> Result<Control> {
    let facts = Facts {
        directory: &options.directory,
        capture: settings.capture,
        buffer: settings.buffer,
        clock: counter(),
        no_snapshots: options.no_snapshots(),
        no_detaching: None,
    };
    let listed = plans
        .iter()
        .flat_map(|planned| Listed::of_planned(&planned.modules, &planned.boundary));
    let mut seen = HashSet::new();
    let modules = listed
        .filter(|listed| seen.insert(listed.module.file.index))
        .collect();
    let mut catalog = Catalog::new(files, modules, facts);
    Control::begin(options.commands()?, &mut catalog)
}

pub(crate) fn drain(session: &Session) -> Result<Drain> {
    let keep = if session.options.when_full == WhenFull::Flight {
        Keep::Newest
    } else {
        Keep::All
    };
    let asked = session.options.max_bytes.map(Limit::Asked);
    let limit = asked.or_else(|| half_of_disk(&session.options.directory).map(Limit::Disk));
    let collector = Collector::new(keep, limit);
    Drain::start(
        session.context.shared.clone(),
        collector,
        &session.context.settings,
    )
}

/// Half of the bytes that are free where the trace is.
fn half_of_disk(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize) / 2)
}

pub(crate) fn create(
    options: &Options,
    command: &[OsString],
    subscriber: Option<Box<dyn Subscriber>>,
) -> Result<Writer> {
    let words = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let session = notes::session(words.collect(), options.as_given());
    let mut writer = Writer::create(&options.directory, session)?;
    writer.set_readable(demangle);
    if let Some(subscriber) = subscriber {
        writer.set_subscriber(subscriber);
    }
    writer.note(&snapshot())?;
    Ok(writer)
}

fn settings(options: &Options) -> Result<Settings> {
    ensure!(
        options.snapshot_when.is_empty() || options.when_full == WhenFull::Flight,
        "--snapshot-when needs --flight: a snapshot is of a flight recorder"
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
