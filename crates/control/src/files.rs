//! The files of a session: `ctl`, `trace`, and those of the tracing directory.

use std::fmt;

use anyhow::Result;

use crate::engine::Engine;

/// The state of a session. All changes go through [`Control::command`] and [`Control::write`].
#[derive(Default)]
pub struct Control {}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: &'static str,
    pub folder: bool,
    /// Permission bits for its owner: 0o600, 0o400, 0o200, or 0o700 for a folder.
    pub mode: u32,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
    /// As by `O_TRUNC`, which `>` of a shell asks for: what that means is each file's own matter.
    pub truncate: bool,
}

/// A file that somebody has open. It holds what it showed when it was opened, and what was written of a line that has
/// not ended yet.
pub struct File {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Without bytes: the end of the file.
    Bytes(Vec<u8>),
    /// Nothing is there yet. Ask again after [`Control::refill`]; only `trace_pipe` answers so.
    Later,
}

/// What went wrong, for a person, and a number of `errno` for those who can take nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub number: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl Control {
    pub fn new() -> Control {
        Control::default()
    }

    /// What is in a folder: `""`, or `"tracing"`.
    pub fn list(&self, _folder: &str) -> Result<Vec<Entry>, Error> {
        Err(absent())
    }

    /// Opens a file: `"ctl"`, `"trace"`, `"tracing/current_tracer"`, … What it shows is what holds now.
    pub fn open(
        &mut self,
        _engine: &mut dyn Engine,
        _path: &str,
        _access: Access,
    ) -> Result<File, Error> {
        Err(absent())
    }

    /// Obeys the lines in `bytes`, in order, up to the first that fails, which the error quotes. A line that the end of
    /// `bytes` may have cut waits for the next write, or for [`Control::close`].
    pub fn write(
        &mut self,
        _engine: &mut dyn Engine,
        _file: &mut File,
        _bytes: &[u8],
    ) -> Result<(), Error> {
        Err(absent())
    }

    /// Gives `trace_pipe` what has been recorded since; does nothing to other files.
    pub fn refill(&mut self, _engine: &mut dyn Engine, _file: &mut File) -> Result<(), Error> {
        Err(absent())
    }

    pub fn close(&mut self, _engine: &mut dyn Engine, _file: File) -> Result<(), Error> {
        Err(absent())
    }

    /// Obeys one or more lines, as a write to `ctl`, and gives what they answer: text for a person, often none.
    pub fn command(&mut self, _engine: &mut dyn Engine, _text: &str) -> Result<String, Error> {
        Err(absent())
    }

    /// Finds all places again, inserts and switches what is new. To be called before new code runs.
    pub fn refresh(&mut self, _engine: &mut dyn Engine) -> Result<(), Error> {
        Err(absent())
    }
}

impl File {
    /// At most `length` bytes from `offset` on. It may wait for the disk, but for nothing that takes a lock: it need
    /// not be called by the thread that has the [`Control`].
    pub fn read(&mut self, _offset: u64, _length: usize) -> Result<Content, Error> {
        Err(absent())
    }
}

/// No such file.
fn absent() -> Error {
    Error {
        number: 2,
        message: "no such file".into(),
    }
}
