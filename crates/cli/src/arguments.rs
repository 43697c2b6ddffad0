//! The command line: parser, help and manual pages are generated from these definitions.

mod alone;
mod calls;
mod ctl;
mod diff;
mod export;
mod kernel;
mod list;
mod pictures;
mod recording;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nopal_analysis::dump::{Format, Latency, Look, Weight};
use nopal_analysis::names::Style;
use nopal_analysis::report::{PROCESSES_BY, RELATED_BY, Sort, THREADS_BY};
use nopal_record::Options;

use crate::daemon::metrics::Endpoint;
use calls::FilterArguments;
use calls::subject_and_trace;
pub use calls::{ByArgument, Hist, PerArgument, Requests, Slow, Subject};
pub use ctl::{Ctl, Whose};
pub use diff::Diff;
pub use export::Export;
pub use list::List;
pub use pictures::{
    Cdf, Curve, Flame, FlameBy, Kind, PictureOutput, Plot, Scatter, Table, Timeline, TimelineBy,
};
pub use recording::{Attach, Probe, Record, Run, Top};

/// Trace Linux programs: every call of every function, without recompiling
#[derive(Debug, Parser)]
#[command(
    name = "nopal",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// When to use colours [default: auto]
    #[arg(long, value_name = "WHEN", value_enum, global = true)]
    pub color: Option<Color>,

    /// How to show names of C++ and Rust functions [default: short]
    #[arg(long, value_name = "HOW", value_enum, global = true)]
    pub names: Option<NamesArgument>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum NamesArgument {
    /// Without parameters, return types, default arguments of templates, and traits
    #[default]
    Short,
    /// As they are declared
    Full,
    /// As the file has them
    Raw,
}

