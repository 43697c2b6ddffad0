//! The thread that empties the regions while the program runs, and once a second writes what is in chunks that are not
//! full.

use crate::collecting::alive::Alive;
use crate::collecting::collect::Collector;
use crate::collecting::cost;
use crate::collecting::fair_mutex::FairMutex;
use crate::collecting::heartbeat::Heartbeat;
use crate::collecting::kernel_events::Reading;
use crate::collecting::kernel_functions::KernelFunctions;
use crate::collecting::meter::Meter;
use crate::collecting::notes::{counter, note, processor_time, snapshot};
use crate::collecting::progress::Progress;
use crate::collecting::slowest::{LiveTracer, keep_slowest};
use crate::collecting::snapshot_results::Snapshots;
use crate::collecting::trace_end::Limit;
use crate::collecting::tracepoints::TracepointReading;
use crate::ends::Ends;
use crate::memory::bell::Bell;
use crate::memory::lost::Counts;
use crate::memory::numbers::Inside;
use crate::memory::occupancy::Occupancy;
use crate::memory::region::Region;
use crate::patch::remove::processes_with;
use crate::session::watchdog::wait_for_others;
use crate::tracee::Settings;
use anyhow::{Context, Result, ensure};
use nopal_abi::CHUNK_BYTES;
use nopal_analysis::triggers::Triggers;
use nopal_beside::{Condvar, Mutex, MutexGuard};
use nopal_kernel_events::KernelEvents;
use nopal_trace::{Batch, Note, Subscriber, ThreadKey, Writer};
use std::collections::{HashMap, HashSet};
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SHORTEST_NAP: Duration = Duration::from_micros(200);
const LONGEST_NAP: Duration = Duration::from_millis(2);
/// Chunks in a round, or a part of a region in a round, after which the next one comes soon. At fewer chunks a round, most
/// wake-ups would find nothing.
const MUCH: usize = 8;
/// Where threads hand over few chunks, and no records come that somebody waits for. The heartbeat must not stop longer.
const CALM_NAP: Duration = Duration::from_millis(10);
/// Bytes of a buffer that programs fill in a second at most, if they are to be collected at all.
const FILLED: u64 = 4 << 30;
const SECOND: Duration = Duration::from_secs(1);
const SNAPSHOT_SOON: Duration = Duration::from_millis(20);
/// Kernel events between two looks after which the next comes sooner. Some are of this thread itself.
const MANY_EVENTS: u64 = 1000;
/// How often to look for threads that have begun, and for chunks of those that have ended.
const LOOK: Duration = Duration::from_millis(10);

/// How often it is noted how many calls have been counted.
const COUNTED: Duration = Duration::from_millis(100);

/// How often it is seen which threads live, or more seldom, so that it takes at most a thousandth of a processor.
const SEEN: Duration = Duration::from_millis(100);

/// How often progress is reported.
const WATCHED: Duration = Duration::from_millis(500);

/// How often to look for regions that no process maps, or more seldom where there are many: a look at one takes some
/// 500 ns, and all together at most a thousandth of a processor.
const DESERTED: Duration = Duration::from_millis(20);
const DESERTED_EACH: Duration = Duration::from_micros(500);

/// Regions that no process has any more, of which everything is written.
#[derive(Default)]
struct Past {
    counts: Counts,
    /// How often sites were counted.
    counted: HashMap<u32, u64>,
    /// The guardian still has them.
    guarded: Vec<Arc<Region>>,
    /// The processes of all regions, also of those that are not past.
    processes: HashSet<u32>,
}

