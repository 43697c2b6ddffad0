//! The trace that is shown, its index and its names.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nopal_analysis::drive::Progress;
use nopal_analysis::names::Names;
use nopal_analysis::prototypes::KnownPrototypes;
use nopal_analysis::range::Checkpoints;
use nopal_analysis::sources::{CallSites, Sources};
use nopal_analysis::span;
use nopal_beside::{Mutex, RwLock};
use nopal_index::Index;
use nopal_trace::Trace;

use crate::cases::{Cases, Curve};
use crate::kernel::Kernel;

/// A trace that grows is read again at most this often.
const FRESH: Duration = Duration::from_millis(500);

/// A trace at a moment.
pub struct State {
    pub trace: Trace,
    pub index: Index,
    pub names: Names,
    /// Counter at its first record and at its last one.
    pub begin: u64,
    pub end: u64,
    read: Instant,
    checkpoints: OnceLock<Arc<Checkpoints>>,
    /// Calls of some functions, by thread and block, as they were last asked for.
    counted: Mutex<Kept<Vec<u64>, Vec<Vec<u64>>>>,
    /// These are read when they are first asked for.
    kernel: OnceLock<Kernel>,
    cases: Mutex<Kept<String, Cases>>,
    curves: Mutex<Kept<String, Curve>>,
    /// The places of functions, and of their calls in a caller, in the source.
    sources: Mutex<Kept<(u32, Option<u32>), Source>>,
    pub prototypes: Mutex<KnownPrototypes>,
}

/// The place of a function and its calls in the source, by debug information.
pub struct Source {
    /// `FILE:LINE` of the function.
    pub line: Option<String>,
    /// The lines where the caller calls it by name.
    pub calls: Vec<String>,
}

/// The last answers, by their questions.
type Kept<Key, Answer> = Vec<(Key, Arc<Answer>)>;

const MOST_KEPT: usize = 8;

/// The kept answer, or the one that `make` makes. Other callers wait meanwhile: most of them ask for the same.
fn kept<Key: Clone + PartialEq, Answer>(
    all: &Mutex<Kept<Key, Answer>>,
    key: &Key,
    make: impl FnOnce() -> Result<Answer>,
) -> Result<Arc<Answer>> {
    let mut all = all.lock();
    if let Some((_, known)) = all.iter().find(|(known, _)| known == key) {
        return Ok(Arc::clone(known));
    }
    let new = Arc::new(make()?);
    if all.len() >= MOST_KEPT {
        all.remove(0);
    }
    all.push((key.clone(), Arc::clone(&new)));
    Ok(new)
}

impl State {
    fn new(trace: Trace, index: Index) -> State {
        State {
            names: Names::new(&trace),
            begin: span::begin(&trace),
            end: span::end(&trace),
            read: Instant::now(),
            counted: Mutex::new(Vec::new()),
            checkpoints: OnceLock::new(),
            kernel: OnceLock::new(),
            cases: Mutex::new(Vec::new()),
            curves: Mutex::new(Vec::new()),
            sources: Mutex::new(Vec::new()),
            prototypes: Mutex::new(KnownPrototypes::default()),
            trace,
            index,
        }
    }

    /// Nanoseconds from the trace's beginning to a counter.
    pub fn ns(&self, counter: u64) -> u64 {
        let clocks = self.trace.clocks();
        let begin = clocks.monotonic_ns(self.begin);
        clocks.monotonic_ns(counter).saturating_sub(begin)
    }

    /// The places where readers of a part of the trace can begin and end.
    pub fn checkpoints(&self) -> Arc<Checkpoints> {
        let made = || Arc::new(self.index.checkpoints());
        Arc::clone(self.checkpoints.get_or_init(made))
    }

    /// The calls of some functions by thread and block, which `count` counts if they are not known yet.
    pub fn counted(
        &self,
        functions: &[u64],
        count: impl FnOnce() -> Vec<Vec<u64>>,
    ) -> Result<Arc<Vec<Vec<u64>>>> {
        kept(&self.counted, &functions.to_vec(), || Ok(count()))
    }

