//! Cases of happenings.

use std::collections::BTreeMap;

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

    /// Takes what has happened, in the order of clocks, and on which processor, if that is known. `found` is told of cases
    /// that end with it: the number of the tracer, and whether it is the worst of its processor or above the threshold.
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
