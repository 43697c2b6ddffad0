//! What requests spent their time in.
//!
//! The time between two records of a thread is of the innermost timed call that is open then.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use nopal_trace::{ThreadInfo, Trace};

use super::{Request, Spent, Step, find};
use crate::calls::{Ending, Frame, Sink, Style};
use crate::drive::{Drive, Times, Worker};
use crate::names::Names;
use crate::waits::{Waited, Waits};

/// Adds to the steps of requests what they spent their time in, and the other threads where there is no path.
pub fn describe(
    trace: &Trace,
    names: &Names,
    requests: &mut [Request],
    waits: Option<&Waits>,
    drive: &Drive,
) -> Result<()> {
    let known: &[Request] = requests;
    let new = |_| Inside {
        requests: known,
        names,
        waits,
        stream: 0,
        last: 0,
        windows: Vec::new(),
        left: Vec::new(),
    };
    let mut workers: Vec<Inside> = (0..drive.workers.max(1)).map(new).collect();
    // Whatever requests are selected, each has spent its time in whatever threads worked on it.
    let drive = Drive {
        filter: None,
        ..*drive
    };
    drive.run(trace, &mut workers)?;
    let mut windows: Vec<Window> = Vec::new();
    for mut worker in workers {
        worker.put_away();
        windows.append(&mut worker.left);
    }
    windows.sort_by_key(|window| (window.request, window.first, window.stream));
    for window in windows {
        let request = &mut requests[window.request];
        let spent = window.spent.into_iter();
        let spent = spent.map(|(function, (ticks, waited))| Spent {
            function: Some(function),
            ticks,
            waited,
        });
        let spent = sorted(spent.collect());
        match window.step {
            Some(at) => request.steps[at].spent = spent,
            None => request.others.push(Step {
                spent,
                ..find::step(window.stream, request.begin, request.end)
            }),
        }
    }
    let steps = requests.iter_mut();
    let steps = steps.flat_map(|request| request.steps.iter_mut().chain(&mut request.others));
    steps.for_each(|step| complete(step, waits));
    Ok(())
}

/// Adds the time in no recorded call, and all that the thread waited.
fn complete(step: &mut Step, waits: Option<&Waits>) {
    let mut rest = Spent {
        function: None,
        ticks: step.ticks(),
        waited: Waited::default(),
    };
    step.waited = waits.map(|waits| waits.within(step.stream, step.begin, step.end));
    rest.waited = step.waited.unwrap_or_default();
    for spent in &step.spent {
        rest.ticks = rest.ticks.saturating_sub(spent.ticks);
        rest.waited = rest.waited - spent.waited;
    }
    if rest.ticks > 0 {
        step.spent.push(rest);
        step.spent = sorted(std::mem::take(&mut step.spent));
    }
}

/// By function.
pub fn sum<'a>(all: impl Iterator<Item = &'a Spent>) -> Vec<Spent> {
    let mut sums: HashMap<Option<u32>, Spent> = HashMap::new();
    for one in all {
        let sum = sums.entry(one.function).or_insert(Spent {
            ticks: 0,
            waited: Waited::default(),
            ..*one
        });
        sum.ticks = sum.ticks.saturating_add(one.ticks);
        sum.waited += one.waited;
    }
    sorted(sums.into_values().collect())
}

fn sorted(mut spent: Vec<Spent>) -> Vec<Spent> {
    spent.sort_by_key(|one| (Reverse(one.ticks), one.function));
    spent
}

/// The time of a step, or of a thread beside the steps.
struct Window {
    request: usize,
    step: Option<usize>,
    stream: usize,
    begin: u64,
    end: u64,
    /// The first record within it.
    first: Option<u64>,
    spent: HashMap<u32, (u64, Waited)>,
}

impl Window {
    /// A step, or a thread that recorded something.
    fn is_kept(&self) -> bool {
        self.step.is_some() || self.first.is_some()
    }
}

