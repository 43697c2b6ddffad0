//! Single calls, and markers.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::kernel_events::KernelNames;
use nopal_analysis::markers::push_marker;
use nopal_analysis::prototypes::{ProcessMoment, Prototypes};
use nopal_analysis::slow;
use nopal_analysis::sort;
use nopal_index::ThreadIndex;
use nopal_index::find::{Call, CallId, End, Sum};
use nopal_trace::{Event, ThreadInfo};
use serde::Serialize;

use super::query::Query;
use super::{cells, tables, tracks};
use crate::shown::State;

const MOST_MARKERS: usize = 2000;
const MOST_CHILDREN: usize = 100;
const MOST_LONGEST: usize = 100;
/// The most words of records that are read for the children of a call, and for markers.
const WORDS: u64 = 1 << 22;
/// The most blocks that are read for the hits of a view.
const HIT_BLOCKS: usize = 256;

#[derive(Serialize)]
struct CallPosition {
    function: u32,
    depth: usize,
    begin: u64,
}

/// A call. Times are whole nanoseconds.
#[derive(Serialize)]
struct Details {
    #[serde(flatten)]
    place: CallPosition,
    address: String,
    /// The time at which it ended, or was last known to be open.
    end: u64,
    /// Its self time.
    own: Option<u64>,
    /// `returned`, `unwound`, `open` (its end is not known) or `entry` (only its entry was recorded).
    how: &'static str,
    arguments: Option<[String; 6]>,
    result: Option<String>,
    /// Its nanoseconds on a processor, waiting for one, waiting for something else, and unknown, if kernel events tell.
    times: Option<[u64; 4]>,
    /// Functions of the kernel that were entered in it, by name, with their numbers.
    kernel: Vec<(String, u64)>,
    /// The functions that it called: number, calls, nanoseconds. None if the call is too long to read.
    children: Option<Vec<(u32, u64, u64)>>,
}

/// The call that was asked for.
#[derive(Default, Serialize)]
pub struct Stack {
    /// The calls that it is in, the outermost first.
    callers: Vec<CallPosition>,
    call: Option<Details>,
}

/// The thread that is asked for, by its place in the trace.
fn thread<'a>(state: &'a State, query: &Query) -> Result<(usize, ThreadInfo<'a>, &'a ThreadIndex)> {
    let at = query.number("thread")? as usize;
    let info = state
        .trace
        .threads()
        .get(at)
        .copied()
        .context("no such thread")?;
    Ok((
        at,
        info,
        state.index.threads.get(at).context("no such thread")?,
    ))
}

fn place(state: &State, id: CallId, depth: usize) -> CallPosition {
    CallPosition {
        function: state.names.number(id.site),
        depth,
        begin: state.ns(id.begin),
    }
}

fn details(
    state: &State,
    thread: usize,
    (info, index): (&ThreadInfo, &ThreadIndex),
    call: &Call,
) -> Details {
    let ns = |ticks| state.trace.clocks().duration_ns(ticks);
    let hexadecimal = |value: u64| format!("{value:#x}");
    let (end, own, how, result) = match call.end {
        End::Left {
            clock,
            own,
            result,
            unwound,
        } => {
            let how = if unwound { "unwound" } else { "returned" };
            (clock, Some(ns(own)), how, result)
        }
        End::Lost(clock) => (clock, None, "open", None),
        End::Only => (call.id.begin, None, "entry", None),
    };
    let depth = call.callers.len();
    let sums = index.sums(info, call.id.begin..end, depth + 1, WORDS);
    let children = sums.map(|sums| {
        let child = |sum: &Sum| (state.names.number(sum.site), sum.calls, ns(sum.ticks));
        sums.iter().take(MOST_CHILDREN).map(child).collect()
    });
    Details {
        place: place(state, call.id, depth),
        address: format!("{:#x}", state.names.function(call.id.site).address),
        end: state.ns(end),
        own,
        how,
        arguments: call.arguments.map(|arguments| arguments.map(hexadecimal)),
        result: result.map(hexadecimal),
        times: times(state, thread, call.id.begin, end),
        kernel: kernel_functions(state, thread, call.id.begin, end),
        children,
    }
}

