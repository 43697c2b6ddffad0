//! A packet of a trace, which holds one chunk's records.

use crate::index::Entry;
use crate::records::Records;
use crate::streams::ThreadKey;

#[derive(Clone, Copy)]
pub struct Packet<'a> {
    entry: &'a Entry,
    words: &'a [u64],
}

impl<'a> Packet<'a> {
    pub(crate) fn new(entry: &'a Entry, file: &'a [u64]) -> Packet<'a> {
        Packet {
            entry,
            words: file.get(entry.start..entry.end).unwrap_or_default(),
        }
    }

    /// The words of its records.
    pub fn words(&self) -> &'a [u64] {
        self.words
    }

    #[inline]
    pub fn records(&self) -> Records<'a> {
        Records::new(self.words, self.entry.header.clock_begin)
    }

    /// Lets the kernel have the memory of this packet's pages back, for a reader that has done with it and goes on to
    /// the next one in the file. Records that are used again are read from the file again.
    pub fn release(&self) {
        // SAFETY: no argument means memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).unwrap_or(4096).max(1);
        let bytes = self.words.as_ptr_range();
        let (begin, end) = (
            bytes.start as usize / page * page,
            bytes.end as usize / page * page,
        );
        if begin < end {
            // SAFETY: the pages are those of a file that is mapped to be read, from the page where the words begin to
            // the one before they end; dropping them changes nothing that can be read there.
            unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED) };
        }
    }

    pub fn thread(&self) -> ThreadKey {
        self.entry.thread()
    }

    /// The counter at its first record, and at its last one.
    pub fn clock_begin(&self) -> u64 {
        self.entry.header.clock_begin
    }

    pub fn clock_end(&self) -> u64 {
        self.entry.header.clock_end
    }

    /// Events of its thread that were lost since the thread's packet before.
    pub fn lost_before(&self) -> u64 {
        self.entry.lost_before
    }

    /// Packets of its thread that are missing since the thread's packet before.
    pub fn missing_before(&self) -> u64 {
        self.entry.missing_before
    }
}
