//! Spreads the threads of a trace over workers.
//!
//! A worker takes a whole thread while there are more. When another worker has nothing to do, the thread is shared, a
//! segment of packets at a time: whoever has it keeps a copy of the machine, runs the machine over the segment without
//! an audience, hands it on, and then runs the copy over the segment for its own sink. So each segment starts from the
//! very state that all records before it have led to, and the results are those of one worker. What is done twice is
//! the cheap part, and finds the segment in the cache the second time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::{mem, thread, vec};

use anyhow::Result;
use nopal_trace::{Packet, ThreadInfo, Trace};

use crate::calls::{Machine, Sink};

const SEGMENT_PACKETS: usize = 16;

/// Told how much of how much is done, in words.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to go over a trace.
#[derive(Clone, Copy)]
pub struct Drive<'a> {
    pub workers: usize,
    pub progress: Option<Progress<'a>>,
}

impl Default for Drive<'_> {
    fn default() -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        Drive {
            workers,
            progress: None,
        }
    }
}

/// A part of a thread.
pub struct Segment<'a> {
    /// Which of the trace's threads.
    pub stream: usize,
    pub thread: ThreadInfo<'a>,
    /// Counted from 0.
    pub number: u64,
    pub last: bool,
    packets: Vec<Packet<'a>>,
}

/// Takes the calls of segments, each worker those of many segments of any thread.
pub trait Worker: Sink + Send {
    /// Whether a thread may be shared. If not, a worker gets all segments of a thread, and its notes on frames stay.
    const SHARES: bool = false;

    /// Before the segment's records; `machine` is as all records before have left it.
    fn begin(&mut self, _segment: &Segment, _machine: &Machine) {}
    /// After them.
    fn end(&mut self, _segment: &Segment, _machine: &Machine) -> Result<()> {
        Ok(())
    }
}

struct Open<'a> {
    stream: usize,
    thread: ThreadInfo<'a>,
    packets: vec::IntoIter<Packet<'a>>,
    number: u64,
    machine: Machine,
}

impl<'a> Open<'a> {
    fn new(stream: usize, thread: ThreadInfo<'a>) -> Open<'a> {
        let packets = thread.packets().collect::<Vec<_>>().into_iter();
        Open {
            stream,
            thread,
            packets,
            number: 0,
            machine: Machine::default(),
        }
    }

    /// The next segment and the state before it; goes on to the state after it.
    fn split(&mut self) -> (Segment<'a>, Machine) {
        let segment = self.segment();
        let before = self.machine.clone();
        if !segment.last {
            for packet in &segment.packets {
                self.machine.packet(packet, &mut ());
            }
        }
        (segment, before)
    }

    fn segment(&mut self) -> Segment<'a> {
        let packets = self.packets.by_ref().take(SEGMENT_PACKETS).collect();
        let number = self.number;
        self.number += 1;
        let last = self.packets.len() == 0;
        Segment {
            stream: self.stream,
            thread: self.thread,
            number,
            last,
            packets,
        }
    }
}

struct State<'a> {
    unopened: vec::IntoIter<(usize, ThreadInfo<'a>)>,
    shared: Vec<Open<'a>>,
    /// Workers that hold a thread which they may yet share.
    holders: usize,
    failed: bool,
}

struct Crew<'a, 'b> {
    state: Mutex<State<'a>>,
    changed: Condvar,
    hungry: AtomicUsize,
    done: AtomicU64,
    all: u64,
    drive: &'b Drive<'b>,
}

impl Drive<'_> {
    /// Runs a worker of each kind in `workers` over all threads.
    pub fn run<W: Worker>(&self, trace: &Trace, workers: &mut [W]) -> Result<()> {
        let threads = trace.threads();
        let words = |thread: &ThreadInfo| {
            thread
                .packets()
                .map(|packet| packet.words().len() as u64)
                .sum::<u64>()
        };
        let crew = Crew {
            all: threads.iter().map(words).sum(),
            state: Mutex::new(State {
                unopened: threads
                    .into_iter()
                    .enumerate()
                    .collect::<Vec<_>>()
                    .into_iter(),
                shared: Vec::new(),
                holders: 0,
                failed: false,
            }),
            changed: Condvar::new(),
            hungry: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            drive: self,
        };
        match workers {
            [worker] => crew.work(worker),
            workers => thread::scope(|scope| {
                let crew = &crew;
                let running: Vec<_> = workers
                    .iter_mut()
                    .map(|worker| scope.spawn(|| crew.work(worker)))
                    .collect();
                let results = running.into_iter().map(|worker| match worker.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                results.fold(Ok(()), Result::and)
            }),
        }
    }
}

