//! Arguments that select calls, their values, and the trace.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use nopal_analysis::filter::{Filter, Moment, Wanted};
use nopal_analysis::graph::Apart;
use nopal_analysis::hist::{By, Scale};
use nopal_analysis::values::ValueSelection;
use nopal_index::Index;
use nopal_trace::{Markers, Trace};

use super::{Input, More};
use crate::time;

/// Selects calls: the same of every reader.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selection of calls")]
pub struct FilterArguments {
    /// Take only calls of functions that match, and the calls in them [may be repeated]
    #[arg(short = 'F', long = "filter", value_name = "GLOB[@MODULE]")]
    only: Vec<String>,

    /// Leave out calls of functions that match, and the calls in them [may be repeated]
    #[arg(short = 'N', long = "notrace", value_name = "GLOB[@MODULE]")]
    not: Vec<String>,

    /// Take only calls of this process [may be repeated]
    #[arg(id = "pid", long = "pid", value_name = "PID")]
    processes: Vec<u32>,

    /// Take only calls of this thread [may be repeated]
    #[arg(id = "tid", long = "tid", value_name = "TID")]
    threads: Vec<u32>,

    /// Take only calls of threads whose names match [may be repeated]
    #[arg(long = "comm", value_name = "GLOB")]
    comms: Vec<String>,

    /// Take only calls that took at least this long, such as 10us
    #[arg(id = "longer", short = 't', long = "longer", value_name = "TIME", value_parser = time::parse)]
    least: Option<Duration>,

    /// Take only calls from this moment on: a time since the trace's beginning (1.5s), a part of the trace's time
    /// (50%), or the first or Nth time that a marker occurred (MARKER, MARKER#N)
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    from: Option<Moment>,

    /// Take only calls up to this moment
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    until: Option<Moment>,
}

impl FilterArguments {
    /// The selected calls of a trace.
    pub fn of(&self, trace: &Trace) -> Result<Filter> {
        self.filter(trace, self.only.clone())
    }

    /// The same with the calls of one function, instead of those that -F selects.
    pub fn of_function(&self, trace: &Trace, function: String) -> Result<Filter> {
        self.filter(trace, vec![function])
    }

    /// With the checkpoints of the index that `nopal view` keeps, if a part of the time is selected and there is one.
    fn filter(&self, trace: &Trace, only: Vec<String>) -> Result<Filter> {
        let mut filter = Filter::new(trace, &self.with_only(only))?;
        if filter.from.is_some() || filter.until.is_some() {
            let index = Index::kept(trace);
            filter.checkpoints = index.map(|index| Arc::new(index.checkpoints()));
        }
        Ok(filter)
    }

    fn with_only(&self, only: Vec<String>) -> Wanted {
        Wanted {
            only,
            not: self.not.clone(),
            processes: self.processes.clone(),
            threads: self.threads.clone(),
            comms: self.comms.clone(),
            least_ns: self.least.map_or(0, nanoseconds),
            from: self.from.clone(),
            until: self.until.clone(),
        }
    }
}