/// The state shared by the draining thread and the rest of the session.
pub struct Shared {
    pub writer: FairMutex<Writer>,
    regions: Arc<Mutex<Vec<Arc<Region>>>>,
    /// Rung for the session's own thread.
    bell: Arc<Bell>,
    pub ends: Arc<Ends>,
    pub(super) alive: Mutex<Alive>,
    past: Mutex<Past>,
    stop: AtomicBool,
    /// Kernel events that are to be read from now on, where that has changed.
    system: Mutex<Option<Option<KernelEvents>>>,
    /// Functions of the kernel that are to be read from now on.
    functions: Mutex<Option<KernelFunctions>>,
    tracepoints: Mutex<Option<TracepointReading>>,
    flushes: Mutex<Flushes>,
    flushed: Condvar,
    triggers: Arc<Mutex<Triggers>>,
    snapshots: Arc<Mutex<Snapshots>>,
    /// The tracers that are on.
    pub(super) tracers: Mutex<Vec<LiveTracer>>,
    /// Nothing more is written, as the disk or the limit is full.
    is_full: AtomicBool,
    /// Events that came since.
    after_end: AtomicU64,
    /// `None`: nobody watches.
    progress: Mutex<Option<Progress>>,
    meter: Arc<FairMutex<Option<Meter>>>,
    /// The cost of recording a call, in thousandths of a tick, once it has been measured.
    cost: AtomicU64,
}

impl Shared {
    pub fn new(writer: Writer) -> Shared {
        Shared {
            writer: FairMutex::new(writer),
            regions: Arc::default(),
            bell: Arc::default(),
            ends: Arc::new(Ends::new()),
            alive: Mutex::default(),
            past: Mutex::default(),
            stop: AtomicBool::new(false),
            system: Mutex::default(),
            functions: Mutex::default(),
            tracepoints: Mutex::default(),
            flushes: Mutex::default(),
            flushed: Condvar::new(),
            triggers: Arc::default(),
            snapshots: Arc::default(),
            tracers: Mutex::default(),
            is_full: AtomicBool::new(false),
            after_end: AtomicU64::new(0),
            progress: Mutex::default(),
            meter: Arc::new(FairMutex::new(None)),
            cost: AtomicU64::new(0),
        }
    }

    /// From now on these are kernel events that are read.
    pub fn change_kernel_events(&self, system: Option<KernelEvents>) {
        *self.system.lock() = Some(system);
    }

    pub fn changed_kernel_events(&self) -> Option<Option<KernelEvents>> {
        self.system.lock().take()
    }

    pub fn begin_tracepoints(&self, tracepoints: TracepointReading) {
        *self.tracepoints.lock() = Some(tracepoints);
    }

    pub fn begun_tracepoints(&self) -> Option<TracepointReading> {
        self.tracepoints.lock().take()
    }

    pub fn begin_kernel_functions(&self, functions: KernelFunctions) {
        *self.functions.lock() = Some(functions);
    }

    pub fn begun_kernel_functions(&self) -> Option<KernelFunctions> {
        self.functions.lock().take()
    }

    /// Writes all current records, and waits for it: a few milliseconds. An error: the recording is over.
    pub fn flush(&self) -> Result<()> {
        let mut flushes = self.flushes.lock();
        flushes.asked += 1;
        let mine = flushes.asked;
        let is_due = |flushes: &mut Flushes| flushes.done < mine && !flushes.over;
        let flushes = wait_for_others(|| self.flushed.wait_while(flushes, is_due));
        ensure!(flushes.done >= mine, "the recording is over");
        Ok(())
    }

