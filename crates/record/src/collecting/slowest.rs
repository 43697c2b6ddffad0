//! The slowest cases of tracers: what the flight recorder holds of each is written into a snapshot.
//!
//! A case that ends waits a second for slower ones, which are copied with it, but no longer than until its records would
//! be given up.

use crate::collecting::collect::Collector;
use crate::collecting::drain::Shared;
use crate::collecting::notes::counter;
use crate::collecting::snapshot::Wanted;
use crate::collecting::snapshot_results::Slow;
use crate::collecting::totals::last_clock;
use anyhow::Result;
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
        .map(|LiveTracer { name, live, .. }| match live.check() {
            Err(why) => format!("no case of {name} was kept: {why:#}"),
            Ok(()) => format!("no case of {name} was recorded: none was kept"),
        })
        .collect()
}

impl AwaitedRecords {
    /// Whether some are among these, of which the first has the clock `begin`: they are to be copied now.
    pub fn are_in(&mut self, records: &[u64], begin: u64) -> bool {
        let is_awaited = |since: u64| last_clock(records, begin) >= since;
        let are_in = self.since.is_some_and(is_awaited);
        self.are_short |= are_in;
        are_in
    }
}

/// Has the records copied of cases that are among the slowest of their minute, and the snapshots removed of those that are
/// not any more. `ends`: nothing more is recorded.
pub fn keep_slowest(shared: &Shared, collector: &mut Collector, ends: bool) -> Result<()> {
    if ends {
        collector.finish_snapshots(shared);
    }
    let mut tracers = shared.tracers.lock();
    if tracers.is_empty() {
        return Ok(());
    }
    let are_short = std::mem::take(&mut collector.awaited).are_short;
    let may_write = collector.may_write_slow();
    let mut wanted = Vec::new();
    for tracer in tracers.iter() {
        for id in tracer.live.take_outrun() {
            shared.snapshots().outrun(&tracer.live, id);
        }
        if may_write {
            let at_once = ends || tracer.is_off || are_short;
            let cases = tracer.live.take_slowest(counter(), at_once).into_iter();
            wanted.extend(cases.map(|case| tracer.wanted(&case)));
        }
    }
    tracers.retain(|tracer| !(may_write && tracer.is_off));
    // While none can be copied, records are given up as always.
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
                threads: [finding.begin_thread, finding.end_thread],
                id: *id,
                ns: finding.ns,
            }),
        }
    }
}
