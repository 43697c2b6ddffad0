//! The common interface of the tracers.

use crate::resident::Resident;
use anyhow::Result;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How much a program is asked to do, so that slow tracers come to an end too.
#[derive(Clone, Copy)]
pub enum Load {
    Often,
    Seldom,
}

impl Load {
    /// For calls of the empty function, of fib, and the program's own work.
    pub fn requests(self) -> [&'static str; 3] {
        match self {
            Load::Often => ["call", "fib 32", "work"],
            Load::Seldom => ["call 200", "fib 18", "work 2"],
        }
    }

    /// How many times fewer calls of the empty function.
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
    /// Cleaned up after the program has ended.
    pub rest: Rest,
}

pub type Rest = Option<Box<dyn Any>>;

impl Session {
    /// By a command that runs the program, whose words end with its name.
    pub fn by(command: &mut Command, rest: Rest) -> Result<Option<Session>> {
        let resident = Resident::by(command, 0, 0)?;
        Ok(Some(Session { resident, rest }))
    }
}

/// The result of a recording.
pub struct Kept {
    pub bytes: u64,
    pub events: u64,
    /// Of the empty function.
    pub calls: u64,
}

/// A tracer that traces all functions of a process, until this is dropped.
pub trait Attached {
    /// Milliseconds to switch them off and on, as often as that was done.
    fn toggle(&mut self, resident: &mut Resident) -> Result<Vec<f64>>;
}

/// `None` stands for what a tracer cannot do.
pub trait Tracer {
    fn name(&self) -> &'static str;

    fn load(&self) -> Load {
        Load::Often
    }

    /// Why a figure is missing.
    fn cannot(&self, _what: &str) -> Option<&'static str> {
        None
    }

    /// How a figure came about.
    fn note(&self, _what: &str) -> Option<&'static str> {
        None
    }

    /// The program as this tracer wants it compiled, where it is not as usual.
    fn program(&self, _work: &str) -> Option<&Path> {
        None
    }

    /// Starts a resident program, with all functions recorded or with everything in place and nothing recorded.
    fn launch(&self, work: &str, on: bool) -> Result<Option<Session>>;

    fn attach(&self, _resident: &Resident) -> Result<Option<Box<dyn Attached>>> {
        Ok(None)
    }

    /// The same as [`Attached::toggle`], of tracers that a program has in it.
    fn toggle(&self, _resident: &mut Resident) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    /// Of the last program that was launched, which has ended.
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

/// All bytes of the files below a directory.
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

/// The output of a command.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
