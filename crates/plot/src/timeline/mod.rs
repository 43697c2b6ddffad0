//! Timelines: a row for each function, with a bar from the entry of each call to its exit; or the nested calls of each
//! thread.

mod gather;
mod threads;

pub use threads::draw as draw_threads;

use std::collections::HashMap;

use anyhow::{Result, bail};
use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, LeftOut};
use nopal_analysis::losses;
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::sort;
use nopal_analysis::span::begin;
use nopal_analysis::text::{count, duration, several};
use nopal_analysis::tracers;
use nopal_trace::Trace;

use crate::Picture;
use crate::axis::{Axis, AxisScale, Unit};
use crate::canvas::{
    Anchor, COLORS, Canvas, Caption, FAINT, FONT, INK, PLAIN, SMALL, TITLE, WIDTH, Words, fitting,
    round, text_width,
};
use crate::lines::{color, legend_lines};
use gather::{Each, Painter, Rows, Surveyor};

/// The selection and size of a timeline.
pub struct Shown {
    pub filter: Filter,
    /// The largest number of functions, or of threads.
    pub rows: usize,
    /// A line about the tracer's case that it shows.
    case: Option<String>,
}

impl Shown {
    pub fn new(filter: Filter, rows: usize) -> Shown {
        Shown {
            filter,
            rows,
            case: None,
        }
    }

    /// The time of a tracer's longest case, in all threads and processes.
    pub fn during(mut self, trace: &Trace, names: &Names, tracer: &str) -> Result<Shown> {
        let Some(tracer) = tracers::asked(tracer, names) else {
            bail!("{tracer:?} is no tracer, and no section FROM..TO");
        };
        let (case, number) = tracers::longest(trace, names, &tracer)?;
        (self.filter.from, self.filter.until) = (Some(case.begin), Some(case.end));
        let (threads, thread_names) = (tracer.threads(trace), ThreadNames::new(trace));
        let thread = |at: u32| {
            let thread = threads.get(at as usize);
            thread.map_or_else(String::new, |thread| {
                format!("{}-{}", thread_names.of(thread), thread.thread)
            })
        };
        self.case = Some(format!(
            "The longest of {} of {}: {}, from {} to {}.",
            several(number, "case", "cases"),
            tracer.name(),
            duration(trace.clocks().duration_ns(case.ticks())),
            thread(case.begin_thread),
            thread(case.end_thread),
        ));
        Ok(self)
    }
}

/// Columns of a row, at which bars begin and end.
const COLUMNS: usize = 2000;
/// The least height of a row, its margins, and the least height of a thread's bar in it.
const ROW: f64 = 14.0;
const MARGIN: f64 = 2.0;
const BAR: f64 = 3.0;
const LONGEST_NAME: f64 = 280.0;

/// A function that has a row.
struct Row {
    function: u32,
    first: u64,
}

/// The contents of all rows.
struct Extent {
    begin: u64,
    end: u64,
}

pub fn draw(trace: &Trace, names: &Names, shown: &Shown, drive: &Drive) -> Result<Picture> {
    let survey = Survey::of(trace, names, shown, drive)?;
    let lanes = lanes(trace, &survey.threads);
    let row_of: HashMap<u32, usize> = survey
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| (row.function, at))
        .collect();
    let by_site: Vec<u32> = (0..names.sites() as u32)
        .map(|site| {
            let row = row_of.get(&names.number(site));
            row.map_or(u32::MAX, |row| *row as u32)
        })
        .collect();
    let new = |_| {
        let rows = Rows::new(survey.rows.len(), lanes.names.len(), &survey.extent);
        Each(Painter::new(
            trace,
            &shown.filter,
            &by_site,
            &lanes.of_thread,
            rows,
        ))
    };
    let mut painters: Vec<Each<Painter>> = (0..drive.workers.max(1)).map(new).collect();
    let drive = Drive {
        filter: Some(&shown.filter),
        ..*drive
    };
    drive.run(trace, &mut painters)?;
    let mut painted = painters.into_iter().map(|each| each.0.into_rows());
    let mut rows = painted
        .next()
        .unwrap_or_else(|| Rows::new(0, 0, &survey.extent));
    painted.for_each(|other| rows.add(&other));
    Ok(picture(trace, names, shown, &survey, &lanes, &rows))
}

/// The facts needed before drawing.
struct Survey {
    /// In order of their first calls.
    rows: Vec<Row>,
    extent: Extent,
    /// By thread: the number of calls.
    threads: Vec<u64>,
    functions: usize,
    /// If not all functions are shown: the shortest of the longest calls of those that are.
    cut_ns: Option<u64>,
    unfinished: u64,
}

