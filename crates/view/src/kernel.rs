//! The states of processors and threads by kernel events, as the chart shows them.

use std::collections::{BTreeMap, HashMap};

use nopal_analysis::kernel_events::{events, name};
use nopal_analysis::names::ThreadNames;
use nopal_analysis::tracers::Numbers;
use nopal_analysis::waits::Waits;
use nopal_trace::{KernelEvent, KernelRecord, Task, Trace};

use crate::track::{Lane, Span, Track};

/// A thread becomes runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    pub clock: u64,
    pub processor: u32,
    /// The place of the thread in the trace; none for other threads.
    pub waker: Option<u32>,
    pub woken: u32,
}

/// A function of the kernel is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    pub clock: u64,
    pub function: u64,
}

#[derive(Default)]
pub struct Kernel {
    /// A lane for each processor; a span's detail is the place of its thread in the trace, and one more, or 0.
    pub processors: Track,
    pub waits: Option<Waits>,
    /// The wake-ups of the trace's threads, in order of time.
    pub wakes: Vec<Wake>,
    /// By thread of the trace.
    pub functions: Vec<Vec<Entered>>,
}

impl Kernel {
    pub fn new(trace: &Trace) -> Kernel {
        let threads = trace.threads();
        let numbers = Numbers::new(&threads);
        let names = ThreadNames::new(trace);
        let mut kernel = Kernel {
            functions: vec![Vec::new(); threads.len()],
            waits: Waits::new(trace),
            ..Kernel::default()
        };
        let mut reading = Reading {
            processors: BTreeMap::new(),
            labels: Labels {
                numbers: HashMap::new(),
                all: Vec::new(),
                threads: threads.iter().map(|thread| names.of(thread)).collect(),
            },
        };
        for (processor, KernelRecord { clock, event }) in events(trace) {
            let place = |thread| numbers.place(thread, clock);
            match &event {
                KernelEvent::Wakeup { task, waker, .. } => {
                    if let Some(woken) = place(task.thread) {
                        kernel.wakes.push(Wake {
                            clock,
                            processor,
                            waker: place(*waker),
                            woken,
                        });
                    }
                }
                KernelEvent::Function {
                    thread, function, ..
                } => {
                    if let Some(place) = place(*thread) {
                        kernel.functions[place as usize].push(Entered {
                            clock,
                            function: *function,
                        });
                    }
                }
                _ => {}
            }
            reading.take(processor, clock, &event, place);
        }
        let lanes = reading.processors.into_values().map(Processor::finish);
        kernel.processors = Track {
            lanes: lanes.collect(),
            labels: reading.labels.all,
        };
        kernel
    }

    /// The functions of the kernel that a thread entered in a time.
    pub fn functions_in(&self, thread: usize, from: u64, until: u64) -> &[Entered] {
        let Some(of) = self.functions.get(thread) else {
            return &[];
        };
        let first = of.partition_point(|entered| entered.clock < from);
        let last = of.partition_point(|entered| entered.clock < until);
        &of[first.min(last)..last]
    }
}

/// A processor as far as its events are read.
struct Processor {
    lane: Lane,
    /// The thread that runs, and since when.
    running: Option<Running>,
    /// The begin of the time of which nothing is known.
    unknown: Option<u64>,
    last: u64,
}

struct Running {
    since: u64,
    thread: u32,
    /// Label and detail of its span; none while the processor idles.
    span: Option<(u32, u32)>,
}

impl Running {
    fn until(&self, end: u64) -> Option<Span> {
        self.span.map(|(label, detail)| Span {
            begin: self.since,
            end,
            label,
            detail,
        })
    }
}

impl Processor {
    fn new(number: u32, clock: u64) -> Processor {
        Processor {
            lane: Lane {
                name: format!("CPU {number}"),
                ..Lane::default()
            },
            running: None,
            unknown: None,
            last: clock,
        }
    }

    /// Events are missing from here on.
    fn lose(&mut self, clock: u64) {
        if let Some(running) = self.running.take() {
            self.lane.spans.extend(running.until(clock));
        }
        self.unknown.get_or_insert(clock);
    }

    /// Takes the processor from one thread and gives it to another, as far as these are known.
    fn switch(&mut self, clock: u64, previous: Option<u32>, next: Option<Running>) {
        if let Some(since) = self.unknown.take() {
            self.lane.missing.push((since, clock));
        }
        let before = std::mem::replace(&mut self.running, next);
        let Some(before) = before else {
            return;
        };
        // The event names another thread than the idle task: an earlier switch was not recorded.
        if before.thread == 0 && previous.is_some_and(|thread| thread != 0) {
            self.lane.missing.push((before.since, clock));
        } else {
            self.lane.spans.extend(before.until(clock));
        }
    }

    /// The thread that runs at the end ran at least up to the last event of this processor.
    fn finish(mut self) -> Lane {
        if let Some(running) = self.running.take() {
            self.lane.spans.extend(running.until(self.last));
        }
        self.lane
    }
}

