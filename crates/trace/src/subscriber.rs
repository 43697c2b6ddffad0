//! Subscribers: they read records while a trace is recorded, without its stream files.

use crate::kernel_events::KernelRecord;
use crate::note::Note;
use crate::thread_key::ThreadKey;

/// Records of one thread, checked as a reader would check them.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub thread: ThreadKey,
    /// The counter at the first record.
    pub clock: u64,
    /// In the form of [`crate::Packet::words`].
    pub words: &'a [u64],
    /// Whether records of the thread are missing before these.
    pub lossy: bool,
}

/// Receives everything in the order in which a trace is written.
pub trait Subscriber: Send {
    fn note(&mut self, note: &Note);
    fn records(&mut self, batch: Batch);
    fn thread_ended(&mut self, thread: ThreadKey);
    /// All records up to this value of the counter have been delivered, except reserved ones that are not stored yet.
    fn complete_until(&mut self, _counter: u64) {}
    /// A processor's kernel events, in order of time.
    fn system(&mut self, _processor: u32, _records: &[KernelRecord]) {}
}
