//! Who hears of a trace's records beside its files, as soon as they can be read.

use crate::audience::{Audience, Heard};
use crate::note::Note;
use crate::occurrences::Occurrences;
use crate::scan::Content;
use crate::streams::{ThreadKey, gap};
use crate::system::SystemRecord;
use nopal_abi::ChunkHeader;
use std::collections::HashMap;

/// Names a listener of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(u64);

pub struct Listeners {
    all: Vec<(ListenerId, Box<dyn Audience>)>,
    next: u64,
    /// What each thread's next chunk is expected to say.
    threads: HashMap<ThreadKey, Next>,
    /// What a scan asks for; nobody needs it.
    pub occurring: Occurrences,
}

#[derive(Clone, Copy, Default)]
struct Next {
    sequence: u64,
    discarded: u64,
    /// Records are missing that nobody was told of yet.
    lossy: bool,
}

impl Listeners {
    pub fn new() -> Listeners {
        Listeners {
            all: Vec::new(),
            next: 0,
            threads: HashMap::new(),
            occurring: Occurrences::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn add(&mut self, listener: Box<dyn Audience>) -> ListenerId {
        self.next += 1;
        self.all.push((ListenerId(self.next), listener));
        ListenerId(self.next)
    }

    pub fn remove(&mut self, id: ListenerId) {
        self.all.retain(|(other, _)| *other != id);
        if self.all.is_empty() {
            self.threads.clear();
        }
    }

    pub fn note(&mut self, note: &Note) {
        self.all.iter_mut().for_each(|(_, one)| one.note(note));
    }

    pub fn heard_until(&mut self, counter: u64) {
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.heard_until(counter));
    }

    pub fn thread_ended(&mut self, thread: ThreadKey) {
        self.threads.remove(&thread);
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.thread_ended(thread));
    }

    pub fn system(&mut self, processor: u32, records: &[SystemRecord]) {
        let all = self.all.iter_mut();
        all.for_each(|(_, one)| one.system(processor, records));
    }

    /// Tells of a part of a chunk. `last`: nothing more will come of the chunk; `wanted`: the thread is one to hear of.
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
        let told = wanted && content.words > 0;
        *next = Next {
            sequence: header.sequence.saturating_add(u64::from(last)),
            discarded: header.discarded,
            lossy: !told && (lossy || content.words > 0),
        };
        if !told {
            return;
        }
        for (_, listener) in &mut self.all {
            listener.records(Heard {
                thread,
                clock: content.begin,
                words: &records[..content.words],
                lossy,
            });
        }
    }
}
