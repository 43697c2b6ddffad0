//! Who hears of a trace while it is made, in place of its stream files.

use crate::note::Note;
use crate::streams::ThreadKey;
use crate::system::SystemRecord;

/// Records of one thread, checked as a reader would check them.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    pub thread: ThreadKey,
    /// The counter at the first record.
    pub clock: u64,
    /// As [`crate::Packet::words`] has them.
    pub words: &'a [u64],
    /// Whether records of the thread are missing before these.
    pub lossy: bool,
}

/// Is told in the order in which a trace would be written.
pub trait Audience: Send {
    fn note(&mut self, note: &Note);
    fn records(&mut self, heard: Heard);
    fn thread_ended(&mut self, thread: ThreadKey);
    /// What was recorded up to this value of the counter has been told, but for a record here and there that its thread
    /// was about to store.
    fn heard_until(&mut self, _counter: u64) {}
    /// Events of a processor, in order of time.
    fn system(&mut self, _processor: u32, _records: &[SystemRecord]) {}
}
