//! The subscribers of a writer: they get records as soon as these can be read, besides the files.

use crate::kernel_events::KernelRecord;
use crate::note::Note;
use crate::occurrences::Occurrences;
use crate::scan::Content;
use crate::streams::gap;
use crate::subscriber::{Batch, Subscriber};
use crate::thread_key::ThreadKey;
use nopal_abi::ChunkHeader;
use std::collections::HashMap;

/// Identifies a subscriber of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberId(u64);

pub struct Subscribers {
    all: Vec<(SubscriberId, Box<dyn Subscriber>)>,
    next: u64,
    /// The expected header of each thread's next chunk.
    threads: HashMap<ThreadKey, Next>,
    /// A scan needs it; its content is not used.
    pub occurring: Occurrences,
}

#[derive(Clone, Copy, Default)]
struct Next {
    sequence: u64,
    discarded: u64,
    /// Records are missing, which no batch has reported yet.
    lossy: bool,
}

impl Subscribers {
    pub fn new() -> Subscribers {
        Subscribers {
            all: Vec::new(),
            next: 0,
            threads: HashMap::new(),
            occurring: Occurrences::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn add(&mut self, subscriber: Box<dyn Subscriber>) -> SubscriberId {
        self.next += 1;
        self.all.push((SubscriberId(self.next), subscriber));
        SubscriberId(self.next)
    }

    pub fn remove(&mut self, id: SubscriberId) {
        self.all.retain(|(other, _)| *other != id);
        if self.all.is_empty() {
            self.threads.clear();
        }
    }

    pub fn note(&mut self, note: &Note) {
        self.all.iter_mut().for_each(|(_, one)| one.note(note));
    }

    pub fn complete_until(&mut self, counter: u64) {
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.complete_until(counter));
    }

    pub fn thread_ended(&mut self, thread: ThreadKey) {
        self.threads.remove(&thread);
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.thread_ended(thread));
    }

    pub fn system(&mut self, processor: u32, records: &[KernelRecord]) {
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.system(processor, records));
    }

    /// Delivers a part of a chunk. `last`: it is the chunk's last part. `wanted`: the thread is subscribed to.
    pub fn records(
        &mut self,
        header: &ChunkHeader,
        records: &[u64],
        content: Content,
        last: bool,
        wanted: bool,
    ) {
        let thread = ThreadKey::of(header);
        let next = self.threads.entry(thread).or_default();
        let missing = gap(next.sequence, header.sequence) + gap(next.discarded, header.discarded);
        let lossy = next.lossy || missing > 0;
        let delivered = wanted && content.words > 0;
        *next = Next {
            sequence: header.sequence.saturating_add(u64::from(last)),
            discarded: header.discarded,
            lossy: !delivered && (lossy || content.words > 0),
        };
        if !delivered {
            return;
        }
        for (_, subscriber) in &mut self.all {
            subscriber.records(Batch {
                thread,
                clock: content.begin,
                words: &records[..content.words],
                lossy,
            });
        }
    }
}