fn times(state: &State, thread: usize, from: u64, until: u64) -> Option<[u64; 4]> {
    let waits = state.kernel().waits.as_ref()?;
    let times = tracks::times(waits.within(thread, from, until), until - from);
    Some(times.map(|ticks| state.trace.clocks().duration_ns(ticks)))
}

/// The functions of the kernel that were entered most often.
fn kernel_functions(state: &State, thread: usize, from: u64, until: u64) -> Vec<(String, u64)> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for entered in state.kernel().functions_in(thread, from, until) {
        *counts.entry(entered.function).or_default() += 1;
    }
    let mut counts: Vec<(u64, u64)> = counts.into_iter().collect();
    sort::by_key(&mut counts, |(function, count)| {
        (std::cmp::Reverse(*count), *function)
    });
    let names = KernelNames::new(&state.trace);
    let counts = counts.iter().take(MOST_CHILDREN);
    counts
        .map(|(function, count)| (names.name(*function), *count))
        .collect()
}

/// The facts about a call, if it is there.
fn described(
    state: &State,
    thread: usize,
    (info, index): (&ThreadInfo, &ThreadIndex),
    id: Option<CallId>,
) -> Stack {
    let Some(call) = id.and_then(|id| index.call(info, id)) else {
        return Stack::default();
    };
    let callers = call.callers.iter().enumerate();
    Stack {
        callers: callers
            .map(|(depth, id)| place(state, *id, depth))
            .collect(),
        call: Some(details(state, thread, (info, index), &call)),
    }
}

/// `stack?thread=&at=&depth=`: the call of a depth at a moment; one that begins then rather than one that ends.
pub fn stack(state: &State, query: &Query) -> Result<Stack> {
    let (thread, info, index) = thread(state, query)?;
    let moment = state.moment(query.number("at")?);
    let id = index.call_at(&info, moment, query.number("depth")? as usize);
    Ok(described(state, thread, (&info, index), id))
}

/// `step?thread=&at=&functions=&to=next|previous`: the first call of some functions that begins at `at` or later, or the
/// last one that begins before.
pub fn step(state: &State, query: &Query) -> Result<Stack> {
    let (thread, info, index) = thread(state, query)?;
    let at = state.counter(query.number("at")?);
    let functions = query.numbers("functions")?;
    let is_wanted = |site| functions.contains(&u64::from(state.names.number(site)));
    let id = match query.text("to") {
        Some("previous") => index.previous_call(&info, at, is_wanted),
        _ => index.next_call(&info, at, is_wanted),
    };
    Ok(described(state, thread, (&info, index), id))
}

/// What debug information tells of a call. It may take a while to be read.
#[derive(Serialize)]
pub struct Described {
    /// `FILE:LINE` of the function.
    line: Option<String>,
    /// The lines where the caller calls it by name.
    calls: Vec<String>,
    /// Its arguments and its result by their types, as `nopal slow` shows them; empty if neither was recorded.
    values: String,
}

/// `source?thread=&at=&depth=`: the place of the call in the source, and its values by their types.
pub fn source(state: &State, query: &Query) -> Result<Described> {
    let (_, info, index) = thread(state, query)?;
    let moment = state.moment(query.number("at")?);
    let id = index.call_at(&info, moment, query.number("depth")? as usize);
    let call = id.and_then(|id| index.call(&info, id));
    let call = call.context("no call is here")?;
    let number = |id: &CallId| state.names.number(id.site);
    let source = state.source(number(&call.id), call.callers.last().map(number))?;
    Ok(Described {
        line: source.line.clone(),
        calls: source.calls.clone(),
        values: values(state, &info, &call),
    })
}

fn values(state: &State, info: &ThreadInfo, call: &Call) -> String {
    let mut known = state.prototypes.lock();
    let before = std::mem::take(&mut *known);
    let mut prototypes = Prototypes::with(&state.trace, &state.names, before);
    let moment = ProcessMoment {
        process: info.process,
        clock: call.id.begin,
    };
    let typed = prototypes.values(state.names.number(call.id.site), moment);
    let result = match call.end {
        End::Left { result, .. } => result,
        End::Lost(_) | End::Only => None,
    };
    let text = slow::values(call.arguments.as_ref(), result, typed);
    *known = prototypes.into_known();
    text
}

