//! Requests as text and as JSON.

use std::io::{self, Write};

use nopal_trace::Trace;

use super::{Request, Requests, Spent, Step};
use crate::losses;
use crate::names::{Names, ThreadNames};
use crate::report::Objects;
use crate::slow::{seconds, words};
use crate::span::begin;
use crate::text::{bound, count, duration, percent, several};
use crate::waits::{OF_SOME, OF_THE_CLOCK};

/// The most functions that are shown for a request, and for a step of it.
const SPENT_IN: usize = 5;
/// The same of another thread.
const SPENT_BESIDE: usize = 3;
/// Steps that are shown on a line, from the beginning and before the end; and as a list.
const ENDS: usize = 3;
const LISTED: usize = 200;
/// Other threads that are shown.
const OTHERS: usize = 8;
/// Threads that are named in a command.
const NAMED: usize = 8;

struct Text<'a> {
    trace: &'a Trace,
    names: &'a Names,
    threads: Vec<String>,
    directories: &'a [String],
}

/// Some lines for each request; `in_steps` has each step on a line of its own. `directories` name the traces in the
/// commands that replay the requests; none: they need no name.
pub fn write_text(
    requests: &Requests,
    trace: &Trace,
    names: &Names,
    in_steps: bool,
    directories: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(losses::comment(trace, None).as_bytes())?;
    if !requests.notes.is_empty() {
        writeln!(out, "# {}: {}", requests.section, requests.notes.join("; "))?;
    }
    let thread_names = ThreadNames::new(trace);
    let threads = trace.threads();
    let threads = threads.iter();
    let threads = threads.map(|thread| format!("{} {}", thread_names.of(thread), thread.thread));
    let text = Text {
        trace,
        names,
        threads: threads.collect(),
        directories,
    };
    for (number, request) in (1..).zip(&requests.longest) {
        text.write(number, request, in_steps, out)?;
    }
    let shown = &requests.longest;
    let more = requests.all.saturating_sub(shown.len() as u64);
    if more > 0 {
        writeln!(out, "({} more)", count(more))?;
    }
    if shown.iter().any(|request| request.waited().is_none()) {
        writeln!(out, "{OF_THE_CLOCK}")?;
    }
    if shown
        .iter()
        .any(|request| request.waited().is_some_and(|waited| waited.unknown > 0))
    {
        writeln!(out, "{OF_SOME}")?;
    }
    if shown
        .iter()
        .flat_map(|request| &request.steps)
        .any(|step| step.in_soft_interrupt)
    {
        writeln!(
            out,
            "~ woken in a soft interrupt on the processor of the step before, perhaps for another thread"
        )?;
    }
    if shown.iter().any(|request| request.is_open) {
        writeln!(
            out,
            "≥ may be more: the request had not ended when the trace ended"
        )?;
    }
    Ok(())
}

