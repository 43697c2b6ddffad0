//! The thread that empties the regions while the program runs.

use crate::collect::Collector;
use crate::notes::{lock, note, snapshot};
use crate::region::Region;
use crate::remove::processes_with;
use anyhow::Result;
use nopal_trace::Writer;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SHORTEST_NAP: Duration = Duration::from_micros(200);
const LONGEST_NAP: Duration = Duration::from_millis(2);
const SECOND: Duration = Duration::from_secs(1);
const SNAPSHOT_SOON: Duration = Duration::from_millis(20);
/// How often chunks of threads that have ended are looked for.
const ENDED: Duration = Duration::from_millis(10);

/// What the draining thread and the rest of the session share.
pub struct Shared {
    pub writer: Mutex<Writer>,
    pub regions: Mutex<Vec<Arc<Region>>>,
    stop: AtomicBool,
}

impl Shared {
    pub fn new(writer: Writer) -> Shared {
        Shared {
            writer: Mutex::new(writer),
            regions: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    pub fn regions(&self) -> Vec<Arc<Region>> {
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Wakes the session's own thread.
    pub fn wake(&self) {
        for region in self.regions() {
            region.ring();
        }
    }

    pub fn add_region(&self, region: Arc<Region>) {
        self.regions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(region);
    }
}

pub struct Drain {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Collector>>,
}

impl Drain {
    pub fn start(shared: Arc<Shared>, collector: Collector) -> Drain {
        let theirs = shared.clone();
        Drain {
            shared,
            thread: std::thread::spawn(move || run(&theirs, collector)),
        }
    }

    /// Whether it has failed.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the thread, and gives the collector back for what is left.
    pub fn stop(self) -> Result<Collector> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("collecting records failed")))
    }
}

fn run(shared: &Shared, mut collector: Collector) -> Result<Collector> {
    let mut nap = SHORTEST_NAP;
    // The second snapshot comes early, so that the rate of the counter is known of short programs too.
    let mut next_snapshot = Instant::now() + SNAPSHOT_SOON;
    let mut last_ended = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut freed = 0;
        for region in shared.regions() {
            region.beat();
            region.make_ready();
            freed += collector.round(&region, &mut lock(&shared.writer))?;
        }
        if last_ended.elapsed() > ENDED {
            last_ended = Instant::now();
            for region in shared.regions() {
                let mut living = None;
                collector.reclaim(&region, |process, thread| {
                    !nopal_process::thread_alive(process as i32, thread as i32)
                        && !living
                            .get_or_insert_with(|| numbers_of_others(&region))
                            .contains(&process)
                });
            }
        }
        if Instant::now() >= next_snapshot {
            next_snapshot = Instant::now() + SECOND;
            note(&shared.writer, &snapshot())?;
            let synced = lock(&shared.writer).sync_metadata();
            synced.or_else(|error| {
                if Writer::is_full(&error) {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
        }
        nap = if freed > 0 {
            SHORTEST_NAP
        } else {
            (nap * 2).min(LONGEST_NAP)
        };
        std::thread::park_timeout(nap);
    }
    Ok(collector)
}

/// What processes that have the region mapped call themselves, where that is not what we call them: they live in a
/// PID namespace of their own.
fn numbers_of_others(region: &Arc<Region>) -> HashSet<u32> {
    processes_with(std::slice::from_ref(region), &[std::process::id() as i32])
        .into_iter()
        .filter_map(|process| nopal_process::status(process).ok())
        .filter(|status| status.namespace_ids.len() > 1)
        .filter_map(|status| status.namespace_ids.last().map(|number| *number as u32))
        .collect()
}
