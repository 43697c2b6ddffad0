//! The calls in which long calls spent their time.
//!
//! The longest calls are often in each other: `main`, its loop, the functions that the loop calls. So the calls of a
//! thread that are in one call form a family with it, whose records are read once. Between two checkpoints where none
//! of them begins or ends, the records are not read at all: all calls that ended there are in the innermost of the
//! family.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread;

use nopal_beside::Mutex;
use nopal_trace::{ThreadInfo, Trace};

use super::SlowCall;
use super::checkpoints::{Checkpoint, Checkpoints, quiet};
use crate::calls::{CallRebuilder, Ending, Frame, Plain, Sink};
use crate::names::Names;
use crate::own_times::OwnTimes;
use crate::sort;
use crate::waits::Waits;

/// Self times by function.
type Spent = HashMap<u32, u64>;

/// Adds to each call its self times by function, and its time off the processor.
pub fn describe(
    trace: &Trace,
    names: &Names,
    calls: &mut [SlowCall],
    checkpoints: &Checkpoints,
    workers: usize,
) {
    let threads = trace.threads();
    let families = families(calls);
    let described: &[SlowCall] = calls;
    let left = Mutex::new(families.iter());
    let spent = thread::scope(|scope| {
        let work = || {
            let mut spent = Vec::new();
            loop {
                let next = left.lock().next();
                let Some(family) = next else { break spent };
                let family_calls = || family.iter().map(|at| &described[*at]);
                let stream = described[family[0]].stream;
                let own = checkpoints.get(&stream).map_or(&[][..], Vec::as_slice);
                let of_each = spent_in(&threads[stream], names, family_calls(), own);
                spent.extend(family.iter().copied().zip(of_each));
            }
        };
        let running: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        let results = running.into_iter().map(|worker| match worker.join() {
            Ok(spent) => spent,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.flatten().collect::<Vec<_>>()
    });
    for (at, spent) in spent {
        let mut spent: Vec<(u32, u64)> = spent.into_iter().collect();
        sort::by_key(&mut spent, |(function, own)| (Reverse(*own), *function));
        calls[at].spent = spent;
    }
    let Some(waits) = Waits::new(trace) else {
        return;
    };
    for call in calls {
        call.waited = Some(waits.within(call.stream, call.begin, call.end));
    }
}

/// Calls of one thread, the outermost first, all others in it and in each of those before that they overlap.
type Family = Vec<usize>;

fn families(calls: &[SlowCall]) -> Vec<Family> {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    sort::by_key(&mut order, |at| {
        (calls[*at].stream, calls[*at].begin, Reverse(calls[*at].end))
    });
    let mut families: Vec<Family> = Vec::new();
    let mut current = 0;
    let mut open: Vec<usize> = Vec::new();
    for at in order {
        let call = &calls[at];
        let is_over = |other: &SlowCall| {
            other.stream != call.stream || (other.end <= call.begin && other.end < call.end)
        };
        while open.pop_if(|last| is_over(&calls[*last])).is_some() {}
        match open.last() {
            Some(last) if call.end > calls[*last].end => families.push(vec![at]),
            Some(_) => {
                families[current].push(at);
                open.push(at);
            }
            None => {
                current = families.len();
                families.push(vec![at]);
                open.push(at);
            }
        }
    }
    families
}

/// The self times in each call of a family.
fn spent_in<'a>(
    thread: &ThreadInfo,
    names: &Names,
    family: impl Iterator<Item = &'a SlowCall>,
    checkpoints: &[Checkpoint],
) -> Vec<Spent> {
    let windows: Vec<Window> = family
        .map(|call| Window {
            begin: call.begin,
            end: call.end,
        })
        .collect();
    let mut inside = Inside::new(names, &windows);
    let Some(outermost) = windows.first() else {
        return Vec::new();
    };
    let clock_at = |checkpoint: &Checkpoint| checkpoint.rebuilder.clock();
    let mut clocks: Vec<u64> = windows
        .iter()
        .flat_map(|one| [one.begin, one.end])
        .collect();
    clocks.sort_unstable();
    let mut rebuilder = CallRebuilder::new();
    let mut next = checkpoints.partition_point(|one| clock_at(one) < outermost.begin);
    let before = next.checked_sub(1).map(|at| &checkpoints[at]);
    let mut packet = before.map_or(0, |before| before.packets);
    loop {
        let until = checkpoints.get(next).map_or(usize::MAX, |one| one.packets);
        let packets = thread.packets_in(packet..until);
        for packet in packets.filter(|packet| {
            packet.clock_end() >= outermost.begin && packet.clock_begin() <= outermost.end
        }) {
            rebuilder.packet(&packet, &mut inside);
            packet.release();
        }
        let at = checkpoints.get(next);
        let Some(mut at) = at.filter(|at| clock_at(at) <= outermost.end) else {
            break;
        };
        if let Some(range) = quiet(checkpoints, next, &clocks) {
            let end = &checkpoints[range.end];
            inside.pass(clock_at(end), end.since(at));
            rebuilder = end.rebuilder.clone();
            next = range.end;
            at = end;
        }
        packet = at.packets;
        next += 1;
    }
    rebuilder.end(thread.alive_until, &mut inside);
    inside.finish()
}

#[derive(Clone, Copy)]
struct Window {
    begin: u64,
    end: u64,
}

/// Sums up the self times of calls in windows, which are those of a family. A call counts in a window in which it both
/// began and ended. Calls come in the order of their ends.
struct Inside<'a> {
    names: &'a Names,
    windows: &'a [Window],
    /// How many windows have begun.
    begun: usize,
    /// The windows that have not ended, the innermost last.
    open: Vec<usize>,
    /// Calls that began `from` this clock on and end `before` that one are in the innermost window.
    from: u64,
    before: u64,
    /// Self times in the innermost window that `spent` does not have yet.
    own: OwnTimes,
    /// By window; self times in the windows within it are added when these end.
    spent: Vec<Spent>,
    /// The last end of a window that has ended.
    ended: u64,
    /// Calls whose ends come out of order: those that were lost on other stacks.
    late: Vec<(u32, Window, u64)>,
}

