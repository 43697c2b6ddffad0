//! The time for which calls were off their processors, as kernel events tell it (`record -e sched`).
//!
//! A thread makes no records while it is off its processor. So a wait lies between two records, and in the calls that are
//! open between these.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::{Add, AddAssign, Sub};

use anyhow::Result;
use nopal_trace::{Clocks, KernelEvent, KernelRecord, TaskState, ThreadInfo, Trace};

use crate::calls::{Ending, Frame, Sink, timed};
use crate::kernel_events::{events, left_and_got};
use crate::text::{bound, duration};
use crate::tracers::Numbers;
use crate::worker::{Times, Worker};

/// Shown where times include waits that are not known.
pub const OF_THE_CLOCK: &str =
    "times are of the clock: `nopal record -e sched` separates running from waiting";

/// Shown if some of the time is not known to be on or off the processor.
pub const OF_SOME: &str = "≥ cpu and wait: the kernel did not tell when some threads ran again; the rest of the time is either";

/// Ticks off the processor, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Waiting for an event. Without wake-ups in the trace, also waiting for a processor after it.
    pub blocked: u64,
    /// While another task had the processor, though the thread could have run on.
    pub preempted: u64,
    /// From the wake-up until the thread ran.
    pub runnable: u64,
    /// Either off the processor or on it: the kernel did not tell when the thread ran again.
    pub unknown: u64,
}

/// How much of a time was on the processor, and how much was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub cpu: u64,
    pub wait: u64,
    /// Whether either may be more, since some of the time is not known to be either.
    pub are_least: bool,
}

/// The headings of [`Parts::cells`].
pub const PARTS: [&str; 2] = ["cpu", "wait"];

impl Parts {
    /// The cells of a time that may have been more if it `is_least`, each written by `shown`.
    pub fn cells(self, is_least: bool, shown: impl Fn(u64, bool) -> String) -> [String; 2] {
        [self.cpu, self.wait].map(|time| shown(time, is_least || self.are_least))
    }
}

/// Writes a line if some of the time is not known to be on or off the processor.
pub fn write_of_some(
    mut parts: impl Iterator<Item = Option<Parts>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match parts.any(|parts| parts.is_some_and(|parts| parts.are_least)) {
        true => writeln!(out, "{OF_SOME}"),
        false => Ok(()),
    }
}

impl Waited {
    /// All waiting that is known.
    pub fn all(&self) -> u64 {
        let waking = self.blocked.saturating_add(self.runnable);
        waking.saturating_add(self.preempted)
    }

    /// Describes a time in which the thread waited so: `20.7 us; waited: 20.1 ms blocked, …`.
    pub fn describe(self, time: u64, clocks: &Clocks) -> String {
        let parts = self.parts_of(time);
        let on = bound(clocks.duration_ns(parts.cpu), parts.are_least);
        let ns = self.map(|part| clocks.duration_ns(part));
        let [blocked, preempted, runnable] = [ns.blocked, ns.preempted, ns.runnable].map(duration);
        let unknown = match parts.are_least {
            true => format!("; {} of either", duration(ns.unknown)),
            false => String::new(),
        };
        format!(
            "{on}; waited: {blocked} blocked, {preempted} preempted, {runnable} runnable{unknown}"
        )
    }

    /// Divides a time in which the thread waited so.
    pub fn parts_of(&self, time: u64) -> Parts {
        let wait = self.all().min(time);
        Parts {
            cpu: (time - wait).saturating_sub(self.unknown),
            wait,
            are_least: self.unknown > 0,
        }
    }

    /// Each of them, changed in the same way.
    pub fn map(self, change: impl Fn(u64) -> u64) -> Waited {
        Waited {
            blocked: change(self.blocked),
            preempted: change(self.preempted),
            runnable: change(self.runnable),
            unknown: change(self.unknown),
        }
    }

