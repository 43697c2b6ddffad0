//! Makes cases from latency events.

use std::collections::{BTreeMap, HashSet};

use nopal_latency::{Event, Latency, Own};

pub use nopal_latency::{Case, Missing};

use super::watcher::LatencyEvent;
use super::{EventKind, Roles, Tracer};

/// A running tracer.
pub struct Run {
    tracer: Tracer,
    latency: Latency,
    /// By processor: the state for cases that ended on it; `None` stands for an unknown one.
    own: BTreeMap<Option<u32>, Own>,
    /// The events that begin a case, as bits.
    begins: u32,
    /// Threads that have left a processor since their cases began, without an event of getting one.
    ran_unseen: HashSet<u64>,
    worst: Option<Case>,
}

impl Run {
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    pub fn worst(&self) -> Option<&Case> {
        self.worst.as_ref()
    }

    pub fn missing(&self) -> Missing {
        self.latency.missing()
    }

    /// Keeps every case that takes more ticks, instead of only the worst; 0: no threshold.
    pub fn set_threshold(&mut self, ticks: u64) {
        self.latency.set_threshold(ticks);
    }

    /// Forgets the worst case. The histogram continues.
    pub fn reset(&mut self) {
        self.latency.reset();
        self.worst = None;
    }

    /// Drops a case that has been open for more than `timeout` ticks; call it until there is none.
    pub fn expire(&mut self, timeout: u64, clock: u64) -> Option<Case> {
        self.latency.set_timeout(timeout);
        self.latency.expire(clock)
    }

    /// Whether an event ends a case that had ended earlier, since the kernel did not report that the thread ran.
    fn has_ended_unseen(&mut self, latency_event: &LatencyEvent) -> bool {
        let thread = &latency_event.value;
        match latency_event.what {
            EventKind::Ran => return self.ran_unseen.remove(thread),
            what if self.begins & 1 << what as u32 != 0 => {
                self.ran_unseen.remove(thread);
            }
            EventKind::Blocked | EventKind::Preempted => {
                self.ran_unseen.insert(*thread);
            }
            _ => {}
        }
        false
    }
}

/// Tracers that run side by side.
pub struct Cases {
    runs: Vec<Run>,
}

impl Cases {
    pub fn new(roles: &Roles) -> Cases {
        let runs = roles.tracers().iter().enumerate();
        let runs = runs.map(|(at, tracer)| Run {
            latency: Latency::new(tracer.mechanism(roles.by_value(at))),
            tracer: tracer.clone(),
            begins: tracer.mechanism(roles.by_value(at)).begins,
            ran_unseen: HashSet::new(),
            own: BTreeMap::new(),
            worst: None,
        });
        Cases {
            runs: runs.collect(),
        }
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn runs_mut(&mut self) -> &mut [Run] {
        &mut self.runs
    }

    /// Takes a latency event, in the order of clocks, and its processor, if known. `found` gets cases that end with it:
    /// the number of the tracer, and whether the case is the worst of its processor or above the threshold.
    pub fn take(
        &mut self,
        thread: u32,
        processor: Option<u32>,
        latency_event: &LatencyEvent,
        mut found: impl FnMut(usize, Case, bool),
    ) {
        let event = Event {
            event: latency_event.what as u32,
            processor: 0,
            thread,
            rank: latency_event.rank,
            value: latency_event.value,
            clock: latency_event.clock,
        };
        if latency_event.what == EventKind::Lost {
            for run in &mut self.runs {
                while run.tracer.is_of_kernel_events()
                    && run.expire(1, latency_event.clock).is_some()
                {}
            }
            return;
        }
        for (at, run) in self.runs.iter_mut().enumerate() {
            let is_other = match run.tracer {
                Tracer::Section(_) => latency_event.section != Some(at),
                _ => latency_event.section.is_some(),
            };
            if is_other {
                continue;
            }
            if run.tracer.is_of_kernel_events() && run.has_ended_unseen(latency_event) {
                continue;
            }
            let own = run.own.entry(processor).or_default();
            if let Some(ended) = run.latency.event(own, &event) {
                let case = ended.case;
                if run.worst.is_none_or(|worst| case.ticks() > worst.ticks()) {
                    run.worst = Some(case);
                }
                found(at, case, ended.kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The durations of the cases of events a tick apart.
    fn cases(tracer: &Tracer, happened: &[EventKind]) -> Vec<u64> {
        let mut cases = Cases::new(&Roles::new(std::slice::from_ref(tracer)));
        let mut found = Vec::new();
        for (clock, what) in (1..).zip(happened) {
            let latency_event = LatencyEvent {
                what: *what,
                section: None,
                rank: 0,
                value: 7,
                clock,
            };
            cases.take(7, None, &latency_event, |_, case, _| {
                found.push(case.ticks())
            });
        }
        found
    }

    #[test]
    fn a_turn_that_was_not_told_makes_no_case_of_what_came_before() {
        use EventKind::{Blocked, Preempted, Ran, Woken};
        let turns = [Blocked, Woken, Ran, Preempted, Ran];
        assert_eq!(cases(&Tracer::Blocked, &turns), [2]);
        assert_eq!(cases(&Tracer::Wakeup, &turns), [1]);
        assert_eq!(cases(&Tracer::Preempted, &turns), [1]);
        // It ran between the first two.
        assert!(cases(&Tracer::Blocked, &[Blocked, Preempted, Ran]).is_empty());
        assert_eq!(cases(&Tracer::OffCpu, &[Blocked, Preempted, Ran]), [1]);
        assert!(cases(&Tracer::Wakeup, &[Blocked, Woken, Preempted, Ran]).is_empty());
        assert!(cases(&Tracer::Preempted, &[Preempted, Blocked, Ran]).is_empty());
        let again = [Blocked, Preempted, Ran, Blocked, Ran];
        assert_eq!(cases(&Tracer::Blocked, &again), [1]);
    }
}
