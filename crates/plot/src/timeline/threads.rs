//! A timeline by thread: the nested calls of each thread below one another.

use anyhow::{Result, bail};
use nopal_analysis::calls::{Ending, Frame, Sink, Style};
use nopal_analysis::drive::{Drive, Worker};
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::sort;
use nopal_analysis::span::{begin, end};
use nopal_analysis::text::several;
use nopal_trace::{ThreadInfo, Trace};

use super::{COLUMNS, Extent, Shown, bars, draw_time};
use crate::Picture;
use crate::canvas::{
    COLORS, Canvas, Caption, PLAIN, SMALL, TITLE, WIDTH, Words, fitting, text_width,
};

/// Deeper calls are not drawn.
const DEPTH: usize = 40;
/// The height of a level, and that of a thread's name above its levels.
const LEVEL: f64 = 13.0;
const NAME: f64 = 17.0;
const LEFT: f64 = 30.0;
/// The colour of calls that are too short for bars of their own.
const DENSE: &str = "#bbbbbb";
/// No valid thread has more bars than columns in a level.
const MOST_BARS: usize = 2 * COLUMNS;
/// The least room for a name in a bar.
const LEGIBLE: f64 = 24.0;

struct Bar {
    function: u32,
    begin: u64,
    end: u64,
}

/// The calls of a thread at one depth: those that are wider than a column, and the columns that hold others.
#[derive(Default)]
struct Level {
    bars: Vec<Bar>,
    dense: Vec<bool>,
}

#[derive(Default)]
struct Chart {
    levels: Vec<Level>,
    calls: u64,
}

struct Painter<'a> {
    names: &'a Names,
    extent: &'a Extent,
    charts: Vec<Chart>,
    present: usize,
    /// Calls that are too deep, and those whose begin is not known.
    deep: u64,
    begun: u64,
}

impl Painter<'_> {
    fn column(&self, clock: u64) -> usize {
        let span = self.extent.end.saturating_sub(self.extent.begin).max(1);
        let ticks = clock.saturating_sub(self.extent.begin).min(span);
        let column = u128::from(ticks) * COLUMNS as u128 / u128::from(span);
        (column as usize).min(COLUMNS - 1)
    }

    /// The frame's note is its depth.
    fn call(&mut self, frame: &Frame, end: u64) {
        if frame.style() == Style::Only || end < self.extent.begin || frame.clock > self.extent.end
        {
            return;
        }
        let depth = frame.note as usize;
        let columns = (self.column(frame.clock), self.column(end));
        let chart = &mut self.charts[self.present];
        chart.calls += 1;
        if depth >= DEPTH {
            self.deep += 1;
            return;
        }
        if chart.levels.len() <= depth {
            chart.levels.resize_with(depth + 1, Level::default);
        }
        let level = &mut chart.levels[depth];
        if columns.0 < columns.1 && level.bars.len() < MOST_BARS {
            level.bars.push(Bar {
                function: self.names.number(frame.site()),
                begin: frame.clock,
                end,
            });
        } else {
            level.dense.resize(COLUMNS, false);
            level.dense[columns.0..=columns.1].fill(true);
        }
    }
}

impl Sink for Painter<'_> {
    fn enter(&mut self, frames: &[Frame], _arguments: Option<[u64; 6]>) -> u32 {
        let timed = |frame: &&Frame| frame.style() != Style::Only;
        let depth = frames.iter().filter(timed).take(DEPTH + 1).count();
        depth.saturating_sub(1) as u32
    }

    fn leave(&mut self, frame: &Frame, ending: Ending, _frames: &[Frame]) {
        self.call(frame, ending.clock);
    }

    fn lose(&mut self, frame: &Frame, clock: u64, _counted: bool) {
        self.call(frame, clock);
    }

    fn stray(&mut self, _frame: &Frame, _ending: Ending) {
        self.begun += 1;
    }
}

impl Worker for Painter<'_> {
    fn begin(&mut self, stream: usize, _thread: &ThreadInfo) {
        self.present = stream;
    }
}