    fn with(self, other: Waited, both: fn(u64, u64) -> u64) -> Waited {
        Waited {
            blocked: both(self.blocked, other.blocked),
            preempted: both(self.preempted, other.preempted),
            runnable: both(self.runnable, other.runnable),
            unknown: both(self.unknown, other.unknown),
        }
    }
}

impl Add for Waited {
    type Output = Waited;
    fn add(self, other: Waited) -> Waited {
        self.with(other, u64::saturating_add)
    }
}

impl AddAssign for Waited {
    fn add_assign(&mut self, other: Waited) {
        *self = *self + other;
    }
}

impl Sub for Waited {
    type Output = Waited;
    fn sub(self, other: Waited) -> Waited {
        self.with(other, u64::saturating_sub)
    }
}

/// The waits in a call: all of them, and those in which no call in it was open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InCall {
    pub total: Waited,
    pub own: Waited,
}

impl AddAssign for InCall {
    fn add_assign(&mut self, other: InCall) {
        self.total += other.total;
        self.own += other.own;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Blocked,
    Preempted,
    /// Blocked until it was woken; the state after that is not known.
    Unknown,
}

/// A thread is off its processor between two values of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    begin: u64,
    /// The clock at which it was woken.
    woken: u64,
    end: u64,
    why: Why,
    by: Option<Waker>,
}

/// A traced thread that ran where another was woken, and not in a hard interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    pub stream: usize,
    /// It may have been in unrelated work of the kernel.
    pub in_soft_interrupt: bool,
}

impl Wait {
    fn within(&self, from: u64, until: u64) -> Waited {
        let part = |begin: u64, end: u64| end.min(until).saturating_sub(begin.max(from));
        let nothing = Waited::default();
        match self.why {
            Why::Preempted => Waited {
                preempted: part(self.begin, self.end),
                ..nothing
            },
            Why::Blocked => Waited {
                blocked: part(self.begin, self.woken),
                runnable: part(self.woken, self.end),
                ..nothing
            },
            Why::Unknown => Waited {
                blocked: part(self.begin, self.woken),
                unknown: part(self.woken, self.end),
                ..nothing
            },
        }
    }
}

/// The waits of one thread, in order of time, and the sums of those before each.
#[derive(Clone, Debug, Default)]
struct OfThread {
    waits: Vec<Wait>,
    before: Vec<Waited>,
}

impl OfThread {
    fn push(&mut self, wait: Wait) {
        let sum = match (self.before.last(), self.waits.last()) {
            (Some(before), Some(last)) => *before + last.within(0, u64::MAX),
            _ => Waited::default(),
        };
        self.before.push(sum);
        self.waits.push(wait);
    }

    /// Up to this value of the counter.
    fn until(&self, clock: u64) -> Waited {
        let begun = self.waits.partition_point(|wait| wait.begin < clock);
        match begun.checked_sub(1) {
            Some(last) => self.before[last] + self.waits[last].within(0, clock),
            None => Waited::default(),
        }
    }

    fn within(&self, from: u64, until: u64) -> Waited {
        self.until(until.max(from)) - self.until(from)
    }
}

/// The waits of the threads of a trace. Grows with the number of context switches.
#[derive(Clone, Debug)]
pub struct Waits {
    threads: Vec<OfThread>,
    knows_wakers: bool,
}

/// A thread that has left its processor.
#[derive(Clone, Copy)]
struct Away {
    begin: u64,
    woken: Option<u64>,
    by: Option<Waker>,
    why: Why,
}

impl Away {
    /// It runs again.
    fn until(self, end: u64) -> Wait {
        let woken = match self.why {
            Why::Unknown => self.begin,
            Why::Blocked | Why::Preempted => end,
        };
        Wait {
            begin: self.begin,
            woken: self.woken.unwrap_or(woken),
            end,
            why: self.why,
            by: self.by,
        }
    }

