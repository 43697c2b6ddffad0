//! Options that say what is recorded, and how.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use nopal_analysis::tracers::Tracer;
use nopal_record::{
    Allowed, Kinds, Membership, Options, Share, Target, Way, WhenFull, check_tracepoint,
};

use super::kernel::KernelFunctions;
use crate::settings::Settings;
use crate::{size, time};

/// Run a program and record its calls
///
/// By default, all functions of the program are recorded, and of each library the functions that are called from
/// outside of it. The program reads, writes and ends as it would untraced; nopal ends with its exit status or by the
/// same signal, even if the recording fails. The status is 127 if the program does not exist, 126 if it cannot be run
/// or nopal refuses it, and 1 if the request was invalid and nothing was run.
#[derive(Debug, Args)]
#[command(
    override_usage = "nopal record [OPTIONS] [--] PROGRAM [ARG]...\n       nopal record [OPTIONS] -p PID"
)]
pub struct Record {
    #[command(flatten)]
    recording: Recording,

    /// Record a running process, as `nopal attach` does
    #[arg(short, long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// With -p: end after this time
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse, conflicts_with = "command")]
    time: Option<Duration>,

    /// The program, looked up in PATH, and its arguments
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// Run a program under latency tracers, and print their worst cases
///
/// Each tracer measures the time from one event to another, and keeps the worst case with everything that was recorded
/// in it. When the program has ended, these cases are written to standard error in the format of the kernel's latency
/// tracers. The trace has all cases, for `nopal hist lockhold` and `nopal dump --as latency --of lockhold`. Options can
/// be combined.
#[derive(Debug, Args)]
pub struct Run {
    /// Record functions, with their call sites: those of the program, and of libraries those that `nopal record` records
    /// by default
    #[arg(short, long)]
    functions: bool,

    /// Measure how long locks are held: pthread mutexes, rwlocks and spinlocks (lockhold)
    #[arg(short = 'p', long)]
    held: bool,

    /// Measure how long signals are blocked (sigoff)
    #[arg(short = 'i', long)]
    signals: bool,

    /// Measure how long a thread holds a lock or blocks signals (critical)
    #[arg(short = 'b', long)]
    both: bool,

    /// Measure how long threads wait for locks (lockwait)
    #[arg(short = 'l', long)]
    waits: bool,

    /// Measure how long woken threads wait for a processor (wakeup)
    #[arg(short = 'w', long)]
    wakeups: bool,

    /// With -w: measure instead all tasks of the machine that are more urgent than the running one; of those that wait,
    /// the most urgent (wakeup_all)
    #[arg(long, requires = "wakeups")]
    all: bool,

    /// Measure how long threads are off the processor, waiting or preempted (offcpu)
    #[arg(short = 'c', long = "off-cpu")]
    off: bool,

    /// Record context switches (sched_switch)
    #[arg(short = 's', long)]
    switches: bool,

    /// Record events: markers, static probes, and context switches and wake-ups as far as permitted (events)
    #[arg(short = 'e')]
    event: bool,

    /// Record these kernel events, as `nopal record -e` takes them [may be repeated]
    #[arg(long = "events", value_name = "LIST", value_delimiter = ',', value_parser = KernelEvent::parse)]
    events: Vec<KernelEvent>,

    #[command(flatten)]
    kernel: KernelFunctions,

    /// The trace to write; an older one is moved to DIR.old
    #[arg(short, long, value_name = "DIR", default_value = Options::DIRECTORY)]
    output: PathBuf,

    /// The program, looked up in PATH, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// Record the calls of running processes
///
/// All processes are recorded by one session, into one trace: those that are given by number, and all that a name, a
/// unit, a control group or a container has now or while the session goes on. A process that cannot be traced is named
/// with the reason and does not stop the others. nopal itself and the processes that it was started by are left out.
/// Ends at Ctrl-C, after --for, at `nopal detach`, or when all have ended. The processes are left as they were.
#[derive(Debug, Args)]
pub struct Attach {
    /// Processes, and names of commands or of the files that they run
    #[arg(value_name = "PID|NAME", required_unless_present_any = ["unit", "cgroup", "container"], value_parser = Process::parse)]
    processes: Vec<Process>,