    pub fn kernel(&self) -> &Kernel {
        self.kernel.get_or_init(|| Kernel::new(&self.trace))
    }

    /// The cases of a tracer.
    pub fn cases(&self, tracer: &str) -> Result<Arc<Cases>> {
        kept(&self.cases, &tracer.to_owned(), || {
            Cases::new(&self.trace, &self.names, tracer)
        })
    }

    /// The place of a function, and of its calls in a caller.
    pub fn source(&self, function: u32, caller: Option<u32>) -> Result<Arc<Source>> {
        kept(&self.sources, &(function, caller), || {
            let (trace, names) = (&self.trace, &self.names);
            let lines = Sources::of_functions(trace, names, |other| other == function);
            let pairs = caller.map(|caller| (caller, function));
            let sites = CallSites::new(trace, names, pairs.into_iter().collect());
            Ok(Source {
                line: lines.of(function).map(str::to_owned),
                calls: caller.map_or(Vec::new(), |caller| sites.of(caller, function).to_vec()),
            })
        })
    }

    /// The values of a field of a marker.
    pub fn curve(&self, field: &str) -> Result<Arc<Curve>> {
        kept(&self.curves, &field.to_owned(), || {
            Curve::new(&self.trace, &self.index, field)
        })
    }

    /// The first counter that is so many nanoseconds, or more, after the trace's beginning: what begins at the counter
    /// `clock` begins at `counter(ns(clock))` or later, and before `counter(ns(clock) + 1)`.
    pub fn counter(&self, ns: u64) -> u64 {
        let clocks = self.trace.clocks();
        clocks.counter(clocks.monotonic_ns(self.begin).saturating_add(ns))
    }

    /// The counters that are a nanosecond; the last one before it if there are none, as the counter is slower.
    pub fn moment(&self, ns: u64) -> Range<u64> {
        let end = self.counter(ns.saturating_add(1)).max(1);
        self.counter(ns).min(end - 1)..end
    }
}

/// The trace that is shown.
pub struct Shown {
    directory: PathBuf,
    workers: usize,
    /// None after a growing trace could not be read again.
    state: RwLock<Option<State>>,
    /// Its checksums have been compared: damage is known.
    is_checked: AtomicBool,
}

impl Shown {
    /// Shows a trace, and makes its index if there is none.
    pub fn new(trace: Trace, workers: usize, progress: Option<Progress>) -> Shown {
        let index = Index::open(&trace, workers, progress);
        Shown::of(trace, index, workers, true)
    }

    /// Shows a trace with its index before its checksums are compared, which takes a second for some gigabytes. None if
    /// there is no index, or something is wrong already.
    pub fn unchecked(directory: &Path, workers: usize) -> Option<Shown> {
        let (trace, index) = Index::kept_with_trace(directory)?;
        if trace.is_growing() || trace.damage_count() > 0 {
            return None;
        }
        Some(Shown::of(trace, index, workers, false))
    }