    /// They get the records, and say what has fired.
    pub fn triggers(&self) -> MutexGuard<'_, Triggers> {
        self.triggers.lock()
    }

    pub fn snapshots(&self) -> MutexGuard<'_, Snapshots> {
        self.snapshots.lock()
    }

    /// The same, for another thread.
    pub fn for_snapshots(&self) -> Arc<Mutex<Snapshots>> {
        self.snapshots.clone()
    }

    /// The subscriber that passes records to the triggers.
    pub fn subscriber(&self) -> Box<dyn Subscriber> {
        Box::new(TriggerSubscriber {
            triggers: self.triggers.clone(),
            bell: self.bell.clone(),
        })
    }

    /// The recording's progress at most `WATCHED` ago; nothing the first time.
    pub fn progress(&self) -> Progress {
        self.progress.lock().get_or_insert_default().clone()
    }

    /// The meter of recording for a budget; none while there is none.
    pub fn meter(&self) -> MutexGuard<'_, Option<Meter>> {
        self.meter.lock()
    }

    pub fn for_meter(&self) -> Arc<FairMutex<Option<Meter>>> {
        self.meter.clone()
    }

    /// Ticks that the recording of a call takes, where that is known.
    pub fn cost(&self) -> Option<f64> {
        let parts = self.cost.load(Ordering::Relaxed);
        (parts > 0).then(|| parts as f64 / 1000.0)
    }

    /// Tells those who watch, if any.
    fn report_progress(&self, collector: &mut Collector, since: Duration) {
        let mut watched = self.progress.lock();
        let Some(progress) = &mut *watched else {
            return;
        };
        let busiest = collector.sample.get_or_insert_default().busiest();
        let writer = self.writer.lock();
        let named = busiest.into_iter();
        let named = named.map(|(site, part)| (writer.name_of(site), part));
        let events = collector.totals.events + collector.totals.given_up;
        let new = events.saturating_sub(progress.events);
        *progress = Progress {
            events,
            rate: (new as f64 / since.as_secs_f64().max(0.001)) as u64,
            lost: self.counts().lost.all(),
            bytes: collector.totals.bytes,
            most_bytes: collector.end.limit.map(Limit::bytes),
            busiest: named.collect(),
        };
    }

    fn asked_flush(&self) -> Option<u64> {
        let flushes = self.flushes.lock();
        (flushes.asked > flushes.done).then_some(flushes.asked)
    }

    fn change_flushes(&self, change: impl FnOnce(&mut Flushes)) {
        change(&mut self.flushes.lock());
        self.flushed.notify_all();
    }

    pub fn regions(&self) -> Vec<Arc<Region>> {
        self.regions.lock().clone()
    }

    /// The chunks of the smallest region.
    fn fewest_chunks(&self) -> usize {
        let regions = self.regions.lock();
        let chunks = regions.iter().map(|region| region.chunks());
        chunks.min().unwrap_or(0)
    }

    /// Of all regions that there are at the time.
    pub fn heartbeat(&self) -> Heartbeat {
        Heartbeat::of(self.regions.clone())
    }

    /// Wakes the session's own thread.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// The bell for which the session's own thread waits.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Wakes the session's own thread if a process has rung since `rung`: perhaps a thread that may make no system call,
    /// or a process that the session does not wait for.
    fn pass_on_bells(&self, rung: &mut Vec<u32>) {
        let bells: Vec<u32> = self.regions().iter().map(|region| region.bell()).collect();
        if bells != *rung {
            *rung = bells;
            self.wake();
        }
    }

    /// The sums of counters of all regions, including former ones.
    pub fn counts(&self) -> Counts {
        // Regions become past with their list held.
        let regions = self.regions.lock();
        let past = self.past.lock().counts;
        let counts = regions.iter().map(|region| region.counts());
        counts.fold(past, Counts::add)
    }

    /// Whether nothing more is written, as the disk or the limit is full, and how many events came since.
    pub fn after_end(&self) -> (bool, u64) {
        let is_full = self.is_full.load(Ordering::Relaxed);
        (is_full, self.after_end.load(Ordering::Relaxed))
    }

    /// How often sites have been counted, in all regions, including former ones.
    pub fn counted(&self) -> HashMap<u32, u64> {
        let sites = self.writer.lock().counted_sites();
        // Regions become past with their list held.
        let regions = self.regions.lock();
        let mut counted = self.past.lock().counted.clone();
        for region in regions.iter() {
            add(&mut counted, region.counted(&sites));
        }
        counted
    }

    /// The processes that have had regions.
    pub fn processes(&self) -> HashSet<u32> {
        self.past.lock().processes.clone()
    }

    /// Regions that have become past since this was asked last.
    pub fn take_past(&self) -> Vec<Arc<Region>> {
        std::mem::take(&mut self.past.lock().guarded)
    }

    fn make_past(&self, region: &Arc<Region>) {
        let sites = self.writer.lock().counted_sites();
        let mut regions = self.regions.lock();
        regions.retain(|other| !Arc::ptr_eq(other, region));
        let mut past = self.past.lock();
        past.counts = past.counts + region.counts();
        add(&mut past.counted, region.counted(&sites));
        past.guarded.push(region.clone());
    }

    pub fn add_region(&self, region: Arc<Region>) {
        self.past.lock().processes.insert(region.process() as u32);
        self.regions.lock().push(region);
    }
}

