//! A page of the kernel's ring, as `trace_pipe_raw` gives it: a time, the number of bytes of events, and these. Each
//! event has the time since the one before.

use crate::tracefs::tracing;
use crate::tracepoint::{Stamp, offset};
use anyhow::{Context, Result};
use nopal_trace::KernelEvent;
use std::fs;

/// Flags in the number of bytes, behind the time: events are missing before these; and their number stands behind them.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const HEADER: usize = 16;

/// Kinds of event without data.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The number of bits of a time in an event's own word.
const DELTA_BITS: u32 = 27;

/// The kernel's ring of a processor, and of all together, in KiB.
const ROOM: usize = 8 << 10;
const ROOM_OF_ALL: usize = 128 << 10;
/// The largest page of a ring that the kernel may be set to.
pub const PAGE: usize = 1 << 16;
/// Pages that are read of a ring at once: those that it holds. A thread that is fast would fill it again for ever.
pub const PAGES_AT_ONCE: usize = (ROOM << 10) / 4096;

/// The size of the ring of each of this many processors, in KiB.
pub fn room(processors: usize) -> usize {
    (ROOM_OF_ALL / processors.max(1)).clamp(64, ROOM)
}

/// An item of a page.
pub enum Body<'a> {
    /// The bytes of an event behind its word. Any bytes behind its end may be padding.
    Event(&'a [u8]),
    /// This many events are missing here.
    Lost(u64),
}

/// The offsets of the fields of an event of the tracer of functions, behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    id: u16,
    stamp: Stamp,
    thread: usize,
    function: usize,
    caller: usize,
}

impl Layout {
    /// Reads them from the kernel's description.
    pub fn read() -> Result<Layout> {
        let path = tracing()?.join("events/ftrace/function/format");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Layout::parse(&text)
            .with_context(|| format!("{} describes it in an unknown format", path.display()))
    }

    fn parse(format: &str) -> Option<Layout> {
        let id = format.lines().find_map(|line| line.strip_prefix("ID: "))?;
        Some(Layout {
            id: id.trim().parse().ok()?,
            stamp: Stamp::parse(format)?,
            thread: offset(format, "common_pid", 4)?,
            function: offset(format, "ip", 8)?,
            caller: offset(format, "parent_ip", 8)?,
        })
    }

    /// Passes on each function that was entered on a page, and its time, in ticks or nanoseconds as the ring's clock
    /// has it. Invalid data ends the page.
    pub fn events(&self, page: &[u8], mut found: impl FnMut(u64, KernelEvent)) {
        bodies(page, |time, body| match body {
            Body::Event(body) => {
                if let Some(event) = self.function(body) {
                    found(time, event);
                }
            }
            Body::Lost(events) => found(time, KernelEvent::Lost { events }),
        });
    }

    fn function(&self, body: &[u8]) -> Option<KernelEvent> {
        if number(body)? != self.id {
            return None;
        }
        Some(KernelEvent::Function {
            thread: half(body, self.thread)?,
            function: word(body, self.function)?,
            caller: word(body, self.caller)?,
            flags: self.stamp.of(body),
        })
    }
}

/// The events of a page, and their times.
pub fn bodies<'a>(page: &'a [u8], mut found: impl FnMut(u64, Body<'a>)) {
    let (Some(mut time), Some(commit)) = (word(page, 0), word(page, 8)) else {
        return;
    };
    let end = HEADER + (commit & (MISSED_STORED - 1)) as usize;
    if commit & MISSED != 0 {
        let stored = (commit & MISSED_STORED != 0).then(|| word(page, end));
        let events = stored.flatten().unwrap_or(1);
        found(time, Body::Lost(events));
    }
    let Some(mut rest) = page.get(HEADER..end) else {
        return;
    };
    while let Some(head) = half(rest, 0) {
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let more = half(rest, 4).map(u64::from);
        let length = match (kind, more) {
            (TIME_EXTEND, Some(more)) => {
                time = time.wrapping_add(more << DELTA_BITS | delta);
                8
            }
            (TIME_STAMP, Some(more)) => {
                // The page has no upper bits.
                const REPORTED: u64 = (1 << (DELTA_BITS + 32)) - 1;
                time = time & !REPORTED | (more << DELTA_BITS | delta);
                8
            }
            // The rest of the page is empty, or nothing but an event that was taken back.
            (PADDING, _) if delta == 0 => return,
            (PADDING, Some(more)) => {
                time = time.wrapping_add(delta);
                4 + more as usize
            }
            // An event that is too long for a number of words in its own word. The half that holds its length counts
            // too.
            (0, Some(more)) => {
                time = time.wrapping_add(delta);
                let length = 4 + more as usize;
                if let Some(body) = rest.get(8..length) {
                    found(time, Body::Event(body));
                }
                length
            }
            (1..PADDING, _) => {
                time = time.wrapping_add(delta);
                let length = 4 + 4 * kind as usize;
                if let Some(body) = rest.get(4..length) {
                    found(time, Body::Event(body));
                }
                length
            }
            _ => return,
        };
        let Some(after) = rest.get(length..) else {
            return;
        };
        rest = after;
    }
}