    /// It may have run again before `end`, which the kernel did not tell.
    fn unknown_until(self, end: u64) -> Wait {
        let why = Why::Unknown;
        let woken = self.woken.filter(|_| self.why != Why::Preempted);
        Away { woken, why, ..self }.until(end)
    }
}

impl Waits {
    /// None if no context switches were recorded. After lost events, a thread's state is unknown until it leaves or
    /// gets a processor. If a thread leaves twice, its state between these is unknown.
    pub fn new(trace: &Trace) -> Option<Waits> {
        let threads = trace.threads();
        let numbers = Numbers::new(&threads);
        let mut all = vec![OfThread::default(); threads.len()];
        let mut away: Vec<Option<Away>> = vec![None; threads.len()];
        let mut has_switches = false;
        let mut knows_wakers = false;
        for (_, KernelRecord { clock, event }) in events(trace) {
            let place = |thread| numbers.place(thread, clock).map(|place| place as usize);
            let state = match event {
                KernelEvent::Lost { .. } => {
                    for (away, thread) in away.iter_mut().zip(&mut all) {
                        if let Some(left) = away {
                            thread.push(left.unknown_until(clock));
                        }
                        *away = Some(Away {
                            begin: clock,
                            woken: None,
                            by: None,
                            why: Why::Unknown,
                        });
                    }
                    continue;
                }
                KernelEvent::Wakeup {
                    task, waker, flags, ..
                } => {
                    knows_wakers |= flags.is_some();
                    if let Some(at) = place(task.thread)
                        && let Some(away) = &mut away[at]
                        && away.woken.is_none()
                    {
                        away.woken = Some(clock);
                        // Only a kernel that gives flags tells whether it was an interrupt.
                        let flags = flags.filter(|flags| !flags.is_hard_interrupt());
                        away.by = flags.and_then(|flags| {
                            let stream = place(waker)?;
                            let in_soft_interrupt = flags.is_soft_interrupt();
                            (stream != at).then_some(Waker {
                                stream,
                                in_soft_interrupt,
                            })
                        });
                    }
                    continue;
                }
                KernelEvent::Switch { state, .. } | KernelEvent::Out { state, .. } => state,
                KernelEvent::In { .. } | KernelEvent::Function { .. } => TaskState::PREEMPTED,
            };
            let (left, got) = left_and_got(&event);
            has_switches |= left.or(got).is_some();
            if let Some(place) = left.and_then(place) {
                let why = match state.is_blocked() {
                    true => Why::Blocked,
                    false => Why::Preempted,
                };
                let now = Away {
                    begin: clock,
                    woken: None,
                    by: None,
                    why,
                };
                if let Some(before) = away[place].replace(now) {
                    all[place].push(before.unknown_until(clock));
                }
            }
            if let Some(place) = got.and_then(place)
                && let Some(left) = away[place].take()
            {
                all[place].push(left.until(clock));
            }
        }
        for ((away, of_thread), thread) in away.iter().zip(&mut all).zip(&threads) {
            if let Some(left) = away {
                of_thread.push(left.unknown_until(u64::MAX));
            }
            // Kernel events name these by other numbers.
            if thread.in_namespace {
                *of_thread = OfThread::default();
                of_thread.push(Wait {
                    begin: 0,
                    woken: 0,
                    end: u64::MAX,
                    why: Why::Unknown,
                    by: None,
                });
            }
        }
        has_switches.then_some(Waits {
            threads: all,
            knows_wakers,
        })
    }

    /// Whether wake-ups were recorded, and which of them were in interrupts.
    pub fn knows_wakers(&self) -> bool {
        self.knows_wakers
    }

    /// The time off its processor of a thread of the trace between two values of the counter.
    pub fn within(&self, stream: usize, from: u64, until: u64) -> Waited {
        match self.threads.get(stream) {
            Some(thread) => thread.within(from, until),
            None => Waited::default(),
        }
    }