#[derive(Serialize)]
pub struct Hits {
    /// Calls in the whole trace, by thread.
    totals: Vec<u64>,
    /// For each thread that has calls, those that begin in each column.
    columns: Vec<(usize, Vec<f32>)>,
}

/// `hits?functions=&from=&until=&columns=`: the places of calls of some functions.
pub fn hits(state: &State, query: &Query) -> Result<Hits> {
    let mut functions = query.numbers("functions")?;
    functions.sort_unstable();
    functions.dedup();
    let bounds = cells::bounds(state, query)?;
    let is_wanted = |site| {
        functions
            .binary_search(&u64::from(state.names.number(site)))
            .is_ok()
    };
    let counted = state.counted(&functions, || {
        let infos = state.trace.threads();
        let both = infos.iter().zip(&state.index.threads);
        both.map(|(info, index)| index.calls_by_block(info, is_wanted))
            .collect()
    })?;
    let counted: &Arc<Vec<Vec<u64>>> = &counted;
    let infos = state.trace.threads();
    let mut columns = Vec::new();
    for (at, (info, index)) in infos.iter().zip(&state.index.threads).enumerate() {
        if counted[at].iter().any(|calls| *calls > 0) {
            columns.push((at, hits_of(info, index, &counted[at], &bounds, is_wanted)));
        }
    }
    Ok(Hits {
        totals: counted.iter().map(|blocks| blocks.iter().sum()).collect(),
        columns,
    })
}

fn hits_of(
    info: &ThreadInfo,
    index: &ThreadIndex,
    counted: &[u64],
    bounds: &[u64],
    is_wanted: impl Fn(u32) -> bool,
) -> Vec<f32> {
    let (from, until) = (bounds[0], bounds[bounds.len() - 1]);
    let mut hits = vec![0.0; bounds.len() - 1];
    let column_at = |clock: u64| {
        bounds
            .partition_point(|bound| *bound <= clock)
            .wrapping_sub(1)
    };
    let blocks = index.blocks_in(&(from..until));
    let read = blocks.len() <= HIT_BLOCKS;
    for block in blocks.filter(|block| counted[*block] > 0) {
        let time = index.time_of(block);
        let (first, last) = (column_at(time.start), column_at(time.end));
        if first == last {
            if let Some(hits) = hits.get_mut(first) {
                *hits += counted[block] as f32;
            }
        } else if read {
            for record in index
                .packets_in(info, block)
                .flat_map(|packet| packet.records())
            {
                if let Event::Entry { site, .. } = record.event
                    && is_wanted(site)
                    && let Some(hits) = hits.get_mut(column_at(record.clock))
                {
                    *hits += 1.0;
                }
            }
        } else {
            let ticks = (time.end - time.start).max(1) as f32;
            for (column, hits) in hits.iter_mut().enumerate() {
                let (begin, end) = (
                    bounds[column].max(time.start),
                    bounds[column + 1].min(time.end),
                );
                *hits += counted[block] as f32 * end.saturating_sub(begin) as f32 / ticks;
            }
        }
    }
    hits
}

/// One of the longest calls. Times are nanoseconds.
#[derive(Serialize)]
pub struct LongCall {
    function: u32,
    thread: usize,
    begin: u64,
    duration: u64,
    /// It took at least this long.
    is_least: bool,
    /// None of a call whose entry is not recorded.
    depth: Option<usize>,
    caller: Option<u32>,
}