impl Survey {
    fn of(trace: &Trace, names: &Names, shown: &Shown, drive: &Drive) -> Result<Survey> {
        let new = |_| Each(Surveyor::new(trace, names, &shown.filter));
        let mut surveyors: Vec<Each<Surveyor>> = (0..drive.workers.max(1)).map(new).collect();
        let drive = Drive {
            filter: Some(&shown.filter),
            ..*drive
        };
        drive.run(trace, &mut surveyors)?;
        let mut left_out = LeftOut::default();
        let mut surveyors = surveyors.into_iter().map(|each| each.0);
        let mut sum = surveyors.next().map(|surveyor| {
            left_out = *surveyor.left_out();
            surveyor.into_found()
        });
        for surveyor in surveyors {
            left_out.add(surveyor.left_out());
            if let Some(sum) = &mut sum {
                sum.add(&surveyor.into_found());
            }
        }
        let Some(found) = sum.filter(|found| found.begin <= found.end) else {
            bail!("nothing to draw: {}", left_out.why(&shown.filter, trace));
        };
        let mut functions: Vec<_> = (0..)
            .zip(&found.functions)
            .filter(|(_, found)| found.calls > 0)
            .collect();
        let all = functions.len();
        sort::by_key(&mut functions, |(_, found)| {
            std::cmp::Reverse(found.longest)
        });
        functions.truncate(shown.rows.max(1));
        let cut = functions.last().map_or(0, |(_, found)| found.longest);
        let clocks = trace.clocks();
        let mut rows: Vec<Row> = functions
            .iter()
            .map(|(function, found)| Row {
                function: *function,
                first: found.first,
            })
            .collect();
        sort::by_key(&mut rows, |row| row.first);
        let nearly_all = found.begin.saturating_sub(begin(trace)) <= (found.end - found.begin) / 20;
        let first = if nearly_all {
            begin(trace)
        } else {
            found.begin
        };
        Ok(Survey {
            rows,
            extent: Extent {
                begin: shown.filter.from.unwrap_or(first),
                end: shown.filter.until.unwrap_or(found.end),
            },
            threads: found.threads,
            functions: all,
            cut_ns: (all > functions.len()).then(|| clocks.duration_ns(cut)),
            unfinished: found.unfinished,
        })
    }
}

/// Threads of different colours.
struct Lanes {
    names: Vec<String>,
    of_thread: Vec<u32>,
}

/// The threads with most calls have a lane each; all others share the last one.
fn lanes(trace: &Trace, calls: &[u64]) -> Lanes {
    let threads = trace.threads();
    let thread_names = ThreadNames::new(trace);
    let mut by_calls: Vec<usize> = (0..threads.len()).filter(|at| calls[*at] > 0).collect();
    sort::by_key(&mut by_calls, |at| std::cmp::Reverse(calls[*at]));
    let own = if by_calls.len() > COLORS.len() {
        COLORS.len() - 1
    } else {
        by_calls.len()
    };
    let mut shown: Vec<usize> = by_calls[..own].to_vec();
    shown.sort_unstable();
    let mut names: Vec<String> = shown
        .iter()
        .map(|at| {
            let thread = &threads[*at];
            format!("thread {} {}", thread.thread, thread_names.of(thread))
        })
        .collect();
    if by_calls.len() > own {
        let others = (by_calls.len() - own) as u64;
        names.push(several(others, "other thread", "other threads"));
    }
    let last = names.len().saturating_sub(1) as u32;
    let of_thread = (0..threads.len()).map(|at| match shown.binary_search(&at) {
        Ok(lane) => lane as u32,
        Err(_) => last,
    });
    Lanes {
        of_thread: of_thread.collect(),
        names,
    }
}

