//! Frida, with functions in C or in JavaScript at all entries and exits.

use super::tracer::{Attached, Built, Load, Session, Tracer};
use crate::programs::Programs;
use crate::resident::Resident;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub const C: &str = "Frida, in C";
pub const SCRIPT: &str = "Frida, in JavaScript";

struct Frida {
    name: &'static str,
    /// The interpreter of an environment that has Frida's packages.
    python: PathBuf,
    script: PathBuf,
    built: Built,
}

pub fn new(programs: &Programs, name: &'static str) -> Result<Box<dyn Tracer>> {
    let python = programs.directory().join("frida/bin/python3");
    let found = Command::new(&python).args(["-c", "import frida"]).output();
    ensure!(
        found.is_ok_and(|output| output.status.success()),
        "`make bench-peers` installs it"
    );
    // Frida hooks no function that is shorter than its jump.
    let compile =
        |work: &str| programs.resident_by("gcc", work, "-room", &["-fpatchable-function-entry=16"]);
    Ok(Box::new(Frida {
        name,
        python,
        script: Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/frida_trace.py"),
        built: Built::by(compile)?,
    }))
}

impl Frida {
    fn command(&self, state: &str) -> Command {
        let kind = if self.name == C { "c" } else { "js" };
        let mut command = Command::new(&self.python);
        command.arg(&self.script).args([kind, state]);
        command
    }
}

impl Tracer for Frida {
    fn name(&self) -> &'static str {
        self.name
    }

    fn load(&self) -> Load {
        Load::Seldom
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        let reading = [super::BYTES, super::LOST, super::REPORT, super::EXPORT];
        reading
            .contains(&what)
            .then_some("it writes no trace of its own")
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        match what {
            super::FIB => Some("fib(18); functions begin with 16 NOPs"),
            _ if what.starts_with("off") => Some("its agent in the process, no function hooked"),
            _ if what.starts_with("launched") || what.starts_with("attached") => {
                Some(match self.name {
                    C => "clock and function into a ring",
                    _ => "calls counted",
                })
            }
            _ => None,
        }
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        let mut command = self.command(if on { "on" } else { "off" });
        let program = self.built.of(work);
        Session::by(command.arg("--").arg(program), None)
    }

    fn attach(&self, resident: &Resident) -> Result<Option<Box<dyn Attached>>> {
        let mut child = self
            .command("attach")
            .arg(resident.process.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut hooks = Hooks {
            child,
            questions,
            answers,
        };
        hooks.answer().context("Frida does not attach")?;
        Ok(Some(Box::new(hooks)))
    }
}

struct Hooks {
    child: Child,
    /// The script ends when this is closed.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Hooks {
    fn answer(&mut self) -> Result<Vec<f64>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let times: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let times = times?;
        ensure!(!times.is_empty(), "the script has ended");
        Ok(times)
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}

impl Attached for Hooks {
    fn toggle(&mut self, _: &mut Resident) -> Result<Vec<f64>> {
        writeln!(self.questions.as_mut().context("no pipe")?)?;
        self.answer()
    }
}
