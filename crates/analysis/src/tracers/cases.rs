//! Cases of happenings.

use std::collections::{BTreeMap, HashSet};

use nopal_latency::{Event, Histogram, Latency, Own};

pub use nopal_latency::{Case, Missing};

use super::watcher::Happening;
use super::{Roles, Tracer, What};

/// A tracer that runs.
pub struct Run {
    tracer: Tracer,
    latency: Latency,
    /// By processor: of the cases that ended on it; `None` where it is not known.
    own: BTreeMap<Option<u32>, Own>,
    /// What begins a case, as bits.
    begins: u32,
    /// Threads that have left a processor since their cases began, though it was not told that they got one.
    ran_untold: HashSet<u64>,
    worst: Option<Case>,
}

impl Run {
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// In ticks, of the cases that ended on these processors.
    pub fn histogram(&self, wanted: impl Fn(Option<u32>) -> bool) -> Histogram {
        let mut sum = Histogram::default();
        for (_, own) in self.own.iter().filter(|(processor, _)| wanted(**processor)) {
            sum.merge(own.histogram());
        }
        sum
    }

    pub fn worst(&self) -> Option<&Case> {
        self.worst.as_ref()
    }

    pub fn missing(&self) -> Missing {
        self.latency.missing()
    }

    /// Keeps every case that takes more ticks, and not only the worst; 0: no threshold.
    pub fn set_threshold(&mut self, ticks: u64) {
        self.latency.set_threshold(ticks);
    }

    /// Forgets the worst case. The histogram goes on.
    pub fn reset(&mut self) {
        self.latency.reset();
        self.worst = None;
    }

    /// Gives up a case that has been open for more than `timeout` ticks: to be called until there is none.
    pub fn expire(&mut self, timeout: u64, clock: u64) -> Option<Case> {
        self.latency.set_timeout(timeout);
        self.latency.expire(clock)
    }

    /// Whether what happens to a thread is the end of a case that had ended before: the system did not tell that it
    /// ran.
    fn has_ended_untold(&mut self, happening: &Happening) -> bool {
        let thread = &happening.value;
        match happening.what {
            What::Ran => return self.ran_untold.remove(thread),
            what if self.begins & 1 << what as u32 != 0 => {
                self.ran_untold.remove(thread);
            }
            What::Blocked | What::Preempted => {
                self.ran_untold.insert(*thread);
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
            ran_untold: HashSet::new(),
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

    /// Takes what has happened, in the order of clocks, and on which processor, if that is known. `found` is told of
    /// cases that end with it: the number of the tracer, and whether it is the worst of its processor or above the
    /// threshold.
    pub fn tell(
        &mut self,
        thread: u32,
        processor: Option<u32>,
        happening: &Happening,
        mut found: impl FnMut(usize, Case, bool),
    ) {
        let event = Event {
            event: happening.what as u32,
            processor: 0,
            thread,
            value: happening.value,
            clock: happening.clock,
        };
        if happening.what == What::Lost {
            for run in &mut self.runs {
                while run.tracer.is_of_system() && run.expire(1, happening.clock).is_some() {}
            }
            return;
        }
        for (at, run) in self.runs.iter_mut().enumerate() {
            let is_other = match run.tracer {
                Tracer::Section(_) => happening.section != Some(at),
                _ => happening.section.is_some(),
            };
            if is_other {
                continue;
            }
            if run.tracer.is_of_system() && run.has_ended_untold(happening) {
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

    /// How long cases took, of what happens a tick apart.
    fn cases(tracer: &Tracer, happened: &[What]) -> Vec<u64> {
        let mut cases = Cases::new(&Roles::new(std::slice::from_ref(tracer)));
        let mut found = Vec::new();
        for (clock, what) in (1..).zip(happened) {
            let happening = Happening {
                what: *what,
                section: None,
                value: 7,
                clock,
            };
            cases.tell(7, None, &happening, |_, case, _| found.push(case.ticks()));
        }
        found
    }

    #[test]
    fn a_turn_that_was_not_told_makes_no_case_of_what_came_before() {
        use What::{Blocked, Preempted, Ran, Woken};
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