fn picture(
    trace: &Trace,
    names: &Names,
    shown: &Shown,
    survey: &Survey,
    lanes: &Lanes,
    rows: &Rows,
) -> Picture {
    let caption = Caption::new(&caption(trace, shown, survey), WIDTH);
    let mono = Words {
        mono: true,
        size: SMALL,
        anchor: Anchor::End,
        ..PLAIN
    };
    let labels: Vec<String> = survey
        .rows
        .iter()
        .map(|row| {
            let name = &names.functions()[row.function as usize].name;
            fitting(name, LONGEST_NAME, mono)
        })
        .collect();
    let widest = labels.iter().map(|label| text_width(label, mono));
    let left = widest.fold(40.0, f64::max) + 20.0;
    let width = WIDTH - left - 30.0;
    let legend = match lanes.names.as_slice() {
        [_] => Vec::new(),
        names => legend_lines(names, WIDTH - 40.0),
    };
    let top = TITLE + legend.len() as f64 * 18.0 + 4.0;
    let lane_count = lanes.names.len().max(1) as f64;
    let row_height = ROW.max(2.0 * MARGIN + BAR * lane_count);
    let bottom = top + survey.rows.len() as f64 * row_height;
    let mut canvas = Canvas::new(WIDTH, bottom + 50.0 + caption.height());
    canvas.label("calls over time", &caption);
    for (line, entries) in legend.iter().enumerate() {
        let y = TITLE + line as f64 * 18.0;
        let mut x = 20.0;
        for (number, name) in entries {
            canvas.rectangle(x, y, 14.0, 8.0, color(*number));
            canvas.text(x + 19.0, y + 8.5, name, PLAIN);
            x += 19.0 + text_width(name, PLAIN) + 18.0;
        }
    }
    draw_time(
        trace,
        &mut canvas,
        &survey.extent,
        (left, top, width, bottom),
    );
    let lane_height = (row_height - 2.0 * MARGIN) / lane_count;
    for (at, label) in labels.iter().enumerate() {
        let y = top + at as f64 * row_height;
        canvas.text(left - 6.0, y + row_height / 2.0 + 3.5, label, mono);
        canvas.line(
            (left, y + row_height),
            (left + width, y + row_height),
            FAINT,
        );
        for lane in 0..lanes.names.len() {
            let middle = y + MARGIN + (lane as f64 + 0.5) * lane_height;
            let data = bars(&rows.covered(at, lane), left, width, middle);
            if !data.is_empty() {
                canvas.curve(data, color(lane), lane_height);
            }
        }
    }
    canvas.finish()
}

fn draw_time(
    trace: &Trace,
    canvas: &mut Canvas,
    extent: &Extent,
    (left, top, width, bottom): (f64, f64, f64, f64),
) {
    let clocks = trace.clocks();
    let start = clocks.monotonic_ns(begin(trace));
    let [from, until] = [extent.begin, extent.end]
        .map(|counter| clocks.monotonic_ns(counter).saturating_sub(start) as f64);
    let x = Axis::new(from, until, AxisScale::Linear, Unit::Nanoseconds);
    let middle = Words {
        anchor: Anchor::Middle,
        ..PLAIN
    };
    for (value, name) in x.ticks((width / 100.0) as usize) {
        let at = left + x.place(value) * width;
        canvas.line((at, top), (at, bottom + 4.0), FAINT);
        canvas.text(at, bottom + FONT + 6.0, &name, middle);
    }
    canvas.line((left, bottom), (left + width, bottom), INK);
    canvas.line((left, top), (left, bottom), INK);
    let label = "time since the trace's beginning";
    canvas.text(left + width / 2.0, bottom + 38.0, label, middle);
}

/// A path of level lines over runs of covered columns.
fn bars(covered: &[bool], left: f64, width: f64, y: f64) -> String {
    let at = |column: usize| round(left + column as f64 * width / COLUMNS as f64);
    let mut data = String::new();
    let mut column = 0;
    for run in covered.chunk_by(|a, b| a == b) {
        if run[0] {
            let (from, to) = (at(column), at(column + run.len()));
            data.push_str(&format!("M{from} {}H{}", round(y), to.max(from + 0.5)));
        }
        column += run.len();
    }
    data
}

fn caption(trace: &Trace, shown: &Shown, survey: &Survey) -> Vec<String> {
    let mut first = match survey.cut_ns {
        Some(cut) => format!(
            "{} of {} functions: those whose longest call took {} or more",
            survey.rows.len(),
            count(survey.functions as u64),
            duration(cut)
        ),
        None => several(survey.rows.len() as u64, "function", "functions"),
    };
    if shown.filter.least_ns > 0 {
        let least = duration(shown.filter.least_ns);
        first.push_str(&format!("; calls of {least} or longer"));
    }
    if survey.unfinished > 0 {
        first.push_str(&format!(
            "; {} for the time in which they are known to have run, since their begin or end is not known",
            several(survey.unfinished, "call is shown", "calls are shown")
        ));
    }
    let command = trace.session().command.join(" ");
    let mut lines: Vec<String> = shown.case.iter().cloned().collect();
    lines.extend([format!("{first}."), command]);
    lines.extend(losses::line_of(trace, Some(&shown.filter)));
    lines
}
