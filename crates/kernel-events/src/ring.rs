//! The ring that the kernel fills with records.

use crate::event::Descriptor;
use anyhow::{Context, Result, ensure};
use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a record's header: type, misc, size.
pub const HEADER: usize = 8;

pub struct Ring {
    map: MmapRaw,
    /// The begin of the data, and their number of bytes: a power of two.
    data: usize,
    size: usize,
    /// For records that go over the ring's end.
    buffer: Vec<u8>,
}

/// A record, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub kind: u32,
    pub misc: u16,
    /// All bytes behind the header.
    pub body: &'a [u8],
}

impl Ring {
    /// `pages`: data pages, a power of two. Takes fewer if the kernel refuses this many.
    pub fn map(event: &Descriptor, pages: usize) -> Result<Ring> {
        let page = rustix::param::page_size();
        let map = |pages: usize| MmapOptions::new().len((1 + pages) * page).map_raw(event);
        let mut pages = pages;
        let mut mapped = map(pages);
        while mapped.is_err() && pages > 1 {
            pages /= 2;
            mapped = map(pages);
        }
        let map = mapped.context(
            "no memory for events of perf (kernel.perf_event_mlock_kb limits it, as does ulimit -l)",
        )?;
        let ring = Ring {
            data: page,
            size: pages * page,
            map,
            buffer: Vec::new(),
        };
        ensure!(ring.size.is_power_of_two(), "a ring of {} bytes", ring.size);
        Ok(ring)
    }

    /// The number of bytes that the kernel has written in all.
    pub fn head(&self) -> u64 {
        // Acquire pairs with the kernel's barrier before it stores the head: the records up to there are seen.
        self.word(offset_of!(perf_event_mmap_page, data_head))
            .load(Ordering::Acquire)
    }

    /// Passes on each record up to `head`, and returns their room to the kernel.
    pub fn read(&mut self, head: u64, mut take: impl FnMut(Record)) {
        let tail = self
            .word(offset_of!(perf_event_mmap_page, data_tail))
            .load(Ordering::Relaxed);
        let length = head.wrapping_sub(tail).min(self.size as u64) as usize;
        let begin = tail as usize & (self.size - 1);
        let first = length.min(self.size - begin);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        // SAFETY: both parts are within the ring, and the kernel writes nothing there before the tail moves.
        unsafe {
            let data = self.map.as_ptr().add(self.data);
            buffer.extend_from_slice(std::slice::from_raw_parts(data.add(begin), first));
            buffer.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
        // Release pairs with the kernel's: what was read is not written over before.
        self.word(offset_of!(perf_event_mmap_page, data_tail))
            .store(head, Ordering::Release);
        records(&buffer).for_each(&mut take);
        self.buffer = buffer;
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and shared with the kernel, which reads and stores whole words.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }
}

/// The records of some bytes, until one is not whole.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let &[a, b, c, d, e, f, g, h] = bytes.first_chunk::<HEADER>()?;
        let size = usize::from(u16::from_le_bytes([g, h]));
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        Some(Record {
            kind: u32::from_le_bytes([a, b, c, d]),
            misc: u16::from_le_bytes([e, f]),
            body: record.get(HEADER..)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_one_is_not_whole() {
        let mut bytes = Vec::new();
        for (kind, body) in [(14u32, &b"abcdefgh"[..]), (9, b"")] {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(3u16.to_le_bytes());
            bytes.extend((HEADER as u16 + body.len() as u16).to_le_bytes());
            bytes.extend(body);
        }
        let found = |bytes: &[u8]| -> Vec<(u32, usize)> {
            records(bytes)
                .map(|record| (record.kind, record.body.len()))
                .collect()
        };
        assert_eq!(found(&bytes), [(14, 8), (9, 0)]);
        assert_eq!(found(&bytes[..bytes.len() - 1]), [(14, 8)]);
        assert_eq!(found(&bytes[..15]), []);
        for size in [0u8, 7] {
            bytes[6] = size;
            assert_eq!(found(&bytes), [], "a size of {size}");
        }
    }
}
