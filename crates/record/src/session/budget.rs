//! Holds a budget of processor time: measures what tracing costs, and has functions timed, counted and off as the policy
//! says.

use crate::budget::policy::{COUNTING, Kept, Load, Look, Policy, State, TooMuch, costs};
use crate::collecting::meter::Meter;
use crate::collecting::notes::{counter, note};
use crate::memory::region::Region;
use crate::options::WhenFull;
use crate::session::Session;
use crate::session::gauge::{COUNTED, Gauge, RECORDED};
use crate::sites::files::File;
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_abi::{CHUNK_BYTES, CHUNK_FULL};
use nopal_analysis::sort;
use nopal_analysis::text::several;
use nopal_control::{Share, SiteKey, Spared};
use nopal_plan::{Profile, Untimed};
use nopal_process::processor_time;
use nopal_trace::{Note, SiteState};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which the cost of recording is compared with the budget, and the least one, once the allowance of an
/// interval is spent.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
const SOONEST: Duration = Duration::from_millis(10);
/// Less processor time than this shows nothing: the look is left for later.
const LEAST_USED: Duration = Duration::from_millis(2);

/// Ticks of a call where they could not be measured: more than of any processor that is known.
const UNMEASURED: f64 = 100.0;

/// How a tiny function begins of which nothing is known yet.
const TINY: Kept = Kept {
    state: State::Counted,
    share: 0.0,
    worth: 10.0,
    failed: 0,
};

/// Processes on the way from one that recorded to one that is known.
const GENERATIONS: usize = 64;

pub(crate) struct HeldBudget {
    share: Share,
    policy: Policy,
    /// The keys of sites by their numbers.
    keys: Vec<Option<SiteKey>>,
    /// When it began, and the counter then.
    begun: (Instant, u64),
    looked: Instant,
    next_look: Instant,
    used: Used,
    /// The processes had used too little processor time at the last look.
    rests: bool,
    /// The processors that the machine runs.
    processors: u32,
    gauge: Gauge,
    /// Events that had been lost at the last look.
    lost: u64,
    /// Records that waited then.
    waiting: f64,
    /// How often sites had been counted at the last look.
    counted: HashMap<u32, u64>,
    /// The numbers of the sites that were counted for its sake at any time, and of those that were off.
    ever_counted: HashSet<u32>,
    ever_off: HashSet<u32>,
    /// The files of the programs for whose next sessions what is not timed is kept.
    programs: Vec<Arc<File>>,
    /// Sites are being switched that were not timed when the last session ended.
    begins: bool,
    /// How many functions began counted, and how many off.
    begun_counted: u64,
    begun_off: u64,
    /// Why it was not held, for people: an error, and what took most when it could not be held.
    failed: Option<String>,
    overrun: Option<Overrun>,
}

struct Overrun {
    /// The cost of the functions that may not be spared.
    part: f64,
    description: String,
}

/// The processor time of processes since the budget began.
#[derive(Default)]
struct Used {
    /// The time that each had used before.
    before: HashMap<i32, Duration>,
    /// Processes that have recorded under these numbers, and are none of ours.
    others: HashSet<u32>,
    total: Duration,
}

impl Used {
    /// These processes count from now on.
    fn begin(&mut self, processes: impl Iterator<Item = i32>) {
        for process in processes {
            let used = || processor_time(process).unwrap_or_default();
            self.before.entry(process).or_insert_with(used);
        }
    }

    /// These have begun since, and count from their begin.
    fn begun(&mut self, processes: impl Iterator<Item = i32>) {
        for process in processes {
            self.before.entry(process).or_insert(Duration::ZERO);
        }
    }

    /// The same of those that have been forked.
    fn find_forks(&mut self, recording: &HashSet<u32>) {
        for process in recording {
            let pid = *process as i32;
            if self.before.contains_key(&pid) || self.others.contains(process) {
                continue;
            }
            // What one is called here may not be known: its parent's time includes its own in the end.
            match self.descends(pid) {
                true => self.begun(std::iter::once(pid)),
                false => drop(self.others.insert(*process)),
            }
        }
    }

    fn descends(&self, process: i32) -> bool {
        let parents = std::iter::successors(Some(process), |pid| nopal_process::parent(*pid).ok());
        let mut parents = parents.skip(1).take(GENERATIONS);
        parents.any(|parent| self.before.contains_key(&parent))
    }

    /// All of it, by now.
    fn sum(&mut self) -> Duration {
        let mut sum = Duration::ZERO;
        self.before.retain(|process, before| {
            let used = processor_time(*process);
            sum += used.unwrap_or_default().saturating_sub(*before);
            used.is_some()
        });
        sum
    }
}

