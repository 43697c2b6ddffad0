//! Calls summed up while they are recorded.

use std::collections::HashMap;

use nopal_trace::{Batch, Note, SiteState, Subscriber, ThreadKey};

use crate::calls::{CallRebuilder, Ending, Frame, Plain, Sink, Style};
use crate::live_notes::LiveNotes;
use crate::names::Function;

/// Calls of a site so far, also those that have not ended and those that were counted. The times are of the recorded
/// ones; `total_ns` leaves out calls inside a call of the same site and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub calls: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// The times may be longer: the begin or end of some calls is not known.
    pub total_is_least: bool,
    pub self_is_least: bool,
    /// It was off for a time: there were more calls.
    pub calls_are_least: bool,
    /// How long it has been off; none if it is not.
    pub off_ns: Option<u64>,
    /// Its calls are only counted.
    pub counted: bool,
}

impl Sum {
    /// Its calls are not recorded now.
    pub fn is_untimed(&self) -> bool {
        self.off_ns.is_some() || self.counted
    }
}

/// The sums of a recording in progress.
#[derive(Default)]
pub struct Ongoing {
    threads: HashMap<ThreadKey, Thread>,
    /// Sums of ended calls, in ticks, by site number. Sites without a number share number 0.
    ended: Vec<Sum>,
    /// By site number.
    functions: Vec<Option<Function>>,
    notes: LiveNotes,
    /// Sites that were off for the sake of a budget, or counted.
    untimed: HashMap<u32, Untimed>,
    /// Calls that were counted, by the memory of the counters and the site.
    counted: HashMap<(u64, u32), u64>,
}

struct Untimed {
    state: SiteState,
    /// Since when.
    counter: u64,
    was_off: bool,
}

#[derive(Default)]
struct Thread {
    rebuilder: CallRebuilder,
    /// Timed calls on the present stack, by site number.
    active: Vec<u32>,
}

impl Ongoing {
    pub fn function(&self, site: u32) -> Option<&Function> {
        self.functions.get(site as usize)?.as_ref()
    }

    /// Sites that were called, or off or counted, with their sums at `now`, a value of the counter. `runs` tells
    /// whether a thread lives: calls that an ended thread left open take no more time.
    pub fn sums(&self, now: u64, runs: impl Fn(ThreadKey) -> bool) -> HashMap<u32, Sum> {
        let called = (0..).zip(&self.ended).filter(|(_, sum)| sum.calls > 0);
        let mut ticks: HashMap<u32, Sum> = called.map(|(site, sum)| (site, *sum)).collect();
        let clocks = self.notes.clocks();
        for (key, thread) in &self.threads {
            if thread.rebuilder.frames().is_empty() {
                continue;
            }
            match runs(*key) {
                true => add_running(&thread.rebuilder, now, &mut ticks),
                false => {
                    let left = timed(&thread.rebuilder);
                    left.for_each(|frame| ticks.entry(frame.site()).or_default().bound());
                }
            }
        }
        for (site, untimed) in &self.untimed {
            let sum = ticks.entry(*site).or_default();
            sum.calls_are_least = untimed.was_off;
            sum.bound();
            sum.off_ns = (untimed.state == SiteState::Off)
                .then(|| clocks.duration_ns(now.saturating_sub(untimed.counter)));
            sum.counted = untimed.state == SiteState::Counted;
        }
        for ((_, site), calls) in &self.counted {
            let sum = ticks.entry(*site).or_default();
            sum.calls = sum.calls.saturating_add(*calls);
        }
        for sum in ticks.values_mut() {
            sum.total_is_least |= sum.self_ns > sum.total_ns;
            sum.total_ns = sum.total_ns.max(sum.self_ns);
            sum.total_ns = clocks.duration_ns(sum.total_ns);
            sum.self_ns = clocks.duration_ns(sum.self_ns);
        }
        ticks
    }
}

impl Sum {
    fn bound(&mut self) {
        self.total_is_least = true;
        self.self_is_least = true;
    }
}

/// Calls in progress that have times, outermost first.
fn timed(rebuilder: &CallRebuilder) -> impl DoubleEndedIterator<Item = &Frame> {
    let frames = rebuilder.frames().iter();
    frames.filter(|frame| frame.style() != Style::Only)
}

