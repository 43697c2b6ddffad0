//! Long calls as text and as JSON.

use std::io::{self, Write};

use nopal_trace::{SiteStates, ThreadInfo, Trace};

use super::{Places, SlowCall};
use crate::names::{Names, ThreadNames, printable};
use crate::off::{WITH_UNTIMED, with_untimed};
use crate::prototypes::{ProcessMoment, Prototypes, Values};
use crate::report::Objects;
use crate::span::begin;
use crate::text::{bound, duration, percent, push_hex_short};
use crate::waits::{OF_SOME, OF_THE_CLOCK};

/// The most functions that are shown for a call.
const SPENT_IN: usize = 5;
/// Functions of a path, from its beginning and before the call.
const PATH_ENDS: usize = 6;

/// Some lines for each call. `directories` name the traces in the commands that replay the calls; none: they need no name.
pub fn write_text(
    calls: &[SlowCall],
    trace: &Trace,
    names: &Names,
    prototypes: &mut Prototypes,
    places: &Places,
    directories: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let threads = trace.threads();
    let states = SiteStates::of(trace);
    let thread_names = ThreadNames::new(trace);
    let clocks = trace.clocks();
    let origin = clocks.monotonic_ns(begin(trace));
    let since = |counter: u64| clocks.monotonic_ns(counter).saturating_sub(origin);
    let name = |function: u32| names.functions()[function as usize].name.as_str();
    for (number, call) in (1..).zip(calls) {
        let thread = &threads[call.stream];
        let ticks = call.end.saturating_sub(call.begin);
        let ns = clocks.duration_ns(ticks);
        writeln!(
            out,
            "{number:>3}  {:>9}  at {}, thread {} {}",
            bound(ns, call.is_least),
            seconds(since(call.begin)),
            thread.thread,
            thread_names.of(thread)
        )?;
        let typed = prototypes.values(call.function, moment(call, thread));
        let values = values(call.arguments.as_ref(), call.result, typed);
        writeln!(out, "     call    {}{values}", name(call.function))?;
        if let Some(place) = places.describe(call, name) {
            writeln!(out, "     source  {place}")?;
        }
        if let Some(path) = &call.path {
            writeln!(out, "     path    {}", shortened(path, call, name))?;
        }
        let spent = call.spent.iter().take(SPENT_IN).map(|(function, own)| {
            let whose = match *function == call.function {
                true => "itself",
                false => name(*function),
            };
            format!(
                "{whose} {} ({})",
                duration(clocks.duration_ns(*own)),
                percent(*own, ticks)
            )
        });
        let mut spent: Vec<String> = spent.collect();
        if let Some(more @ 1..) = call.spent.len().checked_sub(SPENT_IN) {
            spent.push(format!("{more} more"));
        }
        if !spent.is_empty() {
            let spent = with_untimed(spent.join(", "), may_have_untimed(call, &states));
            writeln!(out, "     spent   {spent}")?;
        }
        if let Some(waited) = call.waited {
            writeln!(out, "     cpu     {}", waited.describe(ticks, clocks))?;
        }
        // The moments are rounded.
        let from = since(call.begin).saturating_sub(1).max(1);
        let until = since(call.end).saturating_add(1);
        let directories = words(directories);
        let thread = thread.thread;
        writeln!(
            out,
            "     replay  nopal replay --tid {thread} --from {from}ns --until {until}ns{directories}"
        )?;
    }
    if calls.iter().any(|call| may_have_untimed(call, &states)) {
        writeln!(out, "{WITH_UNTIMED}")?;
    }
    if calls.iter().any(|call| call.waited.is_none()) {
        writeln!(out, "{OF_THE_CLOCK}")?;
    }
    if calls
        .iter()
        .any(|call| call.waited.is_some_and(|waited| waited.unknown > 0))
    {
        writeln!(out, "{OF_SOME}")?;
    }
    if calls.iter().any(|call| call.is_least) {
        writeln!(
            out,
            "≥ may be more: the begin or end of the call is not known"
        )?;
    }
    Ok(())
}

/// Whether calls in it may not have been timed, so that their time is in the self times of their callers.
fn may_have_untimed(call: &SlowCall, states: &SiteStates) -> bool {
    let has_calls = call
        .spent
        .iter()
        .any(|(function, _)| *function != call.function);
    has_calls && states.has_untimed(&(call.begin..=call.end))
}