impl HeldBudget {
    fn new(share: Share) -> HeldBudget {
        let now = Instant::now();
        HeldBudget {
            share,
            policy: Policy::new(share.part()),
            keys: Vec::new(),
            begun: (now, counter()),
            looked: now,
            next_look: now + LOOK,
            used: Used::default(),
            rests: false,
            processors: processors(),
            gauge: Gauge::new(),
            lost: 0,
            waiting: 0.0,
            counted: HashMap::new(),
            ever_counted: HashSet::new(),
            ever_off: HashSet::new(),
            programs: Vec::new(),
            begins: false,
            begun_counted: 0,
            begun_off: 0,
            failed: None,
            overrun: None,
        }
    }

    /// `recording adds 3.1 % now; 12 functions are counted, 4 are off`
    pub fn describe(&self) -> String {
        let untimed = self.policy.untimed();
        let (off, counted): (Vec<State>, Vec<State>) = untimed
            .map(|(_, state)| state)
            .partition(|state| *state == State::Off);
        format!(
            "recording adds {:.1} % now; {}, {}",
            self.policy.spent() * 100.0,
            several(
                counted.len() as u64,
                "function is counted",
                "functions are counted"
            ),
            several(off.len() as u64, "is off", "are off")
        )
    }

    /// Remarks for readers of the trace.
    pub fn remarks(&self) -> impl Iterator<Item = String> {
        let were = [(&self.ever_counted, "counted"), (&self.ever_off, "off")];
        let were = were.into_iter().filter(|(sites, _)| !sites.is_empty());
        let were = were.map(|(sites, state)| {
            format!(
                "{} {state} for a time, to hold the budget of {} (`nopal info` says which and when)",
                several(sites.len() as u64, "function was", "functions were"),
                self.share
            )
        });
        let begun = [(self.begun_counted, "counted"), (self.begun_off, "off")];
        let begun = begun.into_iter().filter(|(count, _)| *count > 0);
        let begun = begun.map(|(count, state)| {
            format!(
                "{} {state}, as when the last recording of this program within a budget ended",
                several(count, "function began", "functions began")
            )
        });
        let overrun = self
            .overrun
            .iter()
            .map(|overrun| overrun.description.clone());
        were.chain(begun).chain(self.failed.clone()).chain(overrun)
    }

    /// Whether it is time for a look, as recording has taken so many seconds since the last.
    fn is_due(&mut self, recorded: f64) -> bool {
        let now = Instant::now();
        let allowed = self.share.part() * LOOK.as_secs_f64();
        let is_spent = recorded > allowed && now - self.looked >= SOONEST;
        let is_due = is_spent || now >= self.next_look;
        if is_due {
            self.next_look = now + LOOK;
        }
        is_due
    }

    /// The processor time since the last look, unless it is too little for one.
    fn used_since_look(&mut self) -> Option<Duration> {
        let sum = self.used.sum();
        // The time of children comes all at once when they are waited for.
        let most = self.looked.elapsed() * self.processors;
        let used = sum.saturating_sub(self.used.total).min(most);
        self.rests = used < LEAST_USED;
        if self.rests {
            return None;
        }
        self.used.total = sum;
        self.looked = Instant::now();
        Some(used)
    }

    /// Whether the processes are so nearly idle that the next look may be as late as `LOOK`.
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    /// Ticks of the counter in a second, since the budget began.
    fn frequency(&self) -> f64 {
        let (begun, counter_then) = self.begun;
        let seconds = begun.elapsed().as_secs_f64().max(1e-6);
        counter().saturating_sub(counter_then) as f64 / seconds
    }
}

impl HeldBudget {
    /// These sites have gone to a state. Whether it is kept from the last session.
    pub fn went(&mut self, state: SiteState, sites: &[u32]) -> bool {
        // Somebody else may count them.
        let spared = |site: &&u32| self.policy.state(**site) != State::Timed;
        let spared: Vec<u32> = sites.iter().filter(spared).copied().collect();
        match state {
            SiteState::Timed => return false,
            SiteState::Counted => self.ever_counted.extend(&spared),
            SiteState::Off => self.ever_off.extend(&spared),
        }
        if self.begins {
            match state {
                SiteState::Off => self.begun_off += spared.len() as u64,
                _ => self.begun_counted += spared.len() as u64,
            }
        }
        self.begins
    }

