//! The first line of every reader if a trace is incomplete.

use std::collections::BTreeMap;

use nopal_trace::{Clocks, Losses, Trace, losses};

use crate::filter::Filter;
use crate::names::printable;
use crate::off;
use crate::span::begin;
use crate::text::{bytes, count, duration, several};

/// The most reasons for losses that are told; there are fewer.
const REASONS: usize = 16;

/// At most this many pauses of the recording are listed with their times.
const PAUSES: usize = 3;

/// The losses, the pauses of the recording, and the resulting estimates. None if the trace is complete.
pub fn line(trace: &Trace) -> Option<String> {
    describe(&Losses::of(trace), trace.clocks(), begin(trace))
}

/// The same, with what calls of the functions that a filter selects by name have no records.
pub fn line_of(trace: &Trace, filter: Option<&Filter>) -> Option<String> {
    let line = line(trace)?;
    let left_out = filter.and_then(|filter| off::left_out_by(trace, filter));
    Some(match left_out {
        Some(calls) => format!("{line}; left out of what -F selects: {calls}"),
        None => line,
    })
}

/// [`line_of`] for formats with comments: a line that begins with `#`; empty if the trace is complete.
pub fn comment(trace: &Trace, filter: Option<&Filter>) -> String {
    line_of(trace, filter).map_or_else(String::new, |line| format!("# {line}\n"))
}

fn describe(losses: &Losses, clocks: &Clocks, begin: u64) -> Option<String> {
    let some =
        |number: u64, one: &str, more: &str| (number > 0).then(|| several(number, one, more));
    let parts = [
        some(losses.events, "event was lost", "events were lost")
            .map(|lost| format!("{lost}{}", reasons(losses.events, &losses.events_by_reason))),
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
        describe_stops(losses, clocks, begin).map(|times| format!("recording was stopped {times}")),
        off(losses),
        counted(losses),
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
    let short = short_calls(losses);
    if parts.is_empty() {
        return short;
    }
    let bounds = match losses.has_gaps() {
        true => "; calls that were open at a gap end there, with their least possible times",
        false => "",
    };
    let short = short.map_or_else(String::new, |short| format!("; {short}"));
    Some(format!(
        "this trace is incomplete: {}{bounds}{short}",
        parts.join(", ")
    ))
}

/// ` (1,234 for lack of room, 12 given up for newer ones)`: why `all` events were lost, as far as that is known.
pub fn reasons(all: u64, events: &BTreeMap<String, u64>) -> String {
    let text = |name: &str| match name {
        losses::NO_ROOM => "for lack of room".to_owned(),
        losses::UNKNOWN_THREAD => "in threads whose control block was not their own".to_owned(),
        losses::TOO_MANY_THREADS => {
            "in threads beyond those that can be recorded at once".to_owned()
        }
        losses::NO_CLOCK => "in threads that may not read the clock".to_owned(),
        losses::INTERRUPTED => "amid handlers that interrupted each attempt".to_owned(),
        losses::DROPPED => "given up for newer ones".to_owned(),
        losses::EARLIER => "before this snapshot".to_owned(),
        losses::AFTER_END => "after the trace's end".to_owned(),
        other => format!("for the reason {other}"),
    };
    let known = events.iter().filter(|(_, events)| **events > 0);
    let parts: Vec<String> = known
        .take(REASONS)
        .map(|(name, events)| match *events == all {
            true => text(name),
            false => format!("{} {}", count(*events), text(name)),
        })
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join(", ")),
    }
}

/// How many of the lost events no thread's packets count, as a comment; empty if there are none.
pub fn of_no_thread(trace: &Trace) -> String {
    let threads = trace.threads().into_iter();
    let known = threads.fold(0, |sum: u64, thread| sum.saturating_add(thread.lost()));
    match trace.lost().saturating_sub(known) {
        0 => String::new(),
        more => format!(
            "# {} of the lost events are of no thread here: a thread lost them after its last records, or had none\n",
            count(more)
        ),
    }
}

