//! A tracer on a trace that is being recorded.

use nopal_beside::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use nopal_trace::{
    Batch, KernelEvent, KernelRecord, Markers, Note, Subscriber, TaskFacts, ThreadKey,
};

use super::durations::{Durations, Histogram};
use super::slowest::Slowest;
use super::watcher::{State, Watcher};
use super::{Case, Cases, EventKind, LatencyEvent, Missing, Roles, Run, Scheduling, Tracer, Turn};
use crate::calls::CallRebuilder;
use crate::kernel_events::Running;
use crate::live_notes::LiveNotes;

/// Cases above the threshold that are kept: the last ones.
const KEPT: usize = 16;
/// Cases without an end that are reported, likewise.
const GIVEN_UP: usize = 8;
/// The slowest cases of each such time are kept.
const MINUTE_NS: u64 = 60_000_000_000;
/// Records of a slow case wait so long for those of a slower one: they are copied together.
const WAIT_NS: u64 = 1_000_000_000;
/// A case that is open for longer has no end.
pub const TIMEOUT_NS: u64 = 60_000_000_000;

/// A running tracer.
#[derive(Clone)]
pub struct Live(Arc<Mutex<Watching>>);

/// Equal only if they are one tracer; two of the same name are not.
impl PartialEq for Live {
    fn eq(&self, other: &Live) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Live({:p})", self.0)
    }
}

/// Receives the records for it.
pub struct LiveSubscriber {
    watching: Arc<Mutex<Watching>>,
    ask: AskTask,
}

/// Reads the user and the scheduling of a thread of a process; `None` if it has ended.
pub type AskTask = fn(u32, u32) -> Option<TaskFacts>;

/// A case, and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub case: Case,
    pub ns: u64,
    pub begin_thread: ThreadKey,
    pub end_thread: ThreadKey,
    /// The facts of the thread in which it began, when it was kept.
    pub task: Option<TaskFacts>,
}

/// A case that is among the slowest of its minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCase {
    /// The case's number among those of the tracer.
    pub id: u64,
    pub finding: Finding,
}

/// The results so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub cases: u64,
    /// Since the last reset.
    pub worst: Option<Finding>,
    /// The last that were above the threshold, and how many were before them.
    pub kept: Vec<Finding>,
    pub kept_before: u64,
    pub missing: Missing,
    /// The last that had no end within the timeout.
    pub given_up: Vec<Finding>,
    /// Events without the values that the tracer needs.
    pub unknown: u64,
    /// Events while functions of the ends were counted or off.
    pub untimed: u64,
}

struct Watching {
    roles: Roles,
    /// Made at the first event: functions that a tracer needs may be inserted, and described, after it has subscribed.
    cases: Option<Cases>,
    threads: HashMap<ThreadKey, Thread>,
    /// By number.
    keys: Vec<ThreadKey>,
    /// Latency events that may not be in order yet.
    pending: Vec<(u32, LatencyEvent)>,
    /// In order, as notes are.
    turns: VecDeque<Turn>,
    /// Kernel events that are not in order yet, and their processors. They tell where threads run; and, for tracers
    /// `of_kernel_events`, they are what is measured: the number of each thread is known by then.
    events: Vec<(u32, KernelRecord)>,
    running: Running,
    of_kernel_events: bool,
    scheduling: Scheduling,
    of_all_tasks: bool,
    scheduled: HashMap<u32, u32>,
    /// Processes, with 0, or threads of one, that have other numbers in kernel events.
    in_namespaces: HashSet<(u32, u32)>,
    notes: LiveNotes,
    threshold_ns: u64,
    found: u64,
    /// By the processor on which cases ended; `None` stands for an unknown one.
    durations: BTreeMap<Option<u32>, Durations>,
    /// The facts of the worst case and of those that are kept, each read once.
    tasks: Vec<(Case, Option<TaskFacts>)>,
    kept: VecDeque<Case>,
    kept_before: u64,
    slowest: Slowest,
    given_up: VecDeque<Case>,
    unknown: Arc<AtomicU64>,
}

struct Thread {
    number: u32,
    rebuilder: CallRebuilder,
    state: State,
}

