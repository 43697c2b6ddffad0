//! The trace that is shown, its index and its names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nopal_analysis::drive::Progress;
use nopal_analysis::filter;
use nopal_analysis::names::Names;
use nopal_beside::Mutex;
use nopal_index::Index;
use nopal_trace::Trace;

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
    /// Calls of some functions, by thread and block, as they were last asked for.
    counted: Mutex<Vec<Counted>>,
}

type Counted = (Vec<u64>, Arc<Vec<Vec<u64>>>);

/// Kept answers to searches.
const SEARCHES: usize = 8;

impl State {
    fn new(trace: Trace, index: Index) -> State {
        State {
            names: Names::new(&trace),
            begin: filter::begin(&trace),
            end: filter::end(&trace),
            read: Instant::now(),
            counted: Mutex::new(Vec::new()),
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

    /// The calls of some functions by thread and block, which `count` counts if they are not known yet.
    pub fn counted(
        &self,
        functions: &[u64],
        count: impl FnOnce() -> Vec<Vec<u64>>,
    ) -> Arc<Vec<Vec<u64>>> {
        // Others wait meanwhile, as they ask for the same at most times.
        let mut counted = self.counted.lock();
        if let Some(known) = counted.iter().find(|known| known.0 == functions) {
            return Arc::clone(&known.1);
        }
        let new = Arc::new(count());
        if counted.len() >= SEARCHES {
            counted.remove(0);
        }
        counted.push((functions.to_vec(), Arc::clone(&new)));
        new
    }

    /// The counter so many nanoseconds after the trace's beginning.
    pub fn counter(&self, ns: u64) -> u64 {
        let clocks = self.trace.clocks();
        clocks.counter(clocks.monotonic_ns(self.begin).saturating_add(ns))
    }
}

/// The trace that is shown.
pub struct Shown {
    directory: PathBuf,
    workers: usize,
    /// None once a trace that grew could not be read again.
    state: RwLock<Option<State>>,
}

impl Shown {
    /// Takes a trace, and makes its index if there is none.
    pub fn new(trace: Trace, workers: usize, progress: Option<Progress>) -> Shown {
        let index = Index::open(&trace, workers, progress);
        Shown {
            directory: trace.directory().to_owned(),
            workers,
            state: RwLock::new(Some(State::new(trace, index))),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs `work` on the trace as it was last read.
    pub fn with<T>(&self, work: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        work(
            self.read()
                .as_ref()
                .context("the trace cannot be read any more")?,
        )
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<State>> {
        self.state
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reads what was recorded since, if the trace grows.
    pub fn refresh(&self) {
        let is_stale = |state: &State| state.trace.is_growing() && state.read.elapsed() >= FRESH;
        if !self.read().as_ref().is_some_and(is_stale) {
            return;
        }
        let mut state = self
            .state
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
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
