//! The options of a recording, and its outcome.

use crate::members::Membership;
use anyhow::{Context, Error, Result};
use nopal_analysis::tracers::Tracer;
use nopal_control::{Command, FunctionSelection, Probe, Share, Way, begin};
use nopal_kernel_events::Kinds;
use nopal_symbols::{nearest, or_nearest};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The target to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A program to start.
    Program {
        /// As typed: looked up in `PATH` unless it holds a slash.
        program: OsString,
        /// Without the program's own name.
        arguments: Vec<OsString>,
    },
    /// Processes that run already, each once. The rules of `attach` apply to each.
    Processes(Vec<i32>),
}

/// The target, and the data to record. Plain values: the command line fills them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub target: Target,
    pub directory: PathBuf,
    /// `GLOB[@MODULE]`; none chooses everything.
    pub only: Vec<String>,
    /// `GLOB[@MODULE]`, taken out of what `only` chose.
    pub not: Vec<String>,
    /// Markers to record, `GLOB[@MODULE]`. With no functions chosen, they are all that is recorded.
    pub markers: Vec<String>,
    /// Probes to record, as the command `probe` of the control language takes them. The same holds for them.
    pub probes: Vec<String>,
    /// How the program reaches those of them that do not say.
    pub probe_way: Way,
    /// Kernel events to record, too.
    pub events: Kinds,
    /// Tracepoints of the kernel to record in the traced threads: `GROUP`, `GROUP:NAME`, globs.
    pub tracepoints: Vec<String>,
    /// Tracers that measure nothing, `events` or `sched_switch`. With no functions chosen, they are all that is recorded.
    pub event_tracers: Vec<&'static str>,
    /// Globs of the kernel functions to record, where these are recorded at all. Empty: all.
    pub kernel_functions: Vec<String>,
    /// Globs of markers of the kernel's modules to record.
    pub kernel_markers: Vec<String>,
    /// Probes in the kernel, as `probes`.
    pub kernel_probes: Vec<String>,
    /// Tracers whose functions are recorded too. With no functions chosen, they are all that is recorded.
    pub tracers: Vec<Tracer>,
    /// Every function of every library, not only those that are recorded by default.
    pub libraries: bool,
    /// Calls nested deeper than this are not recorded.
    pub depth: Option<u32>,
    /// Calls that take less are not written.
    pub least: Option<Duration>,
    /// Record the integer arguments and the integer result of each call.
    pub record_arguments: bool,
    /// Record where each call is: the address that it returns to.
    pub call_sites: bool,
    pub entry_only: bool,
    /// Events of several threads are in the order in which they happened, however near to each other.
    pub ordered: bool,
    pub when_full: WhenFull,
    /// `EVENT [if COND]` of triggers that take snapshots of the flight recorder.
    pub snapshot_when: Vec<String>,
    /// `N TRACER`: of the tracer's cases, the slowest of each minute are kept as snapshots, so many. A section is a tracer.
    pub keep_slowest: Option<String>,
    /// Memory for records that have not been written out yet.
    pub buffer_bytes: u64,
    /// Stop recording when the trace has grown to this; the program goes on.
    pub max_bytes: Option<u64>,
    /// Go on with the new program when the traced one replaces itself by `exec`.
    pub follow_exec: bool,
    /// Have functions off so that recording adds no more than this part of the processor time.
    pub budget: Option<Share>,
    /// Let go of a process that ran already after this time.
    pub time: Option<Duration>,
    /// With processes that run: what those have in common that are recorded, too, when they come later.
    pub memberships: Vec<Membership>,
}

/// The tracers, besides sections, whose slowest cases can be kept.
const SLOWEST: [&str; 4] = ["lockhold", "lockwait", "sigoff", "critical"];

