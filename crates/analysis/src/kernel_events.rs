//! Kernel events: in order of time over all processors, beside the calls of threads, and thread by thread.

use std::collections::HashMap;
use std::io::Write;
use std::iter::Peekable;

use anyhow::{Result, ensure};
use nopal_trace::{KernelEvent, KernelRecord, Note, Task, TaskState, Trace};

use crate::names::printable;
use crate::tracers::Numbers;

/// All events, with the processors that they are of.
pub fn events(trace: &Trace) -> Events<'_> {
    let all: Vec<_> = trace
        .processors()
        .map(|processor| {
            let events: Box<dyn Iterator<Item = KernelRecord>> = Box::new(processor.events());
            (processor.number, events.peekable())
        })
        .collect();
    Events { all }
}

type OfProcessor<'a> = Peekable<Box<dyn Iterator<Item = KernelRecord> + 'a>>;

pub struct Events<'a> {
    all: Vec<(u32, OfProcessor<'a>)>,
}

impl Iterator for Events<'_> {
    type Item = (u32, KernelRecord);

    fn next(&mut self) -> Option<Self::Item> {
        let heads = self.all.iter_mut().enumerate();
        let clocks = heads.filter_map(|(at, (_, events))| Some((events.peek()?.clock, at)));
        let (_, at) = clocks.min()?;
        let (number, events) = &mut self.all[at];
        Some((*number, events.next()?))
    }
}

/// An event of a thread or of a processor.
pub enum TimelineEvent<M> {
    /// The trace's thread, and its event.
    Thread(usize, M),
    System(u32, KernelEvent),
}

/// Events of threads together with kernel events, in order of time.
pub fn with_kernel_events<'a, M>(
    threads: impl Iterator<Item = (usize, u64, M)> + 'a,
    trace: &'a Trace,
) -> impl Iterator<Item = (u64, TimelineEvent<M>)> + 'a
where
    M: 'a,
{
    merged(threads, events(trace))
}

/// The same of some events.
pub fn merged<M>(
    threads: impl Iterator<Item = (usize, u64, M)>,
    events: impl Iterator<Item = (u32, KernelRecord)>,
) -> impl Iterator<Item = (u64, TimelineEvent<M>)> {
    let mut threads = threads.peekable();
    let mut events = events.peekable();
    std::iter::from_fn(move || {
        let clock = events.peek().map(|(_, record)| record.clock);
        let earlier = |(_, at, _): &(usize, u64, M)| clock.is_none_or(|clock| *at < clock);
        if let Some((stream, clock, moment)) = threads.next_if(earlier) {
            return Some((clock, TimelineEvent::Thread(stream, moment)));
        }
        let (number, record) = events.next()?;
        Some((record.clock, TimelineEvent::System(number, record.event)))
    })
}

/// The positions of threads on processors.
#[derive(Clone, Default)]
pub struct Running {
    /// The processors of threads.
    processors: HashMap<u32, u32>,
    /// The tasks on processors.
    tasks: HashMap<u32, Task>,
}

impl Running {
    pub fn take(&mut self, processor: u32, event: &KernelEvent) {
        if let KernelEvent::Lost { .. } = event {
            self.processors.clear();
            self.tasks.remove(&processor);
        }
        let (left, got) = left_and_got(event);
        if let Some(thread) = left {
            self.processors.remove(&thread);
        }
        if let Some(thread) = got {
            self.processors.insert(thread, processor);
        }
        if let KernelEvent::Switch { next, .. } = event {
            self.tasks.insert(processor, *next);
        }
    }

    /// The processor that a thread is on, if known.
    pub fn processor(&self, thread: u32) -> Option<u32> {
        self.processors.get(&thread).copied()
    }

    /// The name of a thread in an event, if known.
    pub fn name(&self, processor: u32, event: &KernelEvent) -> Option<String> {
        match event {
            KernelEvent::Switch { previous, .. } => Some(name(previous)),
            _ => {
                let task = self.tasks.get(&processor)?;
                (task.thread == thread(event)).then(|| name(task))
            }
        }
    }
}

