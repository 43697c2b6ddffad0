//! What a trace does not hold of what happened, as far as it knows.

use crate::note::Note;
use crate::trace::Trace;

/// Why records of a thread are missing before one of its packets. Nothing is known of the time in between: calls that
/// were open may have ended, and others begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Events that the thread lost.
    pub events: u64,
    /// Packets that are not in the file.
    pub packets: u64,
    /// A part of the file makes no sense.
    pub damaged: bool,
}

/// All that is missing in a trace. Nothing is, where it equals its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events that were not recorded.
    pub events: u64,
    /// Packets that are not in their files.
    pub packets: u64,
    /// Places that were damaged, and passed over; and how many bytes of files are left out for it, or missing.
    pub damaged: u64,
    pub left_out: u64,
    /// The trace is of a version without check sums: damage is not seen.
    pub unchecked: bool,
    /// Threads that were not traced at all, and stacks on which only entries were.
    pub untraced_threads: u64,
    pub entry_only_stacks: u64,
    /// Events of the system that are not in the trace, and how often nobody recorded them for a while.
    pub system_events: u64,
    pub system_pauses: u64,
    /// Why the trace ends before the program did what was to be recorded. Empty where that is not told.
    pub cut_short: Option<String>,
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
            add(&mut losses.system_events, processor.lost());
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
                Note::SystemPause { .. } => losses.system_pauses += 1,
                Note::End { complete, why, .. } => end = Some((*complete, why)),
                _ => {}
            }
        }
        losses.cut_short = match end {
            Some((true, _)) => None,
            Some((false, why)) => Some(why.clone()),
            None => Some("the recording was cut off".into()),
        };
        losses
    }

    pub fn is_none(&self) -> bool {
        *self == Losses::default()
    }
}