/// Adds the time of calls in progress, in ticks.
fn add_running(rebuilder: &CallRebuilder, now: u64, sums: &mut HashMap<u32, Sum>) {
    let mut inner = 0;
    let mut since = HashMap::new();
    for frame in timed(rebuilder).rev() {
        let time = now.saturating_sub(frame.clock);
        let sum = sums.entry(frame.site()).or_default();
        sum.self_ns += time.saturating_sub(frame.child).saturating_sub(inner);
        since.insert(frame.site(), time);
        inner = time;
    }
    // The outermost call of each.
    for (site, time) in since {
        sums.entry(site).or_default().total_ns += time;
    }
}

impl Subscriber for Ongoing {
    fn note(&mut self, note: &Note) {
        self.notes.learn(note);
        match note {
            Note::State {
                counter,
                state,
                sites,
                ..
            } => {
                for site in sites {
                    let before = self.untimed.get(site).is_some_and(|before| before.was_off);
                    let now = Untimed {
                        state: *state,
                        counter: *counter,
                        was_off: before || *state == SiteState::Off,
                    };
                    self.untimed.insert(*site, now);
                }
            }
            Note::Counted { memory, calls, .. } => {
                for (site, calls) in calls {
                    let known = self.counted.entry((*memory, *site)).or_default();
                    *known = (*calls).max(*known);
                }
            }
            _ => {}
        }
        for (site, function) in self.notes.functions(note) {
            let at = site as usize;
            if self.functions.len() <= at {
                self.functions.resize(at + 1, None);
            }
            self.functions[at] = Some(function);
        }
    }

    fn records(&mut self, batch: Batch) {
        self.ended
            .resize(self.functions.len().max(1), Sum::default());
        let Thread { rebuilder, active } = self.threads.entry(batch.thread).or_default();
        active.resize(self.ended.len(), 0);
        let mut sink = CallSink {
            ended: &mut self.ended,
            active,
        };
        rebuilder.records(batch.words, batch.clock, batch.lossy, &mut sink);
    }

    /// The ends of its callers are not known.
    fn thread_ended(&mut self, thread: ThreadKey) {
        let Some(ended) = self.threads.remove(&thread) else {
            return;
        };
        for frame in timed(&ended.rebuilder) {
            let at = frame.site() as usize;
            let at = if at < self.ended.len() { at } else { 0 };
            self.ended[at].bound();
        }
    }
}

/// Receives the calls of one thread.
struct CallSink<'a> {
    ended: &'a mut [Sum],
    /// As long as `ended`.
    active: &'a mut [u32],
}

impl CallSink<'_> {
    #[inline(always)]
    fn place(&self, site: u32) -> usize {
        let site = site as usize;
        if site < self.ended.len() { site } else { 0 }
    }

    fn add_active<'a>(&mut self, frames: impl IntoIterator<Item = &'a Frame>, change: u32) {
        let timed = |frame: &&Frame| frame.style() != Style::Only;
        for frame in frames.into_iter().filter(timed) {
            let active = &mut self.active[self.place(frame.site())];
            *active = active.wrapping_add(change);
        }
    }

    /// The same of a call whose begin or end is not known.
    fn end_unknown(&mut self, site: u32, ticks: u64, own: u64) {
        let at = self.place(site);
        self.end(at, ticks, own);
        self.ended[at].self_is_least = true;
        self.ended[at].total_is_least |= self.active[at] == 0;
    }

    #[inline(always)]
    fn end(&mut self, site: usize, ticks: u64, own: u64) {
        let sum = &mut self.ended[site];
        sum.self_ns = sum.self_ns.saturating_add(own);
        if self.active[site] == 0 {
            sum.total_ns = sum.total_ns.saturating_add(ticks);
        }
    }
}

const LESS: u32 = u32::MAX;