impl Live {
    pub fn new(tracer: &Tracer) -> Live {
        let watching = Watching {
            roles: Roles::new(std::slice::from_ref(tracer)),
            cases: None,
            threads: HashMap::new(),
            keys: Vec::new(),
            pending: Vec::new(),
            turns: VecDeque::new(),
            of_kernel_events: tracer.is_of_kernel_events(),
            events: Vec::new(),
            running: Running::default(),
            scheduling: Scheduling::new(tracer),
            of_all_tasks: tracer.is_of_all_tasks(),
            scheduled: HashMap::new(),
            in_namespaces: HashSet::new(),
            notes: LiveNotes::default(),
            threshold_ns: 0,
            found: 0,
            durations: BTreeMap::new(),
            tasks: Vec::new(),
            kept: VecDeque::new(),
            kept_before: 0,
            slowest: Slowest::default(),
            given_up: VecDeque::new(),
            unknown: Arc::default(),
        };
        Live(Arc::new(Mutex::new(watching)))
    }

    /// Subscribes to the records for it. There must be one at a time.
    pub fn subscriber(&self, ask: AskTask) -> LiveSubscriber {
        LiveSubscriber {
            watching: self.0.clone(),
            ask,
        }
    }

    fn watching(&self) -> MutexGuard<'_, Watching> {
        self.0.lock()
    }

    /// Why it cannot find cases.
    pub fn check(&self) -> Result<()> {
        self.watching().roles.check()
    }

    /// Keeps every case that takes longer, and not only the worst; 0: no threshold.
    pub fn set_threshold(&self, ns: u64) {
        self.watching().threshold_ns = ns;
    }

    /// Keeps so many of the slowest cases of each minute for [`Live::take_slowest`].
    pub fn keep_slowest(&self, most: usize) {
        self.watching().slowest.keep(most);
    }

    /// Whether it keeps slow cases and has found none.
    pub fn keeps_nothing(&self) -> bool {
        let watching = self.watching();
        watching.slowest.is_wanted() && watching.found == 0
    }

    /// The begin of the first case that is among the slowest and has not been taken, by the clock of the events.
    pub fn slowest_since(&self) -> Option<u64> {
        let watching = self.watching();
        watching.slowest.waiting().map(|case| case.begin).min()
    }

    /// Takes the cases that are among the slowest of their minutes and have not been taken: as soon as one of them has
    /// ended a second before `now`, or `at_once`.
    pub fn take_slowest(&self, now: u64, at_once: bool) -> Vec<SlowCase> {
        let mut watching = self.watching();
        let Some(first) = watching.slowest.waiting().map(|case| case.end).min() else {
            return Vec::new();
        };
        let [wait] = watching.ticks([WAIT_NS]);
        if !at_once && now < first.saturating_add(wait) {
            return Vec::new();
        }
        let taken = watching.slowest.take().into_iter();
        let slow_case = |(id, case)| SlowCase {
            id,
            finding: watching.finding(&case),
        };
        taken.map(slow_case).collect()
    }

    /// Takes the ids of cases that have been taken, and that slower ones of their minutes have outrun since.
    pub fn take_outrun(&self) -> Vec<u64> {
        self.watching().slowest.take_outrun()
    }

    /// Forgets the cases that it keeps. The histogram continues.
    pub fn reset(&self) {
        let mut watching = self.watching();
        watching.kept.clear();
        watching.kept_before = 0;
        let runs = watching.cases.iter_mut().flat_map(Cases::runs_mut);
        runs.for_each(|run| run.reset());
    }

    pub fn report(&self) -> Report {
        let watching = self.watching();
        let run = watching.cases.as_ref().map(|cases| &cases.runs()[0]);
        let finding = |case: &Case| watching.finding(case);
        Report {
            cases: watching.found,
            worst: run.and_then(|run| run.worst()).map(finding),
            kept: watching.kept.iter().map(finding).collect(),
            kept_before: watching.kept_before,
            missing: run.map(|run| watching.missing(run)).unwrap_or_default(),
            given_up: watching.given_up.iter().map(finding).collect(),
            unknown: watching.unknown.load(Ordering::Relaxed),
            untimed: run.map_or(0, Run::untimed_events),
        }
    }

    /// The durations of the cases that ended on these processors.
    pub fn histogram(&self, wanted: impl Fn(Option<u32>) -> bool) -> Histogram {
        let watching = self.watching();
        let durations = watching.durations.iter();
        let durations = durations.filter(|(processor, _)| wanted(**processor));
        Durations::histogram(durations.map(|(_, of)| of), &watching.notes.clocks())
    }
}

