//! Kernel events: the threads that ran on each processor, wake-ups, and the kernel's functions in threads.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::kernel_events::{KernelNames, name};
use nopal_analysis::names::ThreadNames;
use nopal_trace::{KernelEvent, KernelRecord, ProcessorInfo, Task, TaskState, Trace};

use super::{
    LOSSES, PROCESSORS, Shown, THREADS, annotate, kind, packet, push_event, push_packet,
    track_event,
};
use crate::protobuf::Message;

const BLOCK_BYTES: usize = 1 << 16;
/// Sched events of one packet.
const BUNDLE: usize = 512;

/// In `FtraceEvent`.
const SCHED_SWITCH: u32 = 4;
const SCHED_WAKEUP: u32 = 17;
const SCHED_WAKEUP_NEW: u32 = 114;

pub fn write(trace: &Trace, drive: &Drive, out: &mut dyn Write) -> Result<()> {
    let thread_names = ThreadNames::new(trace);
    let threads = trace.threads();
    let outside = || {
        threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| !thread.in_namespace)
    };
    let (from, until) = drive
        .filter
        .map_or((None, None), |filter| (filter.from, filter.until));
    let writer = Writer {
        trace,
        time: (from.unwrap_or(0), until.unwrap_or(u64::MAX)),
        tracks: outside()
            .map(|(at, thread)| (thread.thread, THREADS + at as u64))
            .collect(),
        names: outside()
            .map(|(_, thread)| (thread.thread, thread_names.of(thread)))
            .collect(),
        kernel: KernelNames::new(trace),
    };
    let mut flows = 0;
    for processor in trace.processors() {
        writer.write(&processor, &mut flows, out)?;
    }
    Ok(())
}

struct Writer<'a> {
    trace: &'a Trace,
    /// The selected time.
    time: (u64, u64),
    /// By the kernel's numbers of threads.
    tracks: HashMap<u32, u64>,
    names: HashMap<u32, String>,
    kernel: KernelNames<'a>,
}

impl Writer<'_> {
    fn write(&self, processor: &ProcessorInfo, flows: &mut u64, out: &mut dyn Write) -> Result<()> {
        let mut text = Message::default();
        let mut sched: Vec<KernelRecord> = Vec::new();
        let mut is_open = false;
        let track = PROCESSORS + u64::from(processor.number);
        let (from, until) = self.time;
        let events = processor.events();
        for record in events.filter(|record| record.clock >= from && record.clock <= until) {
            let ns = self.trace.clocks().monotonic_ns(record.clock);
            match &record.event {
                KernelEvent::Switch { .. } => sched.push(record),
                KernelEvent::Wakeup { task, waker, .. } => {
                    sched.push(record);
                    self.push_flow(&mut text, ns, (*waker, task), flows);
                }
                KernelEvent::In { thread, .. } => {
                    push_end(&mut text, ns, track, &mut is_open);
                    is_open = true;
                    let name = self.names.get(thread).map_or("?", String::as_str);
                    push_event(&mut text, ns, |event| {
                        event.number(track_event::TYPE, kind::BEGIN);
                        event.number(track_event::TRACK, track);
                        event.text(track_event::NAME, &format!("{name} {thread}"));
                    });
                }
                KernelEvent::Out { .. } => push_end(&mut text, ns, track, &mut is_open),
                KernelEvent::Function {
                    thread,
                    function,
                    caller,
                    ..
                } => push_event(&mut text, ns, |event| {
                    event.number(track_event::TYPE, kind::INSTANT);
                    let of_thread = self.tracks.get(thread).copied();
                    event.number(track_event::TRACK, of_thread.unwrap_or(track));
                    event.text(track_event::CATEGORY_TEXT, "kernel");
                    event.text(track_event::NAME, &self.kernel.name(*function));
                    annotate(event, "caller", &Shown::Text(&self.kernel.name(*caller)));
                }),
                KernelEvent::Lost { events } => {
                    push_end(&mut text, ns, track, &mut is_open);
                    push_sched(&mut text, self.trace, processor.number, &mut sched, false);
                    push_sched(&mut text, self.trace, processor.number, &mut sched, true);
                    push_event(&mut text, ns, |event| {
                        event.number(track_event::TYPE, kind::INSTANT);
                        event.number(track_event::TRACK, LOSSES);
                        event.text(track_event::CATEGORY_TEXT, "nopal");
                        let what = format!("CPU {}: kernel events are missing", processor.number);
                        event.text(track_event::NAME, &what);
                        if *events > 0 {
                            annotate(event, "events", &Shown::Number(*events));
                        }
                    });
                }
            }
            if sched.len() >= BUNDLE {
                push_sched(&mut text, self.trace, processor.number, &mut sched, false);
            }
            if text.bytes.len() >= BLOCK_BYTES {
                out.write_all(&text.bytes)?;
                text.bytes.clear();
            }
        }
        push_sched(&mut text, self.trace, processor.number, &mut sched, false);
        Ok(out.write_all(&text.bytes)?)
    }

    /// An arrow from the thread that wakes to the one that it wakes, if both are traced.
    fn push_flow(&self, text: &mut Message, ns: u64, (waker, task): (u32, &Task), flows: &mut u64) {
        let of = |thread: &u32| self.tracks.get(thread).copied();
        let (Some(from), Some(to)) = (of(&waker), of(&task.thread)) else {
            return;
        };
        *flows += 1;
        let ends = [
            (
                from,
                track_event::FLOW,
                format!("wakes {} {}", name(task), task.thread),
            ),
            (to, track_event::ENDING_FLOW, format!("woken by {waker}")),
        ];
        for (track, flow, what) in ends {
            push_event(text, ns, |event| {
                event.number(track_event::TYPE, kind::INSTANT);
                event.number(track_event::TRACK, track);
                event.text(track_event::CATEGORY_TEXT, "sched");
                event.text(track_event::NAME, &what);
                event.fixed(flow, *flows);
            });
        }
    }
}

