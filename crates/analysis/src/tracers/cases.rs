//! Makes cases from latency events.

use std::collections::{BTreeMap, HashMap, HashSet};

use nopal_latency::{Event, Latency, Own};

pub use nopal_latency::{Case, Missing};

use super::watcher::LatencyEvent;
use super::{EventKind, Roles, Tracer};

/// From a moment on, calls that are ends of a section are recorded again, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub clock: u64,
    pub section: usize,
    /// Of this function; `None`: of all, as the session was stopped.
    pub site: Option<u32>,
    pub is_timed: bool,
}

/// Whose begin an end may have that has its value. The same address may mean something else in each process, forks of a
/// server above all: so in a process that has begun a case with this value of late, an end is that of its own begin. In
/// another one it is that of the last begin with its value elsewhere, as of a request that one program sends and another
/// one gets.
#[derive(Default)]
struct Pairing {
    /// Values of begins, and their processes: at most `REMEMBERED`, and as many older ones.
    begun: [HashSet<(u64, u32)>; 2],
    of_threads: HashMap<u32, u32>,
    /// The processes of the last begins of values: at most `REMEMBERED`, and as many older ones.
    last: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
    /// Whether an end was in another process than its begin.
    is_across: bool,
}

/// As many cases as the mechanism has open.
const REMEMBERED: usize = 1024;