impl Watching {
    fn finding(&self, case: &Case) -> Finding {
        Finding {
            case: *case,
            ns: self.notes.clocks().duration_ns(case.ticks()),
            begin_thread: self.keys[case.begin_thread as usize],
            end_thread: self.keys[case.end_thread as usize],
            task: self.task(case),
        }
    }

    fn ticks<const N: usize>(&self, ns: [u64; N]) -> [u64; N] {
        let frequency = u128::from(self.notes.clocks().frequency());
        ns.map(|ns| (u128::from(ns) * frequency / 1_000_000_000) as u64)
    }

    fn task(&self, case: &Case) -> Option<TaskFacts> {
        let known = self.tasks.iter().find(|(known, _)| known == case);
        known.and_then(|(_, task)| *task)
    }

    /// Reads the tasks of cases that are kept since the last time.
    fn ask_tasks(&mut self, ask: AskTask) {
        let worst = self
            .cases
            .as_ref()
            .and_then(|cases| cases.runs()[0].worst());
        let kept: Vec<Case> = self.kept.iter().chain(worst).copied().collect();
        self.tasks.retain(|(case, _)| kept.contains(case));
        for case in kept {
            if self.tasks.iter().any(|(known, _)| *known == case) {
                continue;
            }
            let key = self.keys[case.begin_thread as usize];
            let is_known = !is_in(&self.in_namespaces, key.process, key.thread);
            let task = is_known.then(|| ask(key.process, key.thread)).flatten();
            self.tasks.push((case, task));
        }
    }

    fn missing(&self, run: &Run) -> Missing {
        let missing = run.missing();
        match self.of_kernel_events {
            // A thread runs again for other reasons too.
            true => Missing {
                ends_alone: 0,
                ..missing
            },
            false => missing,
        }
    }

    /// The latency events until then, in order of time, with their threads and processors.
    fn happened(&mut self, until: u64) -> Vec<(u32, Option<u32>, LatencyEvent)> {
        self.events.sort_by_key(|(_, event)| event.clock);
        let ready = self
            .events
            .partition_point(|(_, event)| event.clock <= until);
        let mut events = self.events.drain(..ready).peekable();
        // Events of one thread are in order already.
        self.pending
            .sort_by_key(|(_, latency_event)| latency_event.clock);
        let ready = self
            .pending
            .partition_point(|(_, latency_event)| latency_event.clock <= until);
        let mut pending = self.pending.drain(..ready).peekable();
        let mut happened = Vec::new();
        loop {
            let clock = events.peek().map(|(_, event)| event.clock);
            let earlier =
                |(_, at): &(u32, LatencyEvent)| clock.is_none_or(|clock| at.clock < clock);
            if let Some((thread, latency_event)) = pending.next_if(earlier) {
                let key: &ThreadKey = &self.keys[thread as usize];
                let is_known = !is_in(&self.in_namespaces, key.process, key.thread);
                let processor = is_known.then(|| self.running.processor(key.thread));
                let processor = processor.flatten();
                happened.push((thread, processor, latency_event));
                continue;
            }
            let Some((processor, KernelRecord { clock, event })) = events.next() else {
                break;
            };
            self.running.take(processor, &event);
            if !self.of_kernel_events {
                continue;
            }
            for (thread, latency_event) in self.scheduling.take(processor, clock, &event) {
                match self.scheduled.get(&thread) {
                    Some(number) => {
                        let processor = self.running.processor(thread);
                        happened.push((*number, processor, latency_event));
                    }
                    None if latency_event.what == EventKind::Lost => {
                        happened.push((0, None, latency_event))
                    }
                    None => {}
                }
            }
        }
        happened
    }

