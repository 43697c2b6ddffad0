//! Kernel events of a time, with those outside of it that tell the states of tasks and processors at its ends.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use nopal_trace::{KernelEvent, KernelRecord, Note, Trace};

use crate::kernel_events::{self, left_and_got};

/// The number of the idle task of each processor.
const IDLE: u32 = 0;

type OfProcessor = (u32, KernelRecord);

/// The pauses of recording in the time, and the last one before it.
pub fn pauses(trace: &Trace, from: Option<u64>, until: Option<u64>) -> impl Iterator<Item = Note> {
    let pauses = trace.notes().iter().filter_map(|note| match note {
        Note::SystemPause { counter } => Some(*counter),
        _ => None,
    });
    let mut pauses: Vec<u64> = pauses.collect();
    pauses.sort_unstable();
    let end = pauses.partition_point(|pause| until.is_none_or(|until| *pause < until));
    let begun = pauses.partition_point(|pause| from.is_some_and(|from| *pause <= from));
    let within = pauses.get(begun.saturating_sub(1)..end).unwrap_or_default();
    let note = |counter: &u64| Note::SystemPause { counter: *counter };
    within.iter().map(note).collect::<Vec<_>>().into_iter()
}

/// The kernel events after `from` and before `until`, before them the last ones of each task and processor, and behind
/// them the first ones of tasks that were off their processors.
pub fn events(
    trace: &Trace,
    from: Option<u64>,
    until: Option<u64>,
) -> impl Iterator<Item = OfProcessor> {
    let mut events = kernel_events::events(trace).peekable();
    let mut states = States::default();
    let mut ready = VecDeque::new();
    if let Some(from) = from {
        while let Some(event) = events.next_if(|(_, record)| record.clock <= from) {
            states.take(event);
        }
        ready.extend(states.last());
    }
    std::iter::from_fn(move || {
        if let Some(event) = ready.pop_front() {
            return Some(event);
        }
        loop {
            let event = events.next()?;
            if until.is_none_or(|until| event.1.clock < until) {
                states.take(event);
                return Some(event);
            }
            if let KernelEvent::Lost { .. } = event.1.event {
                return None;
            }
            if states.ends(&event.1.event) {
                return Some(event);
            }
            if states.away.is_empty() {
                return None;
            }
        }
    })
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Processor(u32),
    Task(u32),
    /// A task's wake-up.
    Woken(u32),
}

/// The last events of each.
#[derive(Default)]
struct States {
    lost: Option<OfProcessor>,
    last: BTreeMap<Of, OfProcessor>,
    /// Tasks that have left a processor, and which of them have been woken.
    away: HashMap<u32, bool>,
}

impl States {
    fn take(&mut self, event: OfProcessor) {
        let (processor, KernelRecord { event: what, .. }) = event;
        match what {
            KernelEvent::Lost { .. } => {
                self.last.clear();
                self.away.clear();
                self.lost = Some(event);
            }
            KernelEvent::Wakeup { task, .. } => {
                if let Some(woken) = self.away.get_mut(&task.thread)
                    && !*woken
                {
                    *woken = true;
                    self.last.insert(Of::Woken(task.thread), event);
                }
            }
            KernelEvent::Switch { .. } => drop(self.last.insert(Of::Processor(processor), event)),
            KernelEvent::Out { .. } | KernelEvent::In { .. } | KernelEvent::Function { .. } => {}
        }
        let (left, got) = left_and_got(&what);
        let [left, got] = [left, got].map(|task| task.filter(|task| *task != IDLE));
        for task in [left, got].into_iter().flatten() {
            self.last.insert(Of::Task(task), event);
            self.last.remove(&Of::Woken(task));
        }
        if let Some(left) = left {
            self.away.insert(left, false);
        }
        if let Some(got) = got {
            self.away.remove(&got);
        }
    }

    /// In order of time, each once.
    fn last(&self) -> Vec<OfProcessor> {
        let mut last: Vec<OfProcessor> = self
            .lost
            .iter()
            .chain(self.last.values())
            .copied()
            .collect();
        last.sort_by_key(|(processor, record)| (record.clock, *processor));
        let mut seen = HashSet::new();
        last.retain(|(processor, record)| seen.insert((*processor, record.clock, kind(record))));
        last
    }

    /// Whether an event ends the wait of a task that is away, or its being blocked.
    fn ends(&mut self, event: &KernelEvent) -> bool {
        let woken = match event {
            KernelEvent::Wakeup { task, .. } => self.away.get_mut(&task.thread),
            _ => None,
        };
        let is_woken = woken.is_some_and(|woken| !std::mem::replace(woken, true));
        let (_, got) = left_and_got(event);
        is_woken || got.is_some_and(|got| self.away.remove(&got).is_some())
    }
}

/// Tells apart events of a processor at one clock.
fn kind(record: &KernelRecord) -> &'static str {
    kernel_events::kind(&record.event)
}