fn moment(call: &SlowCall, thread: &ThreadInfo) -> ProcessMoment {
    ProcessMoment {
        process: thread.process,
        clock: call.begin,
    }
}

/// `1.234567 s`, so that successive calls have different times.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// `(count=1) = 0`, or `(0x1, …) = 0x0` if the types are not known; as far as they were recorded.
pub fn values(arguments: Option<&[u64; 6]>, result: Option<u64>, typed: Option<Values>) -> String {
    let mut text = Vec::new();
    if let Some(typed) = typed {
        if let Some(arguments) = arguments {
            typed.push_parameters(&mut text, arguments);
        }
        if let Some(result) = result {
            typed.push_returned(&mut text, result);
        }
        return String::from_utf8(text).unwrap_or_default();
    }
    if let Some(arguments) = arguments {
        for (at, argument) in arguments.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"(0x" } else { b", 0x" });
            push_hex_short(&mut text, *argument);
        }
        text.push(b')');
    }
    if let Some(result) = result {
        text.extend_from_slice(b" = 0x");
        push_hex_short(&mut text, result);
    }
    String::from_utf8(text).unwrap_or_default()
}

/// `main > run > … > parse`.
fn shortened<'a>(path: &[u32], call: &SlowCall, name: impl Fn(u32) -> &'a str) -> String {
    let mut parts: Vec<&str> = path.iter().map(|function| name(*function)).collect();
    parts.push(name(call.function));
    if parts.len() > 2 * PATH_ENDS {
        let end = parts.len() - PATH_ENDS;
        parts.splice(PATH_ENDS..end, ["…"]);
    }
    parts.join(" > ")
}

/// As further words of a shell's command.
pub(crate) fn words(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| format!(" {}", quoted(text)))
        .collect()
}

/// As one word of a shell.
fn quoted(word: &str) -> String {
    let word = printable(word);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@%=".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// An array of objects, one a call.
pub fn write_json(
    calls: &[SlowCall],
    trace: &Trace,
    names: &Names,
    prototypes: &mut Prototypes,
    places: &Places,
    out: &mut dyn Write,
) -> io::Result<()> {
    let threads = trace.threads();
    let states = SiteStates::of(trace);
    let clocks = trace.clocks();
    let origin = clocks.monotonic_ns(begin(trace));
    let name = |function: u32| names.functions()[function as usize].name.as_str();
    let ns = |ticks: u64| clocks.duration_ns(ticks);
    let mut objects = Objects::new(trace, out);
    for call in calls {
        let thread = &threads[call.stream];
        let ticks = call.end.saturating_sub(call.begin);
        objects.begin("function", name(call.function))?;
        objects.numbers(&[
            ("process", thread.process.into()),
            ("thread", thread.thread.into()),
            (
                "begin_ns",
                clocks.monotonic_ns(call.begin).saturating_sub(origin),
            ),
            ("duration_ns", ns(ticks)),
        ]);
        if let Some(waited) = call.waited {
            objects.waited(ns(ticks), waited.map(ns));
        }
        if let Some(arguments) = call.arguments {
            let values = arguments.map(|argument| format!("{argument:#x}"));
            objects.texts("arguments", values.iter().map(String::as_str));
        }
        if let Some(result) = call.result {
            objects.text("result", &format!("{result:#x}"));
        }
        if let Some(values) = prototypes.values(call.function, moment(call, thread)) {
            if let Some(words) = &call.arguments {
                let parameters = values.prototype.parameters.iter();
                let typed = parameters.map(|one| (Some(one.name.as_str()), &one.value));
                objects.typed_values("parameters", typed, words, &values);
            }
            if let Some(word) = call.result {
                let typed = std::iter::once((None, &values.prototype.result));
                objects.typed_values("returned", typed, &[word], &values);
            }
        }
        if let Some(place) = places.of_function(call) {
            objects.text("source", place);
        }
        let call_sites = places.of_calls(call);
        if !call_sites.is_empty() {
            objects.texts("call_sites", call_sites.iter().map(String::as_str));
        }
        if let Some(path) = &call.path {
            objects.texts("path", path.iter().map(|function| name(*function)));
        }
        objects.numbers_by_name(
            "spent_ns",
            call.spent
                .iter()
                .map(|(function, own)| (name(*function), ns(*own))),
        );
        objects.flags(&[
            ("is_least", call.is_least),
            ("self_with_untimed_callees", may_have_untimed(call, &states)),
        ]);
    }
    objects.end()
}
