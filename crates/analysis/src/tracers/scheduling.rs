//! Scheduling of threads: they block, are preempted, woken, and run.

use std::collections::HashMap;

use nopal_trace::{KernelEvent, TaskState, ThreadInfo};

use super::{EventKind, LatencyEvent, Tracer};
use crate::kernel_events::left_and_got;

/// Follows kernel events in the order of their clocks.
#[derive(Debug, Default)]
pub struct Scheduling {
    /// Threads that are known not to run: whether they wait to be woken.
    away: HashMap<u32, bool>,
    /// The priorities of the running tasks, by processor, if only tasks that are more urgent count.
    running: Option<HashMap<u32, i32>>,
}

/// The rank of a priority: those of the kernel begin at -1.
fn rank(priority: i32) -> u32 {
    priority.saturating_add(1).clamp(0, 0xffff) as u32
}

impl Scheduling {
    pub fn new(tracer: &Tracer) -> Scheduling {
        Scheduling {
            running: tracer.is_of_all_tasks().then(HashMap::new),
            ..Scheduling::default()
        }
    }

    /// Whether a woken task must be followed, if that depends on the running task of its processor. A running task that
    /// is not known yet cannot be compared with.
    fn is_urgent(&self, priority: i32, target: u32) -> bool {
        let Some(running) = &self.running else {
            return true;
        };
        running
            .get(&target)
            .is_some_and(|running| priority < *running)
    }

    /// The effect of an event on threads, given by their ids. Lost events may concern any thread.
    pub fn take(
        &mut self,
        processor: u32,
        clock: u64,
        event: &KernelEvent,
    ) -> impl Iterator<Item = (u32, LatencyEvent)> {
        let lost = match event {
            KernelEvent::Lost { .. } => {
                self.away.clear();
                if let Some(running) = &mut self.running {
                    running.clear();
                }
                Some((0, EventKind::Lost))
            }
            _ => None,
        };
        let (left, got) = left_and_got(event);
        let state = match event {
            KernelEvent::Switch { state, .. } | KernelEvent::Out { state, .. } => *state,
            _ => TaskState::PREEMPTED,
        };
        let left = left.filter(|_| !state.is_dead()).map(|thread| {
            let is_blocked = state.is_blocked();
            self.away.insert(thread, is_blocked);
            let what = if is_blocked {
                EventKind::Blocked
            } else {
                EventKind::Preempted
            };
            (thread, what)
        });
        let woken = match event {
            // A task that could run anyway waits for no wake-up.
            KernelEvent::Wakeup { task, .. } => (self.away.insert(task.thread, false)
                != Some(false))
            .then_some((task.thread, EventKind::Woken)),
            _ => None,
        };
        let (woken, rank) = match event {
            KernelEvent::Wakeup { task, target, .. } => (
                woken.filter(|_| self.is_urgent(task.priority, *target)),
                rank(task.priority),
            ),
            _ => (woken, 0),
        };
        if let (KernelEvent::Switch { next, .. }, Some(running)) = (event, &mut self.running) {
            running.insert(processor, next.priority);
        }
        let got = got.map(|thread| {
            self.away.remove(&thread);
            (thread, EventKind::Ran)
        });
        let events = [lost, left, woken, got].into_iter().flatten();
        events.map(move |(thread, what)| {
            let latency_event = LatencyEvent {
                what,
                section: None,
                rank,
                value: u64::from(thread),
                clock,
            };
            (thread, latency_event)
        })
    }
}

/// Finds the trace's thread for an id in kernel events at a given time.
pub struct Numbers(HashMap<u32, Vec<(u64, u32)>>);

impl Numbers {
    pub fn new(threads: &[ThreadInfo]) -> Numbers {
        let mut numbers: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
        let threads = (0..).zip(threads);
        for (place, thread) in threads.filter(|(_, thread)| !thread.in_namespace) {
            let of = numbers.entry(thread.thread).or_default();
            of.push((thread.begin, place));
        }
        for of in numbers.values_mut() {
            of.sort_unstable();
        }
        Numbers(numbers)
    }