/// Names of tasks.
struct Labels {
    numbers: HashMap<(u32, [u8; 16]), u32>,
    all: Vec<String>,
    /// The names of the trace's threads, for events that do not name them.
    threads: Vec<String>,
}

impl Labels {
    fn of(&mut self, task: &Task, place: Option<u32>) -> u32 {
        let Labels {
            numbers,
            all,
            threads,
        } = self;
        let new = || {
            let known = place.and_then(|place| threads.get(place as usize));
            let name = match known {
                Some(known) if task.name().is_empty() => known.clone(),
                _ => name(task),
            };
            all.push(format!("{name} {}", task.thread));
            all.len() as u32 - 1
        };
        *numbers.entry((task.thread, task.name)).or_insert_with(new)
    }
}

struct Reading {
    processors: BTreeMap<u32, Processor>,
    labels: Labels,
}

impl Reading {
    fn take(
        &mut self,
        number: u32,
        clock: u64,
        event: &KernelEvent,
        place: impl Fn(u32) -> Option<u32>,
    ) {
        let mut running = |task: &Task| {
            let place = place(task.thread);
            let span = || {
                (
                    self.labels.of(task, place),
                    place.map_or(0, |place| place + 1),
                )
            };
            Running {
                since: clock,
                thread: task.thread,
                span: (task.thread != 0).then(span),
            }
        };
        let new = || Processor::new(number, clock);
        let processor = self.processors.entry(number).or_insert_with(new);
        processor.last = clock;
        match event {
            KernelEvent::Switch { previous, next, .. } => {
                processor.switch(clock, Some(previous.thread), Some(running(next)));
            }
            KernelEvent::Out { thread, .. } => processor.switch(clock, Some(*thread), None),
            KernelEvent::In { thread, .. } => {
                let task = Task {
                    thread: *thread,
                    ..Task::default()
                };
                processor.switch(clock, None, Some(running(&task)));
            }
            KernelEvent::Lost { .. } => processor.lose(clock),
            KernelEvent::Wakeup { .. } | KernelEvent::Function { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::TaskState;

    fn task(thread: u32) -> Task {
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"task");
        Task {
            thread,
            name,
            ..Task::default()
        }
    }

    fn switch(from: u32, to: u32) -> KernelEvent {
        KernelEvent::Switch {
            previous: task(from),
            process: from,
            state: TaskState::BLOCKED,
            next: task(to),
            flags: None,
        }
    }

    type Ran = Vec<(u64, u64, String)>;

    /// The times in which a processor ran threads, as begin, end and label, and the unknown times.
    fn read(events: &[(u64, KernelEvent)]) -> (Ran, Vec<(u64, u64)>) {
        let mut reading = Reading {
            processors: BTreeMap::new(),
            labels: Labels {
                numbers: HashMap::new(),
                all: Vec::new(),
                threads: vec!["own".to_owned()],
            },
        };
        for (clock, event) in events {
            reading.take(0, *clock, event, |thread| (thread == 9).then_some(0));
        }
        let lane = reading.processors.remove(&0).unwrap().finish();
        let label = |span: &Span| reading.labels.all[span.label as usize].clone();
        let spans = lane.spans.iter();
        let spans = spans.map(|span| (span.begin, span.end, label(span)));
        (spans.collect(), lane.missing)
    }

    #[test]
    fn a_processor_runs_what_it_was_given_until_that_is_taken() {
        let (spans, missing) = read(&[
            (10, switch(1, 2)),
            (15, switch(2, 0)),
            (20, switch(0, 3)),
            (28, switch(3, 2)),
        ]);
        let ran = [(10, 15, "task 2"), (20, 28, "task 3"), (28, 28, "task 2")];
        assert_eq!(
            spans,
            ran.map(|(begin, end, label)| (begin, end, label.to_owned()))
        );
        assert!(missing.is_empty());
    }

    #[test]
    fn what_was_lost_or_not_told_is_drawn_by_nobody() {
        let lost = KernelEvent::Lost { events: 3 };
        let (spans, missing) = read(&[
            (10, switch(1, 2)),
            (12, lost),
            (20, switch(5, 0)),
            (30, switch(4, 6)),
            (31, switch(6, 0)),
        ]);
        let ran = [(10, 12, "task 2"), (30, 31, "task 6")];
        assert_eq!(
            spans,
            ran.map(|(begin, end, label)| (begin, end, label.to_owned()))
        );
        // Task 4 got the idle processor at some time.
        assert_eq!(missing, [(12, 20), (20, 30)]);
    }

    #[test]
    fn a_thread_without_a_name_in_its_event_has_that_of_the_trace() {
        let (process, thread) = (9, 9);
        let state = TaskState::BLOCKED;
        let (spans, _) = read(&[
            (1, KernelEvent::In { process, thread }),
            (
                4,
                KernelEvent::Out {
                    process,
                    thread,
                    state,
                },
            ),
        ]);
        assert_eq!(spans, [(1, 4, "own 9".to_owned())]);
    }
}
