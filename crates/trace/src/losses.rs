//! Known losses of a trace.

use crate::cuts::stops;
use crate::note::Note;
use crate::states::SiteStates;
use crate::trace::Trace;
use serde::Serialize;
use std::collections::BTreeMap;

/// The names of reasons for which events are lost. A trace may have others.
pub const NO_ROOM: &str = "no_room";
pub const UNKNOWN_THREAD: &str = "unknown_thread";
pub const TOO_MANY_THREADS: &str = "too_many_threads";
pub const NO_CLOCK: &str = "no_clock";
pub const INTERRUPTED: &str = "interrupted";
/// They were given up for newer ones.
pub const DROPPED: &str = "dropped";
/// A snapshot of a slow case does not have the events before it.
pub const EARLIER: &str = "earlier";
/// They came when the trace had ended.
pub const AFTER_END: &str = "after_end";
/// In place of anything that is no name.
const OTHER: &str = "other";

/// Whether records begin later than the recording: a flight recorder gave up the older ones, of which it has counted the
/// events.
pub fn begin_later(notes: &[Note]) -> bool {
    notes.iter().any(|note| {
        let Note::Lost { reasons, .. } = note else {
            return false;
        };
        let has = |reason| reasons.get(reason).is_some_and(|events| *events > 0);
        has(DROPPED) || has(EARLIER)
    })
}

/// All losses of a trace. The default means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Events that were not recorded.
    #[serde(skip_serializing_if = "is_nothing")]
    pub events: u64,
    /// The number of them for each known reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub events_by_reason: BTreeMap<String, u64>,
    /// Packets that are not in their files, but for those that a flight recorder gave up before a thread's first one: their
    /// events are among `events`.
    #[serde(skip_serializing_if = "is_nothing")]
    pub packets: u64,
    /// Damaged places, which were skipped, and the number of bytes of files that are left out or missing.
    #[serde(skip_serializing_if = "is_nothing")]
    pub damaged: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    pub left_out: u64,
    /// The trace is of a version without checksums: damage is not noticed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// Threads that were not traced at all, and stacks on which only entries were.
    #[serde(skip_serializing_if = "is_nothing")]
    pub untraced_threads: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    pub entry_only_stacks: u64,
    /// Kernel events that are not in the trace, and the pauses of their recording, by the counter.
    #[serde(skip_serializing_if = "is_nothing")]
    pub kernel_events: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_event_pauses: Vec<u64>,
    /// The times in which recording was stopped, by the counter; the last may have no end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<(u64, Option<u64>)>,
    /// Functions that were not recorded for a time, to hold a budget.
    #[serde(skip_serializing_if = "is_nothing")]
    pub functions_off: u64,
    /// Sites whose calls were counted for a time, and not recorded.
    #[serde(skip_serializing_if = "is_nothing")]
    pub functions_counted: u64,
    /// Calls that were left out since they were shorter than the user wanted them, and that duration.
    #[serde(skip_serializing_if = "is_nothing")]
    pub short_calls: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    pub least_duration_ns: u64,
    /// Another reason why the recording is incomplete, from its `End` note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
}

fn is_nothing(number: &u64) -> bool {
    *number == 0
}

impl Losses {
    pub fn of(trace: &Trace) -> Losses {
        let states = SiteStates::of(trace);
        let mut losses = Losses {
            events: trace.lost(),
            damaged: trace.damage_count(),
            left_out: trace.left_out(),
            unchecked: !trace.has_check_sums(),
            stops: stops(trace.notes()),
            functions_off: states.sites().count() as u64,
            functions_counted: states.counted_sites().count() as u64,
            short_calls: trace.short_calls(),
            ..Losses::default()
        };
        if losses.short_calls > 0 {
            losses.least_duration_ns = trace.session().least_duration_ns;
        }
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let begin_later = begin_later(trace.notes());
        for thread in trace.threads() {
            let gaps = thread.packets().map(|packet| packet.gap()).enumerate();
            for (number, gap) in gaps.filter_map(|(number, gap)| Some((number, gap?))) {
                if !(begin_later && number == 0 && gap.events > 0) {
                    add(&mut losses.packets, gap.packets);
                }
            }
        }
        for processor in trace.processors() {
            add(&mut losses.kernel_events, processor.lost());
        }
        let mut end = None;
        for note in trace.notes() {
            match note {
                Note::Untraced {
                    threads, stacks, ..
                } => {
                    add(&mut losses.untraced_threads, *threads);
                    add(&mut losses.entry_only_stacks, *stacks);
                }
                Note::Lost { reasons, .. } => {
                    for (reason, events) in reasons {
                        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
                        let name = match reason.bytes().all(is_name) {
                            true => reason.as_str(),
                            false => OTHER,
                        };
                        let sum = losses.events_by_reason.entry(name.to_owned());
                        add(sum.or_default(), *events);
                    }
                }
                Note::SystemPause { counter } => losses.kernel_event_pauses.push(*counter),
                Note::End { complete, why, .. } => end = Some((*complete, why)),
                _ => {}
            }
        }
        losses.flaw = match end {
            Some((true, _)) => None,
            Some((false, why)) if why.ends_with("events were lost") => None,
            Some((false, why)) => Some(why.clone()),
            None if trace.is_growing() => Some("it is still being recorded".into()),
            None => Some("the recording was cut off".into()),
        };
        losses
    }

    /// Whether records of threads are missing amid others.
    pub fn has_gaps(&self) -> bool {
        self.events + self.packets + self.damaged > 0
    }

    pub fn is_none(&self) -> bool {
        *self == Losses::default()
    }
}
