//! From a process that runs to one that is traced, with as short a stop as can be.

use crate::collecting::notes::{self, note};
use crate::guardian::GUARDIAN;
use crate::launch::ensure_not_go;
use crate::memory::control_block;
use crate::memory::own_memory::{OwnMemory, take_back};
use crate::patch::change::Change;
use crate::patch::journal::Journal;
use crate::patch::remove::{PATIENCE, remove};
use crate::session::Session;
use crate::sites::fitting::Planned;
use crate::sites::modules::executed;
use crate::tracee::{PatchContext, Tracee, under_new_filter};
use anyhow::{Context, Result, bail, ensure};
use nopal_process::{Memory, StopError, Stopped, Thread};
use nopal_symbols::Image;
use std::time::{Duration, Instant};

/// How long the guardian of a killed session may take.
const FOR_GUARDIAN: Duration = Duration::from_secs(10);

/// As `/proc/PID/status` has it.
const STRICT: u32 = 1;

/// Says what will not work before anything is touched.
pub fn refuse_what_cannot_be(process: i32) -> Result<()> {
    ensure!(
        !nopal_serve::is_traced(process),
        "process {process} is traced by nopal already: `nopal ctl {process}` controls that, `nopal detach {process}` ends it"
    );
    let left = left_in(process);
    let examined = nopal_process::examine(process)?;
    take_out(&left?)?;
    let mut threads = nopal_process::threads(process)?.into_iter();
    let strict = |thread| {
        nopal_process::thread_status(process, thread).is_ok_and(|status| status.seccomp == STRICT)
    };
    ensure!(
        !(examined.filtered && threads.any(strict)),
        "a thread is under strict seccomp, where the clock may not be read: nobody can record the process"
    );
    ensure!(
        !under_new_filter(process) || is_root(),
        "a seccomp filter decides on the system calls of the process, and may kill it for those that nopal needs; \
         root can suspend the filter meanwhile"
    );
    let image = Image::open(&executed(process))?;
    ensure_not_go(&image, &"this")
}

/// Takes out what a session left in a process that was killed together with its guardian. Whether there was anything.
/// An error if a session still traces it.
pub fn clean_up(process: i32) -> Result<bool> {
    let left = left_in(process)?;
    take_out(&left)?;
    Ok(!left.is_empty())
}

/// What sessions have in a process. Of one that was killed, the guardian takes it out: it gets time for that.
fn left_in(process: i32) -> Result<Vec<Journal>> {
    let start = Instant::now();
    loop {
        let left = Journal::read_all(process);
        let is_left = |journal: &Journal| journal.tool.is_none() && journal.guardian.is_some();
        let at_work = left.iter().flatten().any(is_left)
            || matches!(
                nopal_process::examine(process),
                Err(StopError::TracedBy { name, .. }) if name == GUARDIAN
            );
        if !at_work || start.elapsed() > FOR_GUARDIAN {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn take_out(left: &[Journal]) -> Result<()> {
    for journal in left {
        let process = journal.process;
        match (journal.tool, journal.guardian) {
            (Some(tool), _) => bail!(
                "process {process} is traced by process {tool}, a nopal that cannot be reached from here: it belongs to \
                 another user, or has another XDG_RUNTIME_DIR; `kill -INT {tool}` ends it"
            ),
            (None, Some(guardian)) => bail!(
                "process {guardian}, the guardian of a nopal that was killed, has not taken that out of process {process} \
                 yet: try again, or after `kill -KILL {guardian}`"
            ),
            (None, None) => remove(journal)?,
        }
    }
    nopal_serve::remove_dead_names();
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Session {
    /// Makes a running process traced:
    ///
    /// 1. stop one thread, and let it get memory for nopal
    /// 2. make thunks; they stand complete before the first jump is written
    /// 3. stop; compare, write the jumps, move threads that stand in windows; go on
    ///
    /// What it has loaded is `planned` before.
    pub(crate) fn attach(&mut self, process: i32, planned: Planned) -> Result<()> {
        let mut context = PatchContext {
            settings: &self.settings,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        };
        let Planned { modules, imports } = planned;
        note(&self.shared.writer, &notes::process(process, &modules))?;
        context.files.write_notes(context.writer)?;
        context.want_statics(&modules);
        context.files.place_probes(&modules, context.writer)?;
        let (mut tracee, chosen) = {
            let mut stopped = stop_where_libc_is(process)?;
            let thread = stopped
                .keep_one()
                .context("no thread of the process can be stopped")?;
            if under_new_filter(process) {
                thread.suspend_seccomp(true)?;
            }
            let maps = nopal_process::maps(process)?;
            let own = OwnMemory::give(thread, &maps, context.settings)?;
            let given = own.ranges();
            let begun = Tracee::begin(thread, own, &maps, &modules, context.settings);
            let mut tracee = match begun {
                Ok(tracee) => tracee,
                Err(error) => {
                    take_back(thread, &given)?;
                    return Err(error);
                }
            };
            // Its other threads run on, and may have mapped something since.
            tracee.space = None;
            self.guardian.watch(&tracee.region);
            self.shared.add_region(tracee.region.clone());
            let chosen = tracee.make_room(&modules, &imports, thread, &mut context)?;
            (tracee, chosen)
        };
        let changes = tracee.add_modules(&modules, chosen, &imports, &mut context)?;
        self.guardian.watches();
        let inserted = insert(&mut tracee, changes, &mut context)
            .and_then(|()| tracee.settle_semaphores(&mut context));
        context.tell_unplaced();
        self.tracees.insert(process, tracee);
        inserted
    }
}

/// Stops one thread where its thread pointer leads to its control block: a program may have put it elsewhere for a while.
fn stop_where_libc_is(process: i32) -> Result<Stopped> {
    const ATTEMPTS: usize = 100;
    let memory = Memory::open(process)?;
    let is_there = |thread: &Thread| {
        let number = control_block::own_number(process, thread.tid())?;
        control_block::thread_slot(&memory, thread.thread_pointer()?, number)
    };
    for others in 0..ATTEMPTS {
        let mut stopped = Stopped::stop_one(process, others, PATIENCE)?;
        if stopped
            .keep_one()
            .is_none_or(|thread| is_there(thread).is_ok())
        {
            return Ok(stopped);
        }
        drop(stopped);
        std::thread::sleep(Duration::from_millis(1));
    }
    Stopped::stop_one(process, 0, PATIENCE)
}

fn insert(tracee: &mut Tracee, changes: Vec<Change>, context: &mut PatchContext) -> Result<()> {
    let mut stopped = Stopped::stop(tracee.process, PATIENCE)?;
    for thread in control_block::note_threads(&stopped, &tracee.memory, &tracee.places)? {
        context.warnings.push(format!(
            "thread {thread} is not recorded while it has no control block of its own as libc makes them"
        ));
    }
    let waiting = tracee.insert_stopped(&mut stopped, changes, context)?;
    stopped.detach_all();
    let waiting = tracee.insert(waiting, context)?;
    if !waiting.is_empty() {
        context.warnings.push(format!(
            "{} functions not traced: a signal handler would return into their first instructions",
            waiting.len()
        ));
    }
    Ok(())
}