impl<'a> Inside<'a> {
    fn new(names: &'a Names, windows: &'a [Window]) -> Inside<'a> {
        Inside {
            names,
            windows,
            begun: 0,
            open: Vec::new(),
            from: u64::MAX,
            before: 0,
            own: OwnTimes::new(names.sites()),
            spent: vec![Spent::new(); windows.len()],
            ended: 0,
            late: Vec::new(),
        }
    }

    /// A call whose window may not be the innermost.
    #[cold]
    fn add(&mut self, site: u32, call: Window, own: u64) {
        self.advance(call.end);
        let begins = |window: &&usize| self.windows[**window].begin <= call.begin;
        match self.open.iter().rev().find(begins).copied() {
            Some(window) if self.open.last() == Some(&window) => self.own.add(site, own),
            Some(window) if own > 0 => {
                let sum = self.spent[window].entry(self.names.number(site));
                let sum = sum.or_default();
                *sum = sum.saturating_add(own);
            }
            _ => {}
        }
    }

    /// Calls that have ended before `clock`, and since when no window has begun or ended.
    fn pass(&mut self, clock: u64, calls: impl Iterator<Item = (u32, u64)>) {
        self.advance(clock);
        if !self.open.is_empty() {
            for (site, own) in calls {
                self.own.add(site, own);
            }
        }
    }

    fn add_in_any_order(&mut self, site: u32, call: Window, own: u64) {
        match call.end <= self.ended {
            true => self.late.push((site, call, own)),
            false => self.add(site, call, own),
        }
    }

    /// Begins and ends the windows up to a call that ends at `clock`.
    fn advance(&mut self, clock: u64) {
        loop {
            let innermost = self.open.last().map(|at| self.windows[*at]);
            let next = self.windows.get(self.begun).copied();
            let has_ended = innermost.is_some_and(|window| window.end < clock);
            let begins = next.filter(|next| {
                next.begin <= clock && innermost.is_none_or(|window| next.end <= window.end)
            });
            if begins.is_some() {
                self.flush();
                self.open.push(self.begun);
                self.begun += 1;
            } else if has_ended {
                self.end_innermost();
            } else {
                self.from = innermost.map_or(u64::MAX, |window| window.begin);
                let end = innermost.map_or(0, |window| window.end.saturating_add(1));
                self.before = end.min(next.map_or(u64::MAX, |next| next.begin));
                break;
            }
        }
    }

    fn end_innermost(&mut self) {
        self.flush();
        let Some(window) = self.open.pop() else {
            return;
        };
        self.ended = self.ended.max(self.windows[window].end);
        if let Some(around) = self.open.last() {
            let spent = std::mem::take(&mut self.spent[window]);
            add_all(&mut self.spent[*around], &spent);
            self.spent[window] = spent;
        }
    }

    fn flush(&mut self) {
        let Some(window) = self.open.last() else {
            return;
        };
        let spent = &mut self.spent[*window];
        for (site, own) in self.own.take() {
            let sum = spent.entry(self.names.number(site)).or_default();
            *sum = sum.saturating_add(own);
        }
    }

    /// The self times in each window.
    fn finish(mut self) -> Vec<Spent> {
        while !self.open.is_empty() {
            self.end_innermost();
        }
        let mut late = std::mem::take(&mut self.late);
        if !late.is_empty() {
            sort::by_key(&mut late, |(_, call, _)| call.end);
            let mut again = Inside::new(self.names, self.windows);
            for (site, call, own) in late {
                again.add(site, call, own);
            }
            for (spent, late) in self.spent.iter_mut().zip(again.finish()) {
                add_all(spent, &late);
            }
        }
        self.spent
    }
}