/// The processor of each of a trace's threads.
pub struct Whereabouts {
    /// For each thread, clocks and the processors that it is on since then; none after it has left one.
    threads: Vec<Vec<(u64, Option<u32>)>>,
    /// The clocks at which events were lost: then the position of a thread is unknown until its next event.
    lost: Vec<u64>,
}

impl Whereabouts {
    pub fn new(trace: &Trace) -> Result<Whereabouts> {
        let threads = trace.threads();
        let numbers = Numbers::new(&threads);
        let mut all = vec![Vec::new(); threads.len()];
        let mut lost = Vec::new();
        for (processor, KernelRecord { clock, event }) in events(trace) {
            if let KernelEvent::Lost { .. } = event {
                lost.push(clock);
            }
            let (left, got) = left_and_got(&event);
            for (thread, on) in [(left, None), (got, Some(processor))] {
                if let Some(place) = thread.and_then(|thread| numbers.place(thread, clock)) {
                    all[place as usize].push((clock, on));
                }
            }
        }
        ensure!(
            all.iter().any(|of| !of.is_empty()),
            "the CPUs of threads were not recorded: `nopal record -e sched` records them"
        );
        Ok(Whereabouts { threads: all, lost })
    }

    /// The processor of a thread of the trace; threads count from 0.
    pub fn processor(&self, thread: usize, clock: u64) -> Option<u32> {
        let of = self.threads.get(thread)?;
        let before = |at: &u64| *at <= clock;
        let notes = of.partition_point(|(since, _)| before(since));
        let (since, on) = *of.get(notes.checked_sub(1)?)?;
        let lost = self.lost.partition_point(before);
        let is_lost = lost > 0 && self.lost[lost - 1] > since;
        on.filter(|_| !is_lost)
    }
}

/// The threads from which an event takes a processor, and to which it gives it.
pub fn left_and_got(event: &KernelEvent) -> (Option<u32>, Option<u32>) {
    match event {
        KernelEvent::Switch { previous, next, .. } => (Some(previous.thread), Some(next.thread)),
        KernelEvent::Out { thread, .. } => (Some(*thread), None),
        KernelEvent::In { thread, .. } => (None, Some(*thread)),
        KernelEvent::Wakeup { .. } | KernelEvent::Function { .. } | KernelEvent::Lost { .. } => {
            (None, None)
        }
    }
}

/// A scheduling event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It left a processor, for a task if known.
    Left {
        processor: u32,
        state: TaskState,
        next: Option<Task>,
    },
    /// It became runnable, by this waker.
    Woken { by: u32 },
    /// It entered a function of the kernel.
    Entered { function: u64, caller: u64 },
    /// It got a processor, after this many ticks if the time at which it left is known.
    Ran { processor: u32, away: Option<u64> },
}

/// The turns of each thread that is `wanted`, in order of time.
pub fn turns(trace: &Trace, wanted: impl Fn(u32) -> bool) -> HashMap<u32, Vec<(u64, Turn)>> {
    let mut turns: HashMap<u32, Vec<(u64, Turn)>> = HashMap::new();
    let mut left: HashMap<u32, u64> = HashMap::new();
    for (processor, KernelRecord { clock, event }) in events(trace) {
        if let KernelEvent::Lost { .. } = event {
            left.clear();
        }
        let (out, into) = left_and_got(&event);
        let (state, next) = match event {
            KernelEvent::Switch { state, next, .. } => (state, Some(next)),
            KernelEvent::Out { state, .. } => (state, None),
            _ => (TaskState::PREEMPTED, None),
        };
        let woken = match event {
            KernelEvent::Wakeup { task, waker, .. } => {
                Some((task.thread, Turn::Woken { by: waker }))
            }
            KernelEvent::Function {
                thread,
                function,
                caller,
                ..
            } => Some((thread, Turn::Entered { function, caller })),
            _ => None,
        };
        let out = out.filter(|thread| wanted(*thread)).map(|thread| {
            left.insert(thread, clock);
            let turn = Turn::Left {
                processor,
                state,
                next,
            };
            (thread, turn)
        });
        let into = into.filter(|thread| wanted(*thread)).map(|thread| {
            let away = left.remove(&thread).map(|left| clock.saturating_sub(left));
            (thread, Turn::Ran { processor, away })
        });
        let woken = woken.filter(|(thread, _)| wanted(*thread));
        for (thread, turn) in [out, woken, into].into_iter().flatten() {
            turns.entry(thread).or_default().push((clock, turn));
        }
    }
    turns
}

