//! Tracks beside the threads: processors, cases of tracers, values of markers; and the states of threads by kernel
//! events.
//!
//! `of` names a track: `cpu`, a tracer or `FROM..TO`, or `MARKER.FIELD`.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use nopal_analysis::kernel_events::{KernelNames, events, kind, push_event, thread};
use nopal_analysis::sort;
use nopal_analysis::text::several;
use nopal_analysis::tracers::Numbers;
use nopal_analysis::waits::Waited;
use serde::Serialize;

use super::cells::bounds;
use super::query::Query;
use crate::cases::{Cases, extent};
use crate::shown::State;
use crate::track::{Lane, Span, Track};

/// The track of processors.
const PROCESSORS: &str = "cpu";

/// The most spans of a table, and the most wake-ups and events of an answer.
const MOST: usize = 100;
const MOST_WAKES: usize = 150;
const MOST_EVENTS: usize = 1000;

fn name(query: &Query) -> Result<String> {
    query.unescaped("of")?.context("of is missing")
}

/// The counter at the ends of the time that is asked for: all of it without `from` and `until`.
fn time(state: &State, query: &Query) -> Result<(u64, u64)> {
    let moment = |name| match query.text(name) {
        Some(_) => query.number(name).map(|ns| Some(state.counter(ns))),
        None => Ok(None),
    };
    let (from, until) = (moment("from")?, moment("until")?);
    Ok((from.unwrap_or(0), until.unwrap_or(u64::MAX)))
}

/// Gives `work` a track, and the cases that it shows.
fn with<T>(
    state: &State,
    query: &Query,
    work: impl FnOnce(&Track, Option<&Cases>) -> Result<T>,
) -> Result<T> {
    let name = name(query)?;
    if name == PROCESSORS {
        return work(&state.kernel().processors, None);
    }
    let cases: Arc<Cases> = state.cases(&name)?;
    work(&cases.track, Some(&cases))
}

#[derive(Serialize)]
pub struct Description<'a> {
    lanes: Vec<DescribedLane<'a>>,
    labels: &'a [String],
    notes: Vec<String>,
}

#[derive(Serialize)]
struct DescribedLane<'a> {
    name: &'a str,
    /// Times of which nothing is known.
    missing: Vec<(u64, u64)>,
}

/// `track?of=`: the description of a track.
pub fn track(state: &State, query: &Query) -> Result<Vec<u8>> {
    with(state, query, |track, cases| {
        let lane = |lane: &'_ Lane| {
            let missing = lane.missing.iter();
            missing
                .map(|(begin, end)| (state.ns(*begin), state.ns(*end)))
                .collect()
        };
        let lanes = track.lanes.iter().map(|one| DescribedLane {
            name: &one.name,
            missing: lane(one),
        });
        let mut notes = cases.map_or(Vec::new(), |cases| cases.notes.clone());
        if let Some(more) = cases
            .map(|cases| cases.without_row)
            .filter(|more| *more > 0)
        {
            notes.push(format!(
                "{} with too many others: not drawn, but counted",
                several(more, "case overlaps", "cases overlap")
            ));
        }
        let description = Description {
            lanes: lanes.collect(),
            labels: &track.labels,
            notes,
        };
        Ok(serde_json::to_vec(&description)?)
    })
}

