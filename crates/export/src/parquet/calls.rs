//! The table of calls: a row for each, in row groups that are sorted by start.

use std::io::Write;

use anyhow::Result;
use nopal_analysis::drive::Drive;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_beside::Mutex;
use nopal_trace::{Clocks, Trace};
use parquet::data_type::ByteArray;

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

/// The calls of a worker, until they fill a row group. Texts are its own, as other workers would wait for their counts
/// of references.
struct Groups<'a, W: Write + Send> {
    layout: &'a Layout,
    file: &'a Mutex<TableFile<W>>,
    clocks: &'a Clocks,
    trace: ByteArray,
    threads: Vec<Thread>,
    functions: Vec<(ByteArray, ByteArray)>,
    calls: Vec<Call>,
}

struct Thread {
    process: u32,
    thread: u32,
    name: ByteArray,
}

impl<'a, W: Write + Send> Groups<'a, W> {
    fn new(
        trace: &'a Trace,
        names: &Names,
        layout: &'a Layout,
        file: &'a Mutex<TableFile<W>>,
    ) -> Groups<'a, W> {
        let thread_names = ThreadNames::new(trace);
        let threads = trace.threads().into_iter().map(|thread| Thread {
            process: thread.process,
            thread: thread.thread,
            name: thread_names.of(&thread).as_str().into(),
        });
        let functions = names.functions().iter();
        let functions = functions.map(|function| {
            let (module, name) = (function.module.as_str(), function.name.as_str());
            (module.into(), name.into())
        });
        Groups {
            layout,
            file,
            clocks: trace.clocks(),
            trace: trace.uuid().to_string().as_str().into(),
            threads: threads.collect(),
            functions: functions.collect(),
            calls: Vec::new(),
        }
    }

    fn thread(&self, call: &Call) -> &Thread {
        &self.threads[call.thread as usize]
    }

    fn function(&self, call: &Call) -> &(ByteArray, ByteArray) {
        &self.functions[call.function as usize]
    }

    fn group(&self, calls: &[Call], requests: &Requests) -> Result<RowGroup<'a>> {
        let clocks = self.clocks;
        let timed = |call: &Call, ticks: u64| {
            (call.state != State::Entry).then(|| clocks.duration_ns(ticks))
        };
        let states = State::ALL.map(|state| ByteArray::from(state.name()));
        // Calls of one request mostly follow each other.
        let mut last = (0, None);
        let mut request = |call: &Call| {
            if last.0 != call.request {
                last = (call.request, Some(requests.identity(call.request).into()));
            }
            last.1.clone().filter(|_| call.request != 0)
        };
        let mut group = RowGroup::new(self.layout);
        group.texts(calls.iter().map(|_| Some(self.trace.clone())))?;
        group.small(calls.iter().map(|call| self.thread(call).process))?;
        group.small(calls.iter().map(|call| self.thread(call).thread))?;
        group.texts(calls.iter().map(|call| Some(self.function(call).0.clone())))?;
        group.texts(calls.iter().map(|call| Some(self.function(call).1.clone())))?;
        group.numbers(
            calls
                .iter()
                .map(|call| Some(clocks.realtime_ns(call.begin))),
        )?;
        group.numbers(calls.iter().map(|call| timed(call, call.ticks)))?;
        group.numbers(calls.iter().map(|call| timed(call, call.own)))?;
        group.small(calls.iter().map(|call| call.depth))?;
        group.texts(calls.iter().map(&mut request))?;
        group.texts(
            calls
                .iter()
                .map(|call| Some(states[call.state as usize].clone())),
        )?;
        group.texts(
            calls
                .iter()
                .map(|call| Some(self.thread(call).name.clone())),
        )?;
        Ok(group)
    }

    /// Writes the first `number` of calls.
    fn flush(&mut self, number: usize, requests: &Requests) -> Result<()> {
        self.calls[..number].sort_by_key(|call| call.begin);
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
