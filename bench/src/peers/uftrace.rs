//! uftrace: with a program compiled for it, and with one that it patches at its start.

use super::tracer::{Built, Kept, Rest, Session, Tracer, bytes_below};
use crate::programs::{Programs, is_installed};
use crate::run::{Paths, output, remove};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

pub const COMPILED: &str = "uftrace (-pg)";
pub const PATCHED: &str = "uftrace (-P .)";

struct Uftrace<'a> {
    name: &'static str,
    paths: &'a Paths,
    options: &'static [&'static str],
    built: Built,
}

pub fn compiled<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    new(COMPILED, paths, programs, &[], "-pg", &["-pg"])
}

/// uftrace patches functions that begin with room for its call, and others as far as it can: with this option all have
/// room.
pub fn patched<'a>(paths: &'a Paths, programs: &Programs) -> Result<Box<dyn Tracer + 'a>> {
    const ROOM: &[&str] = &["-fpatchable-function-entry=16"];
    new(PATCHED, paths, programs, &["-P", "."], "-room", ROOM)
}

fn new<'a>(
    name: &'static str,
    paths: &'a Paths,
    programs: &Programs,
    options: &'static [&'static str],
    way: &str,
    flags: &[&str],
) -> Result<Box<dyn Tracer + 'a>> {
    ensure!(is_installed("uftrace"), "apt-get install uftrace");
    Ok(Box::new(Uftrace {
        name,
        paths,
        options,
        built: Built::by(|work| programs.resident_by("gcc", work, way, flags))?,
    }))
}

impl Uftrace<'_> {
    fn reading(&self, words: &[&str]) -> Command {
        let mut command = Command::new("uftrace");
        command
            .args(words)
            .args(["--no-pager", "-d"])
            .arg(self.paths.peer_trace());
        command
    }
}

impl Tracer for Uftrace<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cannot(&self, what: &str) -> Option<&'static str> {
        what.contains("attach")
            .then_some("it traces only programs that it has started")
            .or_else(|| {
                what.contains("off or on")
                    .then_some("not while a program runs")
            })
    }

    fn note(&self, what: &str) -> Option<&'static str> {
        what.starts_with("off").then_some("started with --disable")
    }

    fn program(&self, work: &str) -> Option<&Path> {
        Some(self.built.of(work))
    }

    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>> {
        remove(&self.paths.peer_trace())?;
        let mut command = self.reading(&["record", "--no-libcall"]);
        command.args(self.options);
        if !on {
            command.arg("--disable");
        }
        Session::by(command.arg(self.built.of(work)), None)
    }

    fn kept(&self, _: Rest) -> Result<Option<Kept>> {
        let text = output(&mut self.reading(&["report", "-f", "call"]))?;
        let row = |line: &str| {
            let (calls, function) = line.trim().split_once(' ')?;
            Some((function.trim().to_owned(), calls.parse::<u64>().ok()?))
        };
        let rows: Vec<_> = text.lines().filter_map(row).collect();
        let empty = rows.iter().find(|(function, _)| function == "empty");
        Ok(Some(Kept {
            bytes: bytes_below(&self.paths.peer_trace())?,
            events: 2 * rows.iter().map(|(_, calls)| calls).sum::<u64>(),
            calls: empty.map_or(0, |(_, calls)| *calls),
        }))
    }

    fn report(&self) -> Option<Command> {
        Some(self.reading(&["report"]))
    }

    fn export(&self) -> Option<Command> {
        Some(self.reading(&["dump", "--chrome"]))
    }
}
