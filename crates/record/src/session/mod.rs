//! A session: the traced processes, what they ask and what is asked of them, from the first to the last.

mod budget;
pub mod control_files;
pub(crate) mod discarded;
pub mod engine;
pub mod finish;
mod gauge;
pub mod handle;
pub mod lock;
mod metrics;
pub mod requests;
pub mod serve;
pub mod signals;
pub(crate) mod states;
pub mod trigger;
pub mod unfollowed;
pub(crate) mod urged;
pub mod watchdog;

use crate::collecting::drain::Drain;
use crate::collecting::kernel_events::KernelEventKinds;
use crate::collecting::naming::task_note;
use crate::collecting::notes::{self, counter, note};
use crate::guardian::Guardian;
use crate::launch::{self, Arrived};
use crate::memory::bell::Bells;
use crate::memory::own_memory::take_back;
use crate::memory::region::Region;
use crate::options::{Ended, Options};
use crate::patch::remove::{self, Held};
use crate::processes::Processes;
use crate::refusal::Refusal;
use crate::running::{Looks, Met};
use crate::session::budget::HeldBudget;
use crate::session::discarded::Discarded;
use crate::session::handle::Work;
use crate::session::signals::Signals;
use crate::session::states::States;
use crate::session::unfollowed::Unfollowed;
use crate::session::urged::{Urged, go_on};
use crate::session::watchdog::Progress;
use crate::sites::catalog::Boundary;
use crate::sites::fitting::Planned;
use crate::tracee::{PatchContext, Tracee};
use anyhow::{Result, ensure};
use nopal_control::Control;
use nopal_process::{Ending, ExitWatch, Thread};
use nopal_serve::Server;
use nopal_trace::{Note, SubscriberId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How long the session sleeps where nobody wakes it for what it waits for: its budget, or the last processes' end.
const NAP: Duration = Duration::from_millis(10);
/// How often processes are looked for that no event has announced.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// The longest wait for the end of processes in which nothing of nopal's is left.
const ENDING: Duration = Duration::from_millis(100);
/// The same where one has no memory any more: it is ending, and may have many files to close.
const LONGEST_ENDING: Duration = Duration::from_secs(5);

/// How often processes are looked for that have come later, or more seldom, so that looking takes a two-hundredth of a
/// processor. A look lists the processes of the machine, and reads names of some, or the control groups, some 10 us each.
const GROWTH: Duration = Duration::from_secs(1);
const GROWTH_APART: u32 = 200;
const GROWTH_AT_MOST: Duration = Duration::from_secs(10);

/// Requests of other threads come by a [`crate::Handle`].
pub struct Session {
    pub(crate) options: Options,
    pub(crate) context: PatchContext,
    pub(crate) processes: Processes,
    /// The wanted state. An empty one is in its place while it is in use.
    pub(crate) control: Control,
    pub(crate) guardian: Guardian,
    pub(crate) service: Service,
    pub(crate) kernel_events: KernelEventKinds,
    pub(crate) subscribers: Subscribers,
    pub(crate) unfollowed: Unfollowed,
    /// By process, the numbers of functions and of probes in text that was made writable.
    pub(crate) left_text: BTreeMap<i32, [usize; 2]>,
    /// The processes that ran before us, where there are any: they are let go when the session ends, not waited for.
    pub(crate) attached: Vec<i32>,
    pub(crate) met: Met,
    pub(crate) looks: Looks,
    /// What control was asked to expect last, as long as the same functions are wanted.
    pub(crate) expected: Option<Planned>,
    /// Events that had been lost when the counts began.
    pub(crate) lost_before: u64,
    /// The same of written events.
    pub(crate) events_before: u64,
    /// Whether any site has been silent: its records are to be left out, or not any more.
    pub(crate) any_silent: bool,
    /// The states of sites as the trace tells them.
    pub(crate) states: States,
    /// The numbers of the sites of which the trace says that recorded calls are samples.
    pub(crate) sampled: HashSet<u32>,
    pub(crate) budget: Option<HeldBudget>,
    /// Recording was stopped as the trace was full.
    pub(crate) stopped_when_full: bool,
    pub(crate) discarded: Discarded,
    /// Processes that could not be left, as they are held: the guardian does it.
    pub(crate) held: Vec<(i32, Held)>,
    /// Processes whose functions were left before only root could have traced them.
    pub(crate) secret: Vec<i32>,
    /// Those of which it is told already that they could not.
    pub(crate) failed: Vec<i32>,
    /// How far leaving has come.
    pub(crate) progress: Progress,
    /// Wanted from outside.
    pub(crate) enough: bool,
}

/// The part of a session that serves others: its clients, and threads that hold a [`crate::Handle`].
pub(crate) struct Service {
    pub work_queue: Receiver<Work>,
    pub server: Option<Server>,
    /// Whether clients may come.
    pub is_served: bool,
    /// Why nobody can control the session.
    pub not_served: Option<String>,
    /// Whether control was asked for anything.
    pub is_attended: bool,
}

impl Service {
    pub fn new(work_queue: Receiver<Work>) -> Service {
        Service {
            work_queue,
            server: None,
            is_served: false,
            not_served: None,
            is_attended: false,
        }
    }
}

/// The subscribers to the trace's records and notes.
#[derive(Default)]
pub(crate) struct Subscribers {
    /// The triggers, while there are any.
    pub of_triggers: Option<SubscriberId>,
    /// By name.
    pub of_tracers: HashMap<String, SubscriberId>,
}

impl Session {
    /// Makes a process traced that stands at the start of a program that it has executed. Whether its sites are switched as
    /// is wanted.
    pub(crate) fn begin_executed(&mut self, thread: &mut Thread) -> Result<bool> {
        let image = launch::traceable(thread.pid())?;
        match launch::arrive(
            thread,
            image,
            &mut self.context.files,
            &self.context.settings,
            &self.guardian,
        )? {
            Some(arrived) => self.begin(thread, arrived, false),
            None => {
                self.unfollowed.add(thread.pid(), Unfollowed::ENDED);
                Ok(true)
            }
        }
    }

    /// The same for the program that control was begun with.
    pub(crate) fn begin_first(&mut self, thread: &mut Thread, arrived: Arrived) -> Result<bool> {
        self.begin(thread, arrived, true)
    }

    fn begin(&mut self, thread: &mut Thread, arrived: Arrived, is_first: bool) -> Result<bool> {
        let given = arrived.own.ranges();
        let known = self.context.shared.regions().len();
        let begun = self.begin_arrived(thread, arrived, is_first);
        // A region that is known is taken out with all else.
        if begun.is_err() && self.context.shared.regions().len() == known {
            take_back(thread, &given)?;
        }
        begun
    }

    fn begin_arrived(
        &mut self,
        thread: &mut Thread,
        arrived: Arrived,
        is_first: bool,
    ) -> Result<bool> {
        let process = thread.pid();
        let Arrived { maps, own, planned } = arrived;
        let Planned { modules, boundary } = planned;
        // Control knows the functions of the first one.
        if !is_first {
            self.expect(&modules, Boundary::Known(&boundary))?;
        }
        let context = &mut self.context;
        note(&context.shared.writer, &notes::process(process, &modules))?;
        if let Some(inside) = notes::inside(process) {
            note(&context.shared.writer, &inside)?;
        }
        if let Some(task) = task_note(process as u32, process as u32) {
            note(&context.shared.writer, &task)?;
        }
        context.files.write_notes(&context.shared.writer)?;
        context.want_statics(&modules);
        let placed = context.files.place_probes(&modules, &context.shared.writer);
        // A program that another one executes need not have them.
        if is_first {
            placed.map_err(Refusal::choice)?;
        }
        let mut tracee = Tracee::begin(thread, own, &maps, &modules, &context.settings)?;
        context.add_region(&tracee.region);
        self.guardian.watch(&tracee.region);
        let chosen = tracee.make_room(&modules, &self.control, thread, context)?;
        let is_switched = tracee.will_be_switched(&modules, &chosen);
        let mut changes = tracee.add_modules(&modules, chosen, context)?;
        // The start of a static program may stand in a window: that function stays as it is.
        let at = thread.registers()?.instruction_pointer();
        changes.retain(|change| {
            let window = change.window();
            at <= window.start || window.end < at
        });
        self.guardian.watches();
        tracee.insert_at_rest(changes, &maps, context)?;
        context.report_unplaced();
        tracee.settle_semaphores(context)?;
        self.watch_end(process);
        // The end of one that had this number must not be taken for its own.
        self.take_ends();
        self.processes.tracees.insert(process, tracee);
        Ok(is_switched)
    }

    /// A process is traced, or runs on without: the trace tells of it.
    pub(crate) fn keep_trace(&mut self) {
        let kept = self.context.shared.writer.lock().keep();
        if let Err(error) = kept {
            self.context.warnings.push(format!("{error:#}"));
        }
    }

    /// Ends the session as soon as it serves again. Processes that ran before are let go.
    pub fn end(&mut self) {
        self.enough = true;
    }

    /// Events that were not recorded so far.
    pub fn lost(&self) -> u64 {
        self.context.shared.counts().lost.all()
    }

    /// Serves the traced processes until the last one has ended, or the user wants no more. Returns how the program
    /// ended, and which processes run on.
    pub(crate) fn run(
        &mut self,
        main: &mut ExitWatch,
        signals: &Signals,
        drain: &Drain,
    ) -> Result<(Ended, Vec<i32>)> {
        let shared = self.context.shared.clone();
        let is_woken = self.wake_for(main, signals);
        // While the program runs; at our end, it would be waited for.
        self.context.files.let_pages_go();
        if let Some(first) = self.processes.tracees.keys().copied().min() {
            self.begin_budget(first);
        }
        let mut ended = None;
        let mut looked = Instant::now();
        let mut looked_around = looked;
        let may_grow = self.may_grow();
        let mut next_growth = looked + GROWTH;
        let deadline = self.options.time.map(|time| looked + time);
        let mut urged = Urged::default();
        loop {
            let bells = self.look_after();
            if looked_around.elapsed() > LOOK_AROUND {
                looked_around = Instant::now();
                self.look_around(bells.regions());
                self.look_for_discarded_text();
            }
            if may_grow && Instant::now() >= next_growth {
                let took = self.attach_newcomers();
                next_growth = Instant::now() + (took * GROWTH_APART).clamp(GROWTH, GROWTH_AT_MOST);
            }
            if ended.is_none()
                && let Some(ending) = main.poll()?
            {
                ended = Some(ended_as(ending));
                self.ended(main.pid(), counter(), ending);
            }
            self.enough |= ended.is_some() && urged.is_over();
            if let Some(ended) = ended
                && looked.elapsed() > LOOK_AROUND
            {
                looked = Instant::now();
                if self.left().is_empty() {
                    return Ok((ended, self.await_ends()));
                }
            } else if let Some(ended) = ended
                && self.processes.tracees.is_empty()
                && self.left().is_empty()
            {
                return Ok((ended, self.await_ends()));
            }
            let asked = signals.take();
            if asked.enough && (!self.attached.is_empty() || ended.is_some()) {
                self.progress.begin();
                self.enough = true;
            }
            self.enough |= deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.attached.is_empty() && ended.is_none() {
                let any = asked.enough || !asked.to_forward.is_empty();
                for signal in asked.to_forward {
                    urged.pass(main.pid(), signal);
                }
                if any {
                    go_on(main.pid());
                }
                if let Some(signal) = urged.in_vain(main.pid()) {
                    self.progress.begin();
                    return Ok((Ended::Left { signal }, self.left()));
                }
            }
            if self.enough {
                return Ok((ended.unwrap_or(Ended::RunsOn), self.left()));
            }
            ensure!(!drain.has_ended(), "collecting records failed");
            let none_sleeps = !nopal_process::release_sleepers();
            let nap = match (none_sleeps && is_woken && ended.is_none(), &self.budget) {
                (true, None) => LOOK_AROUND,
                (true, Some(budget)) if budget.rests() => budget::LOOK,
                _ => NAP,
            };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // The bell of a process that has come meanwhile is to be heard, too.
            if bells.regions().count() == shared.regions().len() {
                bells.wait(shared.bell(), left.map_or(nap, |left| left.min(nap)));
            }
        }
    }

    /// Answers what traced processes and clients have asked for, and has what is recorded be what is wanted. Returns the
    /// counts of the bells before.
    pub(crate) fn look_after(&mut self) -> Bells {
        let shared = self.context.shared.clone();
        // Before all that they are rung for.
        let bells = Bells::read(shared.bell(), shared.regions());
        for region in bells.regions() {
            for request in region.requests() {
                self.answer(region, &request);
            }
        }
        self.name_processes();
        self.work();
        self.obey_triggers();
        self.hold_budget();
        self.stop_when_full();
        self.take_ends();
        bells
    }

    /// Nothing that is recorded is written any more: the calls need not cost more than those of a stopped session.
    fn stop_when_full(&mut self) {
        let (is_full, _) = self.context.shared.after_end();
        if !is_full || self.stopped_when_full {
            return;
        }
        self.stopped_when_full = true;
        if let Err(error) = self.with_control(Control::stop) {
            self.context
                .warnings
                .push(format!("the full recording goes on: {error:#}"));
        }
    }

    /// Has a thread wait for the ends of processes, and for signals, so that the session need not look for them. False: it
    /// must.
    fn wake_for(&self, main: &ExitWatch, signals: &Signals) -> bool {
        let clone = |file: BorrowedFd| file.try_clone_to_owned();
        let (Ok(program), Ok(signals)) = (clone(main.as_fd()), clone(signals.as_fd())) else {
            return false;
        };
        let ends = self.context.shared.ends.clone();
        // The session may be over before any of them comes.
        let shared = Arc::downgrade(&self.context.shared);
        let wake = move || {
            let mut program = Some(program);
            loop {
                let program_ends = program.as_ref().map(AsFd::as_fd);
                let files = [Some(signals.as_fd()), ends.ready(), program_ends];
                let files = files.into_iter().flatten();
                let mut files: Vec<_> = files
                    .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
                    .collect();
                match poll(&mut files, None) {
                    Err(Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) => {}
                }
                // At once: the session may be at work.
                ends.notice();
                match shared.upgrade() {
                    Some(shared) => shared.wake(),
                    None => return,
                }
                let is_ready =
                    |file: Option<&PollFd>| file.is_some_and(|file| !file.revents().is_empty());
                let (is_signalled, last_is_ready) =
                    (is_ready(files.first()), is_ready(files.last()));
                drop(files);
                if program.is_some() && last_is_ready {
                    program = None;
                } else if is_signalled {
                    // Until the session has taken it.
                    std::thread::sleep(NAP);
                }
            }
        };
        std::thread::Builder::new().spawn(wake).is_ok()
    }

    /// Processes that still run with nopal's code in them.
    pub(crate) fn left(&mut self) -> Vec<i32> {
        self.take_ends();
        for process in self.processes.gone(None) {
            self.seen_gone(process);
        }
        let mut regions = self.context.shared.regions();
        regions.retain(|region| !region.is_deserted());
        if regions.is_empty() {
            return Vec::new();
        }
        let ours = [std::process::id() as i32, self.guardian.process()];
        remove::processes_with(&regions, &ours)
    }

    /// Forgets what is no more, so that a session does not grow with each process that it has seen.
    fn look_around<'a>(&mut self, regions: impl Iterator<Item = &'a Arc<Region>>) {
        for region in regions {
            region.free_answered(|process, thread| {
                !nopal_process::thread_alive(process, thread)
                    && Session::out_here(region, process, thread).is_empty()
            });
        }
        for region in self.context.shared.take_past() {
            self.guardian.forget(&region);
        }
        for process in self.processes.gone(Some(self.processes.main)) {
            self.seen_gone(process);
        }
    }

    /// Watches a process that is held, so that no other one can have got its number.
    fn watch_end(&self, process: i32) {
        if process != self.processes.main {
            self.context.shared.ends.watch(process, || true);
        }
    }

    /// Notes the ends that were noticed, but not that of the first process, which the session itself waits for.
    pub(crate) fn take_ends(&mut self) {
        for end in self.context.shared.ends.take() {
            if end.process != self.processes.main {
                self.ended(end.process, end.counter, end.ending);
            }
        }
    }

    /// Nothing of nopal's is left in any process: those that are watched end, as a rule.
    fn await_ends(&mut self) -> Vec<i32> {
        let deadline = Instant::now() + LONGEST_ENDING;
        let ends = &self.context.shared.ends;
        ends.wait(ENDING);
        while ends.any_is_ending() && Instant::now() < deadline {
            ends.wait(ENDING);
        }
        self.take_ends();
        Vec::new()
    }

    /// A process has ended some time ago. Of one that is watched, the end itself will be noticed.
    fn seen_gone(&mut self, process: i32) {
        if !self.context.shared.ends.watches(process) {
            self.ended(process, counter(), Ending::Unknown);
        }
    }

    fn ended(&mut self, process: i32, counter: u64, ending: Ending) {
        let tracee = self.processes.tracees.remove(&process);
        if self.processes.tracees.is_empty() {
            // The session ends, as a rule, and with it our own process, which takes the memory away in less time.
            std::mem::forget(tracee);
        }
        let status = match ending {
            Ending::Exited(code) => Some(code << 8),
            Ending::Killed { signal, .. } => Some(signal),
            Ending::Unknown => None,
        };
        let written = note(
            &self.context.shared.writer,
            &Note::Exit {
                process: process as u32,
                counter,
                status,
            },
        );
        if let Err(error) = written {
            self.context.warnings.push(format!("{error:#}"));
        }
    }
}

pub(crate) fn ended_as(ending: Ending) -> Ended {
    match ending {
        Ending::Exited(code) => Ended::Exited(code),
        Ending::Killed { signal, .. } => Ended::Killed { signal },
        Ending::Unknown => Ended::Exited(0),
    }
}
