//! Functions of the kernel, by the traced functions that they ran in.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Result, ensure};
use nopal_trace::{KernelEvent, ThreadInfo, Trace};

use crate::calls::{Ending, Frame, Sink, Style};
use crate::drive::{Drive, Times, Worker};
use crate::kernel_events::{KernelNames, events};
use crate::names::Names;
use crate::sort;
use crate::text::{Align, Table, count};
use crate::tracers::Numbers;

/// How often a function of the kernel was entered while a traced function was the innermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRow {
    pub entries: u64,
    pub kernel: String,
    pub function: String,
    pub module: String,
}

/// The address of a function of the kernel, and the number of the function that it ran in, if there was one.
type Pair = (u64, Option<u32>);

struct Entries<'a> {
    names: &'a Names,
    /// For each thread: the clocks at which kernel functions were entered, and their addresses.
    threads: &'a [Vec<(u64, u64)>],
    /// Kernel functions of the present thread that are not counted yet.
    left: &'a [(u64, u64)],
    inside: Option<u32>,
    counts: HashMap<Pair, u64>,
}

impl Entries<'_> {
    /// Counts the functions entered before, in the function that was the innermost until then.
    fn until(&mut self, clock: u64) {
        let before = self.left.partition_point(|(at, _)| *at < clock);
        let (counted, left) = self.left.split_at(before);
        for (_, address) in counted {
            *self.counts.entry((*address, self.inside)).or_default() += 1;
        }
        self.left = left;
    }

    /// The end of an entry-only call is not known, so later functions of the kernel do not count in it.
    fn in_last(&mut self, frames: &[Frame]) {
        let ends = |frame: &&Frame| frame.style() != Style::Only;
        let last = frames.iter().rev().find(ends);
        self.inside = last.map(|frame| self.names.number(frame.site()));
    }
}

impl Sink for Entries<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        if let Some(frame) = frames.last() {
            self.until(frame.clock);
        }
        self.in_last(frames);
        0
    }

    fn leave(&mut self, _frame: &Frame, ending: Ending, frames: &[Frame]) {
        self.until(ending.clock);
        self.in_last(frames);
    }

    fn lose(&mut self, _frame: &Frame, _clock: u64, _counted: bool) {}

    fn stray(&mut self, _frame: &Frame, ending: Ending) {
        self.until(ending.clock);
    }

    fn aside(&mut self, _frames: &[Frame]) {
        self.inside = None;
    }

    fn resume(&mut self, frames: &[Frame]) {
        self.in_last(frames);
    }
}

impl Worker for Entries<'_> {
    fn times(&self) -> Times {
        Times::Own
    }

    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.until(u64::MAX);
        self.left = &self.threads[stream];
        self.inside = None;
    }
}

/// The functions of the kernel, the most frequent first. Those outside of all calls, of which the start and the end of
/// a program have many, come last.
pub fn kernel(trace: &Trace, drive: &Drive) -> Result<Vec<KernelRow>> {
    let names = Names::new(trace);
    let infos = trace.threads();
    let numbers = Numbers::new(&infos);
    let mut threads = vec![Vec::new(); infos.len()];
    let mut counts: HashMap<Pair, u64> = HashMap::new();
    for (_, record) in events(trace) {
        if let KernelEvent::Function {
            thread, function, ..
        } = record.event
        {
            match numbers.place(thread, record.clock) {
                Some(place) => threads[place as usize].push((record.clock, function)),
                None => *counts.entry((function, None)).or_default() += 1,
            }
        }
    }
    ensure!(
        !counts.is_empty() || threads.iter().any(|of| !of.is_empty()),
        "no functions of the kernel were recorded: `nopal record -k` records them"
    );
    let worker = |_| Entries {
        names: &names,
        threads: &threads,
        left: &[],
        inside: None,
        counts: HashMap::new(),
    };
    let mut workers: Vec<Entries> = (0..drive.workers.max(1)).map(worker).collect();
    drive.run(trace, &mut workers)?;
    for mut worker in workers {
        worker.until(u64::MAX);
        for (pair, entries) in worker.counts {
            *counts.entry(pair).or_default() += entries;
        }
    }
    // Several addresses may be in one function.
    let kernel = KernelNames::new(trace);
    let mut sums: HashMap<(String, Option<u32>), u64> = HashMap::new();
    for ((address, inside), entries) in counts {
        *sums.entry((kernel.name(address), inside)).or_default() += entries;
    }
    let mut rows: Vec<((String, Option<u32>), u64)> = sums.into_iter().collect();
    sort::by(
        &mut rows,
        |((a, in_a), a_entries), ((b, in_b), b_entries)| {
            let by_entries = (in_a.is_none(), b_entries).cmp(&(in_b.is_none(), a_entries));
            by_entries.then_with(|| (a, in_a).cmp(&(b, in_b)))
        },
    );
    let rows = rows.into_iter().map(|((kernel, inside), entries)| {
        let function = inside.and_then(|number| names.functions().get(number as usize));
        let (function, module) = match function {
            Some(function) => (function.name.clone(), function.module.clone()),
            None => ("(no traced function)".into(), "-".into()),
        };
        KernelRow {
            entries,
            kernel,
            function,
            module,
        }
    });
    Ok(rows.collect())
}

pub fn write_kernel(rows: &[KernelRow], out: &mut dyn Write, width: usize) -> io::Result<()> {
    let mut table = Table::new(&[
        ("entries", Align::Right),
        ("function of the kernel", Align::Left),
        ("in", Align::Left),
        ("module", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            count(row.entries),
            row.kernel.clone(),
            row.function.clone(),
            row.module.clone(),
        ]);
    }
    table.write(out, width)
}
