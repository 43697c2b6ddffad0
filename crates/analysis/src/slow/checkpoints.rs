//! States of threads between their packets, with the self times until there: the records of a long call between two of
//! them need not be read again.

use std::collections::HashMap;
use std::ops::Range;

use crate::calls::CallRebuilder;

/// Bytes of the states that a worker keeps.
const MOST_BYTES: usize = 64 << 20;

/// By the trace's threads. A thread that changed its stack has none: calls on several stacks are not in each other.
pub type Checkpoints = HashMap<usize, Vec<Checkpoint>>;

pub struct Checkpoint {
    /// The number of packets before it.
    pub packets: usize,
    pub rebuilder: CallRebuilder,
    /// Self times of the calls that have ended, by site.
    own: Box<[u64]>,
}

impl Checkpoint {
    /// Self times of the calls that have ended since another one, by site.
    pub fn since<'a>(&'a self, other: &'a Checkpoint) -> impl Iterator<Item = (u32, u64)> + 'a {
        let sites = (0..).zip(self.own.iter().zip(&other.own));
        sites
            .map(|(site, (own, before))| (site, own.wrapping_sub(*before)))
            .filter(|(_, own)| *own > 0)
    }
}

/// The range of a thread's checkpoints, from `from` on, at and between which none of the sorted `clocks` lies.
pub fn quiet(checkpoints: &[Checkpoint], from: usize, clocks: &[u64]) -> Option<Range<usize>> {
    let clock = |at: usize| checkpoints[at].rebuilder.clock();
    let first = clock(from);
    let next = clocks.partition_point(|one| *one < first);
    let end = match clocks.get(next) {
        Some(next) => checkpoints.partition_point(|one| one.rebuilder.clock() < *next),
        None => checkpoints.len(),
    };
    (end > from + 1).then(|| from..end - 1)
}

/// Makes the checkpoints of threads, one after the other.
pub struct Maker {
    own: Vec<u64>,
    stream: usize,
    changes_stack: bool,
    made: Checkpoints,
    bytes: usize,
    /// One checkpoint in so many is kept; and the number of those skipped since the last.
    interval: usize,
    passed: usize,
}

impl Maker {
    pub fn new(sites: usize) -> Maker {
        Maker {
            own: vec![0; sites.max(1)],
            stream: 0,
            changes_stack: false,
            made: Checkpoints::new(),
            bytes: 0,
            interval: 1,
            passed: 0,
        }
    }

    pub fn finish(self) -> Checkpoints {
        self.made
    }

    pub fn begin(&mut self, stream: usize) {
        self.own.fill(0);
        self.stream = stream;
        self.changes_stack = false;
        self.passed = 0;
    }

    /// A call has ended.
    #[inline(always)]
    pub fn add(&mut self, site: u32, own: u64) {
        let known = (site as usize) < self.own.len();
        let sum = &mut self.own[if known { site as usize } else { 0 }];
        *sum = sum.wrapping_add(own);
    }

    pub fn change_stack(&mut self) {
        self.changes_stack = true;
        self.made.remove(&self.stream);
    }

    /// The thread's state behind so many packets.
    pub fn pass(&mut self, packets: usize, rebuilder: &CallRebuilder) {
        self.passed += 1;
        if self.changes_stack || self.passed < self.interval {
            return;
        }
        self.passed = 0;
        self.bytes += bytes_of(self.own.len(), rebuilder);
        let checkpoint = Checkpoint {
            packets,
            rebuilder: rebuilder.clone(),
            own: self.own.clone().into(),
        };
        self.made.entry(self.stream).or_default().push(checkpoint);
        if self.bytes > MOST_BYTES {
            self.thin_out();
        }
    }

    /// Keeps one of two.
    fn thin_out(&mut self) {
        self.interval *= 2;
        self.bytes = 0;
        for checkpoints in self.made.values_mut() {
            let mut is_kept = false;
            checkpoints.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            let bytes = checkpoints.iter();
            let bytes = bytes.map(|one| bytes_of(one.own.len(), &one.rebuilder));
            self.bytes += bytes.sum::<usize>();
        }
    }
}

fn bytes_of(sites: usize, rebuilder: &CallRebuilder) -> usize {
    sites * size_of::<u64>() + size_of_val(rebuilder.frames())
}