    /// Kernel events may name a thread before it records anything.
    pub fn place(&self, thread: u32, clock: u64) -> Option<u32> {
        let of = self.0.get(&thread)?;
        let after = of.partition_point(|(begin, _)| *begin <= clock);
        Some(of.get(after.saturating_sub(1))?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::Task;

    fn task(thread: u32) -> Task {
        Task {
            thread,
            ..Task::default()
        }
    }

    fn switch(from: u32, state: u8, to: u32) -> KernelEvent {
        KernelEvent::Switch {
            previous: task(from),
            process: 1,
            state: TaskState(state),
            next: task(to),
            flags: None,
        }
    }

    fn wake(thread: u32) -> KernelEvent {
        KernelEvent::Wakeup {
            task: task(thread),
            target: 0,
            waker_process: 1,
            waker: 1,
            is_new: false,
            flags: None,
        }
    }

    #[test]
    fn only_who_waits_is_woken() {
        let mut scheduling = Scheduling::default();
        let mut events = |event| -> Vec<(u32, EventKind)> {
            let events = scheduling.take(0, 1, &event);
            events
                .map(|(thread, latency_event)| (thread, latency_event.what))
                .collect()
        };
        assert_eq!(events(wake(7)), [(7, EventKind::Woken)], "never met before");
        assert_eq!(events(wake(7)), [], "it waits for a processor already");
        assert_eq!(
            events(switch(8, b'S', 7)),
            [(8, EventKind::Blocked), (7, EventKind::Ran)]
        );
        assert_eq!(
            events(switch(7, b'R', 9)),
            [(7, EventKind::Preempted), (9, EventKind::Ran)]
        );
        assert_eq!(events(wake(7)), [], "it could run on");
        assert_eq!(events(wake(8)), [(8, EventKind::Woken)]);
        assert_eq!(
            events(switch(9, b'X', 1)),
            [(1, EventKind::Ran)],
            "it has ended"
        );
        assert_eq!(
            events(KernelEvent::Lost { events: 3 }),
            [(0, EventKind::Lost)]
        );
        assert_eq!(
            events(wake(1)),
            [(1, EventKind::Woken)],
            "nothing is known any more"
        );
        let own = KernelEvent::In {
            process: 1,
            thread: 8,
        };
        assert_eq!(events(own), [(8, EventKind::Ran)]);
    }

    #[test]
    fn of_all_tasks_the_more_urgent_one_counts() {
        let with = |thread, priority| Task {
            thread,
            priority,
            ..Task::default()
        };
        let wake = |thread, priority, target| KernelEvent::Wakeup {
            task: with(thread, priority),
            target,
            waker_process: 1,
            waker: 1,
            is_new: false,
            flags: None,
        };
        let run = |from, thread, priority| KernelEvent::Switch {
            previous: with(from, 120),
            process: 1,
            state: TaskState(b'S'),
            next: with(thread, priority),
            flags: None,
        };
        let mut scheduling = Scheduling::new(&Tracer::WakeupAll);
        let mut woken = |event| -> Vec<(u32, u32)> {
            let events = scheduling.take(1, 1, &event);
            let woken = events.filter(|(_, event)| event.what == EventKind::Woken);
            woken.map(|(thread, event)| (thread, event.rank)).collect()
        };
        assert_eq!(woken(wake(7, 19, 1)), [], "who runs there is not known");
        assert_eq!(woken(run(1, 2, 49)), []);
        assert_eq!(woken(wake(8, 49, 1)), [], "as urgent as the running one");
        assert_eq!(woken(wake(9, 48, 1)), [(9, 49)]);
        assert_eq!(woken(wake(10, 48, 0)), [], "another processor");
        assert_eq!(woken(KernelEvent::Lost { events: 1 }), []);
        assert_eq!(woken(wake(11, 10, 1)), [], "nothing is known any more");
    }
}
