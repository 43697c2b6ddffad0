//! Makes latency events of one thread's records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nopal_trace::Value;

use super::EventKind;
use super::locks::{Locking, has_taken};
use super::roles::Roles;
use super::section::{CallEnd, InMarker, ValueOf};
use super::signals::{Blocked, Change};
use crate::calls::{Arguments, Ending, Frame, Sink, Style};
use crate::timeline::EventSource;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyEvent {
    pub what: EventKind,
    /// The number of the tracer, for ends of sections.
    pub section: Option<usize>,
    /// The urgency of a woken task: lower is more urgent.
    pub rank: u32,
    pub value: u64,
    pub clock: u64,
}

/// The state of a thread between two records.
#[derive(Debug, Default)]
pub struct State {
    /// Locks that it holds, and how often.
    held: Vec<(u64, u32)>,
    blocked: Blocked,
    arguments: Arguments,
    /// The number of calls and markers that lack a needed value. Threads may share it.
    unknown: Arc<AtomicU64>,
}

impl State {
    /// Counts unknown values there.
    pub fn counting(unknown: &Arc<AtomicU64>) -> State {
        State {
            unknown: unknown.clone(),
            ..State::default()
        }
    }

    /// Locks that the thread holds.
    pub fn locks(&self) -> usize {
        self.held.len()
    }

    /// Whether it blocks any signal; `None` if that is not known.
    pub fn blocks_signals(&self) -> Option<bool> {
        self.blocked.any()
    }

    fn count_unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    fn is_critical(&self) -> bool {
        !self.held.is_empty() || self.blocked.any() == Some(true)
    }
}

/// Reports a latency event.
pub struct Watcher<'a> {
    pub roles: &'a Roles,
    pub state: State,
    pub latency_events: VecDeque<LatencyEvent>,
}

