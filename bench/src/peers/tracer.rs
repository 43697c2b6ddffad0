//! The common interface of the tracers.

use crate::resident::Resident;
use anyhow::Result;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The amount of work of a program. With slow tracers it is less, so that they end in time.
#[derive(Clone, Copy)]
pub enum Load {
    Often,
    Seldom,
}

impl Load {
    /// The requests for calls of the empty function, for calls of fib, and for the program's own work.
    pub fn requests(self) -> [&'static str; 3] {
        match self {
            Load::Often => ["call", "fib 32", "work"],
            Load::Seldom => ["call 200", "fib 18", "work 2"],
        }
    }

    /// The factor by which calls of the empty function are fewer.
    pub fn fewer(self) -> f64 {
        match self {
            Load::Often => 1.0,
            Load::Seldom => 100.0,
        }
    }
}

/// The programs, as a tracer wants them compiled.
pub struct Built {
    sqlite: PathBuf,
    objects: PathBuf,
}

impl Built {
    pub fn by(compile: impl Fn(&str) -> Result<PathBuf>) -> Result<Built> {
        Ok(Built {
            sqlite: compile("sqlite")?,
            objects: compile("objects")?,
        })
    }

    pub fn of(&self, work: &str) -> &Path {
        match work {
            "sqlite" => &self.sqlite,
            _ => &self.objects,
        }
    }
}

/// A program that was started under a tracer.
pub struct Session {
    pub resident: Resident,
    /// The tracer's own state, which is dropped after the program has ended.
    pub rest: Rest,
}

pub type Rest = Option<Box<dyn Any>>;

impl Session {
    /// Starts a command whose last word is the program.
    pub fn by(command: &mut Command, rest: Rest) -> Result<Option<Session>> {
        let resident = Resident::by(command, 0, 0)?;
        Ok(Some(Session { resident, rest }))
    }
}

/// The result of a recording.
pub struct Kept {
    pub bytes: u64,
    pub events: u64,
    /// The number of calls of the empty function.
    pub calls: u64,
}

/// A tracer that traces all functions of a process, until this is dropped.
pub trait Attached {
    /// Switches the functions off and on some times, and returns the milliseconds that each time took.
    fn toggle(&mut self, resident: &mut Resident) -> Result<Vec<f64>>;
}

/// A tracer. `None` means that it cannot do that.
pub trait Tracer {
    fn name(&self) -> &'static str;

    fn load(&self) -> Load {
        Load::Often
    }

    /// The reason why a figure is missing.
    fn cannot(&self, _what: &str) -> Option<&'static str> {
        None
    }

    /// A note on how a figure was measured.
    fn note(&self, _what: &str) -> Option<&'static str> {
        None
    }

    /// The program as this tracer wants it compiled; `None`: as usual.
    fn program(&self, _work: &str) -> Option<&Path> {
        None
    }

    /// Starts a resident program, with all functions recorded or with everything in place and nothing recorded.
    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>>;

    fn attach(&self, _resident: &Resident) -> Result<Option<Box<dyn Attached>>> {
        Ok(None)
    }

    /// The same as [`Attached::toggle`], for tracers that are linked into the program.
    fn toggle(&self, _resident: &mut Resident) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    /// The result of recording the last launched program, which has ended.
    fn kept(&self, _rest: Rest) -> Result<Option<Kept>> {
        Ok(None)
    }

    fn report(&self) -> Option<Command> {
        None
    }

    fn export(&self) -> Option<Command> {
        None
    }
}

/// The sum of the sizes of the files below a directory.
pub fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}
