//! A service that is followed: a `nopal attach` of its own that records it while it runs, and another one afterwards.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use nopal_beside::Mutex;
use nopal_serve::Client;
use nopal_trace::{Packets, Trace};
use rustix::process::{Pid, Signal, kill_process};

use super::configuration::Service;
use super::metrics::{self, PATIENCE, Status};
use super::recordings;
use crate::message;

/// Between one look for a service that does not run and the next, and between two recordings.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause, if recordings fail again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Between two looks at the disk.
const LOOK: Duration = Duration::from_secs(10);
/// How long the end of a recording waits for its last messages.
const FOR_WORDS: Duration = Duration::from_secs(1);
/// The most lines that are remembered as printed.
const MOST_SAID: usize = 256;

pub struct Followed {
    pub service: Service,
    /// The directory of its recordings.
    directory: PathBuf,
    recording: Option<Recording>,
    next: Instant,
    pause: Duration,
    next_look: Instant,
    /// The messages that need not be said again while the service does not run.
    said: Arc<Mutex<HashSet<String>>>,
    begun: u64,
    /// How many of its recordings were cut off.
    cut_off: u64,
    /// The last recording of a former daemon, until it is known how that ended.
    former: Option<PathBuf>,
    /// The bytes of its recordings.
    bytes: u64,
}

struct Recording {
    tool: Child,
    /// Passes on the tool's messages.
    said: Option<JoinHandle<()>>,
    directory: PathBuf,
    /// When the service's directory was changed before.
    before: Option<SystemTime>,
    /// The session exists, and has got its commands.
    is_controlled: bool,
    is_ending: bool,
}

impl Followed {
    pub fn new(service: Service, directory: &Path) -> Followed {
        let now = Instant::now();
        let directory = directory.join(&service.name);
        Followed {
            former: recordings::last(&directory),
            directory,
            service,
            recording: None,
            next: now,
            pause: PAUSE,
            next_look: now,
            said: Arc::default(),
            begun: 0,
            cut_off: 0,
            bytes: 0,
        }
    }

    pub fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Does the work that is due. The calling thread must live as long as the daemon.
    pub fn work(&mut self) {
        if let Err(error) = self.go_on() {
            say(&self.said, &self.service.name, &format!("{error:#}"));
            self.next = Instant::now() + PAUSE;
        }
    }