/// `longest?functions=&from=&until=&threads=`: the longest calls of some functions, the longest first.
pub fn longest(state: &State, query: &Query) -> Result<Vec<LongCall>> {
    let functions = query.numbers("functions")?.into_iter();
    let functions: Vec<u32> = functions
        .filter_map(|number| number.try_into().ok())
        .collect();
    let filter = tables::filter(state, query)?;
    let drive = Drive {
        filter: Some(&filter),
        ..Drive::default()
    };
    let (trace, names) = (&state.trace, &state.names);
    let calls = slow::longest(trace, names, &functions, MOST_LONGEST, &drive)?;
    let (clocks, threads) = (trace.clocks(), trace.threads());
    let described = calls.into_iter().map(|call| {
        let (info, index) = (&threads[call.stream], &state.index.threads[call.stream]);
        let is_it = |site| names.number(site) == call.function;
        let id = index.next_call(info, call.begin, is_it);
        let id = id.filter(|id| id.begin == call.begin);
        let callers = id.and_then(|id| index.callers(info, id));
        let caller = callers.as_ref().and_then(|callers| callers.last());
        LongCall {
            function: call.function,
            thread: call.stream,
            begin: state.ns(call.begin),
            duration: clocks.duration_ns(call.end.saturating_sub(call.begin)),
            is_least: call.is_least,
            caller: caller.map(|caller| names.number(caller.site)),
            depth: callers.map(|callers| callers.len()),
        }
    });
    Ok(described.collect())
}

#[derive(Serialize)]
pub struct Markers {
    /// Time, text with the values, and whether it is a tracepoint of the kernel.
    markers: Vec<(u64, String, bool)>,
    /// Further ones are left out.
    is_cut: bool,
}

