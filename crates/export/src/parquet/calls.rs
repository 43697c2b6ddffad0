//! The table of calls: a row for each, in row groups that are sorted by start.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_beside::{Mutex, both};
use nopal_trace::{Clocks, Trace};
use parquet::data_type::ByteArray;

use super::dictionary::distinct;
use super::file::{Column, Kind, Layout, RowGroup, TableFile};
use crate::requests::{RequestBegin, Requests};
use crate::table::{COLUMNS, Call, Rows, State, Table};

/// Calls of a row group.
const GROUP: usize = 1_000_000;

fn column(name: &'static str) -> Column {
    let kind = match name {
        "pid" | "tid" | "depth" => Kind::Small,
        "start_ns" | "duration_ns" | "self_ns" => Kind::Number,
        _ => Kind::Text,
    };
    Column {
        name,
        kind,
        is_optional: matches!(name, "duration_ns" | "self_ns" | "request"),
    }
}

pub fn write(
    trace: &Trace,
    names: &Names,
    begin: Option<&RequestBegin>,
    drive: &Drive,
    out: impl Write + Send,
) -> Result<()> {
    let layout = Layout::new(&COLUMNS.map(column), Some("start_ns"))?;
    let file = Mutex::new(TableFile::new(out, &layout)?);
    let workers = (0..drive.workers.max(1)).map(|_| {
        let rows = Groups::new(trace, names, &layout, &file);
        Table::new(trace, names, begin, rows)
    });
    let mut workers: Vec<_> = workers.collect();
    drive.run(trace, &mut workers)?;
    for worker in &mut workers {
        worker.end()?;
    }
    drop(workers);
    file.into_inner().finish()
}

/// The calls of a worker, until they fill a row group. Its texts are its own: workers that share texts would wait for
/// their reference counts.
struct Groups<'a, W: Write + Send> {
    layout: &'a Layout,
    file: &'a Mutex<TableFile<W>>,
    clocks: &'a Clocks,
    trace: [ByteArray; 1],
    states: [ByteArray; State::ALL.len()],
    /// By thread.
    processes: Values<i32>,
    threads: Values<i32>,
    thread_names: Values<ByteArray>,
    /// By function.
    modules: Values<ByteArray>,
    functions: Values<ByteArray>,
    calls: Vec<Call>,
}

/// The values of a column, each once, and the numbers of values.
struct Values<T> {
    values: Vec<T>,
    numbers: Vec<u32>,
}

impl Values<ByteArray> {
    fn texts<'t>(all: impl Iterator<Item = &'t str>) -> Values<ByteArray> {
        let (values, numbers) = distinct(all);
        let values = values.into_iter().map(ByteArray::from).collect();
        Values { values, numbers }
    }
}

impl Values<i32> {
    fn small(all: impl Iterator<Item = u32>) -> Values<i32> {
        let (values, numbers) = distinct(all.map(|value| value.try_into().unwrap_or(i32::MAX)));
        Values { values, numbers }
    }
}

/// The first column of those that are encoded by a second thread.
const SECOND_HALF: usize = 6;

