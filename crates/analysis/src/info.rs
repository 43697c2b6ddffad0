//! `nopal info`: the origin of a trace, its contents and its losses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use nopal_trace::{
    KernelEvent, Losses, Note, Packet, ProcessInfo, SiteState, SiteStates, Succession, Trace,
};

use crate::kernel_events::kind;
use crate::losses;
use crate::names::{Names, printable};
use crate::span::{begin, end};
use crate::text::{Align, Table, bytes, count, date, duration, rate, several};

/// Processes, and flaws, that are listed one by one.
const LISTED: usize = 20;

pub fn info(trace: &Trace, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let runs = runs(trace);
    facts(trace, &runs, out)?;
    writeln!(out)?;
    processes(&runs, out, width)?;
    writeln!(out)?;
    images(trace, out, width)?;
    states(trace, out, width)?;
    if trace.damage_count() > 0 {
        writeln!(
            out,
            "\n{}; {} are left out or missing:",
            several(
                trace.damage_count(),
                "place in the trace is damaged",
                "places in the trace are damaged"
            ),
            bytes(trace.left_out())
        )?;
        for damage in trace.damage().iter().take(LISTED) {
            writeln!(
                out,
                "  {}, at {}: {}, {}",
                printable(&damage.file.display().to_string()),
                damage.offset,
                damage.what,
                bytes(damage.bytes)
            )?;
        }
    }
    Ok(())
}

fn facts(trace: &Trace, runs: &[Run], out: &mut dyn Write) -> io::Result<()> {
    let session = trace.session();
    let clocks = trace.clocks();
    let threads = trace.threads();
    let of_threads = threads.iter().flat_map(|thread| thread.packets());
    let of_processors = trace.processors();
    let of_processors = of_processors.flat_map(|processor| processor.packets());
    let packets: Vec<Packet> = of_threads.chain(of_processors).collect();
    let words: u64 = packets
        .iter()
        .map(|packet| packet.words().len() as u64)
        .sum();
    let mut fact = |name: &str, value: String| match value.is_empty() {
        true => Ok(()),
        false => writeln!(out, "{name:<10} {}", printable(&value)),
    };
    fact("trace", trace.directory().display().to_string())?;
    fact("command", session.command.join(" "))?;
    fact("directory", session.directory.clone())?;
    fact("options", session.options.join(" "))?;
    fact("selection", selection(trace))?;
    fact("begun", date(session.start_realtime_ns))?;
    fact("host", joined(&[&session.hostname, &session.kernel]))?;
    fact(
        "processor",
        joined(&[
            &session.cpu,
            &several(session.cores.into(), "core", "cores"),
        ]),
    )?;
    fact(
        "counter",
        format!(
            "{}, {}{}",
            rate(clocks.frequency()),
            several(clocks.snapshots().len() as u64, "snapshot", "snapshots"),
            match clocks.gone_back() {
                0 => String::new(),
                back => format!("; a clock went back in {} more", count(back)),
            }
        ),
    )?;
    if let Some(cost) = trace.cost() {
        let shown = |parts| format!("{:.1} ns", parts as f64 * 1e6 / clocks.frequency() as f64);
        let (call, within) = (shown(cost.call), shown(cost.within));
        fact(
            "cost",
            format!("{call} for each recorded call, {within} of it within the call's own time"),
        )?;
    }
    fact(
        "time",
        duration(clocks.duration_ns(end(trace).saturating_sub(begin(trace)))),
    )?;
    fact("threads", count(threads_of(runs)))?;
    fact(
        "size",
        format!(
            "{} in {}",
            bytes(words.saturating_mul(8)),
            several(packets.len() as u64, "packet", "packets")
        ),
    )?;
    fact("system", system(trace))?;
    fact("lost", lost(trace))?;
    if let Some(stops) = losses::stops(trace) {
        fact("stopped", stops)?;
    }
    fact("left out", left_out(trace))?;
    if !trace.has_check_sums() {
        let sums = "none: the trace was written by an older nopal, and damage to its records is not noticed";
        fact("sums", sums.into())?;
    }
    fact("budget", budget(trace))?;
    fact("counted", counted(trace))?;
    fact("snapshots", snapshots(trace))?;
    fact("end", end_of(trace))
}

