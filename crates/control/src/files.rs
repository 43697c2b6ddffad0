//! The files of a session for those that serve them: opened, read and written in pieces, closed.

use std::fmt;

use nopal_serve::{Access, Content, Entry, Failure};

use crate::engine::Engine;
use crate::grammar::parse;
use crate::selection::Part;
use crate::state::Control;
use crate::stream::{Kept, Stream};
use crate::syntax::quoted;
use crate::table::{FILES, FOLDER, HISTOGRAMS, HISTOGRAMS_PATH, PROCESSOR, Role, Row};

/// An open file. It holds what it showed when it was opened, and what was written of a line that has not ended yet.
pub struct File {
    pub(crate) role: Role,
    pub(crate) shown: Shown,
    /// The begin of a line whose end has not been written.
    pending: Vec<u8>,
    /// What a list of places will be, where one is being written.
    pub(crate) places: Option<Vec<Part>>,
}

pub(crate) enum Shown {
    Text(Vec<u8>),
    Stream(Stream),
    /// The new records since the last look, if any, and the state of the trace then.
    Pipe(Option<Stream>, Kept),
}

/// `message` may have names of functions in it, which may be anything.
pub(crate) fn failure(number: i32, message: impl fmt::Display) -> Failure {
    let message = message.to_string();
    Failure::new(number, nopal_symbols::printable(&message))
}

pub(crate) fn invalid(message: impl fmt::Display) -> Failure {
    failure(libc::EINVAL, message)
}

/// A program that copies a file in blocks may cut a write anywhere, and a byte alone is no command; any other write
/// ends where its writer meant it to, with an end of line or without.
const BLOCK: usize = 4096;
/// A line that is longer is no command.
const LONGEST_LINE: usize = 1 << 20;

impl Control {
    /// The content of a folder: `""`, or `"tracing"`.
    pub fn list(folder: &str) -> Result<Vec<Entry>, Failure> {
        let (here, processor) = of_processor(folder);
        let entry = |row: &Row| Entry {
            name: row.name.into(),
            folder: false,
            mode: row.mode,
        };
        let folders = match here {
            "" => vec![FOLDER.into()],
            FOLDER => vec![HISTOGRAMS.into()],
            HISTOGRAMS_PATH if processor.is_none() => (0..processors())
                .map(|number| format!("{PROCESSOR}{number}"))
                .collect(),
            _ => Vec::new(),
        };
        let folders = folders.into_iter().map(|name| Entry {
            name,
            folder: true,
            mode: 0o700,
        });
        let files = FILES.iter().filter(|row| row.folder == here).map(entry);
        let entries: Vec<Entry> = files.chain(folders).collect();
        match entries.is_empty() {
            true => Err(failure(
                libc::ENOENT,
                format_args!("{folder}: no such folder"),
            )),
            false => Ok(entries),
        }
    }