    /// All records until then have been received, except late ones.
    fn settle(&mut self, until: u64) {
        let happened = self.happened(until);
        if self.cases.is_none() && happened.is_empty() {
            return;
        }
        let [threshold, minute, timeout] = self.ticks([self.threshold_ns, MINUTE_NS, TIMEOUT_NS]);
        let cases = self.cases.get_or_insert_with(|| Cases::new(&self.roles));
        for run in cases.runs_mut() {
            run.set_threshold(threshold);
        }
        for (thread, processor, latency_event) in happened {
            let is_before = |turn: &mut Turn| turn.clock <= latency_event.clock;
            while let Some(turn) = self.turns.pop_front_if(is_before) {
                cases.turn(&turn);
            }
            let process = self.keys.get(thread as usize).map_or(0, |key| key.process);
            cases.take(
                (thread, process),
                processor,
                &latency_event,
                |_, case, kept| {
                    self.found += 1;
                    let durations = self.durations.entry(processor).or_default();
                    durations.add(case.ticks());
                    self.slowest.offer(case, minute);
                    if kept && self.threshold_ns > 0 {
                        if self.kept.len() == KEPT {
                            self.kept.pop_front();
                            self.kept_before += 1;
                        }
                        self.kept.push_back(case);
                    }
                },
            );
        }
        for run in cases.runs_mut().iter_mut().filter(|_| timeout > 0) {
            while let Some(case) = run.expire(timeout, until) {
                if self.given_up.len() == GIVEN_UP {
                    self.given_up.pop_front();
                }
                let end_thread = case.begin_thread;
                self.given_up.push_back(Case { end_thread, ..case });
            }
        }
    }
}

/// Whether a thread is one of these, or of one of these processes.
fn is_in(known: &HashSet<(u32, u32)>, process: u32, thread: u32) -> bool {
    known.contains(&(process, 0)) || known.contains(&(process, thread))
}

impl Subscriber for LiveSubscriber {
    fn note(&mut self, note: &Note) {
        let mut watching = self.watching.lock();
        let Watching {
            roles,
            notes,
            keys,
            of_kernel_events,
            of_all_tasks,
            scheduled,
            in_namespaces,
            turns,
            ..
        } = &mut *watching;
        notes.learn(note);
        for (site, function) in notes.functions(note) {
            roles.learn_function(site, &function);
        }
        turns.extend(roles.turns(note));
        match note {
            &Note::Namespace { process, thread } => {
                in_namespaces.insert((process, thread.unwrap_or(0)));
            }
            &Note::Thread {
                process,
                thread,
                begin,
                kernel: false,
                ..
            } if *of_kernel_events && !is_in(in_namespaces, process, thread) => {
                scheduled.insert(thread, keys.len() as u32);
                keys.push(ThreadKey {
                    process,
                    thread,
                    begin,
                });
            }
            &Note::Other {
                process,
                thread,
                begin,
                ..
            } if *of_all_tasks => {
                scheduled.insert(thread, keys.len() as u32);
                keys.push(ThreadKey {
                    process,
                    thread,
                    begin,
                });
            }
            Note::Marker { event, .. } => {
                let mut markers = Markers::default();
                markers.learn(note);
                if let Some(marker) = markers.get(*event) {
                    roles.learn_marker(*event, marker);
                }
            }
            _ => {}
        }
    }

    fn records(&mut self, batch: Batch) {
        let mut watching = self.watching.lock();
        let Watching {
            roles,
            threads,
            keys,
            pending,
            unknown,
            ..
        } = &mut *watching;
        let thread = threads.entry(batch.thread).or_insert_with(|| {
            keys.push(batch.thread);
            Thread {
                number: keys.len() as u32 - 1,
                rebuilder: CallRebuilder::default(),
                state: State::counting(unknown),
            }
        });
        let mut watcher = Watcher::new(roles, mem::take(&mut thread.state));
        thread
            .rebuilder
            .records(batch.words, batch.clock, batch.lossy, &mut watcher);
        let latency_events = watcher.latency_events.into_iter();
        pending.extend(latency_events.map(|latency_event| (thread.number, latency_event)));
        thread.state = watcher.state;
    }

    fn system(&mut self, processor: u32, records: &[KernelRecord]) {
        let mut watching = self.watching.lock();
        let is_switch =
            |record: &&KernelRecord| !matches!(record.event, KernelEvent::Function { .. });
        let records = records.iter().filter(is_switch);
        let records = records.map(|record| (processor, *record));
        watching.events.extend(records);
    }

    fn thread_ended(&mut self, thread: ThreadKey) {
        let mut watching = self.watching.lock();
        watching.threads.remove(&thread);
    }

    fn complete_until(&mut self, counter: u64) {
        let mut watching = self.watching.lock();
        watching.settle(counter);
        watching.ask_tasks(self.ask);
    }
}

#[cfg(test)]
mod tests;