    /// Record the processes of a unit of systemd, such as postgresql.service [may be repeated]
    #[arg(long, value_name = "UNIT")]
    unit: Vec<String>,

    /// Record the processes of a control group, by its directory or its path in /proc/PID/cgroup, and of those below it
    /// [may be repeated]
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,

    /// Record the processes of a container of docker, podman or containerd, by its number or a beginning of that, or,
    /// of docker, podman or LXC, by its name [may be repeated]
    #[arg(long, value_name = "ID")]
    container: Vec<String>,

    /// Record the children of these processes, too, their children, and so on
    #[arg(long)]
    children: bool,

    #[command(flatten)]
    recording: Recording,

    /// End after this time, such as 500ms, 10s, 5m, 1h
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    time: Option<Duration>,
}

/// Record values each time that an instruction of a program runs
///
/// WHERE is FUNCTION, FUNCTION+OFFSET, FILE:LINE, an address, or `return FUNCTION`. A VALUE is a register (%di), memory
/// at an offset from one (+8(%si)), or a variable of the source or a member of it (request->length), followed by :s8 to
/// :s64, :u8 to :u64, :x8 to :x64 or :string. The program reads, writes and ends as with `nopal record`, which takes
/// one or more such probes by --probe.
#[derive(Debug, Args)]
#[command(
    override_usage = "nopal probe [OPTIONS] WHERE [new NAME] [fetch VALUE...] -- PROGRAM [ARG]...\n       nopal probe [OPTIONS] WHERE [new NAME] [fetch VALUE...] -p PID"
)]
pub struct Probe {
    /// The probe: its location, name and values
    #[arg(required = true, value_name = "WHERE")]
    probe: Vec<String>,

    #[command(flatten)]
    recording: Recording,

    /// Probe a running process
    #[arg(short, long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// With -p: end after this time
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse, conflicts_with = "command")]
    time: Option<Duration>,

    /// The program, looked up in PATH, and its arguments
    #[arg(required_unless_present = "pid", last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Show which functions of a process are called most and take the most time
///
/// The table is refreshed each second; nothing is written to files. Keys select the order, filter, and switch off
/// functions, whose calls are then not recorded. Ends at q, Ctrl-C, or when the process ends. The process is left as it
/// was.
#[derive(Debug, Args)]
pub struct Top {
    /// The process
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    #[command(flatten)]
    functions: Functions,

    /// Show every function of every library, too
    #[arg(long)]
    libs: bool,

    /// Keep the processor time that this adds within this share of what the process uses itself, as `record` does
    #[arg(long, value_name = "SHARE", value_parser = Share::from_str)]
    budget: Option<Share>,
}

/// Functions by name.
#[derive(Debug, Args)]
pub struct Functions {
    /// Take only functions that match [may be repeated]
    #[arg(short = 'F', long = "filter", value_name = "GLOB[@MODULE]")]
    pub only: Vec<String>,

    /// Leave out functions that match [may be repeated]
    #[arg(short = 'N', long = "notrace", value_name = "GLOB[@MODULE]")]
    pub not: Vec<String>,
}

/// Where probes are breakpoints.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Breakpoint {
    Always,
    /// Where no jump fits
    Auto,
}

/// The data to record, and the trace.
#[derive(Debug, Args)]
struct Recording {
    /// The trace to write; an older one is moved to DIR.old
    #[arg(short, long, value_name = "DIR", default_value = Options::DIRECTORY)]
    output: PathBuf,

    #[command(flatten)]
    functions: Functions,

    /// Record the markers that match; functions only with -F [may be repeated]
    #[arg(short = 'M', long = "markers", value_name = "GLOB[@MODULE]")]
    markers: Vec<String>,

    /// Record kernel events: sched_switch, sched_wakeup, or sched for both, of all tasks; and of the traced threads any
    /// tracepoint of the kernel, GROUP (irq, timer, syscalls, block, net …) or GROUP:NAME, which may be globs (root
    /// only) [may be repeated]
    #[arg(short = 'e', long = "event", value_name = "EVENT", value_delimiter = ',', value_parser = KernelEvent::parse)]
    events: Vec<KernelEvent>,