impl Sink for CallSink<'_> {
    fn takes_runs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn plain(&mut self, call: Plain) -> u32 {
        let Plain {
            site,
            exit,
            ticks,
            own,
            ..
        } = call;
        let at = self.place(site);
        let active = &mut self.active[at];
        if exit == 0 {
            *active = active.wrapping_add(1);
            self.ended[at].calls += 1;
        } else {
            *active = active.wrapping_sub(1);
            self.end(at, ticks, own);
        }
        0
    }

    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some(frame) = frames.last() {
            self.ended[self.place(frame.site())].calls += 1;
            self.add_active([frame], 1);
        }
        0
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.add_active([frame], LESS);
        let ticks = ending.clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        let at = self.place(frame.site());
        self.end(at, ticks, own);
        self.ended[at].self_is_least |= frame.is_bounded();
    }

    fn lose(&mut self, frame: &Frame, clock: u64, counted: bool) {
        if counted {
            self.add_active([frame], LESS);
        }
        let ticks = clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        self.end_unknown(frame.site(), ticks, own);
    }

    /// The other sums hold only its own time.
    fn stray(&mut self, frame: &Frame, ending: Ending) {
        let ticks = ending.clock.saturating_sub(frame.clock);
        let own = ticks.saturating_sub(frame.child);
        self.end_unknown(frame.site(), own, own);
    }

    fn aside(&mut self, frames: &[Frame]) {
        self.add_active(frames, LESS);
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.add_active(frames, 1);
    }
}

#[cfg(test)]
mod tests {
    use nopal_abi as abi;

    use super::*;

    const THREAD: ThreadKey = ThreadKey {
        process: 1,
        thread: 2,
        begin: 1000,
    };

    fn word(clock: u64, kind: u32, site: u32, depth: u64) -> u64 {
        let slot = 0x7000_u64 - depth * 0x40;
        abi::Word::new(kind, site, slot, clock).0
    }

    fn resync(clock: u64, reason: u32) -> [u64; 6] {
        abi::Resync::new(clock, 0x7008, 0, (0, 0), reason).words()
    }