impl<'a, W: Write + Send> Groups<'a, W> {
    fn new(
        trace: &'a Trace,
        names: &Names,
        layout: &'a Layout,
        file: &'a Mutex<TableFile<W>>,
    ) -> Groups<'a, W> {
        let thread_names = ThreadNames::new(trace);
        let threads = trace.threads();
        let thread_names: Vec<_> = threads
            .iter()
            .map(|thread| thread_names.of(thread))
            .collect();
        let functions = || names.functions().iter();
        Groups {
            layout,
            file,
            clocks: trace.clocks(),
            trace: [trace.uuid().to_string().as_str().into()],
            states: State::ALL.map(|state| state.name().into()),
            processes: Values::small(threads.iter().map(|thread| thread.process)),
            threads: Values::small(threads.iter().map(|thread| thread.thread)),
            thread_names: Values::texts(thread_names.iter().map(|name| name.as_str())),
            modules: Values::texts(functions().map(|function| function.module.as_str())),
            functions: Values::texts(functions().map(|function| function.name.as_str())),
            calls: Vec::new(),
        }
    }

    fn group(&self, calls: &[Call], requests: &Requests) -> Result<RowGroup<'a>> {
        let (first, second) = both(
            || self.first_half(calls),
            || self.second_half(calls, requests),
        );
        let mut group = first?;
        group.join(second?);
        Ok(group)
    }

    fn first_half(&self, calls: &[Call]) -> Result<RowGroup<'a>> {
        let calls = || calls.iter();
        let by_thread = |of: &Values<_>, group: &mut RowGroup| {
            let numbers = calls().map(|call| of.numbers[call.thread as usize]);
            group.numbered::<i32>(&of.values, numbers)
        };
        let by_function = |of: &Values<_>, group: &mut RowGroup| {
            let numbers = calls().map(|call| of.numbers[call.function as usize]);
            group.numbered::<ByteArray>(&of.values, numbers)
        };
        let mut group = RowGroup::new(self.layout);
        group.numbered(&self.trace, calls().map(|_| 0))?;
        by_thread(&self.processes, &mut group)?;
        by_thread(&self.threads, &mut group)?;
        by_function(&self.modules, &mut group)?;
        by_function(&self.functions, &mut group)?;
        group.numbers(calls().map(|call| Some(self.clocks.realtime_ns(call.begin))))?;
        Ok(group)
    }

    fn second_half(&self, calls: &[Call], requests: &Requests) -> Result<RowGroup<'a>> {
        let calls = || calls.iter();
        let timed = |call: &Call, ticks: u64| {
            (call.state != State::Entry).then(|| self.clocks.duration_ns(ticks))
        };
        let request = |call: &Call| (call.request != 0).then_some(call.request);
        let (identities, numbers) = distinct(calls().filter_map(request));
        let identities = identities.into_iter();
        let identities: Vec<ByteArray> = identities
            .map(|request| requests.identity(request).into())
            .collect();
        let mut numbers = numbers.into_iter();
        let deepest = calls().map(|call| call.depth).max().unwrap_or(0);
        let depths: Vec<i32> = (0..=deepest).map(|depth| depth as i32).collect();
        let names = &self.thread_names;
        let mut group = RowGroup::from(self.layout, SECOND_HALF);
        group.numbers(calls().map(|call| timed(call, call.ticks)))?;
        group.numbers(calls().map(|call| timed(call, call.own)))?;
        group.numbered(&depths, calls().map(|call| call.depth))?;
        let numbers = calls().map(|call| request(call).and_then(|_| numbers.next()));
        group.numbered(&identities, numbers)?;
        group.numbered(&self.states, calls().map(|call| call.state as u32))?;
        group.numbered(
            &names.values,
            calls().map(|call| names.numbers[call.thread as usize]),
        )?;
        Ok(group)
    }

    /// Writes the first `number` of calls.
    fn flush(&mut self, number: usize, requests: &Requests) -> Result<()> {
        sort_by_begin(&mut self.calls[..number]);
        let group = self.group(&self.calls[..number], requests)?;
        self.calls.drain(..number);
        self.file.lock().append(group)
    }
}

impl<W: Write + Send> Rows for Groups<'_, W> {
    #[inline(always)]
    fn row(&mut self, call: Call) {
        self.calls.push(call);
    }

    fn pause(&mut self, requests: &Requests) -> Result<()> {
        while self.calls.len() >= GROUP {
            self.flush(GROUP, requests)?;
        }
        Ok(())
    }

    fn end(&mut self, requests: &Requests) -> Result<()> {
        match self.calls.len() {
            0 => Ok(()),
            rest => self.flush(rest, requests),
        }
    }
}

/// Sorts by the digits of begins, the lowest first: calls of one time differ in few. Calls that begin at once keep their
/// order.
fn sort_by_begin(calls: &mut [Call]) {
    const BITS: u32 = 11;
    let least = calls.iter().map(|call| call.begin).min().unwrap_or(0);
    let begins = calls.iter().map(|call| call.begin - least);
    let mut order: Vec<(u64, u32)> = begins.zip(0..).collect();
    let digits = order.iter().fold(0, |all, (begin, _)| all | begin);
    let mut sorted = vec![(0, 0); calls.len()];
    for shift in (0..u64::BITS - digits.leading_zeros()).step_by(BITS as usize) {
        let digit = |begin: u64| (begin >> shift) as usize % (1 << BITS);
        let mut places = [0; 1 << BITS];
        for (begin, _) in &order {
            places[digit(*begin)] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for one in &order {
            let place = &mut places[digit(one.0)];
            sorted[*place] = *one;
            *place += 1;
        }
        std::mem::swap(&mut order, &mut sorted);
    }
    drop(sorted);
    for start in 0..calls.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at].1, at as u32) as usize;
            if from == start {
                break;
            }
            calls.swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_in_the_order_of_the_librarys_sort() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for number in [0, 1, 2, 100, 5000] {
            for range in [1, 3, 1 << 20, 1 << 45, u64::MAX] {
                let least = random.u64(..=u64::MAX - range);
                let call = |at| Call {
                    begin: least + random.u64(..=range),
                    ticks: at,
                    own: 0,
                    function: 0,
                    thread: 0,
                    depth: 0,
                    request: 0,
                    state: State::Complete,
                };
                let mut calls: Vec<Call> = (0..number).map(call).collect();
                let mut expected = calls.clone();
                expected.sort_by_key(|call| call.begin);
                sort_by_begin(&mut calls);
                let places =
                    |calls: &[Call]| -> Vec<u64> { calls.iter().map(|call| call.ticks).collect() };
                assert_eq!(places(&calls), places(&expected), "seed {seed}");
            }
        }
    }
}