/// `1,234 calls shorter than 10.0 us were left out at recording (-t): their time is that of their callers`
fn short_calls(losses: &Losses) -> Option<String> {
    let shorter = format!("shorter than {}", duration(losses.least_duration_ns));
    let one =
        format!("call {shorter} was left out at recording (-t): its time is that of its caller");
    let more = format!(
        "calls {shorter} were left out at recording (-t): their time is that of their callers"
    );
    (losses.short_calls > 0).then(|| several(losses.short_calls, &one, &more))
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

/// `3 functions were off for a time, …`
fn off(losses: &Losses) -> Option<String> {
    let functions = match losses.functions_off {
        0 => return None,
        1 => "1 function was".to_owned(),
        more => format!("{} functions were", count(more)),
    };
    Some(format!(
        "{functions} off for a time, to hold the budget: calls then are missing, and their time is that of their callers"
    ))
}

/// `3 functions were counted for a time, …`
fn counted(losses: &Losses) -> Option<String> {
    let functions = match losses.functions_counted {
        0 => return None,
        1 => "1 function was".to_owned(),
        more => format!("{} functions were", count(more)),
    };
    Some(format!(
        "{functions} counted for a time, and recorded by samples only: other calls then have no times, and are not shown in their callers"
    ))
}

/// `recording of kernel events paused at 1.20 s`
fn pauses(losses: &Losses, clocks: &Clocks, begin: u64) -> Option<String> {
    let times = losses.kernel_event_pauses.iter();
    let times = times.map(|clock| since(clocks, begin, *clock));
    some_of(times).map(|times| format!("recording of kernel events paused at {times}"))
}

/// `from 1.20 s to 1.70 s, from 3.00 s on`: when recording was stopped.
pub fn stops(trace: &Trace) -> Option<String> {
    describe_stops(&Losses::of(trace), trace.clocks(), begin(trace))
}

fn describe_stops(losses: &Losses, clocks: &Clocks, begin: u64) -> Option<String> {
    let since = |clock| since(clocks, begin, clock);
    let times = losses.stops.iter().map(|(from, until)| match until {
        Some(until) => format!("from {} to {}", since(*from), since(*until)),
        None => format!("from {} on", since(*from)),
    });
    some_of(times)
}

fn since(clocks: &Clocks, begin: u64, clock: u64) -> String {
    let ns = clocks.monotonic_ns(clock);
    duration(ns.saturating_sub(clocks.monotonic_ns(begin)))
}

/// The first of them, and how many more there are. None if there are none.
fn some_of(times: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let more = times.len().saturating_sub(PAUSES) as u64;
    let mut listed: Vec<String> = times.take(PAUSES).collect();
    if more > 0 {
        listed.push(several(more, "more time", "more times"));
    }
    (!listed.is_empty()).then(|| listed.join(", "))
}

/// A JSON object without members of 0. None if the trace is complete.
pub fn json(trace: &Trace) -> Option<String> {
    let losses = Losses::of(trace);
    if losses.is_none() {
        return None;
    }
    serde_json::to_string(&losses).ok()
}

/// The possible reason why calls, or their ends, are not in a trace: `; this trace is incomplete: …`. Empty if it is
/// complete.
pub fn reason(trace: &Trace, filter: Option<&Filter>) -> String {
    match (asked_for_entries(trace), line_of(trace, filter)) {
        (true, _) => format!("; {UNTIMED}{ASKED}"),
        (_, Some(line)) => format!("; {line}"),
        (_, None) => String::new(),
    }
}

const UNTIMED: &str = "no times: only the entries of calls were recorded";
const ASKED: &str = ": --entry-only was requested";

fn asked_for_entries(trace: &Trace) -> bool {
    let options = &trace.session().options;
    options.iter().any(|option| option == "--entry-only")
}

/// Why the calls of a trace have no times, as a comment of its own, if they `lack` them.
pub fn untimed(trace: &Trace, lack: bool) -> String {
    if !lack {
        return String::new();
    }
    let why = match Losses::of(trace).flaw {
        _ if asked_for_entries(trace) => ASKED.to_string(),
        Some(why) if why.contains("only entries") => format!(": {}", printable(&why)),
        _ => String::new(),
    };
    format!("# {UNTIMED}{why}\n")
}