impl Text<'_> {
    fn write(
        &self,
        number: usize,
        request: &Request,
        in_steps: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let clocks = self.trace.clocks();
        let origin = clocks.monotonic_ns(begin(self.trace));
        let since = |counter: u64| clocks.monotonic_ns(counter).saturating_sub(origin);
        let ns = clocks.duration_ns(request.ticks());
        let value = request.value.map_or_else(String::new, |value| {
            format!(", value {}", value_text(value))
        });
        let threads = match request.begin_stream == request.end_stream {
            true => self.thread(request.begin_stream).to_owned(),
            false => format!(
                "{} to {}",
                self.thread(request.begin_stream),
                self.thread(request.end_stream)
            ),
        };
        writeln!(
            out,
            "{number:>3}  {:>9}  at {}{value}, {threads}",
            bound(ns, request.is_open),
            seconds(since(request.begin)),
        )?;
        writeln!(
            out,
            "     spent   {}",
            self.spent(&request.spent(), Some(request.time_of_steps()))
        )?;
        if let Some(waited) = request.waited() {
            let time = request.time_of_steps();
            writeln!(out, "     cpu     {}", waited.describe(time, clocks))?;
        }
        match (request.has_path, in_steps) {
            (true, false) => writeln!(out, "     path    {}", self.path(&request.steps))?,
            (true, true) => self.list("path", request, &request.steps, out)?,
            (false, true) => self.list("threads", request, &request.steps, out)?,
            (false, false) => {}
        }
        match in_steps {
            true => self.list("others", request, &request.others, out)?,
            false if request.others.is_empty() => {}
            false => writeln!(out, "     others  {}", self.others(&request.others))?,
        }
        // The moments are rounded.
        let from = since(request.begin).saturating_sub(1).max(1);
        let until = since(request.end).saturating_add(1);
        writeln!(
            out,
            "     replay  nopal replay{} --from {from}ns --until {until}ns{}",
            self.selected(request),
            words(self.directories)
        )
    }

    fn thread(&self, stream: usize) -> &str {
        self.threads.get(stream).map_or("?", String::as_str)
    }

    fn function(&self, spent: &Spent) -> &str {
        match spent.function {
            Some(function) => &self.names.functions()[function as usize].name,
            None => "no recorded call",
        }
    }

    /// `look_up 50.1 ms (97.9 %), …`, with parts of a time; or with the waits.
    fn spent(&self, all: &[Spent], of: Option<u64>) -> String {
        let clocks = self.trace.clocks();
        let shown = all.iter().take(SPENT_IN).map(|spent| {
            let time = duration(clocks.duration_ns(spent.ticks));
            let more = match of {
                Some(of) => format!(" ({})", percent(spent.ticks, of)),
                None => match spent.waited.all() {
                    0 => String::new(),
                    waited => format!(" ({} waiting)", duration(clocks.duration_ns(waited))),
                },
            };
            format!("{} {time}{more}", self.function(spent))
        });
        let mut shown: Vec<String> = shown.collect();
        if let Some(more @ 1..) = all.len().checked_sub(SPENT_IN) {
            shown.push(format!("{more} more"));
        }
        shown.join(", ")
    }

    fn step(&self, step: &Step) -> String {
        let time = self.trace.clocks().duration_ns(step.ticks());
        format!(
            "{}{} {}",
            mark(step),
            self.thread(step.stream),
            duration(time)
        )
    }

    /// `ask 101 80.1 us > serve 102 51.1 ms > …`
    fn path(&self, steps: &[Step]) -> String {
        let shown = |steps: &[Step]| steps.iter().map(|step| self.step(step)).collect::<Vec<_>>();
        match steps.len().checked_sub(2 * ENDS) {
            Some(more @ 2..) => {
                let mut parts = shown(&steps[..ENDS]);
                parts.push(format!("{} steps", count(more as u64)));
                parts.extend(shown(&steps[steps.len() - ENDS..]));
                parts.join(" > ")
            }
            _ => shown(steps).join(" > "),
        }
    }

    fn others(&self, others: &[Step]) -> String {
        let named = others.iter().take(OTHERS).map(|step| {
            let most = step.spent.iter().take(SPENT_BESIDE).map(|spent| {
                let time = self.trace.clocks().duration_ns(spent.ticks);
                format!("{} {}", self.function(spent), duration(time))
            });
            let most: Vec<String> = most.collect();
            format!("{}: {}", self.thread(step.stream), most.join(", "))
        });
        let mut named: Vec<String> = named.collect();
        if let Some(more @ 1..) = others.len().checked_sub(OTHERS) {
            named.push(several(more as u64, "more thread", "more threads"));
        }
        named.join("; ")
    }

    /// Each step on a line, with when it began in the request.
    fn list(
        &self,
        heading: &str,
        request: &Request,
        steps: &[Step],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let clocks = self.trace.clocks();
        let mut heading = heading;
        for step in steps.iter().take(LISTED) {
            let after = clocks.duration_ns(step.begin.saturating_sub(request.begin));
            let time = clocks.duration_ns(step.ticks());
            writeln!(
                out,
                "     {heading:<7} {:>8} {:>8}  {}{}: {}",
                format!("+{}", duration(after)),
                duration(time),
                mark(step),
                self.thread(step.stream),
                self.spent(&step.spent, None)
            )?;
            heading = "";
        }
        match steps.len().checked_sub(LISTED) {
            Some(more @ 1..) => writeln!(out, "             ({} more)", count(more as u64)),
            _ => Ok(()),
        }
    }

    /// The options that select the threads of a path; empty if all are selected.
    fn selected(&self, request: &Request) -> String {
        let mut streams: Vec<usize> = Vec::new();
        for step in &request.steps {
            if !streams.contains(&step.stream) {
                streams.push(step.stream);
            }
        }
        let is_alone = request.has_path || request.others.is_empty();
        if !is_alone || streams.len() > NAMED {
            return String::new();
        }
        let threads = self.trace.threads();
        let named = streams.iter().filter_map(|stream| threads.get(*stream));
        named
            .map(|thread| format!(" --tid {}", thread.thread))
            .collect()
    }
}