fn push_end(text: &mut Message, ns: u64, track: u64, is_open: &mut bool) {
    if std::mem::take(is_open) {
        push_event(text, ns, |event| {
            event.number(track_event::TYPE, kind::END);
            event.number(track_event::TRACK, track);
        });
    }
}

/// A packet of sched events; `lost` tells that others are missing before it.
fn push_sched(
    text: &mut Message,
    trace: &Trace,
    processor: u32,
    sched: &mut Vec<KernelRecord>,
    lost: bool,
) {
    if sched.is_empty() && !lost {
        return;
    }
    push_packet(text, |packet| {
        packet.message(packet::FTRACE_EVENTS, |bundle| {
            bundle.number(1, processor.into());
            for record in sched.drain(..) {
                let ns = trace.clocks().monotonic_ns(record.clock);
                bundle.message(2, |event| push_ftrace(event, ns, &record.event));
            }
            if lost {
                bundle.number(3, 1);
            }
        });
    });
}

fn push_ftrace(event: &mut Message, ns: u64, what: &KernelEvent) {
    event.number(1, ns);
    match what {
        KernelEvent::Switch {
            previous,
            state,
            next,
            ..
        } => {
            event.number(2, previous.thread.into());
            event.message(SCHED_SWITCH, |switch| {
                switch.text(1, &name(previous));
                switch.number(2, previous.thread.into());
                switch.signed(3, previous.priority.into());
                switch.number(4, state_bits(*state));
                switch.text(5, &name(next));
                switch.number(6, next.thread.into());
                switch.signed(7, next.priority.into());
            });
        }
        KernelEvent::Wakeup {
            task,
            target,
            waker,
            is_new,
            ..
        } => {
            event.number(2, (*waker).into());
            let field = if *is_new {
                SCHED_WAKEUP_NEW
            } else {
                SCHED_WAKEUP
            };
            event.message(field, |wakeup| {
                wakeup.text(1, &name(task));
                wakeup.number(2, task.thread.into());
                wakeup.signed(3, task.priority.into());
                wakeup.number(4, 1);
                wakeup.number(5, (*target).into());
            });
        }
        _ => {}
    }
}

/// The bits of the kernel's tracepoint `sched_switch`, of Linux 4.14 and later.
fn state_bits(state: TaskState) -> u64 {
    match state.letter() {
        'R' => 0,
        'S' => 1,
        'D' => 2,
        'T' => 4,
        't' => 8,
        'X' => 16,
        'Z' => 32,
        'P' => 64,
        'I' => 128,
        // An unknown state is shown as that of a waiting task.
        _ => 1,
    }
}
