//! Known losses of a trace.

use crate::note::Note;
use crate::trace::Trace;
use serde::Serialize;

/// Why records of a thread are missing before one of its packets. In the time between, open calls may have ended, and
/// others begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Events that the thread lost.
    pub events: u64,
    /// Packets that are not in the file.
    pub packets: u64,
    /// A part of the file is invalid.
    pub damaged: bool,
}

/// All losses of a trace. The default means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Events that were not recorded.
    #[serde(skip_serializing_if = "is_nothing")]
    pub events: u64,
    /// Packets that are not in their files.
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
    /// Another reason why the recording is incomplete, from its `End` note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
}

fn is_nothing(number: &u64) -> bool {
    *number == 0
}

impl Losses {
    pub fn of(trace: &Trace) -> Losses {
        let mut losses = Losses {
            events: trace.lost(),
            damaged: trace.damage_count(),
            left_out: trace.left_out(),
            unchecked: !trace.has_check_sums(),
            ..Losses::default()
        };
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for thread in trace.threads() {
            for gap in thread.packets().filter_map(|packet| packet.gap()) {
                add(&mut losses.packets, gap.packets);
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