impl Pairing {
    fn begins(&mut self, value: u64, thread: u32, process: u32) {
        let [begun, older] = &mut self.begun;
        if begun.len() >= REMEMBERED {
            *older = std::mem::take(begun);
        }
        begun.insert((value, process));
        self.of_threads.insert(thread, process);
        if self.last.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.last);
        }
        self.last.insert(value, process);
    }

    /// The process of the begin.
    fn ends(&mut self, value: u64, process: u32) -> u32 {
        let last = self.last.get(&value).or_else(|| self.older.get(&value));
        let last = last.copied();
        let has_begun = |begun: &HashSet<_>| begun.contains(&(value, process));
        let of_begin = match self.begun.iter().any(has_begun) {
            true => process,
            false => last.unwrap_or(process),
        };
        if last == Some(of_begin) {
            self.last.remove(&value);
            self.older.remove(&value);
        }
        self.is_across |= of_begin != process;
        of_begin
    }

    /// Whether the end of a thread's case may be among missing records of a process.
    fn may_end_in(&self, process: u32, thread: u32) -> bool {
        self.is_across || self.of_threads.get(&thread) == Some(&process)
    }

    /// The key of a value in a process, and the value of such a key.
    fn key(value: u64, process: u32) -> u64 {
        value ^ u64::from(process).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn value(&self, case: Case) -> Case {
        let process = self.of_threads.get(&case.begin_thread);
        let key = process.map_or(case.key, |process| Pairing::key(case.key, *process));
        Case { key, ..case }
    }
}

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
    /// Of a section whose ends are paired by value.
    pairing: Option<Pairing>,
    /// The functions of its ends that are counted or off: while there are any, it has no cases.
    untimed: HashSet<u32>,
    untimed_events: u64,
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
        let case = self.latency.expire(clock)?;
        Some(match &self.pairing {
            Some(pairing) => pairing.value(case),
            None => case,
        })
    }

    /// The events that were left out as functions of its ends were counted or off: they may be samples.
    pub fn untimed_events(&self) -> u64 {
        self.untimed_events
    }

    /// What is open then may end unseen, and its begin be taken for that of a later end. Calls that are open when a session
    /// is stopped are recorded to their ends.
    fn turn(&mut self, turn: &Turn) {
        let may_end_unseen = match turn.site {
            Some(site) if turn.is_timed => {
                self.untimed.remove(&site);
                false
            }
            Some(site) => self.untimed.insert(site),
            None => turn.is_timed,
        };
        if may_end_unseen {
            while self.expire(1, u64::MAX).is_some() {}
        }
    }

    /// Records of a thread are missing: a case may have ended unseen, and what seems to be its end be that of another one.
    fn lose(&mut self, thread: u32, process: u32) {
        let (pairing, latency) = (&self.pairing, &mut self.latency);
        match pairing {
            Some(pairing) => latency.give_up(|begun_by| pairing.may_end_in(process, begun_by)),
            None => latency.give_up(|begun_by| begun_by == thread),
        }
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
            pairing: matches!(tracer, Tracer::Section(_))
                .then(Pairing::default)
                .filter(|_| roles.by_value(at)),
            untimed: HashSet::new(),
            untimed_events: 0,
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

    /// In the order of clocks, as latency events.
    pub fn turn(&mut self, turn: &Turn) {
        self.runs[turn.section].turn(turn);
    }

    /// Takes a latency event, in the order of clocks, of a thread of a process, and its processor, if known. `found` gets
    /// cases that end with it: the number of the tracer, and whether the case is the worst of its processor or above the
    /// threshold.
    pub fn take(
        &mut self,
        (thread, process): (u32, u32),
        processor: Option<u32>,
        latency_event: &LatencyEvent,
        mut found: impl FnMut(usize, Case, bool),
    ) {
        let mut event = Event {
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
        if latency_event.what == EventKind::Unseen {
            let sections = self.runs.iter_mut();
            let sections = sections.filter(|run| matches!(run.tracer, Tracer::Section(_)));
            sections.for_each(|run| run.lose(thread, process));
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
            if !run.untimed.is_empty() {
                run.untimed_events += 1;
                continue;
            }
            if let Some(pairing) = &mut run.pairing {
                let value = latency_event.value;
                let process = match latency_event.what {
                    EventKind::Ended => pairing.ends(value, process),
                    _ => {
                        pairing.begins(value, thread, process);
                        process
                    }
                };
                event.value = Pairing::key(value, process);
            }
            let own = run.own.entry(processor).or_default();
            if let Some(ended) = run.latency.event(own, &event) {
                let case = match run.pairing {
                    Some(_) => Case {
                        key: latency_event.value,
                        ..ended.case
                    },
                    None => ended.case,
                };
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
    use crate::names::Function;

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
            cases.take((7, 1), None, &latency_event, |_, case, _| {
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

    /// Sites 1 and 2 are the ends of the section that is measured.
    fn by_value() -> Cases {
        let tracer = Tracer::parse("get.arg1..put.arg1").unwrap();
        let mut roles = Roles::new(std::slice::from_ref(&tracer));
        for (site, name) in [(1, "get"), (2, "put")] {
            roles.learn_function(site, &Function::new("p", 0x10, 5, name));
        }
        Cases::new(&roles)
    }

    /// Tells that a value begins or ends in a process, in a thread of the same number, and returns the case that ended.
    fn tell(
        cases: &mut Cases,
        process: u32,
        what: EventKind,
        value: u64,
        clock: u64,
    ) -> Option<Case> {
        let mut found = None;
        let latency_event = LatencyEvent {
            what,
            section: Some(0),
            rank: 0,
            value,
            clock,
        };
        cases.take((process, process), None, &latency_event, |_, case, _| {
            found = Some(case);
        });
        found
    }

    #[test]
    fn equal_addresses_of_two_processes_are_two_requests() {
        use EventKind::{Begun, Ended};
        let mut cases = by_value();
        let mut tell = |process, what, clock| {
            let case = tell(&mut cases, process, what, 0x7000, clock)?;
            assert_eq!(case.key, 0x7000);
            Some((case.begin_thread, case.end_thread, case.ticks()))
        };
        assert_eq!(tell(8, Begun, 1), None);
        assert_eq!(tell(8, Ended, 2), Some((8, 8, 1)));
        assert_eq!(tell(7, Begun, 10), None);
        assert_eq!(tell(8, Begun, 11), None);
        assert_eq!(tell(8, Ended, 12), Some((8, 8, 1)));
        // Its begin is not known, and that of the other process is none of it.
        assert_eq!(tell(8, Ended, 13), None);
        // A process in which none began answers for others: the last one.
        assert_eq!(tell(8, Begun, 14), None);
        assert_eq!(tell(9, Ended, 15), Some((8, 9, 1)));
        assert_eq!(tell(7, Ended, 20), Some((7, 7, 10)));
        assert_eq!(cases.runs()[0].missing().ends_alone, 1);
        let run = &mut cases.runs_mut()[0];
        assert!(run.expire(1, u64::MAX).is_none(), "none is open");
    }

    #[test]
    fn a_process_that_begins_cases_of_its_own_ends_those_of_others() {
        use EventKind::{Begun, Ended};
        let mut cases = by_value();
        tell(&mut cases, 9, Begun, 0x70, 10);
        assert!(tell(&mut cases, 9, Ended, 0x70, 20).is_some());
        tell(&mut cases, 8, Begun, 0x80, 30);
        let case = tell(&mut cases, 9, Ended, 0x80, 50).unwrap();
        assert_eq!((case.begin_thread, case.ticks()), (8, 20));
    }

    #[test]
    fn requests_that_end_in_other_processes_do_not_span_missing_records_of_those() {
        use EventKind::{Begun, Ended, Unseen};
        let mut cases = by_value();
        tell(&mut cases, 8, Begun, 0x70, 10);
        tell(&mut cases, 9, Unseen, 0, 20);
        // None has ended elsewhere, and that process has none of its own.
        assert!(tell(&mut cases, 9, Ended, 0x70, 30).is_some());
        tell(&mut cases, 8, Begun, 0x70, 40);
        tell(&mut cases, 9, Unseen, 0, 50);
        assert_eq!(tell(&mut cases, 9, Ended, 0x70, 60), None);
        let missing = cases.runs()[0].missing();
        assert_eq!((missing.never_ended, missing.ends_alone), (1, 1));
    }

    #[test]
    fn no_case_spans_a_time_in_which_calls_may_be_missing() {
        use EventKind::{Begun, Ended};
        let mut cases = by_value();
        let turn = |site, is_timed| Turn {
            clock: 0,
            section: 0,
            site,
            is_timed,
        };
        tell(&mut cases, 7, Begun, 0x70, 10);
        cases.turn(&turn(Some(1), false));
        // Samples of its calls are not all of them.
        tell(&mut cases, 7, Begun, 0x80, 20);
        assert_eq!(tell(&mut cases, 7, Ended, 0x80, 30), None);
        cases.turn(&turn(Some(1), true));
        assert_eq!(tell(&mut cases, 7, Ended, 0x70, 40), None);
        assert_eq!(cases.runs()[0].untimed_events(), 2);
        tell(&mut cases, 7, Begun, 0x70, 50);
        let case = tell(&mut cases, 7, Ended, 0x70, 60).unwrap();
        assert_eq!(case.ticks(), 10);
        // What was open while the session was stopped may have ended then.
        tell(&mut cases, 7, Begun, 0x70, 70);
        cases.turn(&turn(None, true));
        assert_eq!(tell(&mut cases, 7, Ended, 0x70, 80), None);
    }
}
