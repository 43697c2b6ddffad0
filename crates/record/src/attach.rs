//! From a process that runs to one that is traced, with as short a stop as can be.

use crate::collecting::naming::task_note;
use crate::collecting::notes::{self, note};
use crate::filters::{
    Permitting, is_under_new_filter, may_be_forbidden, may_suspend, under_new_filter,
};
use crate::guardian::GUARDIAN;
use crate::members::is_frozen;
use crate::memory::control_block;
use crate::memory::own_memory::{OwnMemory, take_back};
use crate::patch::change::Change;
use crate::patch::journal::Journal;
use crate::patch::remove::{PATIENCE, WhileHeld, has_mapped, remove};
use crate::session::Session;
use crate::sites::catalog::Boundary;
use crate::sites::fitting::Planned;
use crate::sites::go::ensure_not_go;
use crate::sites::modules::{self, executed, extent};
use crate::sites::signs::traces_itself;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::text::several;
use nopal_process::gone;
use nopal_process::{Auxiliary, Mapping, Memory, Module, StopError, Stopped, Thread};
use nopal_symbols::Image;
use std::time::{Duration, Instant};

/// How long the guardian of a killed session may take.
const FOR_GUARDIAN: Duration = Duration::from_secs(10);

/// The value in `/proc/PID/status`.
const STRICT: u32 = 1;

/// Says what will not work before anything is touched.
pub fn refuse_what_cannot_be(process: i32) -> Result<()> {
    ensure!(
        !nopal_serve::is_traced(process),
        "process {process} is already traced by nopal: `nopal ctl {process}` controls it, `nopal detach {process}` ends it"
    );
    ensure!(
        !is_frozen(process),
        "process {process} is frozen by its control group, as by `docker pause`: nopal can attach when it goes on"
    );
    let left = left_in(process);
    let examined = nopal_process::examine(process)?;
    // While one of its threads executes another program, a process has neither memory nor a program to look at.
    let or_gone = |error: anyhow::Error| {
        let cause = error.root_cause().downcast_ref::<std::io::Error>();
        match cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::NotFound) {
            true => gone(process).into(),
            false => error,
        }
    };
    left.and_then(|left| take_out(&left)).map_err(or_gone)?;
    let mut threads = nopal_process::threads(process)?.into_iter();
    let strict = |thread| {
        nopal_process::thread_status(process, thread).is_ok_and(|status| status.seccomp == STRICT)
    };
    ensure!(
        !(examined.filtered && threads.any(strict)),
        "a thread is under strict seccomp and may not read the clock: the process cannot be recorded"
    );
    ensure!(
        !under_new_filter(process) || may_suspend(),
        "a seccomp filter of the process may kill it for system calls that nopal needs; run nopal as root and under no filter, so outside of containers: then it suspends that one meanwhile"
    );
    let image = Image::open(&executed(process)).map_err(or_gone)?;
    ensure_not_go(&image, &"this")
}

/// Whether a process has the memory of a session that goes on: it is attached to it, or the process was forked from one
/// that is traced.
pub fn is_followed(process: i32) -> bool {
    let goes_on = |journals: Vec<Journal>| journals.iter().any(|journal| journal.tool().is_some());
    Journal::read_all(process).is_ok_and(goes_on)
}

/// Takes out what a session left in a process that was killed together with its guardian. Whether there was anything.
/// An error if a session still traces it.
pub fn clean_up(process: i32) -> Result<bool> {
    let left = left_in(process)?;
    take_out(&left)?;
    Ok(!left.is_empty())
}

/// What a session has in a process, and who took care of it at that moment.
struct Left {
    journal: Journal,
    tool: Option<i32>,
    guardian: Option<i32>,
}

impl Left {
    fn of(journal: Journal) -> Left {
        Left {
            tool: journal.tool(),
            guardian: journal.guardian(),
            journal,
        }
    }
}

