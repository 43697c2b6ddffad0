//! One session, from attaching to its end: random commands, and the checks after each.

use crate::probes::Probes;
use crate::program::{Counted, FUNCTIONS, PATIENCE, Program};
use crate::traces::{COUNTED, COUNTED_PATTERN, Traces, random_pattern, text};
use nopal_serve::{Access, Client};
use nopal_tests::process::nopals_mappings;
use nopal_tests::{End, Report, Start, nopal};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Ctrl-C.
    Interrupt,
    /// `nopal detach`.
    Detach,
    /// SIGKILL to the tool.
    Kill,
    /// SIGKILL to the guardian and to the tool; then `nopal detach`.
    KillBoth,
}

pub const ENDINGS: [Ending; 4] = [
    Ending::Interrupt,
    Ending::Detach,
    Ending::Kill,
    Ending::KillBoth,
];

/// The counts of all sessions together.
#[derive(Debug, Default)]
pub struct Done {
    pub toggles: u64,
    pub commands: u64,
    /// Calls whose exact number the program and nopal agree on.
    pub compared: u64,
    /// Calls that are not in the trace, as the session reported.
    pub lost: u64,
    pub windows: u64,
    /// The number of times that checked probes were passed.
    pub passed: u64,
}

pub struct Session<'a> {
    program: &'a Program,
    random: &'a mut fastrand::Rng,
    done: &'a mut Done,
    directory: &'a Path,
    trace: PathBuf,
    tool: Child,
    said: PathBuf,
    client: Client,
    traces: Traces,
    probes: Probes,
    /// Whether markers are traced: their code stays changed until the session's end.
    markers: bool,
    /// The last commands, printed after a failure.
    recent: Vec<String>,
    /// The counts when the counted trace was switched on, if it is on.
    window: Option<Counted>,
    /// The calls of each counted function while it was on.
    expected: Vec<u64>,
    /// The calls since counts began at 0.
    since_reset: u64,
    lost: u64,
    begun: Counted,
    tool_at_first: Option<Usage>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last commands:\n{}", self.recent.join("\n"));
            let name = format!("torture-{}", std::process::id());
            let kept = self.directory.with_file_name(name);
            if std::fs::rename(&self.trace, &kept).is_ok() {
                eprintln!("the trace is kept in {}", kept.display());
            }
        }
        let _ = self.tool.kill();
    }
}

/// The resources of the tool.
struct Usage {
    /// Open files of threads, some of which may have ended.
    streams: usize,
    descriptors: usize,
    kilobytes: u64,
}

/// Microseconds that a thread of the program sleeps between two bursts of calls.
const IDLE: [u64; 5] = [0, 50, 200, 1000, 5000];

const RECENT: usize = 40;

/// The most probes of a session that are counted in the trace, which is read once for each.
const MOST_PROBES: usize = 2;

/// The most files of threads that the tool holds open.
const MOST_STREAMS: usize = 128;

/// The most that the tool's own memory may grow in a session: names and sites, and records being collected.
const MOST_GROWTH: u64 = 256 << 10;