/// `of the trace ID in nopal.data, from 1.20 s, until 1.40 s, 2 threads`
fn selection(trace: &Trace) -> String {
    let Some(selection) = &trace.session().selection else {
        return String::new();
    };
    let clocks = trace.clocks();
    let begin = clocks.monotonic_ns(selection.begin);
    let moment = |word: &str, counter: Option<u64>| {
        let ns = clocks.monotonic_ns(counter?).saturating_sub(begin);
        Some(format!("{word} {}", duration(ns)))
    };
    let of = format!("of the trace {} in {}", selection.uuid, selection.directory);
    let threads = selection.threads.as_ref();
    let threads = threads.map(|threads| several(threads.len() as u64, "thread", "threads"));
    let parts = [
        Some(of),
        moment("from", selection.from),
        moment("until", selection.until),
        threads,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// `5 % of the processor time: 12 functions were counted for a time, 3 were off, 14 changes`
fn budget(trace: &Trace) -> String {
    let states = SiteStates::of(trace);
    let Some(percent) = states.percent else {
        return String::new();
    };
    let counted = several(
        states.counted_sites().count() as u64,
        "function was counted for a time",
        "functions were counted for a time",
    );
    let off = several(states.sites().count() as u64, "was off", "were off");
    let changes = several(states.changes, "change", "changes");
    let begun = match states.begun_untimed {
        0 => String::new(),
        number => format!(
            "; {} so, as the last recording of the program ended",
            several(number, "began", "began")
        ),
    };
    format!("{percent} % of the processor time: {counted}, {off}, {changes}{begun}")
}

/// `12,345 calls of 3 functions`
fn counted(trace: &Trace) -> String {
    let states = SiteStates::of(trace);
    let sites: Vec<u32> = states.counted_sites().collect();
    if sites.is_empty() {
        return String::new();
    }
    let calls = sites
        .iter()
        .map(|site| states.calls(*site, &(0..=u64::MAX)));
    format!(
        "{} of {}, which have no times",
        several(calls.fold(0, u64::saturating_add), "call", "calls"),
        several(sites.len() as u64, "function", "functions")
    )
}

/// The times at which functions were switched off, on, or to counting.
fn states(trace: &Trace, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let names = Names::new(trace);
    let begin = trace.clocks().monotonic_ns(begin(trace));
    let mut table = Table::new(&[
        ("at", Align::Right),
        ("", Align::Left),
        ("functions", Align::Left),
    ]);
    let mut changes = 0;
    let mut known = HashMap::new();
    for note in trace.notes() {
        let (counter, state, functions) = match note {
            Note::Budget { counter, percent } => {
                let budget = match percent {
                    Some(percent) => format!("budget {percent} %"),
                    None => "budget off".to_string(),
                };
                (*counter, budget, String::new())
            }
            Note::State {
                counter,
                state,
                sites,
                kept,
                ..
            } => {
                // A note may tell only from when on calls are sampled.
                let changed = |site: &&u32| known.insert(**site, *state) != Some(*state);
                let sites: Vec<&u32> = sites.iter().filter(changed).collect();
                if sites.is_empty() {
                    continue;
                }
                let state = match (state, kept) {
                    (SiteState::Timed, _) => "timed",
                    (SiteState::Counted, false) => "counted",
                    (SiteState::Counted, true) => "kept counted",
                    (SiteState::Off, false) => "off",
                    (SiteState::Off, true) => "kept off",
                };
                let named = sites.iter().take(LISTED);
                let mut named: Vec<String> = named
                    .map(|site| names.function(**site).name.clone())
                    .collect();
                if sites.len() > LISTED {
                    named.push(format!("{} more", sites.len() - LISTED));
                }
                (*counter, state.to_string(), named.join(", "))
            }
            _ => continue,
        };
        changes += 1;
        if changes <= LISTED {
            let at = trace.clocks().monotonic_ns(counter).saturating_sub(begin);
            table.row(vec![duration(at), state, functions]);
        }
    }
    if changes > 0 {
        writeln!(out)?;
        table.write(out, width)?;
        more(out, changes)?;
    }
    Ok(())
}

/// The traces within this one.
fn snapshots(trace: &Trace) -> String {
    let found = nopal_trace::snapshots(trace.directory()).unwrap_or_default();
    let names = found.iter().filter_map(|path| path.file_name()?.to_str());
    names.collect::<Vec<_>>().join(", ")
}

fn joined(parts: &[&str]) -> String {
    parts
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Kernel events, by kind.
fn system(trace: &Trace) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut lost, mut unseen) = (0u64, 0u64);
    let mut succession = Succession::default();
    for processor in trace.processors() {
        lost = lost.saturating_add(processor.lost());
        for record in processor.events() {
            unseen += u64::from(succession.is_broken_by(processor.number, &record.event));
            if let KernelEvent::Lost { .. } = record.event {
                continue;
            }
            *kinds.entry(kind(&record.event)).or_default() += 1;
        }
    }
    let processors = trace.processors().count();
    if processors == 0 {
        return String::new();
    }
    let parts = kinds
        .iter()
        .map(|(kind, number)| format!("{} {kind}", count(*number)));
    let unseen = (unseen > 0).then(|| {
        several(
            unseen,
            "switch from idle unreported",
            "switches from idle unreported",
        )
    });
    let lost = format!("{} lost", count(lost));
    let parts: Vec<String> = parts.chain(unseen).chain([lost]).collect();
    format!(
        "{} on {}",
        parts.join(", "),
        several(processors as u64, "CPU", "CPUs")
    )
}

fn lost(trace: &Trace) -> String {
    let lost = Losses::of(trace);
    let events = several(lost.events, "event", "events");
    let mut parts = vec![format!(
        "{events}{}",
        losses::reasons(lost.events, &lost.events_by_reason)
    )];
    let (mut threads, mut stacks) = (0u64, 0u64);
    for note in trace.notes() {
        if let Note::Untraced {
            threads: more_threads,
            stacks: more_stacks,
            ..
        } = note
        {
            threads = threads.saturating_add(*more_threads);
            stacks = stacks.saturating_add(*more_stacks);
        }
    }
    if threads > 0 {
        parts.push(several(threads, "thread untraced", "threads untraced"));
    }
    if stacks > 0 {
        parts.push(several(
            stacks,
            "stack with entries only",
            "stacks with entries only",
        ));
    }
    parts.join(", ")
}

/// Calls that were too short.
fn left_out(trace: &Trace) -> String {
    let least = trace.session().least_duration_ns;
    match (least, trace.short_calls()) {
        (0, 0) => String::new(),
        (_, calls) => format!(
            "{} shorter than {}",
            several(calls, "call", "calls"),
            duration(least)
        ),
    }
}

fn end_of(trace: &Trace) -> String {
    let end = trace.notes().iter().rev().find_map(|note| match note {
        Note::End { complete, why, .. } => Some((*complete, why.as_str())),
        _ => None,
    });
    match end {
        Some((true, "")) => "complete".to_string(),
        Some((false, "")) => "not complete".to_string(),
        Some((true, why)) => format!("complete: {why}"),
        Some((false, why)) => format!("incomplete: {why}"),
        None if trace.is_growing() => "not yet: it is still being recorded".to_string(),
        None => "incomplete: the recording was cut off".to_string(),
    }
}

fn processes(runs: &[Run], out: &mut dyn Write, width: usize) -> io::Result<()> {
    let mut table = Table::new(&[
        ("process", Align::Right),
        ("parent", Align::Right),
        ("threads", Align::Right),
        ("ended", Align::Left),
        ("program", Align::Left),
    ]);
    for run in runs.iter().take(LISTED) {
        let process = &run.process;
        table.row(vec![
            process.process.to_string(),
            match process.parent {
                0 => "?".to_string(),
                parent => parent.to_string(),
            },
            count(run.threads),
            match (run.ended, run.executes) {
                (Some(status), _) => ending(status),
                (None, true) => "exec".to_string(),
                (None, false) => "-".to_string(),
            },
            match process.executable {
                "" => "?".to_string(),
                executable => printable(executable),
            },
        ]);
    }
    table.write(out, width)?;
    more(out, runs.len())
}

/// A program that a process ran.
struct Run<'a> {
    process: ProcessInfo<'a>,
    threads: u64,
    /// Whether the process's first thread is among them.
    has_first: bool,
    /// The status, if that is known, of a process that ended in it.
    ended: Option<Option<i32>>,
    /// The process executed another program, in which its first thread went on.
    executes: bool,
}