    /// The begin of the first wait of a thread that ends after this value of the counter; `u64::MAX` if none does.
    pub fn next_begin(&self, stream: usize, clock: u64) -> u64 {
        let waits = self
            .threads
            .get(stream)
            .map_or(&[][..], |thread| &thread.waits);
        let next = waits.partition_point(|wait| wait.end <= clock);
        waits.get(next).map_or(u64::MAX, |wait| wait.begin)
    }

    /// The last time between two values of the counter at which a thread that was blocked was woken by another traced
    /// one: when, and by which.
    pub fn last_woken(&self, stream: usize, from: u64, until: u64) -> Option<(u64, Waker)> {
        let waits = &self.threads.get(stream)?.waits;
        let begun = waits.partition_point(|wait| wait.begin < until);
        let within = waits[..begun]
            .iter()
            .rev()
            .take_while(|wait| wait.end > from);
        let mut woken = within
            .filter(|wait| wait.why == Why::Blocked && wait.woken > from && wait.woken < until);
        woken.find_map(|wait| Some((wait.woken, wait.by?)))
    }
}

/// Tells a worker, behind the end of each call that has waited, how long.
///
/// The function that waited is that of the innermost timed call when the next record comes. So threads that change their
/// stacks, and calls that are left by a jump, need no rules of their own.
pub struct Waiting<'a> {
    worker: &'a mut dyn Worker,
    waits: &'a Waits,
    /// The time within which waits count.
    window: (u64, u64),
    stream: usize,
    /// The first wait that no call has yet.
    next: usize,
    /// The begin of that, and the end of the one before.
    next_begin: u64,
    last_end: u64,
    /// The ends of waits that are not known: the thread has made a record before.
    excess: OfThread,
    /// The time that open calls have waited themselves.
    own: HashMap<(u64, u64, u32), Waited>,
    /// The waits outside of all open calls, since the records are complete.
    outside: Waited,
}

impl<'a> Waiting<'a> {
    /// Waits count between the values of `window`.
    pub fn new(worker: &'a mut dyn Worker, waits: &'a Waits, window: (u64, u64)) -> Waiting<'a> {
        Waiting {
            worker,
            waits,
            window,
            stream: 0,
            next: 0,
            next_begin: u64::MAX,
            last_end: 0,
            excess: OfThread::default(),
            own: HashMap::new(),
            outside: Waited::default(),
        }
    }

    fn of_thread(&self) -> &'a [Wait] {
        let thread = self.waits.threads.get(self.stream);
        thread.map_or(&[], |thread| &thread.waits)
    }

    /// A record with this clock has come, before which this call was the innermost.
    #[inline(always)]
    fn reach<'f>(&mut self, clock: u64, innermost: impl Fn() -> Option<&'f Frame>) {
        if self.next_begin < clock {
            self.assign(clock, innermost());
        }
    }

    fn assign(&mut self, clock: u64, innermost: Option<&Frame>) {
        let waits = &self.of_thread()[self.next..];
        let (from, until) = self.window;
        // A wait over the window's begin is of the call that is the innermost there.
        let is_over_begin =
            |wait: &Wait| clock <= from && wait.end > from && wait.why != Why::Unknown;
        let past = waits
            .iter()
            .take_while(|wait| wait.begin < clock && !is_over_begin(wait));
        let mut sum = Waited::default();
        for wait in past {
            let end = match wait.why {
                Why::Unknown => wait.end.min(clock),
                Why::Blocked | Why::Preempted => wait.end,
            };
            sum += wait.within(from, until.min(end));
            self.last_end = end;
            if end < wait.end {
                self.excess.push(Wait {
                    begin: clock,
                    woken: clock,
                    ..*wait
                });
            }
            self.next += 1;
        }
        self.next_begin = waits_begin(self.of_thread(), self.next);
        let own = match innermost {
            Some(frame) => self.own.entry(name(frame)).or_default(),
            None => &mut self.outside,
        };
        *own += sum;
    }

    /// The time that the thread waited between two values of the counter.
    fn within(&self, begin: u64, end: u64) -> Waited {
        self.waits.within(self.stream, begin, end) - self.excess.within(begin, end)
    }

    fn ended(&mut self, frame: &Frame, clock: u64) {
        if frame.clock >= self.last_end || !frame.has_end() {
            return;
        }
        let (from, until) = self.window;
        let (begin, end) = (frame.clock.max(from), clock.min(until));
        let in_call = InCall {
            total: self.within(begin, end),
            own: self.own.remove(&name(frame)).unwrap_or_default(),
        };
        if in_call != InCall::default() {
            self.worker.waited(frame, clock, in_call);
        }
    }
}