/// `lanes?of=&from=&until=&columns=`: cells as in `cells`, a row for each lane, without rows of markers. Functions are
/// labels of the track.
pub fn lanes(state: &State, query: &Query) -> Result<Vec<u8>> {
    let bounds = bounds(state, query)?;
    let columns = bounds.len() - 1;
    with(state, query, |track, _| {
        let mut bytes = Vec::with_capacity(12 + track.lanes.len() * columns * 8);
        for number in [columns as u32, track.lanes.len() as u32, 1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for lane in &track.lanes {
            for (cell, pair) in lane.cells(&bounds).iter().zip(bounds.windows(2)) {
                let width = (pair[1] - pair[0]).max(1) as f64;
                bytes.extend_from_slice(&cell.label.to_le_bytes());
                bytes.extend_from_slice(&[part(cell.covered, width), part(cell.most, width)]);
                bytes.extend_from_slice(&(cell.begins.min(65535) as u16).to_le_bytes());
            }
        }
        Ok(bytes)
    })
}

fn part(ticks: u64, width: f64) -> u8 {
    match ticks {
        0 => 0,
        _ => (ticks as f64 / width * 255.0).clamp(1.0, 255.0) as u8,
    }
}

#[derive(Serialize)]
struct ShownSpan {
    lane: usize,
    /// From the trace's beginning at the earliest.
    begin: u64,
    end: u64,
    duration: u64,
    label: u32,
    /// The thread of the trace to which it belongs, and, for a case, the thread in which it began.
    thread: Option<u32>,
    from: Option<u32>,
    /// The key that pairs begin and end of a case, if its thread does not: a lock, a value.
    key: Option<String>,
}

fn shown_span(state: &State, lane: usize, span: &Span, cases: Option<&Cases>) -> ShownSpan {
    let case = cases.and_then(|cases| cases.all.get(span.detail as usize));
    let known = |place: u32| ((place as usize) < state.index.threads.len()).then_some(place);
    ShownSpan {
        lane,
        begin: state.ns(span.begin),
        end: state.ns(span.end),
        duration: state.trace.clocks().duration_ns(span.end - span.begin),
        label: span.label,
        thread: match case {
            Some(case) => known(case.end_thread),
            None => span.detail.checked_sub(1).and_then(known),
        },
        from: case.and_then(|case| known(case.begin_thread)),
        key: cases
            .filter(|cases| cases.has_keys)
            .and_then(|cases| Some(cases.key(case?))),
    }
}

/// `span?of=&lane=&at=`: the span of a lane at a moment.
pub fn span(state: &State, query: &Query) -> Result<Vec<u8>> {
    let (lane, at) = (query.number("lane")? as usize, query.number("at")?);
    let at = state.moment(at).end - 1;
    with(state, query, |track, cases| {
        let found = track.lanes.get(lane).context("no such lane")?.at(at);
        let found = found.map(|span| shown_span(state, lane, span, cases));
        Ok(serde_json::to_vec(&found)?)
    })
}

#[derive(Serialize)]
struct Sums {
    /// The spans that overlap the time.
    count: u64,
    /// The longest of them, as a whole.
    longest: Vec<ShownSpan>,
    /// By label: the spans, and their nanoseconds within the time; by lane, too.
    labels: Vec<(u32, u64, u64, Vec<u64>)>,
}

/// `spans?of=&from=&until=`: the sums within a time; of all without these.
pub fn spans(state: &State, query: &Query) -> Result<Vec<u8>> {
    let (from, until) = time(state, query)?;
    with(state, query, |track, cases| {
        let mut all: Vec<(usize, &Span)> = Vec::new();
        let mut sums: HashMap<u32, (u64, Vec<u64>)> = HashMap::new();
        for (at, lane) in track.lanes.iter().enumerate() {
            for span in lane.within(from, until) {
                all.push((at, span));
                let new = || (0, vec![0; track.lanes.len()]);
                let sum = sums.entry(span.label).or_insert_with(new);
                sum.0 += 1;
                sum.1[at] += span.end.min(until).saturating_sub(span.begin.max(from));
            }
        }
        all.sort_by_key(|(_, span)| (std::cmp::Reverse(span.end - span.begin), span.begin));
        let ns = |ticks: &u64| state.trace.clocks().duration_ns(*ticks);
        let mut labels: Vec<_> = sums
            .into_iter()
            .map(|(label, (spans, ticks))| {
                let lanes = ticks.iter().map(ns).collect();
                (label, spans, ns(&ticks.iter().sum()), lanes)
            })
            .collect();
        sort::by_key(&mut labels, |(label, _, ns, _)| {
            (std::cmp::Reverse(*ns), *label)
        });
        let longest = all.iter().take(MOST);
        let sums = Sums {
            count: all.len() as u64,
            longest: longest
                .map(|(lane, span)| shown_span(state, *lane, span, cases))
                .collect(),
            labels,
        };
        Ok(serde_json::to_vec(&sums)?)
    })
}

#[derive(Serialize)]
pub struct Values {
    /// The number of all values, the least and the greatest.
    count: usize,
    extent: Option<(f64, f64)>,
    unread: u64,
    /// The last value before.
    before: Option<f64>,
    /// For each column, the number of values, the least, the greatest and the last.
    columns: Vec<Option<(usize, f64, f64, f64)>>,
}

/// `curve?of=&from=&until=&columns=`: the values of a field of a marker.
pub fn curve(state: &State, query: &Query) -> Result<Values> {
    let bounds = bounds(state, query)?;
    let curve = state.curve(&name(query)?)?;
    let column = |pair: &[u64]| {
        let points = curve.within(pair[0], pair[1]);
        let (least, most) = extent(points)?;
        Some((points.len(), least, most, points.last()?.1))
    };
    Ok(Values {
        count: curve.points.len(),
        extent: extent(&curve.points),
        unread: curve.unread,
        before: curve.within(0, bounds[0]).last().map(|point| point.1),
        columns: bounds.windows(2).map(column).collect(),
    })
}

/// `states?from=&until=&columns=&threads=`: five bytes for each column of each thread: the parts of it (255 is all) in
/// which the thread ran, was runnable, waited, and was in an unknown state; and the functions of the kernel that it
/// entered (255 or more).
pub fn states(state: &State, query: &Query) -> Result<Vec<u8>> {
    let bounds = bounds(state, query)?;
    let kernel = state.kernel();
    let mut bytes = Vec::new();
    for thread in query.numbers("threads")? {
        let thread = thread as usize;
        let index = state.index.threads.get(thread).context("no such thread")?;
        let life = (index.from, index.until());
        for pair in bounds.windows(2) {
            let width = (pair[1] - pair[0]).max(1) as f64;
            let (from, until) = (pair[0].max(life.0), pair[1].min(life.1));
            let all = until.saturating_sub(from);
            let [ran, ready, waited, unknown] = match &kernel.waits {
                Some(waits) if all > 0 => times(waits.within(thread, from, until), all),
                _ => [0; 4],
            };
            let entered = kernel.functions_in(thread, pair[0], pair[1]).len().min(255) as u8;
            bytes.extend([ran, ready, waited, unknown].map(|ticks| part(ticks, width)));
            bytes.push(entered);
        }
    }
    Ok(bytes)
}

/// The parts of a time: running, runnable, waiting, unknown.
pub fn times(waited: Waited, all: u64) -> [u64; 4] {
    let ready = waited.runnable.saturating_add(waited.preempted);
    let away = ready
        .saturating_add(waited.blocked)
        .saturating_add(waited.unknown);
    [
        all.saturating_sub(away),
        ready,
        waited.blocked,
        waited.unknown,
    ]
}

/// Time, processor, the waker and the woken thread by their places, and when that ran.
type ShownWake = (u64, u32, Option<u32>, u32, Option<u64>);

#[derive(Serialize)]
pub struct Wakes {
    /// Empty if there are too many.
    wakes: Vec<ShownWake>,
    all: usize,
}

/// `wakes?from=&until=`: wake-ups of the trace's threads.
pub fn wakes(state: &State, query: &Query) -> Result<Wakes> {
    let (from, until) = time(state, query)?;
    let kernel = state.kernel();
    let first = kernel.wakes.partition_point(|wake| wake.clock < from);
    let last = kernel.wakes.partition_point(|wake| wake.clock < until);
    let found = &kernel.wakes[first.min(last)..last];
    let shown = if found.len() <= MOST_WAKES {
        found
    } else {
        &[]
    };
    let ran = |woken: u32, clock: u64| {
        let lanes = kernel.processors.lanes.iter();
        let runs = lanes.filter_map(|lane| {
            let after = lane.spans.partition_point(|span| span.begin < clock);
            let mut spans = lane.spans[after..].iter();
            spans
                .find(|span| span.detail == woken + 1)
                .map(|span| span.begin)
        });
        runs.min().map(|clock| state.ns(clock))
    };
    let wakes = shown.iter().map(|wake| {
        let ran = ran(wake.woken, wake.clock);
        (
            state.ns(wake.clock),
            wake.processor,
            wake.waker,
            wake.woken,
            ran,
        )
    });
    Ok(Wakes {
        wakes: wakes.collect(),
        all: found.len(),
    })
}

#[derive(Serialize)]
pub struct Events {
    /// Time, processor, tracepoint, text, and the place of the thread.
    events: Vec<(u64, u32, &'static str, String, Option<u32>)>,
    is_cut: bool,
}

/// `events?from=&until=`: kernel events of a time.
pub fn kernel_events(state: &State, query: &Query) -> Result<Events> {
    let (from, until) = time(state, query)?;
    let names = KernelNames::new(&state.trace);
    let threads = state.trace.threads();
    let numbers = Numbers::new(&threads);
    let mut found = Vec::new();
    let within = events(&state.trace)
        .skip_while(|(_, record)| record.clock < from)
        .take_while(|(_, record)| record.clock < until);
    for (processor, record) in within.take(MOST_EVENTS + 1) {
        let mut text = Vec::new();
        push_event(&mut text, &record.event, &names);
        let text = String::from_utf8_lossy(&text).into_owned();
        let place = numbers.place(thread(&record.event), record.clock);
        found.push((
            state.ns(record.clock),
            processor,
            kind(&record.event),
            text,
            place,
        ));
    }
    let is_cut = found.len() > MOST_EVENTS;
    found.truncate(MOST_EVENTS);
    Ok(Events {
        events: found,
        is_cut,
    })
}
