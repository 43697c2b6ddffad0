//! Tracers on a finished trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use nopal_trace::Trace;

use super::watcher::{State, Watcher};
use super::{Case, Cases, EventKind, LatencyEvent, Missing, Numbers, Roles, Scheduling, Tracer};
use crate::kernel_events::events;
use crate::names::Names;
use crate::text::{count, several};
use crate::timeline::{ThreadEvents, timeline};

/// The results of a tracer besides the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    pub cases: u64,
    pub missing: Missing,
    /// Cases that had not ended when the trace ended.
    pub open: u64,
    /// Calls and markers that lack a value that would have to be known.
    pub unknown: u64,
}

impl Past {
    /// The missing cases, in lines.
    pub fn describe(&self) -> Vec<String> {
        let notes = [
            (self.open, "had not ended when the trace ended"),
            (
                self.missing.never_ended,
                "never ended: they began again, or kernel events were lost",
            ),
            (self.missing.ends_alone, "ended without a begin"),
            (
                self.missing.begins_lost,
                "began while too many others were open, and are not included",
            ),
            (
                self.missing.clock_went_back,
                "ended before they began, by a clock that went back, and are not included",
            ),
        ];
        let notes = notes.into_iter().filter(|(number, _)| *number > 0);
        let notes =
            notes.map(|(number, what)| format!("{} {what}", several(number, "case", "cases")));
        let unknown = (self.unknown > 0).then(|| {
            let events = several(self.unknown, "event", "events");
            format!("left out: {events} without a value that the tracer needs")
        });
        notes.chain(unknown).collect()
    }
}

/// Calls `found` for the cases of a tracer, in the order of their ends, with the numbers of their threads in the trace.
/// Fails if there are none.
pub fn of_trace(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    mut found: impl FnMut(Case),
) -> Result<Past> {
    let roles = Roles::of_trace(std::slice::from_ref(tracer), names, trace.markers());
    roles.check()?;
    let mut cases = Cases::new(&roles);
    let mut past = Past::default();
    let mut seen = 0u64;
    let unknown = Arc::new(AtomicU64::new(0));
    let threads = tracer.threads(trace);
    let latency_events = timeline(&threads, |_, thread| {
        let state = State::counting(&unknown);
        ThreadEvents::new(thread.packets(), Watcher::new(&roles, state))
    });
    let mut tell = |thread: u32, latency_event: &LatencyEvent| {
        seen += 1;
        cases.take(thread, None, latency_event, |_, case, _| {
            past.cases += 1;
            found(case);
        });
    };
    if tracer.is_of_kernel_events() {
        let mut scheduling = Scheduling::new(tracer);
        let numbers = Numbers::new(&threads);
        for (processor, record) in events(trace) {
            for (thread, latency_event) in scheduling.take(processor, record.clock, &record.event) {
                match numbers.place(thread, record.clock) {
                    Some(place) => tell(place, &latency_event),
                    None if latency_event.what == EventKind::Lost => tell(0, &latency_event),
                    None => {}
                }
            }
        }
    } else {
        for (thread, _, latency_event) in latency_events {
            tell(thread as u32, &latency_event);
        }
    }
    past.unknown = unknown.load(Ordering::Relaxed);
    for run in cases.runs_mut() {
        past.missing = run.missing();
        if tracer.is_of_kernel_events() {
            // A thread runs again for other reasons too.
            past.missing.ends_alone = 0;
        }
        while run.expire(1, u64::MAX).is_some() {
            past.open += 1;
        }
    }
    if past.cases == 0 {
        let name = tracer.name();
        if tracer.is_of_kernel_events() {
            bail!(
                "{name}: there are no cases: none happened, or they were not recorded; -e sched and `nopal run` record them, as far as permitted (see `nopal doctor`)"
            );
        }
        let begins = past.open + past.missing.never_ended;
        if seen == 0 || begins + past.missing.ends_alone == 0 {
            bail!(
                "{name}: there are no cases: none happened, or they were recorded without arguments and results, which `nopal run` and --args record"
            );
        }
        bail!(
            "{name}: no case began and ended: {} begins without an end, {} ends without a begin",
            count(begins),
            count(past.missing.ends_alone)
        );
    }
    Ok(past)
}