    fn ongoing_with_functions() -> Ongoing {
        let mut ongoing = Ongoing::default();
        for (counter, monotonic_ns) in [(0, 0), (500, 5000), (1000, 2000)] {
            ongoing.note(&Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns: 0,
            });
        }
        ongoing.note(&Note::Image {
            image: 7,
            path: "/usr/lib/libx.so".into(),
            identity: String::new(),
        });
        ongoing.note(&Note::Sites {
            image: 7,
            sites: (1..4)
                .map(|site| (site, 0x10, 5, format!("f{site}")))
                .collect(),
        });
        ongoing
    }

    fn sum(calls: u64, total_ns: u64, self_ns: u64) -> Sum {
        Sum {
            calls,
            total_ns,
            self_ns,
            ..Sum::default()
        }
    }

    fn least(sum: Sum) -> Sum {
        Sum {
            total_is_least: true,
            self_is_least: true,
            ..sum
        }
    }

    /// The counter runs at half a gigahertz.
    #[test]
    fn calls_in_progress_count_until_now() {
        let mut ongoing = ongoing_with_functions();
        let function = ongoing.function(3).unwrap();
        assert_eq!((&*function.name, &*function.module), ("f3", "libx.so"));
        assert_eq!(ongoing.function(0), None);
        let mut publish = |words: &[u64], clock| {
            ongoing.records(Batch {
                thread: THREAD,
                clock,
                words,
                lossy: false,
            });
        };
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ENTRY, 1, 0));
        words.push(word(1010, abi::KIND_ENTRY, 2, 1));
        words.push(word(1020, abi::KIND_EXIT, 2, 1));
        words.push(word(1030, abi::KIND_ENTRY, 1, 1));
        publish(&words, 1000);
        let mut words = resync(1030, abi::RESYNC_PART).to_vec();
        words.push(word(1050, abi::KIND_ENTRY, 2, 2));
        publish(&words, 1030);
        let sums = ongoing.sums(1100, |_| true);
        assert_eq!(sums[&1], sum(2, 200, 2 * (90 - 70 + 20)));
        assert_eq!(sums[&2], sum(2, 2 * (10 + 50), 2 * (10 + 50)));
        // A thread that has ended takes no time.
        let sums = ongoing.sums(1100, |_| false);
        assert_eq!(sums[&1], least(sum(2, 0, 0)));
        assert_eq!(sums[&2], least(sum(2, 20, 20)));
        ongoing.thread_ended(THREAD);
        assert_eq!(ongoing.sums(1200, |_| true), sums);
    }

    /// A call whose end was lost counts with its time until the last event before.
    #[test]
    fn a_loss_bounds_times() {
        let mut ongoing = ongoing_with_functions();
        let mut publish = |words: &[u64], clock, lossy| {
            ongoing.records(Batch {
                thread: THREAD,
                clock,
                words,
                lossy,
            });
        };
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ENTRY, 1, 0));
        words.push(word(1010, abi::KIND_ENTRY, 2, 1));
        words.push(word(1020, abi::KIND_EXIT, 2, 1));
        publish(&words, 1000, false);
        let words = resync(1500, abi::RESYNC_CHUNK);
        publish(&words, 1500, true);
        let sums = ongoing.sums(1600, |_| true);
        assert_eq!(sums[&1], least(sum(1, 40, 20)));
        assert_eq!(sums[&2], sum(1, 20, 20));
    }

    /// Functions 1 and 2, and a call of the first.
    fn ongoing_with_a_call() -> Ongoing {
        let mut ongoing = ongoing_with_functions();
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ENTRY, 1, 0));
        words.push(word(1010, abi::KIND_EXIT, 1, 0));
        ongoing.records(Batch {
            thread: THREAD,
            clock: 1000,
            words: &words,
            lossy: false,
        });
        ongoing
    }

    #[test]
    fn what_was_off_for_a_budget_has_bounds() {
        let mut ongoing = ongoing_with_a_call();
        let mut turn = |counter, state| {
            ongoing.note(&Note::State {
                counter,
                state,
                sites: vec![1, 2],
                kept: false,
                sampled: false,
            });
            ongoing.sums(1300, |_| true)
        };
        let sums = turn(1200, SiteState::Off);
        assert!(sums[&1].off_ns.is_some_and(|ns| ns > 0) && sums[&1].calls_are_least);
        assert_eq!((sums[&2].calls, sums[&2].off_ns), (0, sums[&1].off_ns));
        let sums = turn(1250, SiteState::Timed);
        assert_eq!((sums[&1].calls, sums[&1].off_ns), (1, None));
        assert!(sums[&1].calls_are_least && sums[&1].self_is_least);
        assert!(!sums[&1].is_untimed());
        let sums = turn(1270, SiteState::Counted);
        assert!(sums[&1].counted && sums[&1].calls_are_least && sums[&1].off_ns.is_none());
    }

    #[test]
    fn counted_calls_are_calls() {
        let mut ongoing = ongoing_with_a_call();
        ongoing.note(&Note::State {
            counter: 1200,
            state: SiteState::Counted,
            sites: vec![1, 2],
            kept: false,
            sampled: true,
        });
        for (memory, calls) in [
            (7, [(1, 100), (2, 5)]),
            (7, [(1, 250), (2, 5)]),
            (8, [(1, 1000), (2, 0)]),
        ] {
            ongoing.note(&Note::Counted {
                counter: 1250,
                memory,
                calls: calls.into(),
            });
        }
        let sums = ongoing.sums(1300, |_| true);
        assert_eq!((sums[&1].calls, sums[&2].calls), (1251, 5));
        assert!(sums[&1].counted && sums[&1].self_is_least && !sums[&1].calls_are_least);
    }

    /// Each thread has its own outermost calls.
    #[test]
    fn threads_do_not_mix() {
        let mut ongoing = ongoing_with_functions();
        for kind in [abi::KIND_ENTRY, abi::KIND_EXIT] {
            for thread in [2, 3] {
                let (clock, reason) = match kind {
                    abi::KIND_ENTRY => (1000, abi::RESYNC_CHUNK),
                    _ => (1100, abi::RESYNC_PART),
                };
                let mut words = resync(clock, reason).to_vec();
                words.push(word(clock, kind, 1, 0));
                ongoing.records(Batch {
                    thread: ThreadKey { thread, ..THREAD },
                    clock,
                    words: &words,
                    lossy: false,
                });
            }
        }
        assert_eq!(ongoing.sums(2000, |_| true)[&1], sum(2, 400, 400));
    }

    #[test]
    fn more_sites_may_come_at_any_time() {
        let mut ongoing = ongoing_with_functions();
        ongoing.note(&Note::Sites {
            image: 8,
            sites: vec![(900, 0x10, 5, "late".into())],
        });
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ONLY, 900, 0));
        words.push(word(1001, abi::KIND_ONLY, 901, 0));
        ongoing.records(Batch {
            thread: THREAD,
            clock: 1000,
            words: &words,
            lossy: true,
        });
        let sums = ongoing.sums(1100, |_| true);
        assert_eq!(sums[&900], sum(1, 0, 0));
        assert_eq!(sums.len(), 2, "what is not known is one row");
        assert_eq!(ongoing.function(900).unwrap().module, "?");
    }
}