/// The programs of all processes, in order of time.
fn runs(trace: &Trace) -> Vec<Run<'_>> {
    let mut exits: BTreeMap<u32, Vec<(u64, Option<i32>)>> = BTreeMap::new();
    let mut begun: BTreeMap<u32, BTreeSet<(u64, u32)>> = BTreeMap::new();
    for note in trace.notes() {
        if let Note::Exit {
            process,
            counter,
            status,
        } = note
        {
            exits.entry(*process).or_default().push((*counter, *status));
        }
    }
    for thread in trace.threads() {
        let of_process = begun.entry(thread.process).or_default();
        of_process.insert((thread.begin, thread.thread));
    }
    // From the last to the first: the time at which the next program of the same process began.
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    let mut runs: Vec<Run> = trace
        .processes()
        .into_iter()
        .rev()
        .map(|process| {
            let number = process.process;
            let until = next.insert(number, process.counter);
            // A thread of a forked child may have begun before the tool noted the child.
            let all = begun.entry(number).or_default();
            let threads = all.split_off(&(process.counter, 0));
            // The end of one whose number another one got later does not count.
            let last = threads.last().map_or(process.counter, |(begin, _)| *begin);
            let time = last..until.unwrap_or(u64::MAX);
            let ends = exits.get(&number).into_iter().flatten();
            let ended = ends.rev().find(|(end, _)| time.contains(end));
            let ended = ended.map(|(_, status)| *status);
            Run {
                process,
                threads: threads.len() as u64,
                has_first: threads.iter().any(|(_, thread)| *thread == number),
                ended,
                executes: until.is_some() && ended.is_none(),
            }
        })
        .collect();
    runs.reverse();
    for run in &mut runs {
        let number = run.process.process;
        let earlier = begun.remove(&number).unwrap_or_default();
        run.threads += earlier.len() as u64;
        run.has_first |= earlier.iter().any(|(_, thread)| *thread == number);
    }
    runs
}

