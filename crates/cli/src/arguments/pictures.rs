//! Arguments of the commands that draw.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use nopal_analysis::values::number;
use nopal_plot::AxisScale;
use nopal_plot::flame::Weight;
use nopal_plot::scatter::Within;

use super::Input;
use super::calls::{ByArgument, FilterArguments, PerArgument, Subject};

/// Draw pictures of a trace, as SVG or PNG
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Plot {
    #[command(subcommand)]
    pub kind: Kind,
}

#[derive(Debug, Subcommand)]
pub enum Kind {
    Timeline(Timeline),
    /// Draw how a value of calls changes over time: median, 99th percentile, largest
    ///
    /// `nopal plot latency read` draws the durations of `read`.
    Latency(Curve),
    Scatter(Scatter),
    Cdf(Cdf),
    /// Draw a histogram of a value of calls
    Hist(Curve),
    Table(Table),
}

/// Draw a row for each function, with a bar from entry to exit of each call
///
/// Rows are in order of the first call. If there are more functions than rows, those with the longest calls are shown.
/// `--by thread` draws the nested calls of each thread instead, as a flame chart.
#[derive(Debug, Args)]
pub struct Timeline {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub output: PictureOutput,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The rows: each function, or each thread with its nested calls
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_default_value = true
    )]
    pub by: TimelineBy,

    /// The number of functions, or threads, shown, at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 60, value_parser = rows())]
    pub rows: u64,

    /// Draw the time of the longest case of this section or tracer, in all processes: FROM..TO, as for `nopal hist`
    #[arg(long, value_name = "SECTION", conflicts_with_all = ["from", "until"])]
    pub section: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum TimelineBy {
    #[default]
    Function,
    Thread,
}

/// A value of calls, drawn as a curve or as bars.
#[derive(Debug, Args)]
pub struct Curve {
    #[command(flatten)]
    pub subject: Subject,

    #[command(flatten)]
    pub output: PictureOutput,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The scale of the values
    #[arg(long, value_enum, default_value_t)]
    pub axis: AxisArgument,
}

/// Draw a dot for each value of calls, over time
///
/// `nopal plot scatter exceptions:page_fault_user.address` draws the addresses of page faults. Values that fall on the
/// same place have one dot.
#[derive(Debug, Args)]
pub struct Scatter {
    #[command(flatten)]
    pub curve: Curve,

    #[arg(long, value_name = "WHAT", value_parser = ByArgument::parse, help = ByArgument::HELP)]
    pub by: Option<ByArgument>,

    /// Show values from LEAST to MOST only: numbers such as 12 and 0x7f00, or times such as 10us; either may be
    /// left out
    #[arg(long, value_name = "LEAST..MOST", value_parser = within)]
    pub values: Option<Within>,
}

fn within(text: &str) -> anyhow::Result<Within> {
    let (least, most) = text
        .split_once("..")
        .context("expected LEAST..MOST, such as 10us..1ms")?;
    let number = |text: &str| match text.strip_prefix('-') {
        Some(text) => number(text).map(i64::wrapping_neg),
        None => number(text),
    };
    let bound = |text: &str| match text {
        "" => Ok(None),
        text => number(text)
            .map(Some)
            .with_context(|| format!("{text:?} is no number such as 12, 0x7f00 or 10us")),
    };
    let (least, most) = (bound(least)?, bound(most)?);
    ensure!(
        least.zip(most).is_none_or(|(least, most)| least <= most),
        "{text}: the least is more than the most"
    );
    Ok(Within { least, most })
}

/// Draw the cumulative distribution of a value of calls
#[derive(Debug, Args)]
pub struct Cdf {
    #[command(flatten)]
    pub curve: Curve,

    #[arg(long, value_name = "WHAT", value_parser = ByArgument::parse, help = ByArgument::HELP)]
    pub by: Option<ByArgument>,
}

/// Show how often each value occurred in each process
///
/// `nopal plot table 'copy.arg1 >> 12'` counts the pages that a first argument points to.
/// Without -o, the table is text.
#[derive(Debug, Args)]
pub struct Table {
    #[command(flatten)]
    pub subject: Subject,

    #[command(flatten)]
    pub output: PictureOutput,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The number of rows shown, at most: the most frequent values
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = rows())]
    pub rows: u64,
}

fn rows() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=10_000)
}

/// Draw a flame graph as SVG, which can be searched in a browser
///
/// A box is a function on one path of calls. Its width is the time spent there, including the functions that it called.
/// Threads are summed up.
#[derive(Debug, Args)]
pub struct Flame {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub output: PictureOutput,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The meaning of the boxes' widths
    #[arg(long, value_enum, default_value_t)]
    pub by: FlameBy,

    /// Colour the boxes by how the functions themselves changed since this trace: red where they take more, blue where
    /// they take less
    #[arg(long, value_name = "OLD")]
    pub against: Option<PathBuf>,

    /// Tell calls of a function at different places of its caller apart, where the trace has them (record --call-sites)
    #[arg(long)]
    pub call_sites: bool,

    /// Draw the calls of each process or thread apart
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_default_value = true
    )]
    pub per: PerArgument,

    /// Draw callers on top, so that stacks hang down like icicles
    #[arg(long)]
    pub icicle: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum FlameBy {
    /// Wall-clock time from entry to exit
    #[default]
    Wall,
    /// Time in the functions themselves, which are at the base, with their callers on top
    #[value(name = "self")]
    Own,
    /// Time on the processor [with record -e sched]
    Cpu,
    /// Time off the processor: blocked, preempted, or runnable [with record -e sched]
    Wait,
    Calls,
}

impl FlameBy {
    pub fn weight(self) -> Weight {
        match self {
            FlameBy::Wall => Weight::Wall,
            FlameBy::Own => Weight::Own,
            FlameBy::Cpu => Weight::Cpu,
            FlameBy::Wait => Weight::Wait,
            FlameBy::Calls => Weight::Calls,
        }
    }
}

#[derive(Debug, Args)]
pub struct PictureOutput {
    /// A file that ends in .svg or .png [default: SVG on standard output]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum AxisArgument {
    /// Logarithmic if values differ much
    #[default]
    Auto,
    Linear,
    Log,
}

impl AxisArgument {
    pub fn scale(self) -> AxisScale {
        match self {
            AxisArgument::Auto => AxisScale::Auto,
            AxisArgument::Linear => AxisScale::Linear,
            AxisArgument::Log => AxisScale::Log,
        }
    }
}