/// The first commands for `N TRACER`.
fn slowest(words: &str) -> Result<Vec<Command>> {
    let (most, tracer) = words.split_once(' ').unwrap_or((words, ""));
    let most = most.parse().ok().filter(|most| *most > 0);
    let most = most.with_context(|| {
        format!("--keep-slowest {words}: expected a number of cases a minute, such as 20")
    })?;
    let parsed = Tracer::parse(tracer).filter(|tracer| !tracer.is_of_kernel_events());
    let tracer = parsed.with_context(|| {
        let nearest = nearest(SLOWEST, tracer);
        format!(
            "--keep-slowest {words}: expected a section FROM..TO, {} or {}{}",
            SLOWEST[..3].join(", "),
            SLOWEST[3],
            or_nearest(&nearest)
        )
    })?;
    let mut commands = begin::tracer(&tracer);
    commands.push(begin::slowest(&tracer, most));
    Ok(commands)
}

/// The action of a thread when the buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Drop the new records, and count them.
    #[default]
    Drop,
    /// Wait until there is room.
    Block,
    /// Give up the oldest records: the trace holds the last moments.
    Flight,
}

impl Options {
    pub const DIRECTORY: &str = "nopal.data";
    pub const BUFFER_BYTES: u64 = 64 << 20;

    /// The options as the command line takes them, without those that are its defaults.
    pub fn as_given(&self) -> Vec<String> {
        let patterns = |option: &str, patterns: &[String]| -> Vec<String> {
            let both = patterns.iter().map(|pattern| format!("{option} {pattern}"));
            both.collect()
        };
        let mut given = patterns("-F", &self.only);
        given.extend(patterns("-N", &self.not));
        given.extend(patterns("--probe", &self.probes));
        let way = match self.probe_way {
            Way::Auto => Some("--breakpoint=auto"),
            Way::Breakpoint => Some("--breakpoint"),
            Way::Jump | Way::Return => None,
        };
        given.extend(way.map(str::to_owned));
        given.extend(patterns("-e", &self.tracepoints));
        given.extend(patterns("--kernel-functions", &self.kernel_functions));
        given.extend(patterns("--kernel-markers", &self.kernel_markers));
        given.extend(patterns("--kernel-probe", &self.kernel_probes));
        let mut flag = |is_given: bool, option: &str| {
            given.extend(is_given.then(|| option.to_owned()));
        };
        flag(self.libraries, "--libs");
        flag(self.record_arguments, "--args");
        flag(self.call_sites, "--call-sites");
        flag(self.entry_only, "--entry-only");
        flag(self.ordered, "--ordered");
        flag(self.when_full == WhenFull::Block, "--block");
        flag(self.when_full == WhenFull::Flight, "--flight");
        flag(self.events.functions(), "-k");
        flag(!self.follow_exec, "--no-follow");
        let mut value = |option: &str, value: Option<String>| {
            given.extend(value.map(|value| format!("{option} {value}")));
        };
        value("-e", self.events.word().map(str::to_owned));
        value("-D", self.depth.map(|depth| depth.to_string()));
        value("--budget", self.budget.map(|share| share.to_string()));
        value(
            "-t",
            self.least.map(|least| format!("{}ns", least.as_nanos())),
        );
        let is_usual = self.buffer_bytes == Self::BUFFER_BYTES;
        let buffer = (!is_usual).then(|| self.buffer_bytes.to_string());
        value("--buffer", buffer);
        value("--max-size", self.max_bytes.map(|size| size.to_string()));
        let when = self.snapshot_when.iter();
        given.extend(when.map(|place| format!("--snapshot-when {place:?}")));
        let slowest = self.keep_slowest.iter();
        given.extend(slowest.map(|words| format!("--keep-slowest {words}")));
        given
    }

    /// Whether functions are recorded for their own sake.
    pub fn chooses_functions(&self) -> bool {
        let others = [
            self.markers.is_empty(),
            self.probes.is_empty(),
            self.tracers.is_empty(),
            self.event_tracers.is_empty(),
        ];
        !self.only.is_empty() || others.iter().all(|none| *none)
    }

