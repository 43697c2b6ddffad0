//! The parts of which each recording is made.

use crate::collecting::collect::{Collector, Keep};
use crate::collecting::drain::{Drain, Shared};
use crate::collecting::kernel_events::KernelEventKinds;
use crate::collecting::notes::{self, counter, snapshot};
use crate::collecting::trace_end::Limit;
use crate::guardian::Guardian;
use crate::options::{Options, WhenFull};
use crate::processes::Processes;
use crate::running::{Looks, Met};
use crate::session::discarded::Discarded;
use crate::session::handle::Handle;
use crate::session::states::States;
use crate::session::unfollowed::Unfollowed;
use crate::session::watchdog::Progress;
use crate::session::{Service, Session, Subscribers};
use crate::sites::blocks::Blocks;
use crate::sites::catalog::{Boundary, Catalog, Listed};
use crate::sites::files::Files;
use crate::sites::fitting::Planned;
use crate::tracee::{PatchContext, Settings};
use anyhow::Result;
use nopal_control::{Control, Facts};
use nopal_symbols::demangle;
use nopal_trace::{Subscriber, Writer};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

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
            blocks: Blocks::default(),
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
        left_text: BTreeMap::new(),
        discarded: Discarded::new(),
        held: Vec::new(),
        secret: Vec::new(),
        failed: Vec::new(),
        progress: Progress::default(),
        attached: Vec::new(),
        met: Met::default(),
        looks: Looks::default(),
        expected: None,
        lost_before: 0,
        events_before: 0,
        any_silent: false,
        states: States::new(),
        sampled: HashSet::new(),
        budget: None,
        stopped_when_full: false,
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
        no_starting: None,
    };
    let listed = plans
        .iter()
        .flat_map(|planned| Listed::all(&planned.modules, Boundary::Known(&planned.boundary)));
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
    let mut collector = Collector::new(keep, limit);
    collector.heartbeat = session.context.shared.heartbeat();
    collector.meter = session.context.shared.for_meter();
    collector.naming.ends = Some(session.context.shared.ends.clone());
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

/// A trace that is taken back unless it is [kept](Session::keep_trace).
pub(crate) fn create(
    options: &Options,
    command: &[OsString],
    subscriber: Option<Box<dyn Subscriber>>,
) -> Result<Writer> {
    let words = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let session = nopal_trace::Session {
        least_duration_ns: options.least.map_or(0, |least| least.as_nanos() as u64),
        ..notes::session(words.collect(), options.as_given())
    };
    let mut writer = Writer::create_for_now(&options.directory, session)?;
    writer.set_readable(demangle);
    if let Some(subscriber) = subscriber {
        writer.set_subscriber(subscriber);
    }
    writer.note(&snapshot())?;
    Ok(writer)
}
