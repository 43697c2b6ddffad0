//! Until when threads are known to have lived, with all their events recorded: calls that are open at a thread's last
//! record took at least until then.
//!
//! Each look first reads the counter. All that it finds then was so at that moment: the thread lives, and has the memory in
//! which it records. Later records of the thread, and losses, say nothing about the time before.

use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::naming::is_whole;
use crate::collecting::notes::counter;
use crate::memory::numbers::Inside;
use crate::memory::region::Region;
use crate::patch::remove::has_mapped;
use nopal_abi::CHUNK_OWNED;
use nopal_process::thread_alive;
use nopal_trace::{Note, ThreadKey};
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct Alive {
    /// When each thread was seen last, and since when it has lost nothing.
    seen: HashMap<ThreadKey, (u64, u64)>,
    /// Since when no thread has lost anything, and what had been lost until then.
    since: u64,
    lost: u64,
    /// Processes that are not recorded any more.
    left: HashSet<u32>,
}

impl Shared {
    /// Looks at all threads that record, or at those of one process.
    pub fn look_at_threads(&self, process: Option<i32>) {
        let mut alive = self.alive.lock();
        let now = counter();
        let lost = self.counts().lost.all();
        if lost != alive.lost {
            (alive.since, alive.lost) = (now, lost);
        }
        let is_wanted = |other: u32| process.is_none_or(|process| process as u32 == other);
        for region in self.regions() {
            let mut maps: HashMap<u32, bool> = HashMap::new();
            for chunk in 0..region.chunks() {
                if region.chunk_state(chunk) != CHUNK_OWNED {
                    continue;
                }
                let header = region.header(chunk);
                let key = ThreadKey::of(&header);
                let is_wanted = is_whole(key) && is_wanted(key.process);
                if is_wanted
                    && !alive.left.contains(&key.process)
                    && !region.has_jumped(chunk, &header)
                    && lives(&region, key)
                    && *maps
                        .entry(key.process)
                        .or_insert_with(|| has_mapped(key.process as i32, &region))
                {
                    let since = alive.since;
                    alive.seen.insert(key, (now, since));
                }
            }
        }
    }

    /// The last look at a process, before calls may end there without a record.
    pub fn look_for_the_last_time(&self, process: i32) {
        self.look_at_threads(Some(process));
        self.alive.lock().left.insert(process as u32);
    }

    /// Records of some threads are not written from now on, or were not until now.
    pub fn forget_threads(&self) {
        let mut alive = self.alive.lock();
        alive.since = counter();
        alive.seen.clear();
    }

    /// The notes for the trace, when it has all records.
    pub fn alive(&self, collector: &Collector) -> Vec<(ThreadKey, Note)> {
        // Nothing was written of the last ones.
        if collector.end.is_reached() {
            return Vec::new();
        }
        let alive = self.alive.lock();
        let note = |(thread, (counter, since)): (&ThreadKey, &(u64, u64))| {
            let note = Note::Alive {
                process: thread.process,
                thread: thread.thread,
                begin: thread.begin,
                since: *since,
                counter: *counter,
            };
            (*thread, note)
        };
        alive.seen.iter().map(note).collect()
    }
}

/// Whether it is certain that a thread lives.
fn lives(region: &Region, key: ThreadKey) -> bool {
    let is_known = matches!(region.inside(key), None | Some(Inside::Known { .. }));
    is_known && thread_alive(key.process as i32, key.thread as i32)
}