    /// Why there can be no snapshots.
    pub fn no_snapshots(&self) -> Option<&'static str> {
        (self.when_full != WhenFull::Flight).then_some(
            "a snapshot is of a flight recorder (--flight); this session writes everything into its trace",
        )
    }

    fn probe(&self, text: &str) -> Result<Probe, String> {
        let mut probe = nopal_control::probe(text)?;
        if probe.way == Way::Jump {
            probe.way = self.probe_way;
        }
        Ok(probe)
    }

    /// The session's first commands. What tracers of kernel events need is among `events`.
    pub fn commands(&self) -> Result<Vec<Command>> {
        let mut commands = Vec::new();
        if self.chooses_functions() {
            let (only, not) = (self.only.iter(), self.not.iter());
            let what = FunctionSelection::of_names(
                only.map(String::as_str),
                not.map(String::as_str),
                self.libraries,
            );
            commands.extend(begin::functions(what));
        }
        let tracers = self.tracers.iter();
        let tracers = tracers.filter(|tracer| !tracer.is_of_kernel_events());
        commands.extend(tracers.flat_map(begin::tracer));
        commands.extend(
            self.event_tracers
                .iter()
                .map(|name| begin::event_tracer(name)),
        );
        for text in &self.probes {
            let probe = self.probe(text).map_err(Error::msg)?;
            commands.extend(begin::probe(probe));
        }
        commands.extend(self.markers.iter().map(|glob| begin::marker(glob)));
        for place in &self.snapshot_when {
            commands.extend(begin::command(&format!("when {place} do snapshot"))?);
        }
        if let Some(words) = &self.keep_slowest {
            commands.extend(slowest(words)?);
        }
        commands.extend(self.budget.map(begin::budget));
        commands.push(Command::Start);
        Ok(commands)
    }

    /// `target` with the defaults of the command line.
    pub fn new(target: Target) -> Options {
        Options {
            target,
            directory: PathBuf::from(Self::DIRECTORY),
            only: Vec::new(),
            not: Vec::new(),
            markers: Vec::new(),
            probes: Vec::new(),
            probe_way: Way::Jump,
            events: Kinds::default(),
            tracepoints: Vec::new(),
            event_tracers: Vec::new(),
            kernel_functions: Vec::new(),
            kernel_markers: Vec::new(),
            kernel_probes: Vec::new(),
            tracers: Vec::new(),
            libraries: false,
            depth: None,
            least: None,
            record_arguments: false,
            call_sites: false,
            entry_only: false,
            ordered: false,
            when_full: WhenFull::Drop,
            snapshot_when: Vec::new(),
            keep_slowest: None,
            buffer_bytes: Self::BUFFER_BYTES,
            max_bytes: None,
            follow_exec: true,
            budget: None,
            time: None,
            memberships: Vec::new(),
        }
    }
}

/// How the traced program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed {
        signal: i32,
    },
    /// It goes on without nopal, as its user wanted.
    RunsOn,
    /// The same, as it could not take the signal by which its user wanted it to end.
    Left {
        signal: i32,
    },
}

/// The outcome of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub ended: Ended,
    pub directory: PathBuf,
    /// Functions that were traced, over all files.
    pub functions: u64,
    /// Functions that were refused, over all files.
    pub refused: u64,
    pub events: u64,
    /// Kernel events.
    pub system: u64,
    /// Events that were lost because no room was left, or the thread could no longer be recorded.
    pub lost: u64,
    /// How many of them for each reason, by its name in traces.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// Events that were recorded and not written: older ones than `WhenFull::Flight` keeps, or those after the trace's
    /// end.
    pub given_up: u64,
    /// Calls that were left out since they were short.
    pub short: u64,
    /// The results of snapshots, a line each.
    pub snapshots: Vec<String>,
    pub bytes: u64,
    /// Further messages for the user, a line each: stacks without mirror, a full disk, …
    pub warnings: Vec<String>,
    /// Why there is no trace, or no whole one, of a program that ran all the same.
    pub untraced: Option<String>,
}

impl Outcome {
    /// The outcome of a program that left no trace.
    pub fn without_trace(ended: Ended, why: String) -> Outcome {
        Outcome {
            ended,
            directory: PathBuf::new(),
            functions: 0,
            refused: 0,
            events: 0,
            system: 0,
            lost: 0,
            lost_by_reason: BTreeMap::new(),
            given_up: 0,
            short: 0,
            snapshots: Vec::new(),
            bytes: 0,
            warnings: Vec::new(),
            untraced: Some(why),
        }
    }
}