impl<'a> Session<'a> {
    pub fn attach(
        program: &'a Program,
        directory: &'a Path,
        random: &'a mut fastrand::Rng,
        done: &'a mut Done,
    ) -> Session<'a> {
        let (trace, said) = (directory.join("trace"), directory.join("said"));
        let pattern = random_pattern(random);
        let mut start = command(["attach", "--block"]);
        let sizes = ["1M", "4M", "64M"];
        start.words.extend([
            "--buffer".into(),
            random.choice(sizes).expect("three").into(),
        ]);
        start
            .words
            .extend(["-F".into(), text(&pattern).into(), "-o".into()]);
        start.words.push(trace.clone().into());
        for option in ["--args", "--entry-only"] {
            if random.u8(0..6) == 0 {
                start.words.push(option.into());
            }
        }
        let markers = random.bool();
        if markers {
            start.words.push("-M*".into());
        }
        start.words.push(program.id().to_string().into());
        let begun = program.counted();
        let output = File::create(&said).expect("a file can be made");
        let mut tool = start
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("nopal starts");
        wait("nopal to attach", || {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            let ended = tool.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "nopal does not attach: {said}");
            said.contains("nopal: tracing process")
        });
        let mut traces = Traces::new();
        traces.adopt("function", &pattern);
        Session {
            client: Client::connect(program.id()).expect("the session answers"),
            program,
            random,
            done,
            directory,
            trace,
            tool,
            said,
            traces,
            probes: Probes::default(),
            markers,
            recent: vec![format!("{:?}", start.words)],
            window: None,
            expected: vec![0; COUNTED],
            since_reset: 0,
            lost: 0,
            begun,
            tool_at_first: None,
        }
    }

    /// Gives random commands for a while.
    pub fn torture(&mut self, time: Duration) {
        self.make_counted();
        let begun = Instant::now();
        while begun.elapsed() < time {
            match self.random.u8(0..100) {
                0..15 => self.new_trace(),
                15..40 => self.switch_some(),
                40..47 => self.remove_one(),
                47..55 => self.new_probe(),
                55..60 => self.switch_probe(),
                60..64 => self.remove_probe(),
                64..78 => self.turn_window(),
                78..82 => self.stop_and_start(),
                82..85 => self.reset(),
                85..91 => self.look(),
                91..95 => {
                    let microseconds = self.random.choice(IDLE).expect("there are some");
                    self.program.be_idle(microseconds);
                }
                _ => std::thread::sleep(Duration::from_micros(self.random.u64(0..5000))),
            }
        }
        self.done.toggles += self.traces.toggles + self.probes.toggles;
    }

    fn command(&mut self, text: &str) -> String {
        self.note(text);
        match self.client.command(text) {
            Ok(answer) => answer,
            Err(error) => panic!("{text:.200}: {error:#}\n{}", self.said()),
        }
    }

    fn note(&mut self, text: &str) {
        self.done.commands += text.lines().count() as u64;
        self.recent.extend(text.lines().map(str::to_owned));
        let old = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..old);
    }

    fn state(&mut self) -> String {
        state(&mut self.client).expect("the session returns its state")
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Makes the trace of the counted functions, switched off, with no thread in their windows.
    fn make_counted(&mut self) {
        self.program.close();
        self.command(&format!("trace {COUNTED_PATTERN} new counted\nstart\n"));
        let state = self.state();
        let wanted = format!("#functions {COUNTED}, refused 0,");
        assert!(state.contains(&wanted), "not all are inserted:\n{state}");
        self.program.open();
    }

    fn new_trace(&mut self) {
        if self.traces.all.len() == 12 {
            return;
        }
        let (command, trace) = match self.random.u8(0..10) {
            0 => self.traces.make_of_library(),
            _ => self.traces.make(&random_pattern(self.random)),
        };
        self.note(&command);
        match self.client.command(&command) {
            Ok(_) => self.traces.all.push(trace),
            // Threads will return into the windows of all of its functions.
            Err(error) if error.to_string().contains("cannot be traced") => {}
            Err(error) => panic!("{command}: {error:#}\n{}", self.said()),
        }
    }

    /// Gives many switches in one command, of random traces or of one.
    fn switch_some(&mut self) {
        if self.traces.all.is_empty() {
            return;
        }
        let same = self.random.bool();
        let count = 1 << self.random.u32(0..if same { 11 } else { 8 });
        let mut at = 0;
        let mut text = String::new();
        for number in 0..count {
            if number == 0 || !same {
                at = self.random.usize(0..self.traces.all.len());
            }
            text += &self.traces.switch(at, self.random.bool());
        }
        self.command(&text);
    }

    fn new_probe(&mut self) {
        let Some((command, probe)) = self.probes.make(self.random) else {
            return;
        };
        self.note(&command);
        match self.client.command(&command) {
            Ok(_) => self.probes.all.push(probe),
            // A thread will return into its instruction.
            Err(error) if error.to_string().contains("will return into it") => {}
            // A place within a function may be at a page's end.
            Err(error) if error.to_string().contains("needs lie on two pages") => {}
            Err(error) => panic!("{command}: {error:#}\n{}", self.said()),
        }
    }

    /// Switches a probe whose function is called meanwhile.
    fn switch_probe(&mut self) {
        let all = self.probes.all.iter();
        let loose = all.enumerate().filter(|(_, probe)| !probe.is_exact());
        let loose: Vec<usize> = loose.map(|(at, _)| at).collect();
        let Some(&at) = self.random.choice(&loose) else {
            return;
        };
        let (before, on) = (self.program.counted(), self.probes.all[at].on);
        let command = self.probes.command(at);
        self.command(&command);
        let counted = if on { self.program.counted() } else { before };
        self.probes.switched(at, &counted);
    }

    fn remove_probe(&mut self) {
        if self.window.is_none() && !self.probes.all.is_empty() {
            let at = self.random.usize(0..self.probes.all.len());
            let command = format!("probe {} remove\n", self.probes.all[at].name);
            self.command(&command);
            self.probes.remove(at, &self.program.counted());
        }
    }

    fn remove_one(&mut self) {
        if !self.traces.all.is_empty() {
            let at = self.random.usize(0..self.traces.all.len());
            let text = self.traces.remove(at);
            self.command(&text);
        }
    }

    /// Turns the counted trace's switch; after it was on, its entries must be the calls that the program counted.
    fn turn_window(&mut self) {
        if self.window.is_none() {
            self.program.close();
            let counted = self.program.counted();
            let probes = self.probes.exact_on(&counted);
            self.command(&format!("trace counted on\n{probes}"));
            self.window = Some(counted);
            self.program.open();
            return;
        }
        self.program.close();
        let probes = self.end_window();
        self.command(&format!("trace counted off\n{probes}"));
        let state = self.state();
        self.program.open();
        let (_, counted) = state
            .split_once(" new counted\n")
            .expect("the trace is there");
        let entries = number_behind(counted, "entries ");
        self.lost = number_behind(&state, "#slothits ") - number_behind(&state, "#tracehits ");
        let missing = self.since_reset.checked_sub(entries);
        if missing.is_none_or(|missing| missing > self.lost) {
            let calls = self.since_reset;
            panic!(
                "{entries} entries of the counted trace, of {calls} calls; {} events are lost\n{}",
                self.lost,
                self.differences()
            );
        }
        if self.lost == 0 {
            self.done.compared += entries;
        }
    }

    /// Adds up the calls since the counted trace and its probes were switched on, and returns the commands that switch
    /// these probes off. No thread is in the functions.
    fn end_window(&mut self) -> String {
        let Some(before) = self.window.take() else {
            return String::new();
        };
        self.done.windows += 1;
        let after = self.program.counted();
        for number in 0..COUNTED {
            let calls = after.calls[number] - before.calls[number];
            self.expected[number] += calls;
            self.since_reset += calls;
        }
        self.probes.exact_off(&after)
    }

    fn stop_and_start(&mut self) {
        if self.window.is_none() {
            self.command("stop\n");
            std::thread::sleep(Duration::from_micros(self.random.u64(0..3000)));
            self.command("start\n");
        }
    }

    /// Resets the session; then the program's code is the original, while it runs.
    fn reset(&mut self) {
        if self.window.is_some() {
            return;
        }
        self.done.lost += std::mem::take(&mut self.lost);
        self.command("reset\n");
        self.traces.clear();
        self.probes.clear(&self.program.counted());
        self.since_reset = 0;
        let difference = self.program.text_difference("/torture");
        if let Some(difference) = difference.filter(|_| !self.markers) {
            panic!("after reset: {difference}");
        }
        self.make_counted();
        let now = usage(self.tool.id());
        let first = self.tool_at_first.get_or_insert(usage(self.tool.id()));
        assert!(
            now.streams <= MOST_STREAMS,
            "{} streams are open",
            now.streams
        );
        assert!(
            now.descriptors <= first.descriptors + 8,
            "the tool has {} descriptors, and had {}",
            now.descriptors,
            first.descriptors
        );
        assert!(
            now.kilobytes <= first.kilobytes + MOST_GROWTH,
            "the tool has {} KiB of memory, and had {}",
            now.kilobytes,
            first.kilobytes
        );
    }

    fn look(&mut self) {
        let digit = self.random.u8(1..10);
        self.command(&format!("query f_{digit}?7?\n"));
        let mut other = Client::connect(self.program.id()).expect("the session answers");
        let state = state(&mut other).expect("the session returns its state");
        assert!(state.contains(" new counted\n"), "{state}");
    }

    /// Gives the session much work at once, and does not wait for it.
    fn begin_much(&mut self) {
        let mut client = Client::connect(self.program.id()).expect("the session answers");
        let patterns = (0..8).map(|_| text(&random_pattern(self.random)));
        let commands: String = patterns
            .enumerate()
            .map(|(number, pattern)| {
                let name = format!("last{number}");
                let switches = format!("trace {name} on\ntrace {name} off\n").repeat(20);
                format!("trace {pattern} new {name}\n{switches}trace {name} remove\n")
            })
            .collect();
        // The command fails if the session ends first.
        std::thread::spawn(move || client.command(&commands));
        std::thread::sleep(Duration::from_micros(self.random.u64(0..20_000)));
    }

    /// Ends the session. The program must be as before, and the trace must be complete.
    pub fn end(mut self, ending: Ending) {
        // Half of the sessions end while no thread is in the functions: then the trace's content is known exactly.
        let quiet = self.random.bool();
        if quiet {
            self.program.close();
            self.end_window();
        }
        let guardian = guardian(self.tool.id());
        if self.random.bool() {
            self.begin_much();
        }
        match ending {
            Ending::Interrupt => signal(self.tool.id() as i32, libc::SIGINT),
            Ending::Detach => self.detach(),
            Ending::Kill => signal(self.tool.id() as i32, libc::SIGKILL),
            Ending::KillBoth => {
                signal(guardian, libc::SIGKILL);
                signal(self.tool.id() as i32, libc::SIGKILL);
            }
        }
        let status = self.tool.wait().expect("a child can be waited for");
        let killed = matches!(ending, Ending::Kill | Ending::KillBoth);
        assert!(
            killed || status.success(),
            "{ending:?}: nopal ended with {status}: {}",
            self.said()
        );
        if ending == Ending::KillBoth {
            wait("the guardian to die", || {
                let maps = std::fs::read_to_string(format!("/proc/{guardian}/maps"));
                maps.map_or(true, |maps| maps.is_empty())
            });
            self.detach();
        }
        self.wait_for_processes();
        if !quiet {
            self.program.close();
            self.window = None;
        }
        self.nothing_is_left();
        let after = self.program.counted();
        self.probes.clear(&after);
        assert_eq!(after.wrong, 0, "functions have given wrong results");
        if ending != Ending::KillBoth {
            self.compare(&after, quiet);
        }
        std::fs::remove_dir_all(&self.trace).expect("the trace is there");
        self.program.open();
        self.done.lost += self.lost;
    }

    /// The counted functions whose calls in the trace differ from those that were made, since the beginning.
    fn differences(&self) -> String {
        let report = Report::of(&self.trace);
        let calls = report.calls_of(|name| name.strip_prefix("f_")?.parse::<usize>().ok());
        let mut found = vec![0; FUNCTIONS];
        calls
            .into_iter()
            .for_each(|(number, calls)| found[number] = calls);
        let both = found.iter().zip(&self.expected).enumerate();
        both.filter(|(_, (found, expected))| found != expected)
            .map(|(number, (found, expected))| {
                format!("f_{number}: {found} in the trace, {expected} made\n")
            })
            .collect()
    }

    fn detach(&self) {
        let mut start = command(["detach"]);
        start.words.push(self.program.id().to_string().into());
        let ended = start.run("");
        assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    }

    /// Waits until no process of the session runs: the guardian may have had to clean up.
    fn wait_for_processes(&self) {
        let own = [std::process::id(), self.program.id() as u32];
        wait("the session's processes to end", || {
            let mut processes = with_environment(self.directory);
            processes.retain(|process| !own.contains(process));
            processes.is_empty()
        });
    }

    fn nothing_is_left(&self) {
        if let Some(difference) = self.program.text_difference("") {
            panic!("{difference}");
        }
        let left = nopals_mappings(self.program.id());
        assert!(left.is_empty(), "memory is left behind: {left:#?}");
        let sockets = self.directory.join("nopal");
        let left: Vec<_> =
            std::fs::read_dir(&sockets).map_or(Vec::new(), |entries| entries.flatten().collect());
        assert!(left.is_empty(), "{left:?}");
        let own = ["shared", "said", "trace", "nopal"];
        for entry in std::fs::read_dir(self.directory)
            .expect("it is there")
            .flatten()
        {
            let name = entry.file_name();
            assert!(
                own.iter().any(|own| name == *own),
                "{name:?} is left behind"
            );
        }
    }

    /// Checks that the trace has every call of the counted functions, and of no function more calls than were made.
    fn compare(&mut self, after: &Counted, quiet: bool) {
        let report = Report::of(&self.trace);
        let lost_events = lost(&self.trace);
        let most = after.library_calls - self.begun.library_calls;
        let calls = report.calls("library_leaf");
        assert!(
            calls <= most,
            "library_leaf: {calls} calls in the trace, {most} made"
        );
        let mut missing = 0;
        for (number, calls) in
            report.calls_of(|name| name.strip_prefix("f_")?.parse::<usize>().ok())
        {
            let most = after.calls[number] - self.begun.calls[number];
            assert!(
                calls <= most,
                "f_{number}: {calls} calls in the trace, {most} made"
            );
            if number < COUNTED && quiet {
                let expected = std::mem::take(&mut self.expected[number]);
                assert!(
                    calls <= expected,
                    "f_{number}: {calls} calls in the trace, {expected} made"
                );
                missing += expected - calls;
            }
        }
        if quiet {
            missing += self.expected.iter().sum::<u64>();
            assert!(
                missing <= lost_events,
                "{missing} calls are not in the trace, and {lost_events} are reported as lost"
            );
        }
        self.probes.gone.retain(|probe| probe.most > 0);
        for _ in 0..MOST_PROBES {
            let Some(probe) = self.random.choice(&self.probes.gone) else {
                break;
            };
            let found = passed(&self.trace, &probe.name);
            let least = probe.least.saturating_sub(lost_events);
            assert!(
                (least..=probe.most).contains(&found),
                "{} at f_{}: passed {found} times in the trace, {} to {} made, {lost_events} lost",
                probe.name,
                probe.function,
                probe.least,
                probe.most
            );
            self.done.passed += found;
        }
    }
}

