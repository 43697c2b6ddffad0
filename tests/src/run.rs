//! Runs a command within a bounded time and gathers its output and status.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::paths::nopal;
use crate::processors::first_processor;

/// More time than any of the programs takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The command: `words[0]` is the program.
#[derive(Debug, Clone, Default)]
pub struct Start {
    pub words: Vec<OsString>,
    pub directory: Option<PathBuf>,
    pub environment: Vec<(OsString, OsString)>,
    /// Soft and hard limit of a resource.
    pub limits: Vec<(libc::__rlimit_resource_t, u64)>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> End {
        match status.signal() {
            Some(signal) => End::Signal(signal),
            None => End::Code(status.code().expect("a process exits or is killed")),
        }
    }
}

/// The output and the status of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub end: End,
}

/// A running command whose output is gathered meanwhile. Its process group is its own, and is killed with the value.
pub struct Running {
    child: Child,
    deadline: Instant,
    stdout: Gathered,
    stderr: Gathered,
}

struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Gathered {
    fn from(source: impl Into<OwnedFd>) -> Gathered {
        let mut source = std::fs::File::from(source.into());
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                sink.lock()
                    .expect("no panic poisons it")
                    .extend_from_slice(&buffer[..count]);
            }
        });
        Gathered {
            bytes,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic poisons it")).into_owned()
    }

    /// Whether all output has been read and none can follow.
    fn is_whole(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Start {
    pub fn new<Word: Into<OsString>>(words: impl IntoIterator<Item = Word>) -> Start {
        Start {
            words: words.into_iter().map(Into::into).collect(),
            ..Start::default()
        }
    }

    /// Binds the command to one processor, where collecting has to wait for the program: a small buffer loses records.
    pub fn on_one_processor(mut self) -> Start {
        let words = ["taskset", "-c", &first_processor().to_string()].map(Into::into);
        self.words.splice(0..0, words);
        self
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let limits = self.limits.clone();
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // The program must not inherit the test's descriptors.
                libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
                for &(resource, value) in &limits {
                    let limit = libc::rlimit {
                        rlim_cur: value,
                        rlim_max: value,
                    };
                    if libc::setrlimit(resource, &limit) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        command
    }

    pub fn spawn(&self) -> Running {
        // Builds come before any deadline begins.
        nopal();
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let deadline = Instant::now() + PATIENCE;
        let mut child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // A child that another thread forked while the file was written holds it open until it executes.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    assert!(Instant::now() < deadline, "{:?}: {error}", self.words);
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("{:?}: {error}", self.words),
            }
        };
        Running {
            deadline,
            stdout: Gathered::from(child.stdout.take().expect("piped")),
            stderr: Gathered::from(child.stderr.take().expect("piped")),
            child,
        }
    }

    /// Runs to the end, with `input` on standard input.
    pub fn run(&self, input: &str) -> Ended {
        let mut running = self.spawn();
        let mut stdin = running.stdin();
        let input = input.to_owned();
        // A program may end without reading all of its input.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let ended = running.wait();
        writer.join().expect("it ignores errors");
        ended
    }
}

impl Running {
    /// Standard input: closed when dropped.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child
            .stdin
            .take()
            .expect("standard input is taken once")
    }

    /// Sets the deadline to this time from now.
    pub fn be_patient(&mut self, patience: Duration) {
        self.deadline = Instant::now() + patience;
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `done` accepts standard output; panics after the deadline.
    pub fn wait_for(&mut self, done: impl Fn(&str) -> bool) -> String {
        loop {
            let text = self.stdout();
            if done(&text) {
                return text;
            }
            self.check_deadline("its output");
        }
    }

    /// Waits until something holds while the command runs; panics after the deadline.
    pub fn wait_until(&mut self, mut done: impl FnMut() -> bool) {
        while !done() {
            self.check_deadline("the condition");
        }
    }

    /// Does the same with standard error.
    pub fn wait_for_error(&mut self, done: impl Fn(&str) -> bool) -> String {
        loop {
            let is_all = self.has_ended() && self.stderr.is_whole();
            let text = self.stderr();
            if done(&text) {
                return text;
            }
            assert!(!is_all, "it ended and said only:\n{text}");
            self.check_deadline("its messages");
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the command, and until no process holds its output open.
    pub fn wait(&mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            self.check_deadline("its end");
        };
        self.wait_for_end_of_output();
        Ended {
            stdout: self.stdout(),
            stderr: self.stderr(),
            end: status.into(),
        }
    }

    /// Waits until all processes that inherited the output have ended, also those that the command left behind.
    pub fn wait_for_end_of_output(&mut self) {
        while !(self.stdout.is_whole() && self.stderr.is_whole()) {
            self.check_deadline("the end of its output");
        }
    }

    fn check_deadline(&mut self, awaited: &str) {
        std::thread::sleep(Duration::from_millis(2));
        if Instant::now() > self.deadline {
            let (stdout, stderr) = (self.stdout(), self.stderr());
            let state =
                std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
            let state = state.lines().take(3).collect::<Vec<_>>().join(" ");
            self.kill_group();
            panic!(
                "timed out waiting for {awaited} ({state}); so far:\n{stdout}\nand errors:\n{stderr}"
            );
        }
    }

    fn kill_group(&self) {
        // SAFETY: a plain system call; the group was made for this child and has its number.
        unsafe { libc::kill(-self.id(), libc::SIGKILL) };
    }

    pub fn signal_group(&self, signal: i32) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::kill(-self.id(), signal) }, 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
        let _ = self.child.wait();
    }
}