impl NamesArgument {
    pub fn style(self) -> Style {
        match self {
            NamesArgument::Short => Style::Short,
            NamesArgument::Full => Style::Full,
            NamesArgument::Raw => Style::Raw,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Record(Record),
    Run(Run),
    Attach(Attach),
    Probe(Probe),
    Detach(Detach),
    Ctl(Ctl),
    Mount(Mount),
    Daemon(Daemon),
    Top(Top),
    Report(Report),
    Tui(Tui),
    Replay(Replay),
    Slow(Slow),
    Requests(Requests),
    Graph(Graph),
    Hist(Hist),
    Plot(Plot),
    Flame(Flame),
    Diff(Diff),
    Dump(Dump),
    Export(Export),
    Info(Info),
    View(View),
    List(List),
    /// Check what this machine allows, and how to allow more
    Doctor,
    #[command(hide = true)]
    Man(Man),
    #[command(hide = true)]
    Completions(Completions),
}

/// End the tracing of a process, like Ctrl-C at its `nopal attach`
///
/// When this command returns, the process has been restored.
#[derive(Debug, Args)]
pub struct Detach {
    /// The process
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
}

/// Show all tracing sessions as files
///
/// DIR/PID/ctl and DIR/PID/trace are like those of Plan 9, DIR/PID/tracing/… like the kernel's tracing directory.
/// Ctrl-C or `fusermount3 -u DIR` unmounts them.
#[derive(Debug, Args)]
pub struct Mount {
    /// The directory to mount on
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Record the services that files describe, as long as the machine runs
///
/// Each file NAME.toml describes a service: its keys are the long options of `nopal attach`, and process, keep,
/// keep-for and control. A recording begins when the service runs, and the next one when that has ended; the oldest
/// ones are removed. The daemon ends at SIGTERM or Ctrl-C, and reads the files again at SIGHUP.
#[derive(Debug, Args)]
pub struct Daemon {
    /// The directory with the files
    #[arg(long, value_name = "DIR", default_value = "/etc/nopal.d")]
    pub configuration: PathBuf,

    /// The directory of the recordings, DIR/NAME/TIME
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nopal")]
    pub directory: PathBuf,

    /// Show metrics in the text format of Prometheus, at /metrics: on a port of 127.0.0.1, for everybody on this
    /// machine, or at a socket, for this user
    #[arg(long, value_name = "PORT|SOCKET", value_parser = Endpoint::parse)]
    pub metrics: Option<Endpoint>,
}

/// Show for each function how often it was called, and how long it took
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// Order the rows by this column of the table that is shown, the largest first [default of functions: total]
    #[arg(short, long, value_name = "COLUMN", value_parser = sort_parser(), conflicts_with_all = ["hot_path", "by_arg", "kernel"])]
    pub sort: Option<String>,

    /// Show only the first N rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Show one row for each thread
    #[arg(long, conflicts_with_all = ["callers", "callees"])]
    pub threads: bool,

    /// Show one row for each process: command line, start, duration, exit, calls and self time
    #[arg(long, conflicts_with_all = ["threads", "callers", "callees"])]
    pub processes: bool,

    /// Show the heaviest path of calls: from the outermost function inwards, at each step the callee with most time
    #[arg(long, conflicts_with_all = ["threads", "processes", "callers", "callees"])]
    pub hot_path: bool,

    /// Show the callers of this function
    #[arg(long, value_name = "FUNCTION", conflicts_with = "callees")]
    pub callers: Option<String>,

    /// Show a row of --callers for each call site, if the trace has them (record --call-sites): caller+offset, and the
    /// line in the source
    #[arg(long, requires = "callers")]
    pub call_sites: bool,

    /// Show the functions that this function calls
    #[arg(long, value_name = "FUNCTION")]
    pub callees: Option<String>,

    /// Show the calls of a function by the values of its result or of an argument (needs record --args). ARGUMENT is a
    /// number [default: 1] or, if there is debug information, a name
    #[arg(long, value_name = "FUNCTION[:ARGUMENT|:result]", conflicts_with_all = ["threads", "processes", "hot_path", "callers", "callees"])]
    pub by_arg: Option<String>,

    /// Show functions of the kernel (record -k), and the functions of the program that they ran in
    #[arg(long, conflicts_with_all = ["threads", "processes", "hot_path", "callers", "callees", "by_arg", "net"])]
    pub kernel: bool,

    /// Subtract the cost of recording, as measured when it began, from all times; functions that wait for a given time
    /// took longer than shown
    #[arg(long)]
    pub net: bool,

    /// Print a JSON array
    #[arg(long, conflicts_with_all = ["hot_path", "kernel"])]
    pub json: bool,
}

/// Look through a trace in the terminal
///
/// It begins with the functions, as `nopal report` shows them. Enter shows the callers and callees of a function, g the
/// tree of calls, r its calls in a pager, Esc the previous view. The last line lists the keys.
#[derive(Debug, Args)]
pub struct Tui {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Show the calls in order, indented, with their durations
///
/// Durations are marked `+` above 10 microseconds, `!` above 100 microseconds, `#` above 1 millisecond. -F and -N
/// select calls together with all calls in them.
#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub input: Input,

    /// Show file and line of each function, if its file is still there and has debug information
    #[arg(short, long)]
    pub lines: bool,

    /// Show arguments and results as the words that were recorded, without their types
    #[arg(long)]
    pub words: bool,

    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Show the calls summed up as a tree
///
/// An argument that names a trace is the trace, another one is a function.
#[derive(Debug, Args)]
pub struct Graph {
    /// Show only the trees below this function
    function: Option<String>,

    /// Show calls down to this depth
    #[arg(short = 'D', long, value_name = "DEPTH")]
    pub depth: Option<usize>,

    /// Leave out branches that took less than this part of the time
    #[arg(long, value_name = "PERCENT")]
    pub least: Option<f64>,

    /// Tell calls of a function at different places of its caller apart, where the trace has them (record --call-sites)
    #[arg(long)]
    pub call_sites: bool,

    /// Sum up the calls of each process or thread apart
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_default_value = true
    )]
    pub per: PerArgument,

    /// The trace [default: nopal.data]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    #[command(flatten)]
    more: More,

    #[command(flatten)]
    pub filter: FilterArguments,
}

/// Write every event as text, in the formats of other tools
#[derive(Debug, Args)]
pub struct Dump {
    #[command(flatten)]
    pub input: Input,

    #[command(flatten)]
    pub filter: FilterArguments,

    /// Write to this file, compressed if its name ends in .gz or .zst [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The format to write
    #[arg(long = "as", value_name = "FORMAT", value_enum)]
    pub format: DumpFormat,

    /// Weigh stacks by calls instead of time [with --as folded]
    #[arg(long)]
    calls: bool,

    /// Show the longest call of this function, or the worst case of this tracer, instead of the longest of all calls.
    /// The tracer function shows all records, events shows markers and kernel events, sched_switch context switches
    /// [with --as latency]
    #[arg(long, value_name = "FUNCTION|TRACER")]
    of: Option<String>,