    fn of(trace: Trace, index: Index, workers: usize, is_checked: bool) -> Shown {
        Shown {
            directory: trace.directory().to_owned(),
            workers,
            state: RwLock::new(Some(State::new(trace, index))),
            is_checked: AtomicBool::new(is_checked),
        }
    }

    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Acquire)
    }

    /// Waits until [`Shown::check`] has been here: for an answer that is kept.
    pub fn wait_until_checked(&self) {
        while !self.is_checked() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Compares the checksums, and what the index said of the trace, unless that was done. If the trace is damaged,
    /// `damaged` is told, and what is intact is shown from then on.
    pub fn check(&self, damaged: impl FnOnce(&Trace)) {
        if self.is_checked() {
            return;
        }
        let is_readable = self.with(|state| Ok(state.index.is_readable()));
        let trace = Trace::open(&self.directory).ok();
        let is_of = |trace: &Trace| {
            let same = self.with(|state| Ok(trace.has_packets_of(&state.trace)));
            trace.damage_count() == 0 && same.unwrap_or(false)
        };
        if !(is_readable.unwrap_or(false) && trace.as_ref().is_some_and(is_of)) {
            let state = trace.map(|trace| {
                if trace.damage_count() > 0 {
                    damaged(&trace);
                }
                let index = Index::renew(&trace, self.workers, None);
                State::new(trace, index)
            });
            *self.state.write() = state;
        }
        self.is_checked.store(true, Ordering::Release);
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs `work` on the trace as it was last read.
    pub fn with<T>(&self, work: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        work(
            self.state
                .read()
                .as_ref()
                .context("the trace cannot be read any more")?,
        )
    }

    /// Reads what was recorded since, if the trace grows.
    pub fn refresh(&self) {
        let is_stale = |state: &State| state.trace.is_growing() && state.read.elapsed() >= FRESH;
        if !self.state.read().as_ref().is_some_and(is_stale) {
            return;
        }
        let mut state = self.state.write();
        // Another client may have done it meanwhile.
        let Some(old) = state.take_if(|state| is_stale(state)) else {
            return;
        };
        let mut index = old.index;
        if let Ok(trace) = old.trace.again() {
            index.extend(&trace, self.workers, None);
            *state = Some(State::new(trace, index));
        }
    }
}

#[cfg(test)]
mod tests {
    use nopal_trace::synthetic::{self, Shape};

    use super::*;

    #[test]
    fn damage_behind_the_index_is_found_by_the_check() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("trace");
        synthetic::write(&directory, &Shape::default()).unwrap();
        assert!(Shown::unchecked(&directory, 1).is_none(), "it has no index");
        Shown::new(Trace::open(&directory).unwrap(), 1, None);
        let calls = |shown: &Shown| {
            let sum = |state: &State| state.index.threads.iter().map(|thread| thread.calls).sum();
            shown.with(|state| Ok(sum(state))).unwrap()
        };
        let damage = |shown: &Shown| shown.with(|state| Ok(state.trace.damage_count())).unwrap();

        let shown = Shown::unchecked(&directory, 1).unwrap();
        let all: u64 = calls(&shown);
        shown.check(|_| panic!("it is intact"));
        assert!(shown.is_checked());
        assert_eq!(calls(&shown), all);

        let stream = directory.join("stream-0");
        let mut bytes = std::fs::read(&stream).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&stream, bytes).unwrap();
        let shown = Shown::unchecked(&directory, 1).unwrap();
        assert_eq!((calls(&shown), damage(&shown)), (all, 0));
        let mut told = 0;
        shown.check(|trace| told = trace.damage_count());
        assert_eq!((told, damage(&shown)), (1, 1));
        assert!(calls(&shown) < all && shown.is_checked());

        // The index is now that of the intact part.
        assert!(Shown::unchecked(&directory, 1).is_none());
    }

    #[test]
    fn an_index_that_names_other_packets_is_made_anew_by_the_check() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("trace");
        synthetic::write(&directory, &Shape::default()).unwrap();
        Shown::new(Trace::open(&directory).unwrap(), 1, None);
        let end = |trace: &Trace| trace.threads()[0].packets().nth(5).unwrap().clock_end();
        let told = end(&Trace::open(&directory).unwrap());

        // Neither the first packet nor the last one shows it.
        let stream = directory.join("stream-0");
        let mut bytes = std::fs::read(&stream).unwrap();
        let mut words = bytes.windows(8);
        let at = words.position(|word| word == told.to_le_bytes()).unwrap();
        bytes[at..at + 8].copy_from_slice(&(told - 1).to_le_bytes());
        std::fs::write(&stream, bytes).unwrap();
        synthetic::sum_again(&directory).unwrap();

        for is_right in [false, true] {
            let shown = Shown::unchecked(&directory, 1).unwrap();
            let end = || shown.with(|state| Ok(end(&state.trace))).unwrap();
            assert_eq!(end() == told - 1, is_right);
            shown.check(|_| panic!("it is intact"));
            assert_eq!(end(), told - 1);
        }
    }
}