fn add(sums: &mut HashMap<u32, u64>, counted: Vec<(u32, u64)>) {
    for (site, calls) in counted {
        let sum = sums.entry(site).or_default();
        *sum = sum.wrapping_add(calls);
    }
}

struct TriggerSubscriber {
    triggers: Arc<Mutex<Triggers>>,
    bell: Arc<Bell>,
}

impl Subscriber for TriggerSubscriber {
    fn note(&mut self, note: &Note) {
        self.triggers.lock().note(note);
    }

    fn records(&mut self, batch: Batch) {
        let mut triggers = self.triggers.lock();
        triggers.records(batch);
        let has_fired = triggers.has_fired();
        drop(triggers);
        // At once: this round may have much more to read.
        if has_fired {
            self.bell.ring();
        }
    }

    fn thread_ended(&mut self, thread: ThreadKey) {
        self.triggers.lock().thread_ended(thread);
    }
}

/// The number of requested flushes, and of finished ones.
#[derive(Default)]
struct Flushes {
    asked: u64,
    done: u64,
    over: bool,
}

/// However it ends, nobody waits for it any more.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.change_flushes(|flushes| flushes.over = true);
    }
}

pub struct Drain {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Collector>>,
}

impl Drain {
    pub fn start(shared: Arc<Shared>, collector: Collector, settings: &Settings) -> Result<Drain> {
        let theirs = shared.clone();
        let (recorder, ordered) = (settings.recorder(settings.capture), settings.ordered);
        let collect = move || {
            let _over = Over(&theirs);
            // The program runs already.
            for region in theirs.regions() {
                region.make_ready(region.occupancy());
            }
            // A trace without it has no net times, and all else.
            if let Ok(cost) = cost::measure(recorder, ordered) {
                note(&theirs.writer, &cost)?;
                if let Note::Cost { call, .. } = cost {
                    theirs.cost.store(call, Ordering::Relaxed);
                }
            }
            // By the counter's rate, calls are short or not.
            note(&theirs.writer, &snapshot())?;
            run(&theirs, collector)
        };
        let thread = std::thread::Builder::new().spawn(collect);
        let thread = thread.context("the thread that collects records cannot be started")?;
        Ok(Drain { shared, thread })
    }

    /// Whether it has failed.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the thread, and gives the collector back for what is left.
    pub fn stop(self) -> Result<Collector> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        wait_for_others(|| self.thread.join())
            .unwrap_or_else(|_| Err(anyhow::anyhow!("collecting records failed")))
    }
}