fn mark(step: &Step) -> &'static str {
    match step.in_soft_interrupt {
        true => "~",
        false => "",
    }
}

/// A small number as such, an address or the like in hexadecimal.
fn value_text(value: u64) -> String {
    match u32::try_from(value) {
        Ok(number) => number.to_string(),
        Err(_) => format!("{value:#x}"),
    }
}

/// An array of objects, one a request.
pub fn write_json(
    requests: &Requests,
    trace: &Trace,
    names: &Names,
    out: &mut dyn Write,
) -> io::Result<()> {
    let threads = trace.threads();
    let clocks = trace.clocks();
    let origin = clocks.monotonic_ns(begin(trace));
    let ns = |ticks: u64| clocks.duration_ns(ticks);
    let since = |clock: u64| clocks.monotonic_ns(clock).saturating_sub(origin);
    let thread_of = |stream: usize| threads.get(stream).map_or(0, |one| one.thread.into());
    let process_of = |stream: usize| threads.get(stream).map_or(0, |one| one.process.into());
    let spent_in = |objects: &mut Objects, spent: &[Spent]| {
        let known = spent
            .iter()
            .filter_map(|one| Some((one.function?, one.ticks)));
        let name = |function: u32| names.functions()[function as usize].name.as_str();
        objects.numbers_by_name(
            "spent_ns",
            known.map(|(function, ticks)| (name(function), ns(ticks))),
        );
        let outside = spent.iter().find(|one| one.function.is_none());
        objects.numbers(&[("in_no_call_ns", outside.map_or(0, |one| ns(one.ticks)))]);
    };
    let steps_of = |objects: &mut Objects, name: &str, steps: &[Step]| {
        objects.objects(name, steps.iter(), |objects, step| {
            objects.numbers(&[
                ("process", process_of(step.stream)),
                ("thread", thread_of(step.stream)),
                ("begin_ns", since(step.begin)),
                ("duration_ns", ns(step.ticks())),
            ]);
            if let Some(waited) = step.waited {
                objects.waited(ns(step.ticks()), waited.map(ns));
            }
            spent_in(objects, &step.spent);
            objects.flags(&[("woken_in_soft_interrupt", step.in_soft_interrupt)]);
        });
    };
    let mut objects = Objects::new(trace, out);
    for (number, request) in requests.longest.iter().enumerate() {
        objects.begin("section", &requests.section)?;
        if let Some(value) = request.value {
            objects.text("value", &value_text(value));
        }
        objects.numbers(&[
            ("process", process_of(request.begin_stream)),
            ("thread", thread_of(request.begin_stream)),
            ("end_process", process_of(request.end_stream)),
            ("end_thread", thread_of(request.end_stream)),
            ("begin_ns", since(request.begin)),
            ("duration_ns", ns(request.ticks())),
        ]);
        if let Some(waited) = request.waited() {
            objects.waited(ns(request.time_of_steps()), waited.map(ns));
        }
        spent_in(&mut objects, &request.spent());
        let name = if request.has_path { "path" } else { "threads" };
        steps_of(&mut objects, name, &request.steps);
        if !request.has_path {
            steps_of(&mut objects, "others", &request.others);
        }
        if number == 0 && !requests.notes.is_empty() {
            objects.texts("missing", requests.notes.iter().map(String::as_str));
        }
        objects.flags(&[("is_least", request.is_open)]);
    }
    objects.end()
}