    fn go_on(&mut self) -> Result<()> {
        self.notice_end()?;
        if self.recording.is_none() && Instant::now() >= self.next {
            self.begin()?;
        }
        self.control();
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + LOOK;
            self.limit();
        }
        Ok(())
    }

    /// Has what waits be due: a recording that could not begin, and a look at the disk. Messages are said anew.
    pub fn hasten(&mut self) {
        let now = Instant::now();
        (self.next, self.next_look, self.pause) = (now, now, PAUSE);
        self.said.lock().clear();
    }

    /// Whether the recording has ended meanwhile.
    pub fn notice_end(&mut self) -> Result<()> {
        let Some(recording) = &mut self.recording else {
            return Ok(());
        };
        if let Some(status) = recording.tool.try_wait().context("no status")? {
            // Its last messages arrive soon, unless another process holds the pipe open.
            let since = Instant::now();
            let is_saying = |said: &JoinHandle<()>| !said.is_finished();
            while recording.said.as_ref().is_some_and(is_saying) && since.elapsed() < FOR_WORDS {
                thread::sleep(Duration::from_millis(1));
            }
            // A tool that failed before its session began has left no recording. It has touched the process, which is
            // left alone for longer each time. A short recording ends without having been seen as a session.
            let was_none = !status.success() && !recording.is_controlled;
            // The trace of a start that was refused is gone again.
            let is_changed = changed(&self.directory) != recording.before;
            let has_failed = was_none && (recording.directory.exists() || is_changed);
            let killed_by = status.signal().filter(|_| !recording.is_ending);
            if let Some(signal) = killed_by {
                self.cut_off += 1;
                let line = match was_none {
                    true => format!("the recording had not begun when signal {signal} ended it"),
                    false => format!(
                        "the recording {} is cut off: signal {signal} ended its nopal",
                        recording.directory.display()
                    ),
                };
                say(&self.said, &self.service.name, &line);
            }
            self.pause = match has_failed || killed_by.is_some() {
                true => (2 * self.pause).min(LONGEST_PAUSE),
                false => PAUSE,
            };
            if has_failed {
                let _ = fs::remove_dir_all(&recording.directory);
            }
            self.recording = None;
            self.next = Instant::now() + self.pause;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let made = builder.create(&self.directory);
        made.with_context(|| format!("cannot make {}", self.directory.display()))?;
        let directory = recordings::name_now(&self.directory);
        if directory.exists() {
            // It has the name of this second; the next recording has another.
            return Ok(());
        }
        let tool = std::env::current_exe().ok().filter(|path| path.exists());
        let mut command = Command::new(tool.unwrap_or_else(|| "/proc/self/exe".into()));
        command.arg("attach").arg("-o").arg(&directory);
        self.remove_old(self.service.keep / 2);
        let most = most_bytes(self.service.keep, &self.directory);
        // The snapshots of a recording have at most as much together as its trace.
        let parts = if self.service.has_snapshots() { 2 } else { 1 };
        command.arg(format!("--max-size={}", most / parts));
        command.args(&self.service.words);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let before = changed(&self.directory);
        let daemon = std::process::id() as i32;
        // SAFETY: prepare makes system calls only.
        unsafe { command.pre_exec(move || prepare(daemon)) };
        let mut tool = command.spawn().context("cannot start nopal attach")?;
        let lines = tool.stderr.take();
        let pass_on = |lines| pass_on(lines, &self.service.name, Arc::clone(&self.said));
        self.recording = Some(Recording {
            said: lines.and_then(pass_on),
            tool,
            directory,
            before,
            is_controlled: false,
            is_ending: false,
        });
        Ok(())
    }

    /// Gives the session the service's commands, once it exists.
    fn control(&mut self) {
        let Some(recording) = &mut self.recording else {
            return;
        };
        if recording.is_controlled || recording.is_ending {
            return;
        }
        let Ok(session) = Client::of_tool(recording.tool.id() as i32) else {
            return;
        };
        let mut session = session.within(PATIENCE);
        recording.is_controlled = true;
        self.begun += 1;
        self.said.lock().clear();
        for command in &self.service.control {
            if let Err(error) = session.command(command) {
                say(&self.said, &self.service.name, &format!("{error:#}"));
            }
        }
    }

    /// Tells if the last recording of a former daemon was cut off, once nobody writes to it any more.
    fn look_at_former(&mut self) {
        let Some(former) = self.former.take() else {
            return;
        };
        // Its checksums are of no interest.
        match Trace::open_by_packets(&former, Packets::default()) {
            Ok(trace) if trace.is_growing() => self.former = Some(former),
            Ok(trace) if recordings::is_cut_off(&trace) => {
                self.cut_off += 1;
                let line = format!(
                    "the last recording, {}, was cut off: nopal was killed, or the machine stopped",
                    former.display()
                );
                say(&self.said, &self.service.name, &line);
            }
            _ => {}
        }
    }

    fn limit(&mut self) {
        self.look_at_former();
        let most = match self.is_recording() {
            true => self.service.keep / 2,
            false => 0,
        };
        self.remove_old(most);
        let tool = self.status().tool;
        if tool.is_some_and(metrics::is_full) && self.end() {
            let line = "the recording is full, and another one begins";
            say(&self.said, &self.service.name, line);
        }
    }

    /// So that all fit into `keep` with one that has so many bytes.
    fn remove_old(&mut self, most: u64) {
        let running = self.recording.as_ref();
        let running = running.map(|recording| recording.directory.as_path());
        let Service { keep, keep_for, .. } = self.service;
        let (bytes, stays) = recordings::limit(&self.directory, running, keep, keep_for, most);
        self.bytes = bytes;
        for line in stays {
            say(&self.said, &self.service.name, &line);
        }
    }

    /// Lets the recording end. Returns whether it was not ending already.
    pub fn end(&mut self) -> bool {
        let Some(recording) = &mut self.recording else {
            return false;
        };
        let was_ending = std::mem::replace(&mut recording.is_ending, true);
        if !was_ending {
            // It is not waited for yet, so the number is still its own.
            let tool = Pid::from_child(&recording.tool);
            let _ = kill_process(tool, Signal::INT);
        }
        !was_ending
    }

    pub fn status(&self) -> Status {
        let recording = self.recording.as_ref();
        let controlled = recording.filter(|recording| recording.is_controlled);
        Status {
            service: self.service.name.clone(),
            tool: controlled.map(|recording| recording.tool.id() as i32),
            begun: self.begun,
            cut_off: self.cut_off,
            bytes: self.bytes,
        }
    }
}

/// When a recording of a service was made or removed last.
fn changed(service: &Path) -> Option<SystemTime> {
    fs::metadata(service)
        .and_then(|found| found.modified())
        .ok()
}

/// The size at which a recording ends, so that with its last records and notes it has at most half of what is kept, since
/// an earlier one needs the rest, and at most half of the free space.
fn most_bytes(keep: u64, directory: &Path) -> u64 {
    let disk = rustix::fs::statvfs(directory);
    let free = disk.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let most = keep.min(free) / 2;
    most - most / 16
}

/// Runs in the child, before it executes nopal. nopal must have no signal blocked or ignored, and end its recording
/// when the daemon is killed.
fn prepare(daemon: i32) -> io::Result<()> {
    // SAFETY: system calls, and a set that sigemptyset makes.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGINT) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The daemon may have been killed before.
        match libc::getppid() == daemon {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

/// Prints the messages of a recording with the name of its service. If no thread can be made, it is silent.
fn pass_on(
    lines: ChildStderr,
    service: &str,
    said: Arc<Mutex<HashSet<String>>>,
) -> Option<JoinHandle<()>> {
    let service = service.to_owned();
    let work = move || {
        for line in BufReader::new(lines).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line);
            say(&said, &service, line.trim_start_matches("nopal: "));
        }
    };
    thread::Builder::new().spawn(work).ok()
}

/// Prints a line once while the service does not run.
fn say(said: &Mutex<HashSet<String>>, service: &str, line: &str) {
    let mut said = said.lock();
    if said.len() >= MOST_SAID {
        said.clear();
    }
    if said.insert(line.to_owned()) {
        message::write(&format!("{service}: {line}"));
    }
}