    /// The sites that are counted for its sake.
    fn counted(&self) -> impl Iterator<Item = u32> {
        let sites = self.policy.untimed();
        let sites = sites.filter(|(_, state)| *state == State::Counted);
        sites.map(|(site, _)| site)
    }

    /// Calls of sites that are about to be counted for the first time, which were counted before this session, or for
    /// somebody else, do not count.
    fn begin_counting(&mut self, regions: &[Arc<Region>]) {
        let first = self.counted();
        let first: BTreeSet<u32> = first
            .filter(|site| !self.counted.contains_key(site))
            .collect();
        self.counted.extend(first.iter().map(|site| (*site, 0)));
        self.counted.extend(calls_counted(regions, &first));
    }

    /// How many calls of the sites that it has counted were counted since the last look.
    fn counted_since_look(&mut self, regions: &[Arc<Region>]) -> Vec<(u32, u64)> {
        let sites = self.counted().collect();
        let since = calls_counted(regions, &sites).into_iter();
        let since = since.map(|(site, calls)| {
            // Counters that are gone do not count.
            let before = self.counted.insert(site, calls).unwrap_or(calls);
            (site, calls.saturating_sub(before))
        });
        since.filter(|(_, calls)| *calls > 0).collect()
    }
}

impl Session {
    pub(crate) fn set_budget(&mut self, share: Option<Share>) -> Result<()> {
        let shared = self.context.shared.clone();
        match (share, &mut self.budget) {
            (None, _) => {
                self.budget = None;
                *shared.meter() = None;
            }
            (Some(share), Some(held)) => {
                held.share = share;
                held.policy.set_budget(share.part());
            }
            (Some(share), None) => {
                let mut held = HeldBudget::new(share);
                held.lost = shared.counts().lost.all();
                held.used.begin(self.processes.tracees.keys().copied());
                self.budget = Some(held);
                *shared.meter() = Some(Meter::new());
            }
        }
        let percent = share.map(Share::percent);
        let counter = counter();
        note(&shared.writer, &Note::Budget { counter, percent })
    }

    /// What a process that ran before uses from now on counts. With the first one, the time for a look begins: one that
    /// came at once would see an idle process, and the next be late.
    pub(crate) fn count_against_budget(&mut self, process: i32) {
        let Some(held) = &mut self.budget else {
            return;
        };
        if held.used.before.is_empty() {
            held.looked = Instant::now();
            held.next_look = held.looked + LOOK;
        }
        held.used.begin(std::iter::once(process));
    }

    /// Has counted and off what was so when the last session of a process's program with a budget ended, unless the
    /// program is known; without such a session, what is tiny is counted. Libraries that are loaded later begin without.
    pub(crate) fn begin_budget(&mut self, process: i32) {
        let files = &self.context.files;
        let (Some(held), Some(program)) = (
            &mut self.budget,
            files.at(Path::new(&format!("/proc/{process}/exe"))),
        ) else {
            return;
        };
        if held
            .programs
            .iter()
            .any(|known| known.index == program.index)
        {
            return;
        }
        held.programs.push(program.clone());
        let kept = files
            .cache()
            .and_then(|cache| nopal_plan::kept_profile(cache, &program.image.identity()));
        held.keys = files.keys_by_number();
        let setup = self.control.setup();
        let mut begin = |file: &File, address: u64, kept: Kept| {
            let may_be_spared = file.key_at(address).is_some_and(|key| setup.may_spare(key));
            let number = files.number_of(file.index, address);
            if let Some(number) = number.filter(|_| may_be_spared) {
                held.policy.begin(number, kept);
            }
        };
        let is_kept = kept.is_some();
        match kept {
            Some(Profile { factors, untimed }) => {
                for function in untimed {
                    let Some(file) = files.identified(&function.file) else {
                        continue;
                    };
                    let state = match function.is_off {
                        true => State::Off,
                        false => State::Counted,
                    };
                    let kept = Kept {
                        state,
                        share: function.share,
                        worth: function.worth,
                        failed: function.failed,
                    };
                    begin(file, function.address, kept);
                }
                if held.programs.len() == 1 {
                    held.gauge.begin(factors);
                }
            }
            None => {
                for address in program.tiny_leaves() {
                    begin(&program, address, TINY);
                }
            }
        }
        if held.policy.untimed().next().is_some() {
            held.begins = is_kept;
            self.obey_policy();
        }
        if let Some(held) = &mut self.budget {
            held.begins = false;
        }
    }

