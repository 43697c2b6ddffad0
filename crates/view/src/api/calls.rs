//! Single calls, and markers.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use nopal_analysis::drive::Drive;
use nopal_analysis::kernel_events::KernelNames;
use nopal_analysis::markers::push_marker;
use nopal_analysis::slow;
use nopal_analysis::sort;
use nopal_analysis::sources::{CallSites, Sources};
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

#[derive(Serialize)]
pub struct Stack {
    /// The calls that are open at the moment, the outermost first.
    calls: Vec<CallPosition>,
    /// The one that was asked for.
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
    let sums = index.sums(info, call.id.begin..end, call.depth + 1, WORDS);
    let children = sums.map(|sums| {
        let child = |sum: &Sum| (state.names.number(sum.site), sum.calls, ns(sum.ticks));
        sums.iter().take(MOST_CHILDREN).map(child).collect()
    });
    Details {
        place: place(state, call.id, call.depth),
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

/// `stack?thread=&at=&depth=`: the calls at a moment, and the facts about the one at a depth.
pub fn stack(state: &State, query: &Query) -> Result<Stack> {
    let (thread, info, index) = thread(state, query)?;
    let at = state.counter(query.number("at")?);
    let depth = query.number("depth")? as usize;
    let stack = index.stack_at(&info, at);
    let asked = stack.iter().find(|(other, _)| *other == depth);
    let call = asked.and_then(|(_, id)| index.call(&info, *id));
    Ok(Stack {
        call: call.map(|call| details(state, thread, (&info, index), &call)),
        calls: stack
            .iter()
            .map(|(depth, id)| place(state, *id, *depth))
            .collect(),
    })
}

/// `step?thread=&at=&functions=&to=next|previous`: the nearest other call of some functions, and the calls around it.
pub fn step(state: &State, query: &Query) -> Result<Stack> {
    let (thread, info, index) = thread(state, query)?;
    let at = state.counter(query.number("at")?);
    let functions = query.numbers("functions")?;
    let is_wanted = |site| functions.contains(&u64::from(state.names.number(site)));
    let found = match query.text("to") {
        // The moment is that of a call, rounded down.
        Some("previous") => index.previous_call(&info, at, is_wanted),
        _ => index.next_call(
            &info,
            at + state.trace.clocks().frequency() / 1_000_000_000,
            is_wanted,
        ),
    };
    let call = found.and_then(|id| index.call(&info, id));
    let calls = found.map_or(Vec::new(), |id| index.stack_at(&info, id.begin));
    Ok(Stack {
        call: call.map(|call| details(state, thread, (&info, index), &call)),
        calls: calls
            .iter()
            .map(|(depth, id)| place(state, *id, *depth))
            .collect(),
    })
}

#[derive(Serialize)]
pub struct Source {
    /// `FILE:LINE` of the function.
    line: Option<String>,
    /// The lines where the caller calls it by name.
    calls: Vec<String>,
}

/// `source?function=&caller=`: the places of a function and its calls in the source, by debug information.
pub fn source(state: &State, query: &Query) -> Result<Source> {
    let (trace, names) = (&state.trace, &state.names);
    let function = query.number("function")? as u32;
    let lines = Sources::of_functions(trace, names, |other| other == function);
    let caller = query
        .numbers("caller")?
        .first()
        .map(|caller| *caller as u32);
    let pairs = caller
        .map(|caller| (caller, function))
        .into_iter()
        .collect();
    let sites = CallSites::new(trace, names, pairs);
    Ok(Source {
        line: lines.of(function).map(str::to_owned),
        calls: caller.map_or(Vec::new(), |caller| sites.of(caller, function).to_vec()),
    })
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
    #[serde(flatten)]
    place: CallPosition,
    thread: usize,
    duration: u64,
    /// It took at least this long.
    is_least: bool,
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
    let clocks = trace.clocks();
    let described = calls.into_iter().map(|call| {
        let callers = call.path.as_deref().and_then(|path| path.split_last());
        let callers = callers.map_or(&[][..], |(_, callers)| callers);
        LongCall {
            place: CallPosition {
                function: call.function,
                depth: callers.len(),
                begin: state.ns(call.begin),
            },
            thread: call.stream,
            duration: clocks.duration_ns(call.end.saturating_sub(call.begin)),
            is_least: call.is_least,
            caller: callers.last().copied(),
        }
    });
    Ok(described.collect())
}

#[derive(Serialize)]
pub struct Markers {
    /// Time, and text with the values.
    markers: Vec<(u64, String)>,
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
                push_marker(&mut text, state.trace.markers().get(event), payload);
                let text = String::from_utf8_lossy(&text).into_owned();
                found.markers.push((state.ns(record.clock), text));
            }
        }
        if found.markers.len() >= MOST_MARKERS || read > WORDS {
            found.is_cut = true;
            break;
        }
    }
    Ok(found)
}