impl<'a> Crew<'a, '_> {
    fn work<W: Worker>(&self, worker: &mut W) -> Result<()> {
        let guard = Failing(self);
        while let Some((open, shared)) = self.claim() {
            match shared {
                false => self.own(open, worker)?,
                true => self.share(open, worker)?,
            }
        }
        mem::forget(guard);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread, and whether it is a shared one. Waits for one while another worker may yet share.
    fn claim(&self) -> Option<(Open<'a>, bool)> {
        let mut state = self.lock();
        loop {
            if state.failed {
                return None;
            }
            if let Some(open) = state.shared.pop() {
                state.holders += 1;
                return Some((open, true));
            }
            if let Some((stream, thread)) = state.unopened.next() {
                state.holders += 1;
                drop(state);
                return Some((Open::new(stream, thread), false));
            }
            if state.holders == 0 {
                return None;
            }
            self.hungry.fetch_add(1, Ordering::Relaxed);
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            self.hungry.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Lets go of a thread; what is left of it is for others.
    fn release(&self, left: Option<Open<'a>>) {
        let mut state = self.lock();
        state.holders -= 1;
        state.shared.extend(left);
        self.changed.notify_all();
    }

    fn own<W: Worker>(&self, mut open: Open<'a>, worker: &mut W) -> Result<()> {
        loop {
            if W::SHARES
                && self.hungry.load(Ordering::Relaxed) > 0
                && open.packets.len() > SEGMENT_PACKETS
            {
                self.release(Some(open));
                return Ok(());
            }
            let segment = open.segment();
            self.process(&segment, &mut open.machine, worker)?;
            if segment.last {
                self.release(None);
                return Ok(());
            }
        }
    }

    fn share<W: Worker>(&self, mut open: Open<'a>, worker: &mut W) -> Result<()> {
        let (segment, mut machine) = open.split();
        self.release((!segment.last).then_some(open));
        self.process(&segment, &mut machine, worker)
    }

    fn process<W: Worker>(
        &self,
        segment: &Segment,
        machine: &mut Machine,
        worker: &mut W,
    ) -> Result<()> {
        worker.begin(segment, machine);
        for packet in &segment.packets {
            machine.packet(packet, worker);
        }
        if segment.last {
            machine.end(worker);
        }
        worker.end(segment, machine)?;
        let words: usize = segment
            .packets
            .iter()
            .map(|packet| packet.words().len())
            .sum();
        segment.packets.iter().for_each(Packet::release);
        let done = self.done.fetch_add(words as u64, Ordering::Relaxed) + words as u64;
        if let Some(progress) = self.drive.progress {
            progress(done, self.all);
        }
        Ok(())
    }
}

/// Stops the other workers when one fails.
struct Failing<'a, 'b, 'c>(&'c Crew<'a, 'b>);

impl Drop for Failing<'_, '_, '_> {
    fn drop(&mut self) {
        self.0.lock().failed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::report::{Stats, Totals};
    use nopal_trace::synthetic::{self, Shape};

    #[test]
    fn segments_by_several_workers_sum_up_to_the_same() {
        for seed in 1..4 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace");
            let shape = Shape {
                seed,
                threads: 2,
                calls_per_thread: 300_000,
                ..Shape::default()
            };
            synthetic::write(&path, &shape).unwrap();
            let trace = Trace::open(&path).unwrap();
            let names = Names::new(&trace);
            let mut alone = [Stats::new(names.sites())];
            let one = Drive {
                workers: 1,
                progress: None,
            };
            one.run(&trace, &mut alone).unwrap();

            let mut several = [0; 3].map(|_| Stats::new(names.sites()));
            let mut segments = 0;
            for (stream, thread) in trace.threads().into_iter().enumerate() {
                let mut open = Open::new(stream, thread);
                while open.packets.len() > 0 {
                    let (segment, mut machine) = open.split();
                    let worker = &mut several[segments % 3];
                    worker.begin(&segment, &machine);
                    for packet in &segment.packets {
                        machine.packet(packet, worker);
                    }
                    if segment.last {
                        machine.end(worker);
                    }
                    worker.end(&segment, &machine).unwrap();
                    segments += 1;
                }
            }
            assert!(segments > 6, "{segments}");
            let [alone, several] =
                [&alone[..], &several[..]].map(|workers| Stats::by_function(workers, &names));
            assert_eq!(alone.live, several.live, "seed {seed}");
            let times = |stats: &Stats| {
                let totals = stats.totals.iter();
                totals
                    .map(|totals| Totals {
                        histogram: 0,
                        ..*totals
                    })
                    .collect::<Vec<_>>()
            };
            assert_eq!(times(&alone), times(&several), "seed {seed}");
            let quantiles = |stats: &Stats| {
                let numbers = stats.totals.iter().map(|totals| totals.histogram);
                numbers
                    .map(|number| stats.histograms.quantiles(number, [0.1, 0.5, 0.99]))
                    .collect::<Vec<_>>()
            };
            assert_eq!(quantiles(&alone), quantiles(&several), "seed {seed}");
        }
    }

    struct Failing {
        segments: usize,
    }

    impl Sink for Failing {
        fn enter(&mut self, _: &[crate::calls::Frame], _: Option<[u64; 6]>) -> u32 {
            0
        }
        fn leave(
            &mut self,
            _: &crate::calls::Frame,
            _: crate::calls::Ending,
            _: &[crate::calls::Frame],
        ) {
        }
        fn lose(&mut self, _: &crate::calls::Frame, _: u64, _: bool) {}
        fn stray(&mut self, _: u32, _: crate::calls::Ending) {}
    }

    impl Worker for Failing {
        fn end(&mut self, _: &Segment, _: &Machine) -> Result<()> {
            self.segments += 1;
            anyhow::ensure!(self.segments < 3, "no more");
            Ok(())
        }
    }

    #[test]
    fn an_error_of_one_worker_stops_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let shape = Shape {
            threads: 3,
            calls_per_thread: 600_000,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut workers = [0; 4].map(|segments| Failing { segments });
        let error = Drive {
            workers: 4,
            progress: None,
        }
        .run(&trace, &mut workers)
        .unwrap_err();
        assert_eq!(error.to_string(), "no more");
    }

    #[test]
    fn progress_reaches_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        synthetic::write(&path, &Shape::default()).unwrap();
        let trace = Trace::open(&path).unwrap();
        let most = AtomicU64::new(0);
        let progress = |done: u64, all: u64| {
            assert!(done <= all);
            most.fetch_max(done, Ordering::Relaxed);
        };
        let words: usize = trace
            .threads()
            .iter()
            .flat_map(|t| t.packets())
            .map(|p| p.words().len())
            .sum();
        let drive = Drive {
            workers: 2,
            progress: Some(&progress),
        };
        crate::report::functions(&trace, &drive).unwrap();
        assert_eq!(most.into_inner(), words as u64);
    }
}