impl<'a> Watcher<'a> {
    pub fn new(roles: &'a Roles, state: State) -> Watcher<'a> {
        Watcher {
            roles,
            state,
            latency_events: VecDeque::new(),
        }
    }

    fn emit(&mut self, what: EventKind, section: Option<usize>, value: u64, clock: u64) {
        self.latency_events.push_back(LatencyEvent {
            what,
            section,
            rank: 0,
            value,
            clock,
        });
    }

    /// Reports whether the thread is now in a critical section.
    fn note_critical(&mut self, before: bool, clock: u64) {
        match (before, self.state.is_critical()) {
            (false, true) => self.emit(EventKind::CriticalBegun, None, 0, clock),
            (true, false) => self.emit(EventKind::CriticalEnded, None, 0, clock),
            _ => {}
        }
    }

    fn change_signals(&mut self, change: Change, clock: u64) {
        let critical = self.state.is_critical();
        let before = self.state.blocked.any() == Some(true);
        self.state.blocked.change(change);
        match (before, self.state.blocked.any()) {
            (false, Some(true)) => self.emit(EventKind::SignalsOff, None, 0, clock),
            (true, Some(false)) => self.emit(EventKind::SignalsOn, None, 0, clock),
            _ => {}
        }
        self.note_critical(critical, clock);
    }

    fn take(&mut self, lock: u64, clock: u64) {
        let critical = self.state.is_critical();
        match self.state.held.iter_mut().find(|held| held.0 == lock) {
            Some(held) => held.1 += 1,
            None => {
                self.state.held.push((lock, 1));
                self.emit(EventKind::Taken, None, lock, clock);
            }
        }
        self.note_critical(critical, clock);
    }

    fn release(&mut self, lock: u64, clock: u64) {
        let Some(at) = self.state.held.iter().rposition(|held| held.0 == lock) else {
            return;
        };
        let critical = self.state.is_critical();
        self.state.held[at].1 -= 1;
        if self.state.held[at].1 == 0 {
            self.state.held.remove(at);
            self.emit(EventKind::Released, None, lock, clock);
        }
        self.note_critical(critical, clock);
    }

    fn point(&mut self, section: usize, is_end: bool, value: Option<u64>, clock: u64) {
        let what = if is_end {
            EventKind::Ended
        } else {
            EventKind::Begun
        };
        match value {
            Some(value) => self.emit(what, Some(section), value, clock),
            None => self.state.count_unknown(),
        }
    }
}

impl Sink for Watcher<'_> {
    /// Most calls matter to no tracer.
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn is_plain(&self, site: u32) -> bool {
        self.roles.site(site).is_none()
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        let roles = self.roles;
        let Some(frame) = frames.last() else {
            return 0;
        };
        let Some(role) = roles.site(frame.site()) else {
            return 0;
        };
        for point in role
            .points
            .iter()
            .filter(|point| point.place == CallEnd::Entry)
        {
            let value = match point.value {
                Some(ValueOf::Argument(number)) => arguments.map(|all| all[number]),
                _ => Some(0),
            };
            self.point(point.section, point.is_end, value, frame.clock);
        }
        let Some(locking) = role.locking else {
            return 0;
        };
        let Some(arguments) = arguments else {
            self.state.count_unknown();
            if matches!(locking, Locking::Release | Locking::Condition) {
                // It may have been any of them.
                self.state.held.clear();
            }
            return 0;
        };
        match locking {
            Locking::Release => self.release(arguments[0], frame.clock),
            Locking::Condition => self.release(arguments[1], frame.clock),
            Locking::Take | Locking::Timed | Locking::Wait => {
                self.emit(EventKind::Asked, None, arguments[0], frame.clock);
            }
            Locking::Try => {}
        }
        if locking == Locking::Release {
            return 0;
        }
        if frame.style() == Style::Only {
            self.state.count_unknown();
            return 0;
        }
        self.state.arguments.keep(arguments)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        let roles = self.roles;
        let Some(role) = roles.site(frame.site()) else {
            return;
        };
        for point in role
            .points
            .iter()
            .filter(|point| point.place == CallEnd::End)
        {
            let value = match point.value {
                Some(_) => ending.result,
                None => Some(0),
            };
            self.point(point.section, point.is_end, value, ending.clock);
        }
        let (Some(locking), Some(arguments)) =
            (role.locking, self.state.arguments.take(frame.note))
        else {
            return;
        };
        let lock = arguments[0];
        if matches!(locking, Locking::Take | Locking::Timed | Locking::Wait) {
            self.emit(EventKind::Answered, None, lock, ending.clock);
        }
        match locking {
            // The result of a call that was entered by a jump is not known.
            Locking::Take if ending.result.is_none_or(has_taken) => self.take(lock, ending.clock),
            Locking::Timed | Locking::Try if ending.result.is_some_and(has_taken) => {
                self.take(lock, ending.clock);
            }
            Locking::Condition => self.take(arguments[1], ending.clock),
            _ => {}
        }
    }

    fn lose(&mut self, frame: &Frame, _clock: u64, _counted: bool) {
        self.state.arguments.take(frame.note);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}

    /// Locks may have been released meanwhile. Of the cases of sections, neither those that are open where the time begins nor
    /// those that other threads have begun in it can be followed.
    fn missing(&mut self, clock: u64, ticks: u64) {
        self.state.held.clear();
        self.state.blocked = Blocked::default();
        for clock in [clock.saturating_sub(ticks), clock] {
            self.emit(EventKind::Unseen, None, 0, clock);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], _frames: &[Frame]) {
        let roles = self.roles;
        if let Some(change) = roles.change(event, payload) {
            self.change_signals(change, clock);
        }
        for point in roles.event(event) {
            let values = || roles.marker(event)?.values(payload);
            let value = match point.value {
                InMarker::Place => Some(0),
                InMarker::Lacking => None,
                InMarker::Field(field) => {
                    match values().as_ref().and_then(|values| values.get(field)) {
                        Some(Value::Signed(value)) => Some(*value as u64),
                        Some(Value::Unsigned(value)) => Some(*value),
                        _ => None,
                    }
                }
            };
            self.point(point.section, point.is_end, value, clock);
        }
    }
}

impl EventSource for Watcher<'_> {
    type Moment = LatencyEvent;

    fn take(&mut self) -> Option<(u64, LatencyEvent)> {
        let latency_event = self.latency_events.pop_front()?;
        Some((latency_event.clock, latency_event))
    }
}
