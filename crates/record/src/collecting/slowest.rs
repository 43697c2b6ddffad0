//! The slowest cases of tracers: what the flight recorder holds of each is written into a snapshot.
//!
//! A case that ends waits a second for slower ones, which are copied with it, but no longer than until its records would
//! be given up.

use crate::collecting::chunk_reader::name_of;
use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::notes::counter;
use crate::collecting::snapshot::{Slow, Wanted};
use crate::memory::region::Region;
use anyhow::Result;
use nopal_abi::{CHUNK_FULL, CHUNK_OWNED};
use nopal_analysis::text::duration;
use nopal_analysis::tracers::{Live, SlowCase};

/// A tracer of the session.
pub struct LiveTracer {
    name: String,
    live: Live,
    /// It has been switched off: what waits is kept all the same.
    is_off: bool,
}

/// Which records are still to be copied for slow cases.
#[derive(Default)]
pub struct AwaitedRecords {
    /// From this value of the counter on.
    since: Option<u64>,
    /// The flight recorder would have given some up.
    are_short: bool,
}

impl Shared {
    pub fn add_tracer(&self, name: &str, live: &Live) {
        self.tracers.lock().push(LiveTracer {
            name: name.to_owned(),
            live: live.clone(),
            is_off: false,
        });
    }

    pub fn remove_tracer(&self, name: &str) {
        let mut tracers = self.tracers.lock();
        let named = tracers.iter_mut().filter(|tracer| tracer.name == name);
        named.for_each(|tracer| tracer.is_off = true);
    }
}

/// For people: which tracers have found nothing to keep.
pub fn found_nothing(shared: &Shared) -> Vec<String> {
    let tracers = shared.tracers.lock();
    let in_vain = tracers.iter().filter(|tracer| tracer.live.keeps_nothing());
    in_vain
        .map(|tracer| format!("no case of {} was recorded: none was kept", tracer.name))
        .collect()
}

impl AwaitedRecords {
    /// Whether the chunk has some of them, and they are to be copied now. A thread's chunk reaches to its next one.
    pub fn are_in(&mut self, region: &Region, chunk: usize) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let (key, sequence) = name_of(region, chunk);
        let is_next = |other: &usize| {
            matches!(region.chunk_state(*other), CHUNK_FULL | CHUNK_OWNED)
                && name_of(region, *other) == (key, sequence.wrapping_add(1))
        };
        let next = (0..region.chunks()).find(is_next);
        let is_over = next.is_some_and(|next| region.header(next).clock_begin <= since);
        self.are_short |= !is_over;
        !is_over
    }
}

/// Has the records copied of cases that are among the slowest of their minute, and the snapshots removed of those that are
/// not any more. `ends`: nothing more is recorded.
pub fn keep_slowest(shared: &Shared, collector: &mut Collector, ends: bool) -> Result<()> {
    let mut tracers = shared.tracers.lock();
    if tracers.is_empty() {
        return Ok(());
    }
    if ends {
        collector.finish_snapshots();
    }
    let are_short = std::mem::take(&mut collector.awaited).are_short;
    let may_write = collector.may_write_snapshot();
    let mut wanted = Vec::new();
    for tracer in tracers.iter() {
        for id in tracer.live.take_outrun() {
            shared.snapshots().remove(&tracer.live, id);
        }
        if may_write {
            let at_once = ends || tracer.is_off || are_short;
            let cases = tracer.live.take_slowest(counter(), at_once).into_iter();
            wanted.extend(cases.map(|case| tracer.wanted(&case)));
        }
    }
    tracers.retain(|tracer| !(may_write && tracer.is_off));
    // While no snapshot can be written, records are given up as always.
    let waiting = tracers.iter().filter(|_| may_write);
    collector.awaited.since = waiting
        .filter_map(|tracer| tracer.live.slowest_since())
        .min();
    drop(tracers);
    match wanted.is_empty() {
        true => Ok(()),
        false => collector.write_snapshots(shared, wanted),
    }
}

impl LiveTracer {
    fn wanted(&self, SlowCase { id, finding }: &SlowCase) -> Wanted {
        let case = finding.case;
        let took = duration(finding.ns);
        Wanted {
            why: format!("{} took {took}, among the slowest of its minute", self.name),
            window: case.begin..=case.end,
            slow: Some(Slow {
                tracer: self.name.clone(),
                live: self.live.clone(),
                thread: finding.end_thread,
                id: *id,
                ns: finding.ns,
            }),
        }
    }
}
