//! The lines of Plan 9's devtrace.

use std::io::Write;

use anyhow::Result;
use nopal_trace::{Event, Packet, Record, Trace};

use super::{Excerpt, Lines};
use crate::addresses::Addresses;
use crate::filter::Filter;
use crate::text::push_hex;
use crate::timeline::timeline;

pub fn dump(trace: &Trace, filter: &Filter, excerpt: Excerpt, out: &mut dyn Write) -> Result<()> {
    let addresses = Addresses::new(trace);
    let threads = filter.threads(trace);
    let mut lines = Lines::new(out);
    for (stream, clock, event) in timeline(&threads, |_, thread| events(excerpt.packets(thread))) {
        if !excerpt.holds(clock) {
            continue;
        }
        let (letter, entered, values) = match event {
            Event::Entry {
                site, arguments, ..
            } => {
                let [a, b, c, d, ..] = arguments.copied().unwrap_or_default();
                (b'E', Some(site), [a, b, c, d])
            }
            // The address of the return is not recorded, and the entry's is none.
            Event::Exit { result, .. } => (b'X', None, [result.unwrap_or(0), 0, 0, 0]),
            Event::CallSite { .. }
            | Event::Resync { .. }
            | Event::Marker { .. }
            | Event::ShortCalls { .. }
            | Event::Hole => continue,
        };
        let thread = &threads[stream];
        lines.text.extend([letter, b' ']);
        match entered {
            Some(site) => {
                let address = addresses.address(thread.process, site, clock);
                push_hex(&mut lines.text, address);
            }
            None => lines.text.push(b'-'),
        }
        for value in [clock, u64::from(thread.thread)].into_iter().chain(values) {
            lines.text.push(b' ');
            push_hex(&mut lines.text, value);
        }
        lines.end_line()?;
    }
    Ok(lines.flush()?)
}

/// All records of packets.
pub fn events<'a>(
    packets: impl Iterator<Item = Packet<'a>>,
) -> impl Iterator<Item = (u64, Event<'a>)> {
    let records = packets.flat_map(|packet| {
        let end = std::iter::from_fn(move || {
            packet.release();
            None
        });
        packet.records().chain(end)
    });
    records.map(|Record { clock, event }| (clock, event))
}