    #[command(flatten)]
    kernel: KernelFunctions,

    /// Record a probe; functions only with -F [may be repeated]
    #[arg(
        long = "probe",
        value_name = "'WHERE [new NAME] [fetch VALUE...]'",
        allow_hyphen_values = true
    )]
    probes: Vec<String>,

    /// Place probes by breakpoints, which need one byte where a jump needs five, and take microseconds; with auto, only
    /// where no jump fits. If a thread that blocks SIGTRAP hits one, the program is killed
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    breakpoint: Option<Breakpoint>,

    /// Record every function of every library, too
    #[arg(long)]
    libs: bool,

    /// Leave out calls nested deeper than this
    #[arg(short = 'D', long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,

    /// Leave out calls that take less than this, such as 10us, with all calls in them; they are counted
    #[arg(short = 't', long = "longer", value_name = "TIME", value_parser = time::parse, conflicts_with = "entry_only")]
    least: Option<Duration>,

    /// Record the first six integer arguments and the integer result of each call
    #[arg(long)]
    args: bool,

    /// Record the call site of each call: the address that it returns to; adds 16 bytes to a call
    #[arg(long)]
    call_sites: bool,

    /// Record entries only: no durations
    #[arg(long)]
    entry_only: bool,

    /// Order events of different threads even if they are less than 200 ns apart; adds some 20 ns to a call
    #[arg(long)]
    ordered: bool,

    #[command(flatten)]
    when_full: WhenFullArguments,

    /// With --flight: write a snapshot each time that a trigger of nopal-ctl(5) fires, such as 'return handle_request
    /// if duration > 50ms' [may be repeated]
    #[arg(
        long,
        value_name = "EVENT [if COND]",
        requires = "flight",
        conflicts_with = "block"
    )]
    snapshot_when: Vec<String>,

    /// Be a flight recorder (--flight), and keep the N slowest cases of each minute of a section FROM..TO, such as
    /// 'read_request.arg1..write_reply.arg1', or of the tracer lockhold, lockwait, sigoff or critical: all that was
    /// recorded in each, as a snapshot
    #[arg(
        long,
        num_args = 2,
        value_names = ["N", "SECTION"],
        conflicts_with = "block",
        conflicts_with_all = KERNEL
    )]
    keep_slowest: Option<Vec<String>>,

    /// Size of the buffer for records that are not written yet [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    buffer: Option<u64>,

    /// Stop recording when the trace has this size
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<u64>,

    /// Keep the processor time that recording adds within this share, such as 5%, of what the program uses itself:
    /// functions whose calls cost most and show least are counted, or off, as long as necessary. Functions that -F
    /// names are always recorded
    #[arg(long, value_name = "SHARE", value_parser = Share::from_str)]
    budget: Option<Share>,

    /// Do not trace the programs that traced processes execute
    #[arg(long, visible_alias = "no-follow-exec")]
    no_follow: bool,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct WhenFullArguments {
    /// When the buffer is full, make the program wait instead of dropping and counting new records
    #[arg(long)]
    block: bool,

    /// When the buffer is full, drop the oldest records
    #[arg(long, conflicts_with_all = KERNEL)]
    flight: bool,
}

/// What records events of the kernel: a flight recorder has none.
const KERNEL: [&str; 5] = [
    "events",
    "kernel",
    "patterns",
    "kernel_markers",
    "kernel_probes",
];

/// A kernel event, as perf and trace-cmd name it.
#[derive(Clone, Debug)]
enum KernelEvent {
    /// Switches and wake-ups of all tasks.
    Scheduler(Kinds),
    /// Tracepoints, of the traced threads.
    Tracepoints(String),
}

/// A running process, or all that have a name.
#[derive(Clone, Debug)]
enum Process {
    Number(i32),
    Named(String),
}