    /// Keeps what is not timed for the next sessions of the programs.
    pub(crate) fn keep_budget(&self) {
        let files = &self.context.files;
        let Some(held) = &self.budget else {
            return;
        };
        let Some(cache) = files.cache().filter(|_| !held.programs.is_empty()) else {
            return;
        };
        let kept = held.policy.kept().filter_map(|(number, kept)| {
            let key = held.keys.get(number as usize).copied().flatten()?;
            let (file, address) = files.site(key)?;
            Some(Untimed {
                file: file.image.identity(),
                address,
                is_off: kept.state == State::Off,
                share: kept.share,
                worth: kept.worth,
                failed: kept.failed,
            })
        });
        let mut kept: Vec<Untimed> = kept.collect();
        sort::by(&mut kept, |a, b| {
            (&a.file, a.address).cmp(&(&b.file, b.address))
        });
        for program in &held.programs {
            let profile = Profile {
                factors: held.gauge.factors(),
                untimed: kept.clone(),
            };
            // A session that finds nothing kept finds it out again.
            let _ = nopal_plan::keep_profile(cache, &program.image.identity(), profile);
        }
    }

    /// Looks at what tracing costs, if it is time, and has functions timed, counted or off.
    pub(crate) fn hold_budget(&mut self) {
        if self.budget.is_none() {
            return;
        }
        let changes = self.look_at_costs();
        self.warn_of_what_is_too_much();
        if changes {
            self.obey_policy();
        }
    }

    /// Whether the policy wants anything changed. The meter is locked meanwhile: the thread that collects has the
    /// writer, too, when it wants the meter, so nothing is written here.
    fn look_at_costs(&mut self) -> bool {
        let Some(held) = &mut self.budget else {
            return false;
        };
        let shared = self.context.shared.clone();
        let mut meter = shared.meter();
        let Some(meter) = meter.as_mut() else {
            return false;
        };
        let mut factors = held.gauge.factors();
        // A call takes no less to be recorded than to be counted.
        factors[RECORDED] = factors[RECORDED].max(COUNTING * factors[COUNTED]);
        let call = shared.cost().unwrap_or(UNMEASURED) * factors[RECORDED];
        let counting = COUNTING * factors[COUNTED] / factors[RECORDED];
        // In seconds. A call has two records.
        let call = call / held.frequency();
        let record = call / 2.0;
        // An event that is lost takes as long, and whose it is is not known.
        let lost = shared.counts().lost.all().saturating_sub(held.lost) as f64;
        let records = meter.records() as f64;
        // Nor is it known of what waits to be collected. It was made since the last look, but for what waited then. What a
        // flight recorder keeps does not wait.
        let regions = shared.regions();
        let waiting = match self.options.when_full {
            WhenFull::Flight => 0.0,
            _ => waiting(&regions),
        };
        let more = lost + waiting - held.waiting;
        let record = record * (1.0 + more / records.max(1.0)).max(0.0);
        if !held.is_due(records * record) {
            return false;
        }
        let tracees = self.processes.tracees.keys().copied();
        let is_older = |process: &i32| self.attached.contains(process);
        let (older, begun): (Vec<i32>, Vec<i32>) = tracees.partition(is_older);
        held.used.begin(older.into_iter());
        held.used.begun(begun.into_iter());
        held.used.find_forks(meter.processes());
        let since = held.looked.elapsed();
        // Of idle processes, no samples are taken.
        let Some(used) = held.used_since_look() else {
            held.gauge.rest();
            return false;
        };
        let tracees = &self.processes.tracees;
        let counted = &self.control.spared().counted;
        held.gauge.read(|process, address| {
            let process = process as i32;
            if !held.used.before.contains_key(&process) {
                return None;
            }
            // A forked child has the code of its parent.
            let has_it = |tracee: &&Tracee| tracee.arenas().any(|arena| arena.contains(&address));
            let own = tracees.get(&process).filter(has_it);
            let tracee = own.or_else(|| tracees.values().find(has_it))?;
            Some(match tracee.is_in_thunk_of(counted, address) {
                true => COUNTED,
                false => RECORDED,
            })
        });
        held.lost += lost as u64;
        held.waiting = waiting;
        let counted = held.counted_since_look(&regions);
        let readings = meter.read();
        // Numbers are given as functions are inserted.
        let highest = readings.iter().map(|reading| reading.site as usize).max();
        if highest.is_some_and(|highest| held.keys.len() <= highest) {
            held.keys = self.context.files.keys_by_number();
        }
        let setup = self.control.setup();
        let keys = &held.keys;
        let idle = |site: u32| {
            let key = keys.get(site as usize).copied().flatten();
            Load {
                site,
                recorded: 0.0,
                counted: 0.0,
                worth: None,
                // Also while it is off, as in a session that was stopped: its last calls may have come in since.
                may_be_spared: key.is_some_and(|key| !setup.is_named(key)),
            }
        };
        let nanosecond = held.frequency() / 1e9;
        let mut loads: HashMap<u32, Load> = HashMap::new();
        for reading in &readings {
            let load = loads.entry(reading.site);
            let load = load.or_insert_with(|| idle(reading.site));
            load.recorded = reading.records as f64 * record;
            let times = reading.mean_and_deviation();
            load.worth = times.map(|(mean, deviation)| (mean + deviation) / nanosecond);
        }
        for (site, calls) in counted {
            let load = loads.entry(site).or_insert_with(|| idle(site));
            load.counted = calls as f64 * call;
        }
        let loads: Vec<Load> = loads.into_values().collect();
        held.gauge
            .compare(costs(&loads, counting), since.as_secs_f64(), factors);
        let now = held.begun.0.elapsed().as_secs_f64();
        held.policy.look(&Look {
            now,
            used: used.as_secs_f64(),
            counting,
            loads: &loads,
        })
    }