    /// Use the verbose latency format [with --as latency, function]
    #[arg(long)]
    verbose: bool,

    /// Show functions by their names only: the default of --as function [with --as latency, function]
    #[arg(long, conflicts_with = "nosymonly")]
    symonly: bool,

    /// Show the addresses of functions behind their names: the default of --as latency [with --as latency, function]
    #[arg(long)]
    nosymonly: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum DumpFormat {
    /// `E` and `X` lines, as written by Plan 9's devtrace
    Devtrace,
    /// The format of the kernel's function tracer
    Function,
    /// The longest call, or the worst case of a tracer, and all calls in it, in the format of the kernel's latency
    /// tracers
    Latency,
    /// JSON for chrome://tracing and Perfetto
    Chrome,
    /// One line for each stack, for flame graphs
    Folded,
    /// The records of the trace
    Raw,
}

/// Show machine, command, clocks, threads, sizes and losses of a trace
#[derive(Debug, Args)]
pub struct Info {
    #[command(flatten)]
    pub input: Input,
}

/// Look at a trace in the browser, or at two beside each other
///
/// Prints the address of the page, and serves it until Ctrl-C: on 127.0.0.1 only, and only to those who know the
/// address. It works over `ssh -L PORT:127.0.0.1:PORT`. A trace that is still being recorded is followed.
#[derive(Debug, Args)]
pub struct View {
    /// One trace or two, or traced processes [default: nopal.data]
    #[arg(value_name = "DIR|PID", num_args = 0..=2)]
    pub what: Vec<PathBuf>,

    /// Listen on this port [default: any free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,

    /// Do not open the browser
    #[arg(long)]
    pub no_browser: bool,
}

/// Write the manual pages into a directory
#[derive(Debug, Args)]
pub struct Man {
    pub directory: PathBuf,
}

/// Write completions for bash, zsh and fish into a directory
#[derive(Debug, Args)]
pub struct Completions {
    pub directory: PathBuf,
}

/// The traces that a reader reads as one.
#[derive(Debug, Args)]
pub struct Input {
    /// The trace, or several of one machine, read as one [default: nopal.data]
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    #[command(flatten)]
    more: More,
}

/// Traces that are named by an option.
#[derive(Clone, Debug, Default, Args)]
pub struct More {
    /// Read this trace, and others together with it, as one [may be repeated]
    #[arg(id = "input", short = 'i', long = "input", value_name = "DIR")]
    directories: Vec<PathBuf>,
}

impl Input {
    pub fn new(directories: impl IntoIterator<Item = PathBuf>, more: &More) -> Input {
        Input {
            directories: directories.into_iter().collect(),
            more: more.clone(),
        }
    }

    pub fn directories(&self) -> Vec<PathBuf> {
        let named = self.directories.iter().chain(&self.more.directories);
        let mut named: Vec<PathBuf> = named.cloned().collect();
        if named.is_empty() {
            named.push(Options::DIRECTORY.into());
        }
        named
    }

    /// The traces, as other commands take them: none if it is the one that they read anyway.
    pub fn named(&self) -> Vec<String> {
        let directories = self.directories();
        if directories == [Path::new(Options::DIRECTORY)] {
            return Vec::new();
        }
        let named = directories.iter().map(|one| one.display().to_string());
        named.collect()
    }

    /// The traces, for people.
    pub fn name(&self) -> String {
        let directories = self.directories();
        let names = directories.iter().map(|one| one.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    }
}

fn sort_parser() -> PossibleValuesParser {
    let mut names = Sort::ALL.map(|(name, _)| name).to_vec();
    names.extend(THREADS_BY.map(|(name, _)| name));
    names.extend(PROCESSES_BY.map(|(name, _)| name));
    names.extend(RELATED_BY.map(|(name, _)| name));
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    PossibleValuesParser::new(names)
}

impl Dump {
    /// Whether stacks are weighed by time.
    pub fn weighs_time(&self) -> bool {
        matches!(self.format, DumpFormat::Folded) && !self.calls
    }