fn add_all(to: &mut Spent, from: &Spent) {
    for (function, own) in from {
        let sum = to.entry(*function).or_default();
        *sum = sum.saturating_add(*own);
    }
}

impl Sink for Inside<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let begin = call.clock.saturating_sub(call.ticks);
        let elsewhere = u64::from(call.clock >= self.before) | u64::from(begin < self.from);
        if call.exit & elsewhere != 0 {
            let window = Window {
                begin,
                end: call.clock,
            };
            self.add(call.site, window, call.own);
        } else {
            self.own
                .add(call.site, call.own & 0u64.wrapping_sub(call.exit));
        }
        0
    }

    fn enter(&mut self, _frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.lose(frame, ending.clock, true);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        let call = Window {
            begin: frame.clock,
            end: clock,
        };
        let own = clock
            .saturating_sub(frame.clock)
            .saturating_sub(frame.child);
        self.add_in_any_order(frame.site(), call, own);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::{self, Random, Shape};

    const SITES: u32 = 4;

    fn long_call(begin: u64, end: u64) -> SlowCall {
        SlowCall {
            stream: 0,
            function: 0,
            begin,
            end,
            is_least: false,
            arguments: None,
            result: None,
            path: None,
            spent: Vec::new(),
            waited: None,
        }
    }

    fn some_window(random: &mut Random, from: u64) -> Window {
        let begin = random.below(from.max(1));
        Window { begin, end: from }
    }

    /// Calls that overlap in any way, and come in order except for some, count in each window that they are in.
    #[test]
    fn calls_count_in_each_window_that_they_are_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let shape = Shape {
            functions: SITES,
            calls_per_thread: 10,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        let trace = Trace::open(&path).unwrap();
        let names = Names::new(&trace);
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let longest = 1 + random.below(40);
            let windows: Vec<SlowCall> = (0..1 + random.below(8))
                .map(|_| {
                    let end = random.below(longest);
                    long_call(random.below(end + 1), end)
                })
                .collect();
            let mut events: Vec<(u32, Window, u64)> = (0..random.below(60))
                .map(|_| {
                    let end = random.below(longest);
                    let site = 1 + random.below(u64::from(SITES)) as u32;
                    (site, some_window(&mut random, end), random.below(9))
                })
                .collect();
            events.sort_by_key(|(_, call, _)| call.end);
            if events.len() > 3 && seed % 2 == 0 {
                let early = events.remove(random.below(events.len() as u64) as usize);
                events.push(early);
            }
            let mut seen = 0;
            for family in families(&windows) {
                let own: Vec<Window> = family
                    .iter()
                    .map(|at| Window {
                        begin: windows[*at].begin,
                        end: windows[*at].end,
                    })
                    .collect();
                let mut inside = Inside::new(&names, &own);
                for (site, call, own) in &events {
                    inside.add_in_any_order(*site, *call, *own);
                }
                for (window, spent) in own.iter().zip(inside.finish()) {
                    let mut expected = Spent::new();
                    let within = events.iter().filter(|(_, call, own)| {
                        *own > 0 && call.begin >= window.begin && call.end <= window.end
                    });
                    for (site, _, own) in within {
                        *expected.entry(names.number(*site)).or_default() += own;
                    }
                    assert_eq!(spent, expected, "seed {seed}");
                    seen += 1;
                }
            }
            assert_eq!(seen, windows.len(), "seed {seed}");
        }
    }
}