    /// Brings about what the policy wants.
    fn obey_policy(&mut self) {
        let Some(held) = &mut self.budget else {
            return;
        };
        held.begin_counting(&self.context.shared.regions());
        let (mut counted, mut off) = (Vec::new(), Vec::new());
        for (number, state) in held.policy.untimed() {
            if let Some(key) = held.keys.get(number as usize).copied().flatten() {
                match state {
                    State::Off => off.push(key),
                    _ => counted.push(key),
                }
            }
        }
        counted.sort_unstable();
        off.sort_unstable();
        let stops = *off != *self.control.spared().off;
        let spared = Spared {
            counted: counted.into(),
            off: off.into(),
        };
        let begun = Instant::now();
        let done = self.with_control(|control, engine| control.spare(engine, spared));
        if let (true, Some(held)) = (stops, &mut self.budget) {
            let now = held.begun.0.elapsed().as_secs_f64();
            held.policy.paused(now, begun.elapsed().as_secs_f64());
        }
        if let (Err(error), Some(held)) = (done, &mut self.budget) {
            let failed = || format!("the budget of {} was not held: {error:#}", held.share);
            held.failed.get_or_insert_with(failed);
        }
    }

    /// Describes when it was held least.
    fn warn_of_what_is_too_much(&mut self) {
        let Some(held) = &mut self.budget else {
            return;
        };
        let worst = held.overrun.as_ref().map_or(0.0, |overrun| overrun.part);
        let too_much = held.policy.too_much;
        let is_worse = |much: &TooMuch| much.named > worst.max(held.share.part());
        let Some(TooMuch { site, share, named }) = too_much.filter(is_worse) else {
            return;
        };
        let name = self.context.shared.writer.lock().name_of(site);
        let (most, all) = (share * 100.0, named * 100.0);
        let why = match share > held.share.part() {
            true => format!(
                "{name} alone, which is recorded because it was asked for by name, took up to {most:.1} %"
            ),
            false => format!(
                "the functions that are recorded because they were asked for by name took up to {all:.1} %, {name} most \
                 of it ({most:.1} %)"
            ),
        };
        held.overrun = Some(Overrun {
            part: named,
            description: format!(
                "the budget of {} was not held at all times: {why}",
                held.share
            ),
        });
    }
}

/// Processors that run: not only those that the tool itself may use.
fn processors() -> u32 {
    // SAFETY: asks for a number.
    let number = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(number).unwrap_or(1).max(1)
}

/// How often these sites have been counted.
fn calls_counted(regions: &[Arc<Region>], sites: &BTreeSet<u32>) -> HashMap<u32, u64> {
    let mut sums: HashMap<u32, u64> = HashMap::new();
    for (site, calls) in regions.iter().flat_map(|region| region.counted(sites)) {
        let sum = sums.entry(site).or_default();
        *sum = sum.saturating_add(calls);
    }
    sums
}

/// Records in chunks that threads have handed over.
fn waiting(regions: &[Arc<Region>]) -> f64 {
    let full = regions.iter().map(|region| {
        let chunks = 0..region.chunks();
        chunks
            .filter(|chunk| region.chunk_state(*chunk) == CHUNK_FULL)
            .count()
    });
    (full.sum::<usize>() * (CHUNK_BYTES / 8)) as f64
}
