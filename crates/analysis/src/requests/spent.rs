//! The calls in which requests spent their time.
//!
//! The time between two records of a thread belongs to the innermost timed call that is open then.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use nopal_trace::{ThreadInfo, Trace};

use super::{Request, Spent, Step, find};
use crate::calls::{Ending, Frame, Plain, Sink, Style};
use crate::drive::{Drive, Times, Worker};
use crate::names::Names;
use crate::own_times::OwnTimes;
use crate::sort;
use crate::waits::{Waited, Waits};

/// Adds to the steps of requests the functions in which they spent their time, and to requests without a path the other
/// threads.
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
        pending: 0,
        edge: u64::MAX,
        own: OwnTimes::new(names.sites()),
        left: Vec::new(),
    };
    let mut workers: Vec<Inside> = (0..drive.workers.max(1)).map(new).collect();
    // No filter: each selected request spent its time in all threads that worked on it.
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
    sort::by_key(&mut windows, |window| {
        (window.request, window.first, window.stream)
    });
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
    sort::by_key(&mut spent, |one| (Reverse(one.ticks), one.function));
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
    /// The windows of this thread that have not ended at `last`, in order of their begins, the earliest last.
    windows: Vec<Window>,
    /// So many windows had not begun when one last began or ended; `own` is of the others.
    pending: usize,
    /// Before this clock, no window begins or ends, and the thread does not wait.
    edge: u64,
    /// The times since then.
    own: OwnTimes,
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
        sort::by_key(&mut windows, |window| Reverse(window.begin));
        windows
    }

    /// The thread's records have ended.
    fn put_away(&mut self) {
        self.flush();
        let windows = self.windows.drain(..);
        self.left.extend(windows.filter(Window::is_kept));
    }

    /// A record with this clock has come, before which the thread was in the last timed one of `frames`.
    #[inline(always)]
    fn reach(&mut self, clock: u64, frames: &[Frame], innermost: Option<&Frame>) {
        let timed = |frame: &&Frame| frame.style() != Style::Only;
        let open = innermost.filter(timed);
        let open = open.or_else(|| frames.iter().rev().find(timed));
        self.reach_in(clock, open);
    }

    #[inline(always)]
    fn reach_in(&mut self, clock: u64, open: Option<&Frame>) {
        if clock >= self.edge {
            self.assign(clock, open);
        } else if let Some(frame) = open
            && self.pending < self.windows.len()
        {
            let ticks = clock.saturating_sub(self.since(frame));
            self.own.add(frame.site(), ticks);
        }
        self.last = self.last.max(clock);
    }

    /// No call is known to have been open before it began.
    fn since(&self, frame: &Frame) -> u64 {
        self.last.max(frame.clock)
    }

    fn flush(&mut self) {
        for (site, own) in self.own.take() {
            for window in &mut self.windows[self.pending..] {
                let (ticks, _) = window.spent.entry(self.names.number(site)).or_default();
                *ticks = ticks.saturating_add(own);
            }
        }
    }

    /// Finds how long nothing changes behind a record with this clock.
    fn look_ahead(&mut self, clock: u64) {
        let pending = |window: &Window| window.begin > clock;
        self.pending = self.windows.partition_point(pending);
        let (pending, open) = self.windows.split_at(self.pending);
        let begin = pending.last().map(|window| window.begin);
        let ends = open.iter().map(|window| window.end.saturating_add(1));
        let waits = self.waits.filter(|_| !open.is_empty());
        let wait = waits.map(|waits| waits.next_begin(self.stream, clock));
        let edges = begin.into_iter().chain(ends).chain(wait);
        self.edge = edges.min().unwrap_or(u64::MAX);
    }

    #[cold]
    fn assign(&mut self, clock: u64, open: Option<&Frame>) {
        self.flush();
        let function = open.map(|frame| self.names.number(frame.site()));
        let since = open.map_or(self.last, |frame| self.since(frame));
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
        self.look_ahead(clock);
    }
}