fn moment(text: &str) -> Result<Moment> {
    match time::parse(text) {
        Ok(time) => Ok(Moment::Time(nanoseconds(time))),
        Err(_) => Moment::parse(text),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A function, or a value of its calls, and a trace. Either may be left out.
#[derive(Debug, Args)]
pub struct Subject {
    /// A function (the durations of its calls), a value of its calls (`read.result`, `'read.arg1 >> 12'`), a field of a
    /// marker (`net_rx.len`), or a tracer (`lockhold`, `wakeup`, `read..write`: the durations of its cases)
    ///
    /// The dot is followed by an expression of arg1 to arg6, result, duration and self (nanoseconds), numbers, int(…),
    /// which takes the lower 32 bits with their sign, and the operators | ^ & << >> + - * / % ~ of C. Arguments and
    /// results need `nopal record --args`.
    #[arg(value_name = "FUNCTION[.VALUE]|MARKER.FIELD|TRACER")]
    what: Option<String>,

    /// The trace [default: nopal.data]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    more: More,
}

impl Subject {
    /// The subject and the trace.
    pub fn parts(&self) -> (Option<&str>, Input) {
        let (what, directory) = subject_and_trace(self.what.as_deref(), self.directory.as_deref());
        (what, Input::new(directory, &self.more))
    }
}

/// Sorts two optional words, the subject and the trace, by which of them names a trace.
pub fn subject_and_trace<'a>(
    subject: Option<&'a str>,
    directory: Option<&'a Path>,
) -> (Option<&'a str>, Option<PathBuf>) {
    // One of another user's is a trace that cannot be read, not a function.
    let is_trace = |path: &Path| match path.join("metadata").try_exists() {
        Ok(exists) => exists,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    match (subject, directory) {
        (Some(word), None) if is_trace(Path::new(word)) => (None, Some(word.into())),
        (Some(word), Some(directory)) if is_trace(Path::new(word)) && !is_trace(directory) => {
            (directory.to_str(), Some(word.into()))
        }
        (subject, directory) => (subject, directory.map(Path::to_owned)),
    }
}

/// Show the longest calls of a function
///
/// Each call is shown with its time and duration, its thread, arguments and result if they were recorded, the path to
/// it, the functions in which it spent its time, and the command that replays it. With `record -e sched`, it is also
/// shown how long the call ran, was blocked, and waited for a processor. A call whose end was not recorded took at
/// least the time shown.
#[derive(Debug, Args)]
pub struct Slow {
    /// The function, or a glob of functions
    #[arg(value_name = "FUNCTION")]
    function: String,

    /// The trace [default: nopal.data]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    more: More,

    /// Show this many calls
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub limit: u64,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// Show arguments and results as the words that were recorded, without their types
    #[arg(long)]
    pub words: bool,

    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
}

impl Slow {
    /// The function and the trace.
    pub fn parts(&self) -> (&str, Input) {
        let word = Some(self.function.as_str());
        let (function, directory) = subject_and_trace(word, self.directory.as_deref());
        let input = Input::new(directory, &self.more);
        (function.unwrap_or(&self.function), input)
    }
}

/// Show the longest requests through threads and processes, and where the time of each went
///
/// A request is a case of a section, FROM..TO: from any function or marker to any other. Each is shown with its time
/// and duration, its value, the threads in which it began and ended, the functions in which it spent its time, and the
/// command that replays it. With `record -e sched`, it is also shown how long the request ran and waited, and its
/// critical path: followed backwards from the end, where a blocked thread waited for the traced thread that woke it.
/// Without, the other threads that recorded something meanwhile are shown. A request that had not ended took at least
/// the time shown.
#[derive(Debug, Args)]
pub struct Requests {
    /// The beginning and the end of requests, such as read_request.arg1..write_reply.arg1: paired by the values, in any
    /// threads; without values, in each thread
    #[arg(value_name = "SECTION")]
    section: String,

    /// The trace [default: nopal.data]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    more: More,

    /// Show only requests with this value, each step of their paths on a line
    #[arg(long, value_name = "VALUE", value_parser = value, allow_hyphen_values = true)]
    pub value: Option<u64>,

    /// Show this many requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub limit: u64,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
}

impl Requests {
    /// The section and the trace.
    pub fn parts(&self) -> (&str, Input) {
        let word = Some(self.section.as_str());
        let (section, directory) = subject_and_trace(word, self.directory.as_deref());
        let input = Input::new(directory, &self.more);
        (section.unwrap_or(&self.section), input)
    }
}

/// A word of a register: a number, a negative one, or a hexadecimal one.
fn value(text: &str) -> Result<u64> {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('-')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (_, Some(_)) => text.parse::<i64>().map(|number| number as u64),
        _ => text.parse(),
    };
    parsed.with_context(|| format!("{text:?} is no number, such as 17 or 0x7f00"))
}

/// The units whose calls are summed up apart.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum PerArgument {
    /// All calls together
    #[default]
    Trace,
    Process,
    Thread,
}

impl PerArgument {
    pub fn apart(self) -> Apart {
        match self {
            PerArgument::Trace => Apart::Nothing,
            PerArgument::Process => Apart::Process,
            PerArgument::Thread => Apart::Thread,
        }
    }
}

/// Show the distribution of values in the terminal
///
/// Without a function, the values are the durations of all calls. The argument that names a trace is the trace.
/// Tracers are those of `nopal run`, and FROM..TO, from any function or marker to any other.
#[derive(Debug, Args)]
pub struct Hist {
    #[command(flatten)]
    pub subject: Subject,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// The widths of the bars
    #[arg(long, value_enum, default_value_t)]
    pub scale: ScaleArgument,

    #[arg(long, value_name = "WHAT", value_parser = ByArgument::parse, help = ByArgument::HELP)]
    pub by: Option<ByArgument>,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum ScaleArgument {
    /// Equal widths
    Linear,
    /// Each bar twice as wide as the one before
    #[default]
    Log2,
    /// Fixed parts of all values, up to the last 1 in 100,000
    Hdr,
}

impl ScaleArgument {
    pub fn scale(self) -> Scale {
        match self {
            ScaleArgument::Linear => Scale::Linear,
            ScaleArgument::Log2 => Scale::Log2,
            ScaleArgument::Hdr => Scale::Hdr,
        }
    }
}

/// The argument of `--by`.
#[derive(Debug, Clone)]
pub struct ByArgument(String);

impl ByArgument {
    pub const HELP: &str = "Show one for each thread, process, function or cpu (on which the call ended; needs -e sched), or for each value, such as arg1, 'result & 1', or another field of the marker";

    pub fn parse(text: &str) -> std::result::Result<ByArgument, Infallible> {
        Ok(ByArgument(text.into()))
    }

    /// Parses the grouping; a grouping by values is also set in `what`.
    pub fn by(
        argument: Option<&ByArgument>,
        what: &mut ValueSelection,
        markers: &Markers,
    ) -> Result<By> {
        let Some(ByArgument(text)) = argument else {
            return Ok(By::Nothing);
        };
        Ok(match text.as_str() {
            "thread" => By::Thread,
            "process" => By::Process,
            "function" => By::Function,
            "cpu" => By::Processor,
            _ => {
                what.group_by(text, markers)?;
                By::Value
            }
        })
    }
}