/// The sessions in a process. The guardian of a killed one gets time to remove it.
fn left_in(process: i32) -> Result<Vec<Left>> {
    let start = Instant::now();
    loop {
        let left = Journal::read_all(process);
        let left = left.map(|all| all.into_iter().map(Left::of).collect::<Vec<_>>());
        let is_left = |left: &Left| left.tool.is_none() && left.guardian.is_some();
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

fn take_out(left: &[Left]) -> Result<()> {
    for Left {
        journal,
        tool,
        guardian,
    } in left
    {
        let process = journal.process;
        match (*tool, *guardian) {
            (Some(tool), _) => bail!(
                "process {process} is traced by process {tool}, a nopal that cannot be reached: it belongs to another user, or has another XDG_RUNTIME_DIR; `kill -INT {tool}` ends it"
            ),
            (None, Some(guardian)) => bail!(
                "process {guardian}, the guardian of a killed nopal, has not finished removing it from process {process}: try again, or after `kill -KILL {guardian}`"
            ),
            (None, None) => {
                remove(journal, WhileHeld::GiveUp, &|| ())?;
                ensure!(
                    !journal.has_hooks(&Memory::open(process)?),
                    "a thread of process {process} unwinds its stack through what an earlier nopal left in it, or does not stop: try again"
                );
            }
        }
    }
    if !left.is_empty() {
        nopal_serve::remove_dead_names();
    }
    Ok(())
}

impl Session {
    /// Makes a running process traced:
    ///
    /// 1. stop one thread, and let it get memory for nopal
    /// 2. make thunks; they stand complete before the first jump is written
    /// 3. stop; if libraries were loaded meanwhile, go on, and make their thunks too
    /// 4. compare, write the jumps, move threads that stand in windows; go on
    ///
    /// The files of the `program` in it are `planned` before. Returns whether its sites are switched as is wanted.
    pub(crate) fn attach(
        &mut self,
        process: i32,
        program: &Auxiliary,
        planned: Planned,
    ) -> Result<bool> {
        let context = &mut self.context;
        let Planned { modules, .. } = planned;
        context.files.write_notes(&context.shared.writer)?;
        context.want_statics(&modules);
        context
            .files
            .place_probes(&modules, &context.shared.writer)?;
        let (mut tracee, chosen) = {
            let mut stopped = stop_where_libc_is(process)?;
            // Addresses of an earlier program are of no use.
            if nopal_process::auxiliary(process)? != *program {
                return Err(StopError::Executes.into());
            }
            let thread = one_of(&mut stopped)?;
            let maps = nopal_process::maps(process)?;
            let own = OwnMemory::give(thread, &maps, &context.settings)?;
            let given = own.ranges();
            let begun = Tracee::begin(thread, own, &maps, &modules, &context.settings);
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
            context.add_region(&tracee.region);
            let chosen = tracee.make_room(&modules, &self.control, thread, context)?;
            (tracee, chosen)
        };
        // Not before: it may not be traceable yet, and is tried again.
        note(&context.shared.writer, &notes::process(process, &modules))?;
        if let Some(inside) = notes::inside(process) {
            note(&context.shared.writer, &inside)?;
        }
        if let Some(task) = task_note(process as u32, process as u32) {
            note(&context.shared.writer, &task)?;
        }
        let mut is_switched = tracee.will_be_switched(&modules, &chosen);
        let mut changes = tracee.add_modules(&modules, chosen, context)?;
        self.guardian.watches();
        let stopped = self.stop_with_libraries(&mut tracee, &mut changes, &mut is_switched);
        let context = &mut self.context;
        let inserted = stopped
            .and_then(|(stopped, maps)| insert(&mut tracee, stopped, changes, &maps, context))
            .and_then(|()| tracee.settle_semaphores(context))
            // From the first jump on, calls of libc's functions tell of further filters; a thread may have been in one.
            .and_then(|()| match may_be_forbidden(process, tracee.permitted) {
                true => tracee.fall_quiet(),
                false => Ok(()),
            });
        context.report_unplaced();
        if inserted.is_ok() {
            let region = &tracee.region;
            let ends = &context.shared.ends;
            ends.watch(process, || has_mapped(process, region));
        }
        // The end of one that had this number must not be taken for its own.
        self.take_ends();
        self.processes.tracees.insert(process, tracee);
        inserted.map(|()| is_switched)
    }

    /// Stops all threads when all loaded libraries are known, and returns their mappings, too. Calls must not be wrapped beside one that copies stacks, and
    /// from the first jump on the loader tells of those that come.
    fn stop_with_libraries(
        &mut self,
        tracee: &mut Tracee,
        changes: &mut Vec<Change>,
        is_switched: &mut bool,
    ) -> Result<(Stopped, Vec<Mapping>)> {
        /// A program may load and unload libraries all the time.
        const LOOKS: u32 = 16;
        let process = tracee.process;
        for _ in 0..LOOKS {
            let loaded = modules::with_code(process)?;
            let new = tracee.look_at_libraries(&loaded, &mut self.context)?;
            if !new.is_empty() {
                self.expect(&new, Boundary::With(tracee, &new))?;
                let mut stopped = stop_where_libc_is(process)?;
                let thread = one_of(&mut stopped)?;
                tracee.space = None;
                let (switched, more) =
                    tracee.make_thunks(&new, &self.control, thread, &mut self.context)?;
                *is_switched &= switched;
                // A library may have come where another one was that has gone since.
                let is_new = |change: &Change| {
                    let mut extents = new.iter().map(extent);
                    extents.any(|extent| extent.contains(&change.address))
                };
                changes.retain(|change| !is_new(change));
                changes.extend(more);
                if tracee.entry_only {
                    tracee.record_entries_only()?;
                }
            }
            tracee.keep_loaded(changes);
            let stopped = Stopped::stop(process, PATIENCE)?;
            let loaded = modules::with_code(process)?;
            if tracee.known.are(&loaded) {
                return Ok((stopped, leave_out_writable_text(tracee, loaded)));
            }
        }
        let stopped = Stopped::stop(process, PATIENCE)?;
        let loaded = modules::with_code(process)?;
        let new = tracee.look_at_libraries(&loaded, &mut self.context)?;
        let maps = leave_out_writable_text(tracee, loaded);
        tracee.keep_loaded(changes);
        if !new.is_empty() {
            tracee.entry_only = true;
            tracee.record_entries_only()?;
            self.context.warnings.push(format!(
                "{} not recorded, and only entries of all else: the process loads and unloads libraries all the time",
                several(new.len() as u64, "library is", "libraries are")
            ));
        }
        Ok((stopped, maps))
    }
}

/// The process may have made text writable since its mappings were read first: no jump told of that. Returns the mappings
/// of the files that it has `loaded`.
fn leave_out_writable_text(tracee: &mut Tracee, loaded: Vec<Module>) -> Vec<Mapping> {
    let maps: Vec<Mapping> = loaded.into_iter().flat_map(|it| it.mappings).collect();
    tracee.leave_out_writable_text(&maps);
    maps
}

/// A stopped thread that makes calls for us, which no filter of its own forbids.
fn one_of(stopped: &mut Stopped) -> Result<&mut Thread> {
    let thread = stopped
        .keep_one()
        .context("no thread of the process can be stopped")?;
    if is_under_new_filter(thread) {
        thread.suspend_seccomp(true)?;
    }
    Ok(thread)
}

/// Stops one thread where its thread pointer leads to its control block: a program may have put it elsewhere for a while,
/// and has none before its loader, or the start of a static program, has made the first. No thread can be kept while the
/// only one waits for a `vfork` child, as it may nearly all the time.
fn stop_where_libc_is(process: i32) -> Result<Stopped> {
    const LONGEST_WAIT: Duration = Duration::from_secs(2);
    const LEAST_TRIES: usize = 8;
    const LEAST_TIME: Duration = Duration::from_millis(100);
    const NAP: Duration = Duration::from_millis(1);
    let memory = Memory::open(process)?;
    let is_there = |thread: &Thread| {
        let number = control_block::own_number(process, thread.tid())?;
        control_block::thread_slot(&memory, thread.thread_pointer()?, number)
    };
    let together = traces_itself(process);
    let begun = Instant::now();
    let mut nap = NAP;
    for others in 0.. {
        let mut stopped = match together {
            true => Stopped::stop(process, PATIENCE)?,
            false => Stopped::stop_one(process, others, PATIENCE)?,
        };
        stopped.stay_together(together);
        let Some(thread) = stopped.keep_one() else {
            if begun.elapsed() > LONGEST_WAIT {
                return Ok(stopped);
            }
            drop(stopped);
            std::thread::sleep(NAP);
            continue;
        };
        let has_pointer = thread.thread_pointer()? != 0;
        let is_over = others >= LEAST_TRIES && begun.elapsed() > LEAST_TIME;
        if is_there(thread).is_ok() || is_over && has_pointer {
            return Ok(stopped);
        }
        drop(stopped);
        if is_over {
            break;
        }
        std::thread::sleep(nap);
        // A program that has no libc never has a pointer: it is not to be stopped a hundred times for that.
        nap = if has_pointer { NAP } else { 2 * nap };
    }
    Err(StopError::NoControlBlock.into())
}

fn insert(
    tracee: &mut Tracee,
    mut stopped: Stopped,
    changes: Vec<Change>,
    maps: &[Mapping],
    context: &mut PatchContext,
) -> Result<()> {
    for thread in control_block::note_threads(&stopped, &tracee.memory, &tracee.places)? {
        context.warnings.push(format!(
            "thread {thread} is not recorded while it has no libc thread control block of its own"
        ));
    }
    /// It takes some 20 us to look at a thread.
    const FEW: usize = 500;
    let threads = stopped.threads();
    // They ran on since the last look.
    let mut permitting = Permitting::default();
    let forbidden = threads.len() <= FEW
        && may_be_forbidden(tracee.process, tracee.permitted)
        && threads
            .iter()
            .any(|thread| is_under_new_filter(thread) && permitting.of(thread).is_none());
    if forbidden {
        context.warnings.push(format!(
            "process {} is under a seccomp filter that may forbid what nopal does in it: of most calls only the entries are recorded, and programs that it executes are not traced",
            tracee.process
        ));
    }
    if forbidden || threads.iter().any(Thread::dispatches_system_calls) {
        tracee.fall_quiet()?;
    }
    let waiting = tracee.insert_stopped(&mut stopped, changes, maps, context)?;
    stopped.detach_all();
    let waiting = tracee.insert(waiting, context)?;
    if !waiting.is_empty() {
        context.warnings.push(format!(
            "{} not traced: a signal handler may return into the first instructions",
            several(waiting.len() as u64, "function is", "functions are")
        ));
    }
    Ok(())
}
