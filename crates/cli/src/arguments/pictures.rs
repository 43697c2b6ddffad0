//! Arguments of the commands that draw.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nopal_plot::AxisScale;
use nopal_plot::flame::Weight;

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
    Cdf(Cdf),
    /// Draw a histogram of a value of calls
    Hist(Curve),
    Table(Table),
}

/// Draw a row for each function, with a bar from entry to exit of each call Rows are in order of the first call. If
/// there are more functions than rows, those with the longest calls are shown.
#[derive(Debug, Args)]
pub struct Timeline {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub output: PictureOutput,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The number of functions shown, at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 60, value_parser = rows())]
    pub rows: u64,
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
