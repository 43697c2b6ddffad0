//! Tables: how often each value occurred in each process.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Result, ensure};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::losses;
use nopal_analysis::names::Names;
use nopal_analysis::sort;
use nopal_analysis::text::{Align, Quantity, Table, count};
use nopal_analysis::values::{Value, ValueSelection, ValueSink, collect_values};
use nopal_trace::{ThreadInfo, Trace};

use crate::Picture;
use crate::canvas::{Anchor, Canvas, Caption, FAINT, INK, PLAIN, TITLE, WIDTH, Words, text_width};
use crate::cdf::name_of;

/// The most pairs of process and value; with more, a table is the wrong picture.
const MOST: usize = 1 << 22;

/// Rows, by process and value.
pub struct Counts {
    pub title: String,
    /// The counted value.
    noun: &'static str,
    quantity: Quantity,
    command: String,
    rows: Vec<(u32, i64, u64)>,
    left_out: usize,
    /// Notes about values left out.
    notes: Vec<String>,
    /// A line about lost records.
    losses: Option<String>,
}

impl Counts {
    /// Keeps the `rows` that occurred most often.
    pub fn new(
        trace: &Trace,
        names: &Names,
        what: &ValueSelection,
        filter: &Filter,
        rows: usize,
        drive: &Drive,
    ) -> Result<Counts> {
        let new = || Counter {
            process: 0,
            counts: HashMap::new(),
            beyond: false,
        };
        let mut all: HashMap<(u32, i64), u64> = HashMap::new();
        let (counters, notes) = collect_values(trace, names, what, filter, drive, new)?;
        for counter in counters {
            ensure!(
                !counter.beyond,
                "{}: more than {} different values: `nopal hist` shows them in bars",
                what.text,
                count(MOST as u64)
            );
            for (key, number) in counter.counts {
                *all.entry(key).or_default() += number;
            }
        }
        let mut all: Vec<_> = all
            .into_iter()
            .map(|((process, value), count)| (process, value, count))
            .collect();
        sort::by_key(&mut all, |(process, value, count)| {
            (std::cmp::Reverse(*count), *process, *value)
        });
        let left_out = all.len().saturating_sub(rows);
        all.truncate(rows);
        all.sort_unstable();
        Ok(Counts {
            title: name_of(what),
            noun: what.noun(),
            quantity: what.quantity(),
            command: trace.session().command.join(" "),
            rows: all,
            left_out,
            notes,
            losses: losses::line(trace),
        })
    }

    fn cells(&self) -> Vec<[String; 3]> {
        let cells = self.rows.iter().map(|(process, value, number)| {
            let value = self.quantity.text(*value);
            [process.to_string(), value, count(*number)]
        });
        cells.collect()
    }

    pub fn write_text(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        if let Some(losses) = &self.losses {
            writeln!(out, "# {losses}")?;
        }
        writeln!(out, "{}", self.title)?;
        let mut table = Table::new(&[
            ("process", Align::Right),
            ("value", Align::Right),
            (self.noun, Align::Right),
        ]);
        for cells in self.cells() {
            table.row(cells.into());
        }
        table.write(out, width)?;
        if self.left_out > 0 {
            writeln!(out, "({} less frequent)", count(self.left_out as u64))?;
        }
        let mut notes = self.notes.iter();
        notes.try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Draws the table in as many blocks side by side as fit.
    pub fn draw(&self) -> Picture {
        const ROW: f64 = 17.0;
        const GAP: f64 = 18.0;
        let cells = self.cells();
        let heads = ["process", "value", self.noun].map(str::to_string);
        let widths: [f64; 3] = std::array::from_fn(|column| {
            let all = cells.iter().chain([&heads]);
            all.map(|cells| text_width(&cells[column], PLAIN))
                .fold(0.0, f64::max)
                + GAP
        });
        let block = widths.iter().sum::<f64>() + 2.0 * GAP;
        let fit = (((WIDTH - 20.0) / block) as usize).max(1);
        let blocks = fit.min(cells.len().div_ceil(10)).max(1);
        let height = cells.len().div_ceil(blocks);
        let mut caption = vec![self.command.clone()];
        caption.extend(self.losses.iter().chain(&self.notes).cloned());
        if self.left_out > 0 {
            let more = count(self.left_out as u64);
            caption.insert(0, format!("The most frequent; {more} more are left out."));
        }
        let width = (block * blocks as f64 + 20.0).max(320.0);
        let caption = Caption::new(&caption, width);
        let top = TITLE + 14.0;
        let mut canvas = Canvas::new(width, top + (height as f64 + 1.0) * ROW + caption.height());
        canvas.label(&self.title, &caption);
        let end = Words {
            anchor: Anchor::End,
            ..PLAIN
        };
        let bold = Words { bold: true, ..end };
        for (number, rows) in cells.chunks(height.max(1)).enumerate() {
            let left = 10.0 + number as f64 * block;
            let mut write = |y: f64, cells: &[String; 3], words: Words| {
                let mut right = left;
                for (cell, width) in cells.iter().zip(widths) {
                    right += width;
                    canvas.text(right, y, cell, words);
                }
            };
            write(top, &heads, bold);
            for (row, cells) in rows.iter().enumerate() {
                write(top + (row as f64 + 1.0) * ROW, cells, end);
            }
            let right = left + widths.iter().sum::<f64>();
            canvas.line((left + 6.0, top + 5.0), (right, top + 5.0), INK);
            for (row, pair) in rows.windows(2).enumerate() {
                if pair[0][0] != pair[1][0] {
                    let y = top + (row as f64 + 1.0) * ROW + 4.5;
                    canvas.line((left + 6.0, y), (right, y), FAINT);
                }
            }
        }
        canvas.finish()
    }
}

struct Counter {
    process: u32,
    counts: HashMap<(u32, i64), u64>,
    beyond: bool,
}

impl ValueSink for Counter {
    fn begin(&mut self, _stream: usize, thread: &ThreadInfo) {
        self.process = thread.process;
    }

    fn add(&mut self, value: Value) {
        let key = (self.process, value.value);
        if self.counts.len() < MOST || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        } else {
            self.beyond = true;
        }
    }
}
