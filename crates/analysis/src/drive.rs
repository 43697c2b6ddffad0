//! Distributes the threads of a trace over workers, the longest first. Each thread belongs to one worker.

use nopal_beside::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{thread, vec};

use anyhow::Result;
use nopal_trace::{Clocks, Cost, Packet, ThreadInfo, Trace};

use crate::calls::Remaining;
use crate::filter::{Filter, Selected};
use crate::range::{Start, Stop};
use crate::records::Records;
use crate::retimer::Retimer;
use crate::waits::{Waiting, Waits};
pub use crate::worker::{Times, Worker};

const PAUSE_PACKETS: usize = 16;

/// Called with the finished and total numbers of words.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How to go over a trace.
#[derive(Clone, Copy)]
pub struct Drive<'a> {
    pub workers: usize,
    pub progress: Option<Progress<'a>>,
    /// Subtract the cost of recording from all times.
    pub net: Option<Cost>,
    /// Pass on these calls only.
    pub filter: Option<&'a Filter>,
    /// Tell workers that ask for it how long calls waited. Not with net times.
    pub waits: Option<&'a Waits>,
}

impl Default for Drive<'_> {
    fn default() -> Self {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        Drive {
            workers,
            progress: None,
            net: None,
            filter: None,
            waits: None,
        }
    }
}

struct Crew<'a, 'b> {
    clocks: &'a Clocks,
    threads: Mutex<vec::IntoIter<(usize, ThreadInfo<'a>)>>,
    failed: AtomicBool,
    done: AtomicU64,
    all: u64,
    drive: &'b Drive<'b>,
}

impl Drive<'_> {
    /// Runs each of `workers` over the threads that it gets.
    pub fn run<W: Worker>(&self, trace: &Trace, workers: &mut [W]) -> Result<()> {
        let mut threads: Vec<_> = trace.threads().into_iter().enumerate().collect();
        let words = |thread: &ThreadInfo| -> u64 {
            let packets = thread.packets();
            packets.map(|packet| packet.words().len() as u64).sum()
        };
        let all = threads.iter().map(|(_, thread)| words(thread)).sum();
        threads.sort_by_cached_key(|(_, thread)| std::cmp::Reverse(words(thread)));
        let crew = &Crew {
            clocks: trace.clocks(),
            threads: Mutex::new(threads.into_iter()),
            failed: AtomicBool::new(false),
            done: AtomicU64::new(0),
            all,
            drive: self,
        };
        thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(|| crew.work(worker)))
                .collect();
            let results = running.into_iter().map(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.fold(Ok(()), Result::and)
        })
    }
}