/// A task's name, without control characters for terminals.
pub fn name(task: &Task) -> String {
    match task.thread {
        0 => "<idle>".to_string(),
        _ => printable(&String::from_utf8_lossy(task.name())),
    }
}

/// The thread that ran on the processor.
pub fn thread(event: &KernelEvent) -> u32 {
    match event {
        KernelEvent::Switch { previous, .. } => previous.thread,
        KernelEvent::Out { thread, .. }
        | KernelEvent::In { thread, .. }
        | KernelEvent::Function { thread, .. } => *thread,
        KernelEvent::Wakeup { waker, .. } => *waker,
        KernelEvent::Lost { .. } => 0,
    }
}

/// The names of functions of the kernel, by addresses in them.
pub struct KernelNames<'a>(HashMap<u64, &'a str>);

impl<'a> KernelNames<'a> {
    pub fn new(trace: &'a Trace) -> KernelNames<'a> {
        let names = trace.notes().iter().filter_map(|note| match note {
            Note::KernelFunction { address, name } => Some((*address, name.as_str())),
            _ => None,
        });
        KernelNames(names.collect())
    }

    /// The name, without control characters for terminals; the address, if it has none.
    pub fn name(&self, address: u64) -> String {
        match self.0.get(&address) {
            Some(name) => printable(name),
            None => format!("{address:#x}"),
        }
    }
}

/// `vfs_write <-- ksys_write`, `8:49:S --> 11:115 group_balance`, or `8 + 11:115 group_balance` for a wake-up. A `-`
/// stands for a value that is not known.
pub fn push_event(text: &mut Vec<u8>, event: &KernelEvent, names: &KernelNames) {
    let task = |task: &Task| format!("{}:{}", task.thread, task.priority);
    // Writing to memory does not fail.
    let _ = match event {
        KernelEvent::Switch {
            previous,
            state,
            next,
            ..
        } => write!(
            text,
            "{}:{} --> {} {}",
            task(previous),
            state.letter(),
            task(next),
            name(next)
        ),
        KernelEvent::Out { thread, state, .. } => {
            write!(text, "{thread}:-:{} --> -", state.letter())
        }
        KernelEvent::In { thread, .. } => write!(text, "- --> {thread}:-"),
        KernelEvent::Wakeup {
            task: woken, waker, ..
        } => write!(text, "{waker} + {} {}", task(woken), name(woken)),
        KernelEvent::Function {
            function, caller, ..
        } => write!(
            text,
            "{} <-- {}",
            names.name(*function),
            names.name(*caller)
        ),
        KernelEvent::Lost { events: 0 } => write!(text, "[NOT RECORDED]"),
        KernelEvent::Lost { events } => write!(text, "[LOST {events} EVENTS]"),
    };
}

/// The names of tracepoints and events.
pub fn kind(event: &KernelEvent) -> &'static str {
    match event {
        KernelEvent::Switch { .. } => "sched_switch",
        KernelEvent::Out { .. } => "switch_out",
        KernelEvent::In { .. } => "switch_in",
        KernelEvent::Wakeup { is_new: true, .. } => "sched_wakeup_new",
        KernelEvent::Wakeup { .. } => "sched_wakeup",
        KernelEvent::Function { .. } => "kernel_function",
        KernelEvent::Lost { .. } => "lost",
    }
}