impl Process {
    fn parse(word: &str) -> Result<Process> {
        match word.parse() {
            Ok(number) if number > 0 => Ok(Process::Number(number)),
            Err(_) if !word.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Process::Named(word.to_owned()))
            }
            _ => bail!("no process has this number"),
        }
    }
}

impl KernelEvent {
    fn parse(word: &str) -> Result<KernelEvent> {
        if let Some(kinds) = Kinds::parse(word) {
            return Ok(KernelEvent::Scheduler(kinds));
        }
        check_tracepoint(word)?;
        Ok(KernelEvent::Tracepoints(word.to_owned()))
    }

    fn parted(all: Vec<KernelEvent>) -> (impl Iterator<Item = Kinds>, Vec<String>) {
        let (mut kinds, mut tracepoints) = (Vec::new(), Vec::new());
        for event in all {
            match event {
                KernelEvent::Scheduler(of) => kinds.push(of),
                KernelEvent::Tracepoints(word) => tracepoints.push(word),
            }
        }
        (kinds.into_iter(), tracepoints)
    }
}

impl Record {
    pub fn options(self) -> Options {
        options(self.recording, self.pid, self.time, self.command)
    }
}

impl Run {
    pub fn program(&self) -> &OsStr {
        self.command
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str)
    }

    pub fn options(self) -> Result<Options> {
        let target = program(self.command);
        let every = |is_wanted: bool| Vec::from_iter(is_wanted.then(|| "*".to_owned()));
        let tracers = [
            (self.held, Tracer::LockHold),
            (self.waits, Tracer::LockWait),
            (self.wakeups && !self.all, Tracer::Wakeup),
            (self.wakeups && self.all, Tracer::WakeupAll),
            (self.off, Tracer::OffCpu),
            (self.signals, Tracer::SignalsOff),
            (self.both, Tracer::Critical),
        ];
        let tracers: Vec<Tracer> = tracers
            .into_iter()
            .filter_map(|(is_wanted, tracer)| is_wanted.then_some(tracer))
            .collect();
        let takes_events = self.event || !self.events.is_empty();
        ensure!(
            self.functions || takes_events || self.switches || !tracers.is_empty(),
            "nothing to trace: -f records functions, -e markers and kernel events, -s context switches, --events other \
             events of the kernel; -p measures how long locks are held, -l how long they are waited for, -i how long \
             signals are blocked, -b either, -w wake-ups, -c time without a processor; -k adds functions of the kernel to \
             any of these"
        );
        let (kinds, tracepoints) = KernelEvent::parted(self.events);
        // Markers need no rights.
        let may_record = self.event && !matches!(nopal_record::allowed(), Allowed::Nothing(_));
        let kinds = kinds
            .chain([nopal_record::kinds_of(&tracers)])
            .chain(may_record.then_some(Kinds::ALL))
            .chain(
                self.switches
                    .then(|| Kinds::parse("sched_switch"))
                    .flatten(),
            );
        let event_tracers = [(takes_events, "events"), (self.switches, "sched_switch")]
            .into_iter()
            .filter_map(|(is_wanted, name)| is_wanted.then_some(name))
            .collect();
        Ok(Options {
            directory: self.output,
            only: every(self.functions),
            call_sites: self.functions,
            events: self.kernel.and(kinds),
            tracepoints,
            event_tracers,
            kernel_functions: self.kernel.patterns,
            kernel_markers: self.kernel.kernel_markers,
            kernel_probes: self.kernel.kernel_probes,
            tracers,
            ..Options::new(target)
        })
    }
}

impl Probe {
    pub fn options(self) -> Options {
        let mut recording = self.recording;
        recording.probes.push(self.probe.join(" "));
        options(recording, self.pid, self.time, self.command)
    }
}

/// The options of `record`, or with a process those of `attach`.
fn options(
    recording: Recording,
    process: Option<i32>,
    time: Option<Duration>,
    command: Vec<OsString>,
) -> Options {
    match process {
        Some(pid) => recording.options(Target::Processes(vec![pid]), time),
        None => recording.options(program(command), None),
    }
}

fn program(command: Vec<OsString>) -> Target {
    let mut words = command.into_iter();
    Target::Program {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
    }
}