pub fn draw(trace: &Trace, names: &Names, shown: &Shown, drive: &Drive) -> Result<Picture> {
    let extent = &Extent {
        begin: shown.filter.from.unwrap_or(begin(trace)),
        end: shown.filter.until.unwrap_or(end(trace)),
    };
    let threads = trace.threads().len();
    let new = |_| Painter {
        names,
        extent,
        charts: (0..threads).map(|_| Chart::default()).collect(),
        present: 0,
        deep: 0,
        begun: 0,
    };
    let mut painters: Vec<Painter> = (0..drive.workers.max(1)).map(new).collect();
    let drive = Drive {
        filter: Some(&shown.filter),
        ..*drive
    };
    drive.run(trace, &mut painters)?;
    let (mut deep, mut begun) = (0, 0);
    let mut charts: Vec<(usize, Chart)> = Vec::new();
    for painter in painters {
        deep += painter.deep;
        begun += painter.begun;
        let with_calls = painter.charts.into_iter().enumerate();
        charts.extend(with_calls.filter(|(_, chart)| chart.calls > 0));
    }
    if charts.is_empty() {
        bail!("nothing to draw: no call with a duration is selected");
    }
    let all = charts.len();
    sort::by_key(&mut charts, |(_, chart)| std::cmp::Reverse(chart.calls));
    charts.truncate(shown.rows.max(1));
    sort::by_key(&mut charts, |(thread, _)| *thread);
    let mut first = match charts.len() {
        drawn if drawn < all => format!("{drawn} of {all} threads: those with most calls"),
        drawn => several(drawn as u64, "thread", "threads"),
    };
    if deep > 0 {
        let deep = several(deep, "deeper call is", "deeper calls are");
        first.push_str(&format!("; {deep} not drawn"));
    }
    if begun > 0 {
        let begun = several(begun, "call is", "calls are");
        first.push_str(&format!(
            "; {begun} not drawn, since the begin is not known"
        ));
    }
    first.push_str("; gray: calls that are too short for bars of their own.");
    let mut caption = vec![first, trace.session().command.join(" ")];
    caption.extend(losses::line_of(trace, Some(&shown.filter)));
    Ok(picture(trace, names, &charts, extent, &caption))
}

fn picture(
    trace: &Trace,
    names: &Names,
    charts: &[(usize, Chart)],
    extent: &Extent,
    caption: &[String],
) -> Picture {
    let caption = Caption::new(caption, WIDTH);
    let width = WIDTH - LEFT - 30.0;
    let levels = |chart: &Chart| chart.levels.len() as f64 * LEVEL;
    let height: f64 = charts.iter().map(|(_, chart)| NAME + levels(chart)).sum();
    let bottom = TITLE + height + 4.0;
    let mut canvas = Canvas::new(WIDTH, bottom + 50.0 + caption.height());
    canvas.label("calls of threads over time", &caption);
    draw_time(trace, &mut canvas, extent, (LEFT, TITLE, width, bottom));
    let threads = trace.threads();
    let thread_names = ThreadNames::new(trace);
    let mut top = TITLE;
    for (number, chart) in charts {
        let thread = &threads[*number];
        let name = thread_names.of(thread);
        let label = format!("thread {} {name}", thread.thread);
        canvas.text(LEFT + 3.0, top + NAME - 5.0, &label, PLAIN);
        top += NAME;
        for level in &chart.levels {
            draw_level(&mut canvas, names, level, extent, (top, width));
            top += LEVEL;
        }
    }
    canvas.finish()
}

fn draw_level(
    canvas: &mut Canvas,
    names: &Names,
    level: &Level,
    extent: &Extent,
    (top, width): (f64, f64),
) {
    let words = Words {
        mono: true,
        size: SMALL,
        color: "#ffffff",
        ..PLAIN
    };
    let middle = top + LEVEL / 2.0;
    let dense = bars(&level.dense, LEFT, width, middle);
    if !dense.is_empty() {
        canvas.curve(dense, DENSE, LEVEL - 1.0);
    }
    let span = extent.end.saturating_sub(extent.begin).max(1) as f64;
    let at = |clock: u64| {
        let ticks = clock.saturating_sub(extent.begin) as f64;
        LEFT + (ticks / span).min(1.0) * width
    };
    for bar in &level.bars {
        let (from, to) = (at(bar.begin), at(bar.end));
        let color = COLORS[bar.function as usize % COLORS.len()];
        canvas.rectangle(from, top, (to - from).max(0.5), LEVEL - 1.0, color);
        let room = to - from - 4.0;
        if room >= LEGIBLE {
            let name = &names.functions()[bar.function as usize].name;
            let name = fitting(name, room, words);
            if text_width(&name, words) <= room {
                canvas.text(from + 2.0, top + LEVEL - 4.0, &name, words);
            }
        }
    }
}
