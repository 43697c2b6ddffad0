//! A page of the kernel's ring, as `trace_pipe_raw` gives it: a time, how many bytes of events there are, and these.
//! Each event tells how much later it came than the one before.

use crate::tracefs::tracing;
use crate::tracepoint::offset;
use anyhow::{Context, Result};
use nopal_trace::KernelEvent;
use std::fs;

/// Behind the time, and in the number of bytes: events are missing before these; and how many stands behind them.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const HEADER: usize = 16;

/// Kinds of event without data.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// How many bits of a time stand in an event's own word.
const DELTA_BITS: u32 = 27;

/// Where an event of the tracer of functions has its fields, behind its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    id: u16,
    thread: usize,
    function: usize,
    caller: usize,
}

impl Layout {
    /// From the kernel's description.
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
            thread: offset(format, "common_pid", 4)?,
            function: offset(format, "ip", 8)?,
            caller: offset(format, "parent_ip", 8)?,
        })
    }

    /// Tells of each function that was entered on a page, and when, in ticks or nanoseconds as the ring's clock has it.
    /// Invalid data ends the page.
    pub fn events(&self, page: &[u8], found: impl FnMut(u64, KernelEvent)) {
        events(page, |body| self.function(body), found);
    }

    fn function(&self, body: &[u8]) -> Option<KernelEvent> {
        if u16::from_le_bytes(*body.first_chunk()?) != self.id {
            return None;
        }
        Some(KernelEvent::Function {
            thread: half(body, self.thread)?,
            function: word(body, self.function)?,
            caller: word(body, self.caller)?,
        })
    }
}

fn events(
    page: &[u8],
    function: impl Fn(&[u8]) -> Option<KernelEvent>,
    mut found: impl FnMut(u64, KernelEvent),
) {
    let (Some(mut time), Some(commit)) = (word(page, 0), word(page, 8)) else {
        return;
    };
    let end = HEADER + (commit & (MISSED_STORED - 1)) as usize;
    if commit & MISSED != 0 {
        let stored = (commit & MISSED_STORED != 0).then(|| word(page, end));
        let events = stored.flatten().unwrap_or(1);
        found(time, KernelEvent::Lost { events });
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
                // The upper bits are not told.
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
            // One that is too long for a number of words in its own, which no function is.
            (0, Some(more)) => {
                time = time.wrapping_add(delta);
                4 + more as usize
            }
            (1..PADDING, _) => {
                time = time.wrapping_add(delta);
                let length = 4 + 4 * kind as usize;
                if let Some(event) = rest.get(4..length).and_then(&function) {
                    found(time, event);
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

fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: function
ID: 1
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
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
        bytes.extend([1, 0, 0, 0]);
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

    fn call(thread: u32, function: u64) -> KernelEvent {
        KernelEvent::Function {
            thread,
            function,
            caller: function + 0x100,
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