    pub fn format(&self) -> Format {
        match self.format {
            DumpFormat::Devtrace => Format::Devtrace,
            DumpFormat::Function => Format::Function(Look {
                addresses: self.nosymonly,
                verbose: self.verbose,
            }),
            DumpFormat::Latency => Format::Latency(Latency {
                of: self.of.clone(),
                look: Look {
                    addresses: !self.symonly,
                    verbose: self.verbose,
                },
            }),
            DumpFormat::Chrome => Format::Chrome,
            DumpFormat::Folded if self.calls => Format::Folded(Weight::Calls),
            DumpFormat::Folded => Format::Folded(Weight::Time),
            DumpFormat::Raw => Format::Raw,
        }
    }
}

impl Graph {
    /// The trace, and the function.
    pub fn parts(&self) -> (Input, Option<&str>) {
        let (function, directory) =
            subject_and_trace(self.function.as_deref(), self.directory.as_deref());
        (Input::new(directory, &self.more), function)
    }
}

impl Report {
    /// The order of functions.
    pub fn sort(&self) -> Result<Sort> {
        let Some(name) = &self.sort else {
            return Ok(Sort::default());
        };
        Sort::named(name).with_context(|| format!("functions have no column {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use nopal_record::{Target, WhenFull};

    fn record(words: &[&str]) -> Options {
        match Arguments::try_parse_from([&["nopal", "record"], words].concat())
            .unwrap()
            .command
        {
            Command::Record(record) => record.options(),
            other => panic!("{other:?}"),
        }
    }

    fn program(program: &str, arguments: &[&str]) -> Target {
        Target::Program {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
        }
    }

    #[test]
    fn definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_engine() {
        assert_eq!(record(&["--", "ls"]), Options::new(program("ls", &[])));
        let attach = Arguments::try_parse_from(["nopal", "attach", "7"]).unwrap();
        let Command::Attach(attach) = attach.command else {
            panic!("{attach:?}")
        };
        let attached = attach.options().unwrap();
        assert_eq!(attached, Options::new(Target::Processes(vec![7])));
        assert_eq!(record(&["-p", "7"]), attached);
    }

    #[test]
    fn words_after_the_program_are_its_own() {
        let options = record(&["-F", "a*@libc*", "--block", "ls", "-F", "--buffer", "--"]);
        assert_eq!(options.target, program("ls", &["-F", "--buffer", "--"]));
        assert_eq!(options.only, ["a*@libc*"]);
        assert_eq!(options.when_full, WhenFull::Block);
    }

    #[test]
    fn everything_at_once() {
        let words = "-o d -N x --libs -D 5 --args --call-sites --entry-only --ordered --flight --snapshot-when f \
                     --keep-slowest 20 a..b --buffer 1M --max-size 1G --no-follow p q";
        let options = record(&words.split(' ').collect::<Vec<_>>());
        let expected = Options {
            directory: "d".into(),
            not: vec!["x".into()],
            libraries: true,
            depth: Some(5),
            record_arguments: true,
            call_sites: true,
            entry_only: true,
            ordered: true,
            when_full: WhenFull::Flight,
            snapshot_when: vec!["f".into()],
            keep_slowest: Some("20 a..b".into()),
            buffer_bytes: 1 << 20,
            max_bytes: Some(1 << 30),
            follow_exec: false,
            ..Options::new(program("p", &["q"]))
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_session_that_keeps_slow_cases_is_a_flight_recorder() {
        let options = record(&["--keep-slowest", "20", "a..b", "ls", "-l"]);
        assert_eq!(options.target, program("ls", &["-l"]));
        assert_eq!(options.keep_slowest.as_deref(), Some("20 a..b"));
        assert_eq!(options.when_full, WhenFull::Flight);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in [
            &["--block", "--flight", "ls"][..],
            &["--snapshot-when", "f", "ls"],
            &["--snapshot-when", "f", "--block", "ls"],
            &["--keep-slowest", "2", "a..b", "--block", "ls"],
            &["--keep-slowest", "2", "a..b", "-e", "sched", "ls"],
            &["--flight", "-e", "sched", "ls"],
            &["--flight", "-k", "ls"],
            &["--flight", "--kernel-functions", "vfs_*", "ls"],
            &["--flight", "--kernel-markers", "a", "ls"],
            &["--flight", "--kernel-probe", "a", "ls"],
            &["--keep-slowest", "2"],
            &["-D", "0", "ls"],
            &["--buffer", "12Q", "ls"],
            &["-p", "7", "ls"],
            &["-p", "0"],
            &["--for", "1s", "ls"],
            &[],
        ] {
            assert!(
                Arguments::try_parse_from([&["nopal", "record"], words].concat()).is_err(),
                "{words:?}"
            );
        }
    }
}
