//! Distributes the threads of a trace over workers, the longest first. Each thread belongs to one worker.

use nopal_beside::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{thread, vec};

use anyhow::Result;
use nopal_trace::{Clocks, Cost, Packet, ThreadInfo, Trace};

use crate::calls::{CallRebuilder, Sink};
use crate::filter::{Filter, Selected};
use crate::retimer::Retimer;
use crate::waits::{Waiting, Waits};

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
    /// Tell workers that want to know how long calls waited. Not of net times.
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

/// What a worker gets of calls if a filter selects by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Their parts within the selected time: a call that goes on outside of it is lost there.
    Parts,
    /// The whole calls.
    Whole,
    /// All calls of all threads: it selects by these and by time itself, with a [`crate::filter::Sieve`].
    Own,
}

/// Takes the calls of threads, one thread after the other.
pub trait Worker: Sink + Send {
    /// What it gets of the calls that a filter selects by their times.
    const TIMES: Times = Times::Parts;
    /// Whether it is told how long calls waited.
    const WAITS: bool = false;
    /// Before a thread's records; `stream` is which of the trace's threads it is.
    fn begin(&mut self, _stream: usize, _thread: &ThreadInfo) {}
    /// After some of them, and after the last.
    fn pause(&mut self) -> Result<()> {
        Ok(())
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
                None => self.read_with_waits(stream, thread, worker),
                Some(filter) if W::TIMES == Times::Own || filter.has(stream) => {
                    let mut selected = Selected::new(worker, filter, self.clocks);
                    self.read_with_waits(stream, thread, &mut selected)
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
        worker: &mut W,
    ) -> Result<()> {
        match self.drive.waits.filter(|_| self.drive.net.is_none()) {
            Some(waits) if W::WAITS => {
                let mut waiting = Waiting::new(worker, waits, self.window::<W>());
                self.read(stream, thread, &mut waiting)
            }
            _ => self.read(stream, thread, worker),
        }
    }

    /// Reads a thread, unless another worker fails meanwhile.
    fn read<W: Worker>(&self, stream: usize, thread: ThreadInfo, worker: &mut W) -> Result<()> {
        worker.begin(stream, &thread);
        let mut rebuilder = CallRebuilder::default();
        let mut retimer = Retimer::new(self.drive.net, self.window::<W>());
        let mut rest = thread.packets();
        while rest.len() > 0 {
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let packets = rest.clone().take(PAUSE_PACKETS);
            for packet in rest.by_ref().take(PAUSE_PACKETS) {
                match &mut retimer {
                    None => rebuilder.packet(&packet, worker),
                    Some(retimer) => {
                        let (words, clock) = retimer.packet(&packet);
                        rebuilder.packet_with(&packet, &words, clock, worker);
                    }
                }
            }
            if rest.len() == 0 {
                rebuilder.end(worker);
            }
            worker.pause()?;
            self.count(packets.clone());
            packets.for_each(|packet| packet.release());
        }
        Ok(())
    }

    /// The time within which the clocks of calls are to be.
    fn window<W: Worker>(&self) -> (u64, u64) {
        match self.drive.filter {
            Some(filter) if W::TIMES == Times::Parts => {
                (filter.from.unwrap_or(0), filter.until.unwrap_or(u64::MAX))
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
