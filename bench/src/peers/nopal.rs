//! nopal as one of the tracers.

use super::tracer::{Attached, Built, Kept, Rest, Session, Tracer, bytes_below};
use crate::programs::Programs;
use crate::resident::{self, Resident, wait_until};
use crate::run::{Paths, remove};
use anyhow::{Context, Result};
use nopal_serve::Client;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub const NAME: &str = "nopal";

struct Nopal<'a> {
    paths: &'a Paths,
    built: Built,
}

pub fn new<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    Ok(Box::new(Nopal {
        paths,
        built: Built::by(|work| programs.resident(work))?,
    }))
}

impl Tracer for Nopal<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        remove(&self.paths.trace())?;
        let program = self.built.of(work);
        let mut command = Command::new(&self.paths.nopal);
        command
            .env("XDG_CACHE_HOME", self.paths.directory.join("cache"))
            .args(["record", "-o"])
            .arg(self.paths.trace())
            .arg("--")
            .arg(program);
        let session = Session::by(&mut command, None)?.context("it has no process")?;
        if !on {
            let program = || traced_by(session.resident.process);
            wait_until("tracing", || program().is_some())?;
            Client::connect(program().context("it has ended")?)?.command("trace function off")?;
        }
        Ok(Some(session))
    }

    fn attach(&self, resident: &Resident) -> Result<Option<Box<dyn Attached>>> {
        Ok(Some(Box::new(Tracing {
            tool: resident.attach(self.paths, &[])?,
        })))
    }

    fn kept(&self, _: Rest) -> Result<Option<Kept>> {
        let calls = self.paths.calls()?;
        Ok(Some(Kept {
            bytes: bytes_below(&self.paths.trace())?,
            events: 2 * calls.values().sum::<u64>(),
            calls: calls.get("empty").copied().unwrap_or(0),
        }))
    }

    fn report(&self) -> Option<Command> {
        Some(self.reading(&["report"]))
    }

    fn export(&self) -> Option<Command> {
        Some(self.reading(&["dump", "--as", "chrome"]))
    }
}

impl Nopal<'_> {
    fn reading(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.paths.nopal);
        command.args(words).arg(self.paths.trace());
        command
    }
}

struct Tracing {
    tool: resident::Kept,
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // SAFETY: the process is a child of this one.
        unsafe { libc::kill(self.tool.0.id() as i32, libc::SIGINT) };
        let _ = self.tool.0.wait();
    }
}

impl Attached for Tracing {
    fn toggle(&mut self, resident: &mut Resident) -> Result<Vec<f64>> {
        let mut client = Client::connect(resident.process)?;
        let commands = ["trace function off", "trace function on"];
        let time = |command: &&str| {
            let start = Instant::now();
            client.command(command)?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        commands.iter().map(time).collect()
    }
}

/// The program that a tool has started. The tool's other child is the guardian.
fn traced_by(tool: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{tool}/task/{tool}/children")).ok()?;
    let mut children = children.split_whitespace().flat_map(str::parse);
    children.find(|process| nopal_serve::is_traced(*process))
}
