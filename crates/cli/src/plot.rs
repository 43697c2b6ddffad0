//! `nopal plot`: pictures of a trace.

use anyhow::Result;
use nopal_analysis::names::Names;
use nopal_plot::table::Counts;
use nopal_plot::timeline::{self, Shown};
use nopal_plot::{bars, cdf, latency, scatter};

use crate::arguments::{ByArgument, Cdf, Curve, Kind, Plot, Scatter, Table, Timeline, TimelineBy};
use crate::open::driven;
use crate::output::{self, finish, width};

const READING: &str = "reading calls";

pub fn run(arguments: &Plot) -> Result<()> {
    match &arguments.kind {
        Kind::Timeline(arguments) => draw_timeline(arguments),
        Kind::Latency(arguments) => draw_latency(arguments),
        Kind::Scatter(arguments) => draw_scatter(arguments),
        Kind::Cdf(arguments) => draw_cdf(arguments),
        Kind::Hist(arguments) => draw_hist(arguments),
        Kind::Table(arguments) => draw_table(arguments),
    }
}

fn draw_timeline(arguments: &Timeline) -> Result<()> {
    arguments.output.check()?;
    let trace = arguments.input.open()?;
    let filter = arguments.filter.of(&trace)?;
    let names = Names::new(&trace);
    let mut shown = Shown::new(filter, arguments.rows as usize);
    if let Some(section) = &arguments.section {
        shown = shown.during(&trace, &names, section)?;
    }
    let filter = shown.filter.clone();
    let picture = driven(READING, &filter, |drive| match arguments.by {
        TimelineBy::Function => timeline::draw(&trace, &names, &shown, drive),
        TimelineBy::Thread => timeline::draw_threads(&trace, &names, &shown, drive),
    })?;
    arguments.output.write(&picture)
}

fn draw_latency(arguments: &Curve) -> Result<()> {
    arguments.output.check()?;
    let (trace, names, what) = arguments.subject.open()?;
    let (filter, scale) = (arguments.filter.of(&trace)?, arguments.axis.scale());
    let picture = driven(READING, &filter, |drive| {
        latency::draw(&trace, &names, &what, &filter, scale, drive)
    })?;
    arguments.output.write(&picture)
}

fn draw_scatter(Scatter { curve, by, values }: &Scatter) -> Result<()> {
    curve.output.check()?;
    let (trace, names, mut what) = curve.subject.open()?;
    let (filter, scale) = (curve.filter.of(&trace)?, curve.axis.scale());
    let by = ByArgument::by(by.as_ref(), &mut what, trace.markers())?;
    let within = values.unwrap_or_default();
    let picture = driven(READING, &filter, |drive| {
        scatter::draw(&trace, &names, &what, &filter, by, within, scale, drive)
    })?;
    curve.output.write(&picture)
}

fn draw_cdf(Cdf { curve, by }: &Cdf) -> Result<()> {
    curve.output.check()?;
    let (trace, names, mut what) = curve.subject.open()?;
    let (filter, scale) = (curve.filter.of(&trace)?, curve.axis.scale());
    let by = ByArgument::by(by.as_ref(), &mut what, trace.markers())?;
    let picture = driven(READING, &filter, |drive| {
        cdf::draw(&trace, &names, &what, &filter, by, scale, drive)
    })?;
    curve.output.write(&picture)
}

fn draw_hist(arguments: &Curve) -> Result<()> {
    arguments.output.check()?;
    let (trace, names, what) = arguments.subject.open()?;
    let (filter, scale) = (arguments.filter.of(&trace)?, arguments.axis.scale());
    let picture = driven(READING, &filter, |drive| {
        bars::draw(&trace, &names, &what, &filter, scale, drive)
    })?;
    arguments.output.write(&picture)
}

fn draw_table(arguments: &Table) -> Result<()> {
    let (trace, names, what) = arguments.subject.open()?;
    let (filter, rows) = (arguments.filter.of(&trace)?, arguments.rows as usize);
    let counts = driven(READING, &filter, |drive| {
        Counts::new(&trace, &names, &what, &filter, rows, drive)
    })?;
    if arguments.output.file.is_some() {
        arguments.output.check()?;
        return arguments.output.write(&counts.draw());
    }
    let mut out = output::stdout()?;
    let written = counts.write_text(&mut out, width());
    finish(out, written.map_err(Into::into))
}