/// Sums up self times within windows.
struct Inside<'a> {
    requests: &'a [Request],
    names: &'a Names,
    waits: Option<&'a Waits>,
    stream: usize,
    /// The clock up to which the thread's time has been assigned.
    last: u64,
    /// Those of this thread that have not ended at `last`, in order of their begins, the earliest last.
    windows: Vec<Window>,
    left: Vec<Window>,
}

impl Inside<'_> {
    /// The windows in a thread, in order of their begins.
    fn windows_of(&self, stream: usize) -> Vec<Window> {
        let mut windows = Vec::new();
        for (number, request) in self.requests.iter().enumerate() {
            let mut add = |step, begin, end| {
                windows.push(Window {
                    request: number,
                    step,
                    stream,
                    begin,
                    end,
                    first: None,
                    spent: HashMap::new(),
                });
            };
            let steps = request.steps.iter().enumerate();
            let mut has_step = false;
            for (at, step) in steps.filter(|(_, step)| step.stream == stream) {
                has_step = true;
                add(Some(at), step.begin, step.end);
            }
            if !has_step && !request.has_path {
                add(None, request.begin, request.end);
            }
        }
        windows.sort_by_key(|window| Reverse(window.begin));
        windows
    }

    /// The thread's records have ended.
    fn put_away(&mut self) {
        let windows = self.windows.drain(..);
        self.left.extend(windows.filter(Window::is_kept));
    }

    /// A record with this clock has come, before which the thread was in the last timed one of `frames`.
    #[inline(always)]
    fn reach(&mut self, clock: u64, frames: &[Frame], innermost: Option<&Frame>) {
        let begins = self
            .windows
            .last()
            .is_some_and(|window| window.begin <= clock);
        if begins {
            let timed = |frame: &&Frame| frame.style() != Style::Only;
            let open = innermost.filter(timed);
            let open = open.or_else(|| frames.iter().rev().find(timed));
            self.assign(clock, open);
        }
        self.last = self.last.max(clock);
    }

    fn assign(&mut self, clock: u64, open: Option<&Frame>) {
        let function = open.map(|frame| self.names.number(frame.site()));
        // No call is known to have been open before it began.
        let since = open.map_or(self.last, |frame| self.last.max(frame.clock));
        let (waits, stream) = (self.waits, self.stream);
        let mut at = self.windows.len();
        while at > 0 && self.windows[at - 1].begin <= clock {
            at -= 1;
            let window = &mut self.windows[at];
            if clock <= window.end {
                window.first.get_or_insert(clock);
            }
            let (from, until) = (since.max(window.begin), clock.min(window.end));
            if let Some(function) = function
                && from < until
            {
                let (ticks, waited) = window.spent.entry(function).or_default();
                *ticks = ticks.saturating_add(until - from);
                if let Some(waits) = waits {
                    *waited += waits.within(stream, from, until);
                }
            }
            if window.end < clock {
                let window = self.windows.remove(at);
                self.left.extend(Some(window).filter(Window::is_kept));
            }
        }
    }
}

impl Sink for Inside<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some((frame, under)) = frames.split_last() {
            self.reach(frame.clock, under, None);
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.reach(ending.clock, frames, Some(frame));
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        // The time of an entry alone is that of its caller, which goes on.
        if frame.style() != Style::Only {
            self.reach(clock, &[], Some(frame));
        }
    }

    fn stray(&mut self, frame: &Frame, ending: Ending) {
        self.reach(ending.clock, &[], Some(frame));
    }

    fn mark(&mut self, clock: u64, _event: u32, _payload: &[u64], frames: &[Frame]) {
        self.reach(clock, frames, None);
    }

    fn missing(&mut self, clock: u64, _ticks: u64) {
        self.last = self.last.max(clock);
    }
}

impl Worker for Inside<'_> {
    fn times(&self) -> Times {
        Times::Own
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.put_away();
        self.stream = stream;
        self.last = 0;
        self.windows = self.windows_of(stream);
    }
}