fn waits_begin(waits: &[Wait], next: usize) -> u64 {
    waits.get(next).map_or(u64::MAX, |wait| wait.begin)
}

/// Names a call among those of its thread.
fn name(frame: &Frame) -> (u64, u64, u32) {
    (frame.clock, frame.slot, frame.site())
}

impl Sink for Waiting<'_> {
    /// Waits that began before belong to no open call.
    fn begin_at(&mut self, clock: u64) {
        self.reach(clock, || None);
        self.outside = Waited::default();
        self.worker.begin_at(clock);
    }

    /// Nothing has happened since.
    fn reopen(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.worker.reopen(frames, arguments)
    }

    fn note_of_caller(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        self.worker.note_of_caller(frames, arguments)
    }

    fn call_site(&mut self, return_address: u64) {
        self.worker.call_site(return_address);
    }

    fn enter(&mut self, frames: &[Frame], arguments: Option<[u64; 6]>) -> u32 {
        if let [under @ .., frame] = frames {
            self.reach(frame.clock, || timed(under));
        }
        self.worker.enter(frames, arguments)
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.reach(ending.clock, || Some(frame));
        self.worker.leave(frame, ending, frames);
        self.ended(frame, ending.clock);
    }

    fn dismiss(&mut self, frame: &Frame, counted: bool) {
        self.worker.dismiss(frame, counted);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        self.reach(clock, || Some(frame));
        self.worker.lose(frame, clock, counted);
        self.ended(frame, clock);
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.reach(ending.clock, || None);
        self.worker.stray(frame, ending);
        let total = self.within(frame.clock.max(self.window.0), ending.clock);
        let own = std::mem::take(&mut self.outside);
        if total != Waited::default() {
            let in_call = InCall { total, own };
            self.worker.waited(frame, ending.clock, in_call);
        }
    }

    fn mark(&mut self, clock: u64, event: u32, payload: &[u64], frames: &[Frame]) {
        self.reach(clock, || timed(frames));
        self.worker.mark(clock, event, payload, frames);
    }

    fn short(&mut self, clock: u64, site: u32, calls: u32) {
        self.worker.short(clock, site, calls);
    }

    fn end_at(&mut self, clock: u64, innermost: Option<&Frame>) {
        self.reach(clock, || innermost);
        self.worker.end_at(clock, innermost);
    }

    /// The calls that were open have ended.
    fn missing(&mut self, clock: u64, ticks: u64) {
        self.reach(clock, || None);
        self.own.clear();
        self.outside = Waited::default();
        self.worker.missing(clock, ticks);
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.worker.aside(frames);
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.worker.resume(frames);
    }
}

impl Worker for Waiting<'_> {
    fn times(&self) -> Times {
        self.worker.times()
    }

    fn awaits(&self, site: u32) -> bool {
        self.worker.awaits(site)
    }

    fn begin(&mut self, stream: usize, thread: &ThreadInfo) {
        self.stream = stream;
        self.next = 0;
        self.next_begin = waits_begin(self.of_thread(), 0);
        self.last_end = 0;
        self.excess = OfThread::default();
        self.own.clear();
        self.outside = Waited::default();
        self.worker.begin(stream, thread);
    }

    fn pause(&mut self) -> Result<()> {
        self.worker.pause()
    }
}