/// The number of the event's kind.
pub fn number(body: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*body.first_chunk()?))
}

pub fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

pub fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: function
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long ip;	offset:8;	size:8;	signed:0;
	field:unsigned long parent_ip;	offset:16;	size:8;	signed:0;
";

    fn found(page: &[u8]) -> Vec<(u64, KernelEvent)> {
        let mut all = Vec::new();
        let layout = Layout::parse(FORMAT).unwrap();
        layout.events(page, |time, event| all.push((time, event)));
        all
    }

    fn entry(delta: u32, thread: u32, function: u64) -> Vec<u8> {
        let mut bytes = (delta << 5 | 6).to_le_bytes().to_vec();
        bytes.extend([1, 0, 1, 3]);
        bytes.extend(thread.to_le_bytes());
        bytes.extend(function.to_le_bytes());
        bytes.extend((function + 0x100).to_le_bytes());
        bytes
    }

    fn page(flags: u64, parts: &[Vec<u8>]) -> Vec<u8> {
        let data = parts.concat();
        let mut page = 1000u64.to_le_bytes().to_vec();
        page.extend((flags | data.len() as u64).to_le_bytes());
        page.extend(data);
        page
    }

    #[test]
    fn a_long_event_has_its_length_in_a_half_of_its_own() {
        let mut long = (2u32 << 5).to_le_bytes().to_vec();
        long.extend((4 + 200u32).to_le_bytes());
        long.extend([7; 200]);
        let page = page(0, &[long, entry(1, 7, 0x40)]);
        let mut found = Vec::new();
        bodies(&page, |time, body| {
            if let Body::Event(body) = body {
                found.push((time, body.len()));
            }
        });
        assert_eq!(found, [(1002, 200), (1003, 24)]);
    }

    fn call(thread: u32, function: u64) -> KernelEvent {
        KernelEvent::Function {
            thread,
            function,
            caller: function + 0x100,
            flags: Some(nopal_trace::KernelFlags {
                flags: 1,
                preempt_count: 3,
            }),
        }
    }

    #[test]
    fn times_are_sums() {
        let extend = [(5u32 << 5 | TIME_EXTEND).to_le_bytes(), 2u32.to_le_bytes()].concat();
        let stamp = [(7u32 << 5 | TIME_STAMP).to_le_bytes(), 3u32.to_le_bytes()].concat();
        let discarded = [(9u32 << 5 | PADDING).to_le_bytes(), 4u32.to_le_bytes()].concat();
        let page = page(
            0,
            &[
                entry(10, 7, 0x40),
                extend,
                entry(1, 8, 0x80),
                stamp,
                entry(0, 7, 0xc0),
                discarded,
                entry(1, 7, 0x40),
            ],
        );
        let later = 1010 + (2 << 27 | 5) + 1;
        let stamped = 3 << 27 | 7;
        assert_eq!(
            found(&page),
            [
                (1010, call(7, 0x40)),
                (later, call(8, 0x80)),
                (stamped, call(7, 0xc0)),
                (stamped + 10, call(7, 0x40)),
            ]
        );
    }

    #[test]
    fn what_is_missing_is_told_first() {
        let mut page = page(MISSED | MISSED_STORED, &[entry(1, 7, 0x40)]);
        page.extend(12u64.to_le_bytes());
        let lost = KernelEvent::Lost { events: 12 };
        assert_eq!(found(&page), [(1000, lost), (1001, call(7, 0x40))]);
    }

    #[test]
    fn a_page_that_is_cut_short_tells_what_it_has() {
        let whole = page(0, &[entry(1, 7, 0x40), entry(1, 7, 0x80)]);
        for length in 0..whole.len() {
            assert!(found(&whole[..length]).len() < 2, "{length}");
        }
        let padding = (PADDING).to_le_bytes().to_vec();
        let page = page(0, &[entry(1, 7, 0x40), padding, entry(1, 7, 0x80)]);
        assert_eq!(found(&page), [(1001, call(7, 0x40))]);
    }
}