fn run(shared: &Shared, mut collector: Collector) -> Result<Collector> {
    let mut system = Reading::default();
    let mut nap = SHORTEST_NAP;
    // The second snapshot comes early, so that the rate of the counter is known of short programs too.
    let mut next_snapshot = Instant::now() + SNAPSHOT_SOON;
    let mut next_flush = Instant::now() + SECOND;
    let mut last_looked = Instant::now();
    let mut next_seen = Instant::now() + SEEN;
    let mut next_deserted = Instant::now();
    let mut last_progress = Instant::now();
    let mut next_counted = Instant::now();
    let mut rung = Vec::new();
    let mut activity = Activity::default();
    while !shared.stop.load(Ordering::Relaxed) {
        // Before all that a flush is asked for.
        let asked = shared.asked_flush();
        let mut freed = 0;
        let until = counter();
        collector.heartbeat.beat();
        for region in shared.regions() {
            let occupancy = region.occupancy();
            region.make_ready(occupancy);
            activity.note(&region, occupancy);
            let mut writer = shared.writer.lock();
            if occupancy.full > 0 || writer.has_subscribers() {
                freed += collector.round(&region, &mut writer)?;
            }
        }
        let after_end = collector.totals.given_up - collector.totals.dropped;
        shared.after_end.store(after_end, Ordering::Relaxed);
        let is_full = collector.end.is_reached();
        shared.is_full.store(is_full, Ordering::Relaxed);
        shared.pass_on_bells(&mut rung);
        obey_triggers(shared, &mut collector)?;
        freed += usize::from(system.read(shared, &mut collector)? > MANY_EVENTS);
        let flushes = Instant::now() >= next_flush;
        if flushes || last_looked.elapsed() > LOOK {
            last_looked = Instant::now();
            for region in shared.regions() {
                let (is_active, is_short) = activity.of(&region);
                if flushes || is_active {
                    collector.meet_threads(&region, &mut shared.writer.lock())?;
                }
                if !flushes && !is_short {
                    continue;
                }
                let mut living = None;
                collector.reclaim(&region, |key| has_ended(&region, key, &mut living));
            }
        }
        if last_progress.elapsed() >= WATCHED {
            shared.report_progress(&mut collector, last_progress.elapsed());
            last_progress = Instant::now();
        }
        if Instant::now() >= next_counted || asked.is_some() {
            next_counted = Instant::now() + COUNTED;
            // The flight recorder notes it with what it holds.
            if !collector.keeps_newest() {
                collector.note_counted(&shared.regions(), &shared.writer)?;
            }
        }
        if Instant::now() >= next_seen {
            let before = processor_time();
            shared.look_at_threads(None);
            let taken = processor_time().saturating_sub(before);
            next_seen = Instant::now() + (1000 * taken).max(SEEN);
        }
        if Instant::now() >= next_deserted {
            leave_deserted(shared, &mut collector)?;
            let all = DESERTED_EACH * shared.regions.lock().len() as u32;
            next_deserted = Instant::now() + DESERTED.max(all);
        }
        shared.writer.lock().complete_until(until);
        // Before more is given up.
        keep_slowest(shared, &mut collector, false)?;
        if Instant::now() >= next_snapshot {
            next_snapshot = Instant::now() + SECOND;
            note(&shared.writer, &snapshot())?;
        }
        if asked.is_some() || flushes {
            if flushes {
                next_flush = Instant::now() + SECOND;
                let regions = shared.regions();
                activity.forget_all_but(&regions);
                collector.forget_past(&regions);
                collector
                    .subscription
                    .forget_ended(&regions, &mut shared.writer.lock());
            }
            let until = counter();
            for region in shared.regions() {
                collector.flush(&region, &mut shared.writer.lock())?;
            }
            system.read(shared, &mut collector)?;
            shared.writer.lock().complete_until(until);
            collector.flush_kernel_events(&mut shared.writer.lock())?;
            let synced = shared.writer.lock().sync_metadata();
            synced.or_else(|error| {
                if Writer::is_full(&error) {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
            if let Some(asked) = asked {
                shared.change_flushes(|flushes| flushes.done = asked);
            }
        }
        let much = (shared.fewest_chunks() / MUCH).clamp(1, MUCH);
        nap = match freed >= much || asked.is_some() {
            true => SHORTEST_NAP,
            false => nap * 2,
        };
        let is_awaited = system.is_active() || collector.subscription.has_given();
        nap = nap.min(match is_awaited {
            true => LONGEST_NAP,
            false => calm_nap(shared.fewest_chunks()),
        });
        std::thread::park_timeout(nap);
    }
    // Events at the very end fire, too.
    for region in shared.regions() {
        let mut writer = shared.writer.lock();
        collector
            .subscription
            .round(&region, &mut writer, usize::MAX, &collector.heartbeat)?;
    }
    shared.writer.lock().complete_until(counter());
    obey_triggers(shared, &mut collector)?;
    keep_slowest(shared, &mut collector, true)?;
    system.finish(shared, &mut collector)?;
    Ok(collector)
}

/// When the chunks of each region, by its inode, have changed hands last.
#[derive(Default)]
struct Activity(HashMap<u64, (Instant, Occupancy)>);

impl Activity {
    fn note(&mut self, region: &Region, now: Occupancy) {
        let (changed, last) = self
            .0
            .entry(region.inode())
            .or_insert((Instant::now(), now));
        if last.digest != now.digest {
            *changed = Instant::now();
        }
        *last = now;
    }

    /// Whether they have within a second: a thread fills in a chunk's header after it has taken it. And whether threads may
    /// soon find no chunk.
    fn of(&self, region: &Region) -> (bool, bool) {
        let Some((changed, last)) = self.0.get(&region.inode()) else {
            return (true, true);
        };
        let is_active = changed.elapsed() < SECOND;
        let now = if is_active { region.occupancy() } else { *last };
        (is_active, now.taken >= region.in_use() / 2)
    }

    fn forget_all_but(&mut self, regions: &[Arc<Region>]) {
        let is_there = |inode| regions.iter().any(|region| region.inode() == inode);
        self.0.retain(|inode, _| is_there(*inode));
    }
}

/// However suddenly a program begins to record, no region is full before the next look.
fn calm_nap(chunks: usize) -> Duration {
    let bytes = (chunks * CHUNK_BYTES) as u64;
    let filled = Duration::from_micros(bytes * 1_000_000 / FILLED);
    filled.clamp(LONGEST_NAP, CALM_NAP)
}

/// Writes the remaining records of regions that no process maps, and unmaps them. The flight recorder keeps them.
fn leave_deserted(shared: &Shared, collector: &mut Collector) -> Result<()> {
    let mut regions = shared.regions();
    // The last one is left at the end.
    if regions.len() < 2 || collector.keeps_newest() {
        return Ok(());
    }
    regions.retain(|region| region.is_deserted());
    for region in regions {
        let mut writer = shared.writer.lock();
        collector
            .subscription
            .round(&region, &mut writer, usize::MAX, &collector.heartbeat)?;
        collector.finish(&region, &mut writer)?;
        drop(writer);
        shared.make_past(&region);
    }
    Ok(())
}

/// Takes the snapshot that triggers or commands want.
fn obey_triggers(shared: &Shared, collector: &mut Collector) -> Result<()> {
    let mut wanted_for = std::mem::take(&mut shared.snapshots().asked);
    let fired = shared.triggers().take_snapshots().into_iter();
    wanted_for.extend(fired.map(|fired| fired.description));
    match wanted_for.as_slice() {
        [] => Ok(()),
        all => collector.snapshot(shared, &all.join("; ")),
    }
}

/// Whether it is certain that a thread has ended. `living`: [`numbers_of_others`], once they have been asked for.
fn has_ended(region: &Arc<Region>, key: ThreadKey, living: &mut Option<HashSet<u32>>) -> bool {
    let (process, thread) = (key.process as i32, key.thread as i32);
    match region.inside(key) {
        Some(Inside::Known { .. }) => !nopal_process::thread_alive(process, thread),
        Some(Inside::Thread { .. }) => !nopal_process::alive(process),
        Some(Inside::Process) | None => {
            !nopal_process::thread_alive(process, thread)
                && !living
                    .get_or_insert_with(|| numbers_of_others(region))
                    .contains(&key.process)
        }
    }
}

/// The own ids of processes that map the region, if they differ from ours: they are in a PID namespace of their own.
fn numbers_of_others(region: &Arc<Region>) -> HashSet<u32> {
    processes_with(std::slice::from_ref(region), &[std::process::id() as i32])
        .into_iter()
        .filter_map(|process| nopal_process::status(process).ok())
        .filter(|status| status.namespace_ids.len() > 1)
        .filter_map(|status| status.namespace_ids.last().map(|number| *number as u32))
        .collect()
}
