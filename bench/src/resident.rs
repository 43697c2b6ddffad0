//! A running program to which tracers attach, and which measures itself.

use crate::run::{Paths, remove};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A child process, which ends with this value.
pub struct Kept(pub Child);

impl Kept {
    pub fn spawn(command: &mut Command) -> Result<Kept> {
        let spawned = command.stderr(Stdio::null()).spawn();
        Ok(Kept(spawned.with_context(|| {
            format!("cannot run {:?}", command.get_program())
        })?))
    }

    /// Asks it to end, and waits until it has.
    pub fn end(mut self) -> Result<()> {
        // SAFETY: the process is a child of this one.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `programs/resident.c` as it runs.
pub struct Resident {
    _child: Kept,
    pub process: i32,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Resident {
    pub fn start(program: &Path, watchers: u32, workers: u32) -> Result<Resident> {
        Resident::by(&mut Command::new(program), watchers, workers)
    }

    /// The same, launched by the tool.
    pub fn recorded(
        paths: &Paths,
        options: &[&str],
        program: &Path,
        watchers: u32,
        workers: u32,
    ) -> Result<Resident> {
        remove(&paths.trace())?;
        let mut command = Command::new(&paths.nopal);
        command
            .args(["record", "-o"])
            .arg(paths.trace())
            .args(options);
        Resident::by(command.arg("--").arg(program), watchers, workers)
    }

    /// Starts it by a command whose last word is the program.
    pub fn by(command: &mut Command, watchers: u32, workers: u32) -> Result<Resident> {
        command
            .args([watchers.to_string(), workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Kept::spawn(command)?;
        let questions = child.0.stdin.take().context("no pipe")?;
        let answers = child.0.stdout.take().context("no pipe")?;
        let process = child.0.id() as i32;
        let mut resident = Resident {
            _child: child,
            process,
            questions,
            answers: BufReader::new(answers),
        };
        // It answers once all of its threads run.
        resident.request("gap")?;
        Ok(resident)
    }

    /// Its answer to a line, in nanoseconds.
    pub fn request(&mut self, what: &str) -> Result<f64> {
        writeln!(self.questions, "{what}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().context("the program has ended")
    }

    /// Lets the program end, and the tool that runs it.
    pub fn end(self) -> Result<()> {
        let Resident {
            _child: mut child,
            questions,
            ..
        } = self;
        drop(questions);
        let start = Instant::now();
        while child.0.try_wait()?.is_none() {
            ensure!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Attaches nopal to it, and returns when it is traced.
    pub fn attach(&self, paths: &Paths, options: &[&str]) -> Result<Kept> {
        remove(&paths.trace())?;
        let mut command = Command::new(&paths.nopal);
        command
            .env("XDG_CACHE_HOME", paths.directory.join("cache"))
            .args(["attach", "-o"])
            .arg(paths.trace())
            .args(options)
            .arg(self.process.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let tool = Kept::spawn(&mut command)?;
        let process = self.process;
        wait_until("attaching", || nopal_serve::is_traced(process))?;
        Ok(tool)
    }
}

pub fn wait_until(what: &str, done: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !done() {
        ensure!(start.elapsed() < PATIENCE, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