impl<'a> Crew<'a, '_> {
    fn work<W: Worker>(&self, worker: &mut W) -> Result<()> {
        while let Some((stream, thread)) = self.next() {
            let read = match self.drive.filter.filter(|filter| !filter.is_everything()) {
                None => self.read_with_waits(stream, thread, None, worker),
                Some(filter) if worker.times() == Times::Own || filter.has(stream) => {
                    let until = self.until(filter, &thread, worker.times());
                    let mut selected = Selected::new(worker, filter, self.clocks).until(until);
                    self.read_with_waits(stream, thread, until, &mut selected)
                }
                Some(_) => {
                    self.count(thread.packets());
                    Ok(())
                }
            };
            if let Err(error) = read {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<(usize, ThreadInfo<'a>)> {
        let mut threads = self.threads.lock();
        threads.next()
    }

    fn read_with_waits<W: Worker>(
        &self,
        stream: usize,
        thread: ThreadInfo,
        until: Option<u64>,
        worker: &mut W,
    ) -> Result<()> {
        match self.drive.waits.filter(|_| self.drive.net.is_none()) {
            Some(waits) if worker.takes_waits() => {
                let window = self.window(worker.times());
                let mut waiting = Waiting::new(worker, waits, window);
                self.read(stream, thread, until, &mut waiting)
            }
            _ => self.read(stream, thread, until, worker),
        }
    }

    /// Reads a thread, unless another worker fails meanwhile. The selected time ends at the clock `until` of calls.
    fn read<W: Worker>(
        &self,
        stream: usize,
        thread: ThreadInfo,
        until: Option<u64>,
        worker: &mut W,
    ) -> Result<()> {
        worker.begin(stream, &thread);
        let times = worker.times();
        let (start, stop) = self.range(&thread, times);
        let mut number = start.packet;
        self.count(thread.packets_in(0..number));
        let window = self.window(times);
        let mut records = Records::new(start.reopen(worker), self.drive.net, window);
        let until = until.filter(|_| window.1 < u64::MAX);
        let mut remaining: Option<Remaining> = None;
        let mut is_over = false;
        loop {
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let packets = thread.packets_in(number..number + PAUSE_PACKETS);
            let mut taken = 0;
            let mut leap = None;
            for packet in packets.clone() {
                if let Some(until) = until.filter(|_| remaining.is_none())
                    && packet.clock_begin() >= window.1
                {
                    remaining = Some(records.end_before(until, &packet));
                }
                let rebuilder = &records.rebuilder;
                is_over = match until.zip(remaining.as_mut()) {
                    Some((until, remaining)) => {
                        stop.is_known(number + taken, until, rebuilder, remaining)
                    }
                    None => stop.is_at(number + taken, &packet, rebuilder, |site| {
                        worker.awaits(site)
                    }),
                };
                leap = match times {
                    Times::Near if !is_over => {
                        stop.leap(number + taken, &packet, rebuilder, |site| {
                            worker.awaits(site)
                        })
                    }
                    _ => None,
                };
                if is_over || leap.is_some() {
                    break;
                }
                taken += 1;
                match (&mut remaining, until) {
                    (Some(remaining), _) => records.take(&packet, &mut remaining.behind(worker)),
                    (None, Some(until)) if packet.clock_end() >= window.1 => {
                        remaining = Some(records.take_up_to(until, &packet, worker));
                    }
                    _ => records.take(&packet, worker),
                }
            }
            let is_last = taken < PAUSE_PACKETS && leap.is_none();
            if is_last {
                let alive = match is_over {
                    true => 0,
                    false => records.clock(thread.alive_until),
                };
                match until {
                    None => records.end(alive, worker),
                    Some(until) => {
                        let mut remaining =
                            remaining.take().unwrap_or_else(|| records.end_at(until));
                        if !is_over {
                            records.end(alive, &mut remaining.behind(worker));
                        }
                        remaining.finish(worker);
                    }
                }
            }
            worker.pause()?;
            let packets = packets.take(taken);
            self.count(packets.clone());
            packets.for_each(|packet| packet.release());
            number += taken;
            if is_last {
                break;
            }
            if let Some(leap) = leap {
                self.count(thread.packets_in(number..leap.packet));
                number = leap.packet;
                records.rebuilder = leap.reopen(worker);
            }
            worker.pass(number, &records.rebuilder);
        }
        self.count(thread.packets_in(number..usize::MAX));
        Ok(())
    }

    /// Where to begin and to end. The net clocks of whole calls need all records before, and a worker that selects by
    /// time itself needs all calls, or also those that touch the time.
    fn range(&self, thread: &ThreadInfo, times: Times) -> (Start, Stop<'_>) {
        let needs_all = match times {
            Times::Own => true,
            Times::Whole | Times::Near => self.drive.net.is_some(),
            Times::Parts => false,
        };
        let Some(filter) = self.drive.filter.filter(|_| !needs_all) else {
            return Default::default();
        };
        let checkpoints = filter.checkpoints_of(thread);
        let more = u64::from(times == Times::Near);
        let from = filter.from.map(|from| from.saturating_sub(more));
        let until = filter.until.map(|until| until.saturating_add(more));
        (
            Start::before(from, thread, checkpoints),
            Stop::behind(until, checkpoints, self.drive.net.is_none()),
        )
    }

    /// The end of the selected time of a thread, by the clocks of its calls.
    fn until(&self, filter: &Filter, thread: &ThreadInfo, times: Times) -> Option<u64> {
        let until = filter.until?;
        Some(match self.drive.net {
            None => until,
            Some(cost) => Retimer::new(cost, self.window(times)).end(thread.packets()),
        })
    }

    /// The time within which the clocks of calls must be.
    fn window(&self, times: Times) -> (u64, u64) {
        match self.drive.filter {
            Some(filter) if times == Times::Parts => {
                let from = filter.from.unwrap_or(0);
                (from, filter.until.map_or(u64::MAX, |until| until.max(from)))
            }
            _ => (0, u64::MAX),
        }
    }

    fn count<'p>(&self, packets: impl Iterator<Item = Packet<'p>>) {
        let words: usize = packets.map(|packet| packet.words().len()).sum();
        let done = self.done.fetch_add(words as u64, Ordering::Relaxed) + words as u64;
        if let Some(progress) = self.drive.progress {
            progress(done, self.all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Sink;
    use crate::report;
    use nopal_trace::synthetic::{self, Shape};

    #[test]
    fn any_number_of_workers_sums_up_to_the_same() {
        for seed in 1..4 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("trace");
            let shape = Shape {
                seed,
                threads: 5,
                calls_per_thread: 20_000,
                ..Shape::default()
            };
            synthetic::write(&path, &shape).unwrap();
            let trace = Trace::open(&path).unwrap();
            let [alone, several] = [1, 3].map(|workers| {
                let drive = Drive {
                    workers,
                    ..Drive::default()
                };
                report::functions(&trace, &drive).unwrap()
            });
            assert_eq!(alone, several, "seed {seed}");
        }
    }

    struct Failing {
        pauses: usize,
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
        fn stray(&mut self, _: &crate::calls::Frame, _: crate::calls::Ending) {}
    }

    impl Worker for Failing {
        fn pause(&mut self) -> Result<()> {
            self.pauses += 1;
            anyhow::ensure!(self.pauses < 3, "no more");
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
        let mut workers = [0; 4].map(|pauses| Failing { pauses });
        let error = Drive {
            workers: 4,
            ..Drive::default()
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
            ..Drive::default()
        };
        report::functions(&trace, &drive).unwrap();
        assert_eq!(most.into_inner(), words as u64);
    }
}
