//! The first line of every reader if a trace is incomplete.

use nopal_trace::{Clocks, Losses, Trace};

use crate::filter::begin;
use crate::names::printable;
use crate::text::{bytes, duration, several};

/// Pauses of the recording whose times are told.
const PAUSES: usize = 3;

/// The losses, the pauses of the recording, and the resulting estimates. None if the trace is complete.
pub fn line(trace: &Trace) -> Option<String> {
    describe(&Losses::of(trace), trace.clocks(), begin(trace))
}

/// [`line`] for formats with comments: a line that begins with `#`; empty if the trace is complete.
pub fn comment(trace: &Trace) -> String {
    line(trace).map_or_else(String::new, |line| format!("# {line}\n"))
}

fn describe(losses: &Losses, clocks: &Clocks, begin: u64) -> Option<String> {
    let some =
        |number: u64, one: &str, more: &str| (number > 0).then(|| several(number, one, more));
    let parts = [
        some(losses.events, "event was lost", "events were lost"),
        some(losses.packets, "packet is missing", "packets are missing"),
        damage(losses),
        some(
            losses.untraced_threads,
            "thread was not traced",
            "threads were not traced",
        ),
        some(
            losses.entry_only_stacks,
            "stack has entries only",
            "stacks have entries only",
        ),
        some(
            losses.kernel_events,
            "kernel event was lost",
            "kernel events were lost",
        ),
        pauses(losses, clocks, begin),
        (losses.unchecked).then(|| {
            "it has no checksums, since an older nopal wrote it, and damage is not noticed"
                .to_string()
        }),
        losses.flaw.as_ref().map(|why| match why.as_str() {
            "" => "the recording was not completed".to_string(),
            why => printable(why),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let bounds = match losses.has_gaps() {
        true => "; calls that were open at a gap end there, with their least possible times",
        false => "",
    };
    Some(format!(
        "this trace is incomplete: {}{bounds}",
        parts.join(", ")
    ))
}

/// `2 places are damaged, for which 64 KiB are left out or missing`
fn damage(losses: &Losses) -> Option<String> {
    let places = match losses.damaged {
        0 => return None,
        number => several(number, "place is damaged", "places are damaged"),
    };
    let left_out = bytes(losses.left_out);
    Some(match losses.left_out {
        0 => places,
        _ => format!("{places}, for which {left_out} are left out or missing"),
    })
}

/// `recording of kernel events paused at 1.20 s`
fn pauses(losses: &Losses, clocks: &Clocks, begin: u64) -> Option<String> {
    let since = |clock: &u64| {
        let ns = clocks.monotonic_ns(*clock);
        duration(ns.saturating_sub(clocks.monotonic_ns(begin)))
    };
    let all = &losses.kernel_event_pauses;
    let mut times: Vec<String> = all.iter().take(PAUSES).map(since).collect();
    if all.len() > PAUSES {
        let more = (all.len() - PAUSES) as u64;
        times.push(several(more, "more time", "more times"));
    }
    let times = times.join(", ");
    (!all.is_empty()).then(|| format!("recording of kernel events paused at {times}"))
}

/// A JSON object without members of 0. None if the trace is complete.
pub fn json(trace: &Trace) -> Option<String> {
    let losses = Losses::of(trace);
    if losses.is_none() {
        return None;
    }
    serde_json::to_string(&losses).ok()
}

/// Why a trace has no times, as a comment of its own, unless `any` call has one.
pub fn untimed(trace: &Trace, any: bool) -> String {
    if any
        || trace
            .threads()
            .iter()
            .all(|thread| thread.packets().len() == 0)
    {
        return String::new();
    }
    let asked = trace
        .session()
        .options
        .iter()
        .any(|option| option == "--entry-only");
    let why = match Losses::of(trace).flaw {
        _ if asked => ": --entry-only was requested".to_string(),
        Some(why) if why.contains("only entries") => format!(": {}", printable(&why)),
        _ => String::new(),
    };
    format!("# no times: only the entries of calls were recorded{why}\n")
}