impl Sink for Inside<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let timed = call.top.style() != Style::Only;
        self.reach_in(call.clock, Some(call.top).filter(|_| timed));
        0
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some((frame, under)) = frames.split_last() {
            self.reach(frame.clock, under, None);
            // What a call did before the thread's first record is not known.
            self.last = self.last.max(frame.clock.saturating_add(frame.child));
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.reach(ending.clock, frames, Some(frame));
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        // The time of an entry-only call is that of its caller, which goes on.
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
        self.pending = self.windows.len();
        self.edge = self.windows.last().map_or(u64::MAX, |first| first.begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::selection;
    use nopal_trace::Output;
    use nopal_trace::synthetic::{self, Random, Shape};
    use std::collections::BTreeMap;

    /// A time before a record, and the function of the innermost call then.
    struct Gap {
        stream: usize,
        from: u64,
        until: u64,
        function: Option<u32>,
    }

    /// Takes each record by itself.
    struct Gaps<'a> {
        names: &'a Names,
        stream: usize,
        last: u64,
        all: Vec<Gap>,
    }

    impl Gaps<'_> {
        fn add(&mut self, clock: u64, innermost: Option<&Frame>) {
            let begin = innermost.map_or(0, |frame| frame.clock);
            self.all.push(Gap {
                stream: self.stream,
                from: self.last.max(begin),
                until: clock,
                function: innermost.map(|frame| self.names.number(frame.site())),
            });
            self.last = self.last.max(clock);
        }
    }

    impl Sink for Gaps<'_> {
        fn enter(&mut self, frames: &[Frame], _: Option<[u64; 6]>) -> u32 {
            let (frame, under) = frames.split_last().unwrap();
            self.add(frame.clock, under.last());
            0
        }

        fn leave(&mut self, frame: &Frame, ending: Ending, _: &[Frame]) {
            self.add(ending.clock, Some(frame));
        }

        fn lose(&mut self, frame: &Frame, clock: u64, _: bool) {
            self.add(clock, Some(frame));
        }

        fn stray(&mut self, _: &Frame, _: Ending) {
            panic!("each call has an entry");
        }
    }

    impl Worker for Gaps<'_> {
        fn begin(&mut self, stream: usize, _: &ThreadInfo) {
            (self.stream, self.last) = (stream, 0);
        }
    }

    fn some_request(random: &mut Random, (first, last): (u64, u64)) -> Request {
        let mut clocks = [0; 3].map(|_| first + random.below(last - first + 1));
        clocks.sort_unstable();
        let [begin, between, end] = clocks;
        let streams = [0; 2].map(|_| random.below(2) as usize);
        Request {
            value: None,
            begin,
            end,
            begin_stream: streams[0],
            end_stream: streams[1],
            is_open: false,
            has_path: random.below(2) == 0,
            steps: vec![
                find::step(streams[0], begin, between),
                find::step(streams[1], between, end),
            ],
            others: Vec::new(),
        }
    }

    #[test]
    fn each_step_has_the_time_between_records_that_is_within_it() {
        for seed in 0..60 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace");
            let shape = Shape {
                seed,
                calls_per_thread: 2000,
                functions: 5,
                depth: 1 + seed as usize % 9,
                sleeps: seed % 3 * 100,
                ..Shape::default()
            };
            synthetic::write(&path, &shape).unwrap();
            let trace = Trace::open(&path).unwrap();
            let names = Names::new(&trace);
            let waits = Waits::new(&trace);
            assert_eq!(waits.is_some(), shape.sleeps > 0, "seed {seed}");
            let drive = Drive {
                workers: 1,
                ..Drive::default()
            };
            let mut gaps = [Gaps {
                names: &names,
                stream: 0,
                last: 0,
                all: Vec::new(),
            }];
            drive.run(&trace, &mut gaps).unwrap();
            let [gaps] = gaps;
            let clocks = gaps.all.iter().map(|gap| gap.until);
            let time = (clocks.clone().min().unwrap(), clocks.max().unwrap());
            let mut random = Random::new(seed);
            let number = 1 + random.below(6);
            let mut requests: Vec<Request> = (0..number)
                .map(|_| some_request(&mut random, time))
                .collect();
            // A part of the trace begins amid calls.
            let from = time.0 + random.below(2) * random.below(time.1 - time.0);
            let mut filter = Filter::default();
            filter.from = Some(from);
            let of_part = Drive {
                filter: Some(&filter),
                ..drive
            };
            let part = Output::Directory(directory.path().join("part"));
            selection::write(&trace, &of_part, part, &mut || Ok(())).unwrap();
            let part = Trace::open(&directory.path().join("part")).unwrap();
            let (names, waits) = (Names::new(&part), Waits::new(&part));
            describe(&part, &names, &mut requests, waits.as_ref(), &drive).unwrap();
            let mut seen = 0;
            for request in &requests {
                for step in request.steps.iter().chain(&request.others) {
                    let mut expected: BTreeMap<u32, (u64, Waited)> = BTreeMap::new();
                    for gap in gaps.all.iter().filter(|gap| gap.stream == step.stream) {
                        let from = gap.from.max(step.begin).max(from);
                        let until = gap.until.min(step.end);
                        let Some(function) = gap.function.filter(|_| from < until) else {
                            continue;
                        };
                        let sum = expected.entry(function).or_default();
                        sum.0 += until - from;
                        if let Some(waits) = &waits {
                            sum.1 += waits.within(step.stream, from, until);
                        }
                    }
                    let found = step.spent.iter();
                    let found =
                        found.filter_map(|one| Some((one.function?, (one.ticks, one.waited))));
                    let found: BTreeMap<_, _> = found.collect();
                    assert_eq!(found, expected, "seed {seed}: {step:?}");
                    seen += found.len();
                }
            }
            assert!(seen > 0 || number < 3 || from > time.0, "seed {seed}");
        }
    }
}
