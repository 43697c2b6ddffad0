//! A line for each record, as it was recorded.

use std::io::Write;

use anyhow::Result;
use nopal_abi as abi;
use nopal_trace::{Event, KernelEvent, Style, Trace};

use super::devtrace::events;
use super::{Excerpt, Lines, are_shown};
use crate::filter::Filter;
use crate::kernel_events::{
    KernelNames, TimelineEvent, kind, push_event, thread, with_kernel_events,
};
use crate::markers::push_marker;
use crate::names::Names;
use crate::text::{push_hex_short, push_u64};
use crate::timeline::timeline;

/// `CLOCK PROCESS THREAD KIND …`: then site, tag, name and values of entries and exits, or the fields of a resync. For
/// kernel events: `CLOCK cpu NUMBER EVENT …`.
pub fn dump(trace: &Trace, filter: &Filter, excerpt: Excerpt, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(trace);
    let kernel = KernelNames::new(trace);
    let threads = filter.threads(trace);
    let mut lines = Lines::new(out);
    let records = timeline(&threads, |_, thread| events(excerpt.packets(thread)));
    for (clock, timeline_event) in with_kernel_events(records, trace) {
        let is_shown = match &timeline_event {
            TimelineEvent::System(_, event) => are_shown(filter, &threads, thread(event)),
            TimelineEvent::Thread(..) => true,
        };
        if !is_shown || !excerpt.holds(clock) {
            continue;
        }
        let text = &mut lines.text;
        push_u64(text, clock);
        let (stream, event) = match timeline_event {
            TimelineEvent::Thread(stream, event) => (stream, event),
            TimelineEvent::System(processor, event) => {
                text.extend_from_slice(format!(" cpu {processor} {} ", kind(&event)).as_bytes());
                if let KernelEvent::Function { thread, .. } = event {
                    text.extend_from_slice(format!("{thread} ").as_bytes());
                }
                push_event(text, &event, &kernel);
                lines.end_line()?;
                continue;
            }
        };
        for number in [threads[stream].process, threads[stream].thread] {
            text.push(b' ');
            push_u64(text, u64::from(number));
        }
        match event {
            Event::Entry {
                site,
                tag,
                style,
                arguments,
            } => {
                let kind = match style {
                    Style::Wrapped => " entry",
                    Style::Tail => " tail",
                    Style::Only => " only",
                };
                push_site(text, kind, &names, site, tag);
                for argument in arguments.into_iter().flatten() {
                    push_labelled(text, "", *argument);
                }
            }
            Event::Exit {
                site,
                tag,
                result,
                unwound,
            } => {
                push_site(
                    text,
                    if unwound { " unwind" } else { " exit" },
                    &names,
                    site,
                    tag,
                );
                if let Some(result) = result {
                    push_labelled(text, "", result);
                }
            }
            Event::CallSite {
                site,
                tag,
                return_address,
            } => {
                push_site(text, " call_site", &names, site, tag);
                if let Some(address) = return_address {
                    push_labelled(text, "", address);
                }
            }
            Event::Resync {
                slot,
                stack,
                reason,
            } => {
                text.extend_from_slice(b" resync");
                match reason {
                    abi::RESYNC_CHUNK => text.extend_from_slice(b" chunk"),
                    abi::RESYNC_CLOCK => text.extend_from_slice(b" clock"),
                    abi::RESYNC_STACK => text.extend_from_slice(b" stack"),
                    abi::RESYNC_JUMP => text.extend_from_slice(b" jump"),
                    abi::RESYNC_PART => text.extend_from_slice(b" part"),
                    other => push_labelled(text, "reason ", u64::from(other)),
                }
                push_labelled(text, "slot ", slot);
                push_labelled(text, "stack ", stack);
            }
            Event::Marker { event, payload } => {
                text.extend_from_slice(b" marker ");
                push_marker(text, trace.markers().get(event), payload);
            }
            Event::ShortCalls { sites } => {
                text.extend_from_slice(b" short_calls");
                for (site, calls) in sites.iter().copied().map(abi::short_calls_of) {
                    text.push(b' ');
                    push_u64(text, u64::from(calls));
                    text.extend_from_slice(b" of ");
                    push_u64(text, u64::from(site));
                    text.push(b' ');
                    text.extend_from_slice(names.function(site).raw.as_bytes());
                }
            }
            Event::Hole => text.extend_from_slice(b" hole"),
        }
        lines.end_line()?;
    }
    Ok(lines.flush()?)
}

fn push_site(text: &mut Vec<u8>, kind: &str, names: &Names, site: u32, tag: u8) {
    text.extend_from_slice(kind.as_bytes());
    text.push(b' ');
    push_u64(text, u64::from(site));
    push_labelled(text, "", u64::from(tag));
    text.push(b' ');
    text.extend_from_slice(names.function(site).raw.as_bytes());
}

fn push_labelled(text: &mut Vec<u8>, label: &str, value: u64) {
    text.push(b' ');
    text.extend_from_slice(label.as_bytes());
    text.extend_from_slice(b"0x");
    push_hex_short(text, value);
}
