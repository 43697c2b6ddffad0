//! Tracers on a finished trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Error, Result, anyhow, ensure};
use nopal_trace::Trace;

use super::watcher::{State, Watcher};
use super::{
    Case, Cases, EventKind, LatencyEvent, Missing, Numbers, Roles, Scheduling, Tracer, Turn,
};
use crate::filter::{Filter, Sieve};
use crate::kernel_events::events;
use crate::names::Names;
use crate::sort;
use crate::span::end;
use crate::text::{count, several};
use crate::timeline::{ThreadEvents, timeline};

/// The results of a tracer besides the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    pub cases: u64,
    pub missing: Missing,
    /// Cases that had not ended when the trace ended.
    pub open: u64,
    /// Calls and markers that lack a value that is needed.
    pub unknown: u64,
    /// Events that were left out as functions of the ends were counted or off.
    pub untimed: u64,
}

impl Past {
    /// The missing cases, in lines.
    pub fn describe(&self) -> Vec<String> {
        let notes = [
            (self.open, "had not ended when the trace ended"),
            (
                self.missing.never_ended,
                "never ended: they began again, events were lost, or calls were not recorded any more",
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
        let untimed = (self.untimed > 0).then(|| {
            let events = several(self.untimed, "event", "events");
            format!(
                "left out: {events} while calls of the functions at its ends were counted or off; other cases then are not in the trace (a section of `nopal ctl` has all recorded)"
            )
        });
        notes.chain(unknown).chain(untimed).collect()
    }
}

/// The longest case of a tracer, and the number of cases.
pub fn longest(trace: &Trace, names: &Names, tracer: &Tracer) -> Result<(Case, u64)> {
    let (mut longest, mut number): (Option<Case>, u64) = (None, 0);
    of_trace(trace, names, tracer, |case| {
        number += 1;
        if longest.is_none_or(|longest| case.ticks() > longest.ticks()) {
            longest = Some(case);
        }
    })?;
    Ok((longest.context("no case has ended")?, number))
}

/// Calls `found` for the cases of a tracer, in the order of their ends, with the numbers of their threads in the trace.
/// Fails if there are none.
pub fn of_trace(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    mut found: impl FnMut(Case),
) -> Result<Past> {
    let (past, seen) = all(trace, names, tracer, |case, is_open| {
        if !is_open {
            found(case);
        }
    })?;
    match past.cases {
        0 => Err(nothing(tracer, &past, seen)),
        _ => Ok(past),
    }
}

/// The same, and then with the cases that had not ended when the trace ended: they last until then, in the threads in
/// which they began.
fn with_open(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    found: impl FnMut(Case, bool),
) -> Result<Past> {
    let (past, seen) = all(trace, names, tracer, found)?;
    match past.cases + past.open {
        0 => Err(nothing(tracer, &past, seen)),
        _ => Ok(past),
    }
}

/// Calls `found` for the cases that pass the filter, at least one, and whether each is open; open ones only if these
/// are asked for. A case belongs to the thread in which it ended, and to no function.
pub fn selected(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    filter: &Filter,
    open: bool,
    mut found: impl FnMut(&Case, bool),
) -> Result<Past> {
    ensure!(
        !filter.has_functions(),
        "{}: its cases are of threads, and -F and -N select calls",
        tracer.name()
    );
    let mut sieve = Sieve::new(filter, trace);
    let mut has_found = false;
    let take = |case: Case, is_open| {
        sieve.begin(case.end_thread as usize);
        if sieve.passes(case.begin, case.ticks()) {
            has_found = true;
            found(&case, is_open);
        }
    };
    let past = match open {
        true => with_open(trace, names, tracer, take)?,
        false => {
            let mut take = take;
            of_trace(trace, names, tracer, |case| take(case, false))?
        }
    };
    ensure!(
        has_found,
        "{}: {}",
        tracer.name(),
        sieve.left_out.why(filter, trace)
    );
    Ok(past)
}

/// All cases, whether each is open, and the number of latency events.
fn all(
    trace: &Trace,
    names: &Names,
    tracer: &Tracer,
    mut found: impl FnMut(Case, bool),
) -> Result<(Past, u64)> {
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
    let turns = trace.notes().iter().flat_map(|note| roles.turns(note));
    let mut turns: Vec<Turn> = turns.collect();
    sort::by_key(&mut turns, |turn| turn.clock);
    let mut turns = turns.into_iter().peekable();
    let mut tell = |thread: u32, latency_event: &LatencyEvent| {
        seen += u64::from(latency_event.what != EventKind::Unseen);
        while let Some(turn) = turns.next_if(|turn| turn.clock <= latency_event.clock) {
            cases.turn(&turn);
        }
        let process = threads.get(thread as usize).map_or(0, |info| info.process);
        cases.take((thread, process), None, latency_event, |_, case, _| {
            past.cases += 1;
            found(case, false);
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
        past.untimed = run.untimed_events();
        if tracer.is_of_kernel_events() {
            // A thread runs again for other reasons too.
            past.missing.ends_alone = 0;
        }
        while let Some(case) = run.expire(1, u64::MAX) {
            past.open += 1;
            let (end, end_thread) = (end(trace).max(case.begin), case.begin_thread);
            let case = Case {
                end,
                end_thread,
                ..case
            };
            found(case, true);
        }
    }
    Ok((past, seen))
}

/// Why there are no cases.
fn nothing(tracer: &Tracer, past: &Past, seen: u64) -> Error {
    let name = tracer.name();
    if tracer.is_of_kernel_events() {
        return anyhow!(
            "{name}: there are no cases: none happened, or they were not recorded; -e sched and `nopal run` record them, as far as permitted (see `nopal doctor`)"
        );
    }
    let begins = past.open + past.missing.never_ended;
    if seen == 0 || begins + past.missing.ends_alone == 0 {
        return anyhow!(
            "{name}: there are no cases: none happened, or they were recorded without arguments and results, which `nopal run` and --args record"
        );
    }
    anyhow!(
        "{name}: no case began and ended: {} begins without an end, {} ends without a begin",
        count(begins),
        count(past.missing.ends_alone)
    )
}
