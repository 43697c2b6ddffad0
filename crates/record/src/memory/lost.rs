//! The counters of what the runtime could not do.

use nopal_abi::{
    LOST_ALL, LOST_INTERRUPTED, LOST_NO_CLOCK, LOST_NO_ROOM, LOST_REASONS, LOST_TOO_MANY_THREADS,
    LOST_UNKNOWN_THREAD,
};
use nopal_trace::losses;
use std::collections::BTreeMap;
use std::ops::Add;

/// Events that were not recorded: all of them, and those for each reason, by the numbers `LOST_…`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lost(pub(super) [u64; LOST_REASONS]);

impl Lost {
    pub fn all(&self) -> u64 {
        self.0[LOST_ALL]
    }

    /// The numbers by the names of the reasons in traces, but for reasons that did not occur.
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        let named = [
            (LOST_NO_ROOM, losses::NO_ROOM),
            (LOST_UNKNOWN_THREAD, losses::UNKNOWN_THREAD),
            (LOST_TOO_MANY_THREADS, losses::TOO_MANY_THREADS),
            (LOST_NO_CLOCK, losses::NO_CLOCK),
            (LOST_INTERRUPTED, losses::INTERRUPTED),
        ];
        let occurred = named.iter().filter(|(reason, _)| self.0[*reason] > 0);
        let named = occurred.map(|&(reason, name)| (name.to_owned(), self.0[reason]));
        named.collect()
    }

    /// Those that were not in `before`.
    pub fn since(&self, before: &Lost) -> Lost {
        Lost(std::array::from_fn(|reason| {
            self.0[reason].wrapping_sub(before.0[reason])
        }))
    }
}

impl Add for Lost {
    type Output = Lost;

    fn add(self, other: Lost) -> Lost {
        Lost(std::array::from_fn(|reason| {
            self.0[reason].wrapping_add(other.0[reason])
        }))
    }
}

/// The counters of the runtime in a region.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Events that were not recorded.
    pub lost: Lost,
    pub threads_untraced: u64,
    pub threads_muted: u64,
    pub stacks_unmirrored: u64,
    /// Programs that were executed, and libraries loaded, while nobody answered.
    pub executions_unanswered: u64,
    pub libraries_unanswered: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            lost: self.lost + other.lost,
            threads_untraced: self.threads_untraced + other.threads_untraced,
            threads_muted: self.threads_muted.wrapping_add(other.threads_muted),
            stacks_unmirrored: self.stacks_unmirrored + other.stacks_unmirrored,
            executions_unanswered: self.executions_unanswered + other.executions_unanswered,
            libraries_unanswered: self.libraries_unanswered + other.libraries_unanswered,
        }
    }
}