/// `markers?thread=&from=&until=`: the markers of a time.
pub fn markers(state: &State, query: &Query) -> Result<Markers> {
    let (_, info, index) = thread(state, query)?;
    let time = state.counter(query.number("from")?)..state.counter(query.number("until")?);
    let mut found = Markers {
        markers: Vec::new(),
        is_cut: false,
    };
    let mut read = 0;
    for block in index
        .blocks_in(&time)
        .filter(|block| index.markers_in(*block) > 0)
    {
        for packet in index.packets_in(&info, block) {
            read += packet.words().len() as u64;
            for record in packet
                .records()
                .filter(|record| time.contains(&record.clock))
            {
                let Event::Marker { event, payload } = record.event else {
                    continue;
                };
                let mut text = Vec::new();
                let marker = state.trace.markers().get(event);
                push_marker(&mut text, marker, payload);
                let text = String::from_utf8_lossy(&text).into_owned();
                let is_of_kernel = marker.is_some_and(|marker| marker.is_tracepoint);
                found
                    .markers
                    .push((state.ns(record.clock), text, is_of_kernel));
            }
        }
        if found.markers.len() >= MOST_MARKERS || read > WORDS {
            found.is_cut = true;
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use nopal_trace::synthetic::{Random, Recorder, clock};
    use nopal_trace::{Note, Session, Trace, Writer};

    use super::*;
    use crate::Shown;

    const BEGIN: u64 = 1 << 40;
    const SITES: u32 = 4;

    /// Depth, site, begin and end in ticks of the calls of a thread, in the order of their begins.
    type Made = Vec<(usize, u32, u64, u64)>;

    /// A thread whose counter counts 2,599 times in a microsecond, with no two records in a nanosecond.
    fn made(directory: &std::path::Path, seed: u64) -> (Trace, Made) {
        let mut random = Random::new(seed);
        let mut writer = Writer::create(directory, Session::default()).unwrap();
        let image = Note::Image {
            image: 1,
            path: "/opt/made".into(),
            identity: String::new(),
        };
        let site = |number: u32| (number, u64::from(number) * 64, 64, format!("f{number}"));
        let sites = Note::Sites {
            image: 1,
            sites: (1..=SITES).map(site).collect(),
        };
        for note in [image, sites, clock(BEGIN)] {
            writer.note(&note).unwrap();
        }
        let mut recorder = Recorder::new(1, 1, BEGIN);
        let (mut calls, mut open) = (Made::new(), Vec::new());
        let mut now = BEGIN;
        while calls.len() < 400 || !open.is_empty() {
            let slot = |depth: usize| 0x7ffd_ffff_f008 - 0x30 * depth as u64;
            if calls.len() < 400 && open.len() < 6 && random.below(2) == 0 {
                let (depth, site) = (open.len(), 1 + random.below(SITES.into()) as u32);
                recorder.entry(now, site, slot(depth));
                open.push(calls.len());
                calls.push((depth, site, now, 0));
            } else if let Some(call) = open.pop() {
                calls[call].3 = now;
                recorder.exit(now, calls[call].1, slot(open.len()));
            } else {
                continue;
            }
            now += 3 + random.below(4) * random.below(20);
        }
        recorder.finish(&mut writer).unwrap();
        let end = Note::Clock {
            counter: now,
            monotonic_ns: BEGIN + (now - BEGIN) * 1000 / 2599,
            realtime_ns: 0,
        };
        writer.note(&end).unwrap();
        writer.sync_metadata().unwrap();
        (Trace::open(directory).unwrap(), calls)
    }

    fn asked<T>(state: &State, of: fn(&State, &Query) -> Result<T>, query: &str) -> T {
        of(state, &Query::new(query)).unwrap()
    }

    /// Function, depth, begin and end of the call.
    fn place_of(stack: &Stack) -> Option<(u32, usize, u64, u64)> {
        let call = stack.call.as_ref()?;
        let CallPosition {
            function,
            depth,
            begin,
        } = call.place;
        Some((function, depth, begin, call.end))
    }

    #[test]
    fn each_call_is_at_its_begin_and_is_visited_once() {
        for seed in 1..=5 {
            let place = tempfile::tempdir().unwrap();
            let (trace, calls) = made(&place.path().join("trace"), seed);
            let shown = Shown::new(trace, 1, None);
            let test = |state: &State| {
                let number = |site: &u32| state.names.number(*site);
                let known = |(depth, site, begin, end): &(usize, u32, u64, u64)| {
                    (number(site), *depth, state.ns(*begin), state.ns(*end))
                };
                let calls: Vec<_> = calls.iter().map(known).collect();
                let mut open: Vec<(u32, usize, u64)> = Vec::new();
                for call in &calls {
                    let (function, depth, begin, _) = *call;
                    open.truncate(depth);
                    let query = format!("thread=0&at={begin}&depth={depth}");
                    let stack = asked(state, stack, &query);
                    assert_eq!(place_of(&stack), Some(*call), "seed {seed}");
                    let callers = stack.callers.iter();
                    let callers = callers.map(|one| (one.function, one.depth, one.begin));
                    assert_eq!(callers.collect::<Vec<_>>(), open, "seed {seed}");
                    open.push((function, depth, begin));
                }
                for function in (1..=SITES).map(|site| number(&site)) {
                    let step = |at: u64, to: &str| {
                        let query = format!("thread=0&at={at}&functions={function}&to={to}");
                        place_of(&asked(state, step, &query))
                    };
                    let next =
                        std::iter::successors(step(0, "next"), |call| step(call.2 + 1, "next"));
                    let mut visited: Vec<_> = next.take(1000).collect();
                    let of = calls.iter().filter(|call| call.0 == function).copied();
                    assert_eq!(visited, of.collect::<Vec<_>>(), "seed {seed}");
                    let last = visited.last().copied();
                    let previous = std::iter::successors(last, |call| step(call.2, "previous"));
                    let back: Vec<_> = previous.take(1000).collect();
                    visited.reverse();
                    assert_eq!(back, visited, "seed {seed}");
                }
                Ok(())
            };
            shown.with(test).unwrap();
        }
    }

    #[test]
    fn the_longest_calls_have_their_depths_and_callers() {
        let place = tempfile::tempdir().unwrap();
        let (trace, calls) = made(&place.path().join("trace"), 1);
        let shown = Shown::new(trace, 1, None);
        let test = |state: &State| {
            let function = state.names.number(1);
            let found = asked(state, longest, &format!("functions={function}"));
            let of = calls.iter().filter(|call| call.1 == 1).count();
            assert_eq!(found.len(), of.min(MOST_LONGEST));
            for long in &found {
                let at = calls
                    .iter()
                    .position(|call| call.1 == 1 && state.ns(call.2) == long.begin);
                let (depth, ..) = calls[at.unwrap()];
                let mut before = calls[..at.unwrap()].iter().rev();
                let caller = before.find(|call| call.0 + 1 == depth);
                let caller = caller.map(|call| state.names.number(call.1));
                assert_eq!((long.depth, long.caller), (Some(depth), caller));
            }
            Ok(())
        };
        shown.with(test).unwrap();
    }
}
