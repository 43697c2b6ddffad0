//! The index of a trace, thread by thread.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nopal_analysis::drive::Progress;
use nopal_analysis::range::Checkpoints;
use nopal_analysis::sort;
use nopal_beside::Mutex;
use nopal_trace::{ThreadInfo, ThreadKey, Trace};

use crate::builder::{BLOCK_EVENTS, Builder};
use crate::cell::Level;
use crate::store;
use crate::thread_index::ThreadIndex;

/// The index of a trace. Its threads are those of the trace, in their order.
pub struct Index {
    pub threads: Vec<ThreadIndex>,
    /// The state of reading each of them, if the trace may still grow.
    builders: Vec<Builder>,
    block_events: u64,
}

impl Index {
    /// The index beside a trace, or a new one, which is then written there unless the trace may still grow.
    pub fn open(trace: &Trace, workers: usize, progress: Option<Progress>) -> Index {
        if let Some(index) = Index::kept(trace) {
            return index;
        }
        Index::renew(trace, workers, progress)
    }

    /// A new index, which is then written beside its trace unless the trace may still grow.
    pub fn renew(trace: &Trace, workers: usize, progress: Option<Progress>) -> Index {
        let mut index = Index::make(trace, workers, progress);
        if !trace.is_growing() {
            index.builders = Vec::new();
            // If it cannot be written, the next reader makes it again.
            let _ = store::write(trace, &index.threads);
        }
        index
    }

    /// The index beside a trace, if there is a valid one.
    pub fn kept(trace: &Trace) -> Option<Index> {
        Some(Index::of_kept(
            store::Kept::read(trace.directory()).ok()?.of(trace).ok()?,
        ))
    }

    /// A trace and the index beside it, if there is a valid one. What it says of the trace's packets is believed where it
    /// may be: neither damage is noticed, nor a wrong index.
    pub fn kept_with_trace(directory: &Path) -> Option<(Trace, Index)> {
        let mut kept = store::Kept::read(directory).ok()?;
        let trace = Trace::open_by_packets(directory, kept.packets.take()?).ok()?;
        let index = Index::of_kept(kept.of(&trace).ok()?);
        Some((trace, index))
    }

    /// Opens a trace. Its files that an index beside it has seen, and that nobody has written to since, are not compared
    /// with their checksums again.
    pub fn open_trace(directory: &Path) -> anyhow::Result<Trace> {
        let packets = store::packets(directory).unwrap_or_default();
        Trace::open_known(directory, packets)
    }

    fn of_kept(threads: Vec<ThreadIndex>) -> Index {
        Index {
            threads,
            ..Index::of_blocks(BLOCK_EVENTS)
        }
    }

    /// Whether all sums of an index that was read can be decoded. They are not kept.
    pub fn is_readable(&self) -> bool {
        let mut levels = self.threads.iter().flat_map(|thread| &thread.levels);
        levels.all(Level::is_readable)
    }

    /// The places where readers of a part of the trace can begin and end.
    pub fn checkpoints(&self) -> Checkpoints {
        let threads = self.threads.iter();
        threads
            .map(|thread| (thread.key(), thread.range_checkpoints()))
            .collect()
    }

    /// Makes the index of a trace.
    pub fn make(trace: &Trace, workers: usize, progress: Option<Progress>) -> Index {
        let mut index = Index::of_blocks(BLOCK_EVENTS);
        index.extend(trace, workers, progress);
        index
    }

    /// An index of nothing, whose blocks end with the packet that completes this many events.
    pub(crate) fn of_blocks(block_events: u64) -> Index {
        Index {
            threads: Vec::new(),
            builders: Vec::new(),
            block_events,
        }
    }

    /// Adds later records to an index.
    pub fn extend(&mut self, trace: &Trace, workers: usize, progress: Option<Progress>) {
        let infos = trace.threads();
        let known = std::mem::take(&mut self.builders).into_iter();
        let known = known.zip(std::mem::take(&mut self.threads));
        let mut known: HashMap<ThreadKey, _> = known.map(|one| (one.1.key(), one)).collect();
        let mut work = Vec::new();
        for (at, thread) in infos.iter().enumerate() {
            let one = known.remove(&thread.key());
            // The begin of a thread without records is not known. Calls that are open at its last record end later where
            // it is known by now that the thread lived.
            let one = one.filter(|(_, index)| {
                let is_read = index.packets as usize == thread.packets().len();
                index.packets > 0 && !(is_read && thread.alive_until > 0)
            });
            work.push((
                at,
                thread,
                one.unwrap_or_else(|| Builder::new(thread, self.block_events)),
            ));
        }
        let words = |thread: &ThreadInfo| -> u64 {
            let packets = thread.packets();
            packets.map(|packet| packet.words().len() as u64).sum()
        };
        let all: u64 = infos.iter().map(words).sum();
        let done = AtomicU64::new(0);
        work.sort_by_cached_key(|(_, thread, _)| words(thread));
        let (work, made) = (Mutex::new(work), Mutex::new(Vec::new()));
        let run = || {
            while let Some((at, thread, (mut builder, mut index))) = { work.lock().pop() } {
                builder.extend(&mut index, thread, usize::MAX, |words| {
                    let done = done.fetch_add(words, Ordering::Relaxed) + words;
                    if let Some(progress) = progress {
                        progress(done, all);
                    }
                });
                made.lock().push((at, builder, index));
            }
        };
        thread::scope(|scope| {
            for _ in 1..workers.max(1) {
                nopal_beside::try_spawn(scope, run);
            }
            run();
        });
        let mut made = std::mem::take(&mut *made.lock());
        sort::by_key(&mut made, |(at, ..)| *at);
        for (_, builder, index) in made {
            self.builders.push(builder);
            self.threads.push(index);
        }
    }

    /// Adds the packets of a thread up to a number.
    #[cfg(test)]
    pub(crate) fn extend_thread(&mut self, at: usize, thread: &ThreadInfo, until: usize) {
        if at == self.threads.len() {
            let (builder, index) = Builder::new(thread, self.block_events);
            self.builders.push(builder);
            self.threads.push(index);
        }
        self.builders[at].extend(&mut self.threads[at], thread, until, |_| ());
    }

    /// The path of a trace's index.
    pub fn path(trace: &Trace) -> PathBuf {
        store::path(trace)
    }
}