    /// Opens a file: `"ctl"`, `"trace"`, `"tracing/current_tracer"`, … What it shows is what holds now.
    pub fn open(
        &mut self,
        engine: &mut dyn Engine,
        path: &str,
        access: Access,
    ) -> Result<File, Failure> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (folder, processor) = of_processor(folder);
        let row = FILES
            .iter()
            .find(|row| row.folder == folder && row.name == name)
            .ok_or_else(|| failure(libc::ENOENT, format_args!("{path}: no such file")))?;
        let role = match row.role {
            Role::Histogram { of, .. } => Role::Histogram { of, processor },
            role => role,
        };
        let denied = (access.read && row.mode & 0o400 == 0)
            || ((access.write || access.truncate) && row.mode & 0o200 == 0);
        if denied {
            let verb = if row.mode & 0o200 == 0 {
                "written"
            } else {
                "read"
            };
            return Err(failure(
                libc::EACCES,
                format_args!("{path} cannot be {verb}"),
            ));
        }
        let shown = if access.read {
            self.show(engine, role)?
        } else {
            Shown::Text(Vec::new())
        };
        let mut file = File {
            role,
            shown,
            pending: Vec::new(),
            places: None,
        };
        if access.truncate {
            self.truncate(engine, &mut file)?;
        }
        Ok(file)
    }

    /// Obeys the lines in `bytes`, in order, up to the first that fails, which the error quotes. A line that the end of
    /// `bytes` may have cut waits for the next write, or for [`Control::flush`].
    pub fn write(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        file.pending.extend_from_slice(bytes);
        let is_piece = file.role == Role::Control && bytes.len() == 1;
        let cut = is_piece || bytes.len().is_multiple_of(BLOCK) && !bytes.is_empty();
        let whole = match file.pending.iter().rposition(|byte| *byte == b'\n') {
            _ if !cut => file.pending.len(),
            Some(end) => end + 1,
            None => 0,
        };
        if file.pending.len() - whole > LONGEST_LINE {
            file.pending.clear();
            return Err(self.failed(invalid("a line of more than a MiB is no command")));
        }
        let rest = file.pending.split_off(whole);
        let lines = std::mem::replace(&mut file.pending, rest);
        let written = self.write_lines(engine, file, &lines);
        if written.is_err() {
            file.pending.clear();
        }
        written
    }

    /// Gives `trace_pipe` what has been recorded since; does nothing to other files.
    pub fn refill(&mut self, engine: &mut dyn Engine, file: &mut File) -> Result<(), Failure> {
        match &mut file.shown {
            Shown::Pipe(stream @ None, kept) => {
                *stream = self.take_recorded(engine, kept)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Obeys the line that was written last, if its end has not come: nothing more of it will.
    pub fn flush(&mut self, engine: &mut dyn Engine, file: &mut File) -> Result<(), Failure> {
        let rest = std::mem::take(&mut file.pending);
        self.write_lines(engine, file, &rest)
    }

    pub fn close(&mut self, engine: &mut dyn Engine, mut file: File) -> Result<(), Failure> {
        let written = self.flush(engine, &mut file);
        written.and(self.finish(engine, &mut file))
    }

    /// Obeys one or more lines, as a write to `ctl`, and gives what they answer: text for a person, often none.
    pub fn command(&mut self, engine: &mut dyn Engine, text: &str) -> Result<String, Failure> {
        let mut answers = String::new();
        let several = text.trim_end().contains('\n');
        for (number, line) in (1..).zip(text.lines()) {
            let answer = self.line(engine, line).map_err(|error| {
                if several {
                    failure(error.number, format_args!("line {number}: {error}"))
                } else {
                    error
                }
            });
            answers.push_str(&answer.map_err(|error| self.failed(error))?);
            if !answers.is_empty() && !answers.ends_with('\n') {
                answers.push('\n');
            }
        }
        Ok(answers)
    }

    fn line(&mut self, engine: &mut dyn Engine, line: &str) -> Result<String, Failure> {
        let Some(command) = parse(line).map_err(invalid)? else {
            return Ok(String::new());
        };
        self.obey(engine, command)
            .map_err(|error| invalid(format_args!("{}: {error:#}", quoted(line.trim()))))
    }

    fn write_lines(
        &mut self,
        engine: &mut dyn Engine,
        file: &mut File,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        if bytes.is_empty() {
            return Ok(());
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| self.failed(invalid("what was written is not text (UTF-8)")))?;
        if file.role == Role::Control {
            return self.command(engine, text).map(drop);
        }
        for line in text.lines() {
            self.write_line(engine, file, line)
                .map_err(|error| self.failed(error))?;
        }
        Ok(())
    }
}

/// The folder that has the same files, and the processor that they are of here.
fn of_processor(folder: &str) -> (&str, Option<u32>) {
    let parts = folder
        .rsplit_once('/')
        .filter(|(above, _)| *above == HISTOGRAMS_PATH);
    let number = parts.and_then(|(_, name)| {
        let number: u32 = name.strip_prefix(PROCESSOR)?.parse().ok()?;
        // Each has one name.
        (format!("{PROCESSOR}{number}") == name).then_some(number)
    });
    match number.filter(|number| *number < processors()) {
        Some(number) => (HISTOGRAMS_PATH, Some(number)),
        None => (folder, None),
    }
}

/// Processors that the system may have.
fn processors() -> u32 {
    // SAFETY: asks for a number.
    let number = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(number).unwrap_or(1)
}

impl File {
    /// At most `length` bytes from `offset` on. It may wait for the disk, but for nothing that takes a lock: it need
    /// not be called by the thread that has the [`Control`].
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Content, Failure> {
        let failed = |error| failure(libc::EIO, format_args!("{error:#}"));
        match &mut self.shown {
            Shown::Text(text) => {
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(text.len());
                let end = from.saturating_add(length).min(text.len());
                Ok(Content::Bytes(text[from..end].to_vec()))
            }
            Shown::Stream(stream) => {
                let bytes = stream.read(offset, length).map_err(failed)?;
                Ok(Content::Bytes(bytes))
            }
            Shown::Pipe(stream, _) => {
                let Some(running) = stream else {
                    return Ok(Content::Later);
                };
                // What a pipe gives does not depend on where its reader believes to be.
                let bytes = running.next(length).map_err(failed)?;
                if bytes.is_empty() {
                    *stream = None;
                    return Ok(Content::Later);
                }
                Ok(Content::Bytes(bytes))
            }
        }
    }

    /// Whether what one reader has got, no other gets: `trace_pipe`.
    pub fn is_pipe(&self) -> bool {
        matches!(self.shown, Shown::Pipe(..))
    }
}