/// Threads in all. The first one of a process counts once, however many programs it executed.
fn threads_of(runs: &[Run]) -> u64 {
    let mut going_on = BTreeSet::new();
    let threads = runs.iter().map(|run| {
        let counted = run.has_first && going_on.contains(&run.process.process);
        match run.executes {
            true if run.has_first => drop(going_on.insert(run.process.process)),
            true => {}
            false => drop(going_on.remove(&run.process.process)),
        }
        run.threads - u64::from(counted)
    });
    threads.sum()
}

/// A status as `waitpid` gives it.
fn ending(status: Option<i32>) -> String {
    match status {
        None => "yes".to_string(),
        Some(status) if status & 0x7f == 0 => format!("status {}", status >> 8 & 0xff),
        Some(status) => format!("signal {}", status & 0x7f),
    }
}

fn images(trace: &Trace, out: &mut dyn Write, width: usize) -> io::Result<()> {
    #[derive(Default)]
    struct Image<'a> {
        path: &'a str,
        traced: u64,
        refused: u64,
    }
    let mut images: BTreeMap<u32, Image> = BTreeMap::new();
    for note in trace.notes() {
        match note {
            Note::Image { image, path, .. } => images.entry(*image).or_default().path = path,
            Note::Sites { image, sites } => {
                images.entry(*image).or_default().traced += sites.len() as u64
            }
            Note::Refused { image, count, .. } => {
                let refused = &mut images.entry(*image).or_default().refused;
                *refused = refused.saturating_add(*count);
            }
            _ => {}
        }
    }
    let mut table = Table::new(&[
        ("functions", Align::Right),
        ("refused", Align::Right),
        ("file", Align::Left),
    ]);
    images.retain(|_, image| image.traced + image.refused > 0);
    for image in images.values().take(LISTED) {
        table.row(vec![
            count(image.traced),
            count(image.refused),
            printable(image.path),
        ]);
    }
    table.write(out, width)?;
    more(out, images.len())
}

fn more(out: &mut dyn Write, all: usize) -> io::Result<()> {
    match all.checked_sub(LISTED) {
        Some(left @ 1..) => writeln!(out, "({left} more)"),
        _ => Ok(()),
    }
}
