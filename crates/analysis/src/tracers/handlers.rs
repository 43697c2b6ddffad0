//! Which functions are handlers of signals, as sigaction was told.

use std::collections::HashSet;

use nopal_trace::{Event, Marker, ThreadInfo, Trace, Value};

use crate::addresses::Addresses;
use crate::names::Names;

/// The event of a handler that is set, as a probe that `nopal_control` takes.
pub const PROBE: &str =
    "sigaction@libc.so.6 new nopal:handler fetch signal=$di:s32 act=$si handler=+0($si):x64";

/// The address that the probe has read, if it has read one.
fn address(marker: &Marker, payload: &[u64]) -> Option<u64> {
    const DEFAULT_OR_IGNORED: u64 = 1;
    let at = marker
        .fields
        .iter()
        .position(|field| field.name == "handler")?;
    match marker.values(payload)?.get(at)? {
        Value::Unsigned(handler) => Some(*handler).filter(|handler| *handler > DEFAULT_OR_IGNORED),
        _ => None,
    }
}

/// The sites that are handlers in the processes of these threads.
pub fn handlers(trace: &Trace, names: &Names, threads: &[ThreadInfo]) -> HashSet<u32> {
    let events: Vec<u32> = trace
        .markers()
        .iter()
        .filter(|(_, marker)| marker.name == "nopal:handler")
        .map(|(event, _)| event)
        .collect();
    if events.is_empty() {
        return HashSet::new();
    }
    let mut set = HashSet::new();
    for thread in trace.threads() {
        for record in thread.packets().flat_map(|packet| packet.records()) {
            if let Event::Marker { event, payload } = record.event
                && events.contains(&event)
                && let Some(marker) = trace.markers().get(event)
            {
                set.extend(address(marker, payload));
            }
        }
    }
    let addresses = Addresses::new(trace);
    let is_handler = |site: &u32| {
        let of = |thread: &ThreadInfo| addresses.address(thread.process, *site, thread.begin);
        threads.iter().any(|thread| set.contains(&of(thread)))
    };
    (0..names.sites() as u32).filter(is_handler).collect()
}