impl Attach {
    /// An error that a session with these options would begin with, whatever its processes are.
    pub fn commands(self) -> Result<()> {
        let options = self
            .recording
            .options(Target::Processes(Vec::new()), self.time);
        options.commands().map(drop)
    }

    pub fn options(self) -> Result<Options> {
        let (mut processes, mut memberships) = (Vec::new(), Vec::new());
        for process in self.processes {
            match process {
                Process::Number(number) => processes.push(number),
                Process::Named(name) => memberships.push(Membership::named(&name)?),
            }
        }
        let of = |what: &str, name: &str| format!("{what} {name:?}");
        let wanted = self.unit.iter().map(|unit| of("the unit", unit));
        let paths = self.cgroup.iter().map(|path| path.to_string_lossy());
        let wanted = wanted.chain(paths.map(|path| of("the control group", &path)));
        let containers = self.container.iter();
        let wanted = wanted.chain(containers.map(|one| of("the container", one)));
        let wanted: Vec<String> = wanted.collect();
        let units = self.unit.iter().map(|unit| Membership::unit(unit));
        let groups = self.cgroup.iter().map(|path| Membership::group(path));
        let containers = self.container.iter();
        let containers = containers.map(|container| Membership::container(container));
        for membership in units.chain(groups).chain(containers) {
            memberships.push(membership?);
        }
        processes.extend(memberships.iter().flat_map(Membership::members));
        ensure!(
            !processes.is_empty(),
            "no process runs in {}, except nopal itself and those that it was started by",
            wanted.join(", ")
        );
        let mut seen = HashSet::new();
        processes.retain(|process| seen.insert(*process));
        let mut parent = 0;
        while self.children && parent < processes.len() {
            let children = nopal_process::children(processes[parent]);
            processes.extend(children.into_iter().filter(|child| seen.insert(*child)));
            parent += 1;
        }
        let target = Target::Processes(processes);
        Ok(Options {
            memberships,
            ..self.recording.options(target, self.time)
        })
    }
}

impl Top {
    /// Without the directory, which `top` does not write.
    pub fn options(&self) -> Options {
        Options {
            only: self.functions.only.clone(),
            not: self.functions.not.clone(),
            libraries: self.libs,
            budget: self.budget,
            ..Options::new(Target::Processes(vec![self.pid]))
        }
    }
}

impl Recording {
    fn options(self, target: Target, time: Option<Duration>) -> Options {
        let (kinds, tracepoints) = KernelEvent::parted(self.events);
        Options {
            target,
            directory: self.output,
            only: self.functions.only,
            not: self.functions.not,
            markers: self.markers,
            probes: self.probes,
            probe_way: match self.breakpoint {
                None => Way::Jump,
                Some(Breakpoint::Always) => Way::Breakpoint,
                Some(Breakpoint::Auto) => Way::Auto,
            },
            events: self.kernel.and(kinds),
            tracepoints,
            event_tracers: Vec::new(),
            kernel_functions: self.kernel.patterns,
            kernel_markers: self.kernel.kernel_markers,
            kernel_probes: self.kernel.kernel_probes,
            tracers: Vec::new(),
            libraries: self.libs,
            depth: self.depth,
            least: self.least,
            record_arguments: self.args,
            call_sites: self.call_sites,
            entry_only: self.entry_only,
            ordered: self.ordered,
            when_full: match self.when_full {
                WhenFullArguments { block: true, .. } => WhenFull::Block,
                WhenFullArguments { flight: true, .. } => WhenFull::Flight,
                _ if self.keep_slowest.is_some() => WhenFull::Flight,
                _ => WhenFull::Drop,
            },
            snapshot_when: self.snapshot_when,
            keep_slowest: self.keep_slowest.map(|words| words.join(" ")),
            buffer_bytes: self
                .buffer
                .or(Settings::of_process().buffer)
                .unwrap_or(Options::BUFFER_BYTES),
            max_bytes: self.max_size,
            follow_exec: !self.no_follow,
            budget: self.budget,
            time,
            memberships: Vec::new(),
        }
    }
}