fn state(client: &mut Client) -> anyhow::Result<String> {
    let read = Access {
        read: true,
        ..Access::default()
    };
    client.open("ctl", read)?;
    let state = client.read_all();
    client.close()?;
    Ok(String::from_utf8(state?)?)
}

/// `nopal` with these words.
fn command<const N: usize>(words: [&str; N]) -> Start {
    let mut start = Start::new([nopal().as_os_str()]);
    start.words.extend(words.map(Into::into));
    start
}

fn number_behind(text: &str, word: &str) -> u64 {
    let (_, behind) = text
        .split_once(word)
        .unwrap_or_else(|| panic!("no {word}:\n{text}"));
    let digits = behind.split(|char: char| !char.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("a number")
}

/// The number of lost events that the trace reports.
fn lost(trace: &Path) -> u64 {
    let mut start = command(["info"]);
    start.words.push(trace.into());
    let ended = start.run("");
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let line = ended.stdout.lines().find(|line| line.starts_with("lost "));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    let number = number.map(|number| number.replace(',', "").parse());
    number
        .expect("the trace reports lost events")
        .expect("it is a number")
}

/// The number of times that a probe was passed, by the trace.
fn passed(trace: &Path, name: &str) -> u64 {
    let mut start = command(["hist", "--json"]);
    start.words.push(format!("{name}.x").into());
    start.words.push(trace.into());
    let ended = start.run("");
    if ended.stderr.contains("was not recorded") {
        return 0;
    }
    assert_eq!(ended.end, End::Code(0), "{}", ended.stderr);
    let groups: serde_json::Value = serde_json::from_str(&ended.stdout).expect("it is JSON");
    let counts = groups["groups"]
        .as_array()
        .expect("there are groups")
        .iter();
    counts
        .map(|group| group["count"].as_u64().expect("a number"))
        .sum()
}

pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn signal(process: i32, signal: i32) {
    // SAFETY: a plain system call.
    let sent = unsafe { libc::kill(process, signal) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

fn guardian(tool: u32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{tool}/task/{tool}/children"));
    let children = children.expect("the tool lives");
    children.trim().parse().expect("the tool has one child")
}

fn usage(tool: u32) -> Usage {
    let entries = std::fs::read_dir(format!("/proc/{tool}/fd")).expect("the tool lives");
    let files = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_stream = |file: &PathBuf| file.to_string_lossy().contains("/stream-");
    let (streams, others): (Vec<_>, Vec<_>) = files.partition(is_stream);
    let status = std::fs::read_to_string(format!("/proc/{tool}/status")).expect("the tool lives");
    let (_, memory) = status.split_once("RssAnon:").expect("memory is listed");
    Usage {
        streams: streams.len(),
        descriptors: others.len(),
        kilobytes: number_behind(&memory.replace(['\t', ' '], ""), ""),
    }
}

/// Processes that have `directory` in their environment.
fn with_environment(directory: &Path) -> Vec<u32> {
    let wanted = directory.to_str().expect("a plain path").as_bytes();
    let entries = std::fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |process: &u32| {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.windows(wanted.len()).any(|part| part == wanted)
    };
    numbers.filter(has).collect()
}
