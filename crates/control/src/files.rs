//! The files of a session for those that serve them: opened, read and written in pieces, closed.

use nopal_serve::{Access, Entry, Failure};

use crate::command::parse;
use crate::control::{Control, Controller};
use crate::engine::Engine;
use crate::file::{File, Shown, failure, invalid};
use crate::syntax::quoted;
use crate::table::{FILES, FOLDER, HISTOGRAMS, HISTOGRAMS_PATH, PROCESSOR, Role, Row};

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

    /// Opens a file: `"ctl"`, `"trace"`, `"tracing/current_tracer"`, … It shows the present state.
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
            self.with(engine).show(role)?
        } else {
            Shown::Text(Vec::new())
        };
        let mut file = File {
            role,
            shown,
            pending: Vec::new(),
            locations: None,
        };
        if access.truncate {
            self.with(engine).truncate(&mut file);
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
            return Err(self
                .tracing
                .failed(invalid("a line of more than a MiB is no command")));
        }
        let rest = file.pending.split_off(whole);
        let lines = std::mem::replace(&mut file.pending, rest);
        let written = self.with(engine).write_lines(file, &lines);
        if written.is_err() {
            file.pending.clear();
        }
        written
    }

    /// Has a file that was written show the present state; does nothing to `trace_pipe`.
    pub fn show_again(&mut self, engine: &mut dyn Engine, file: &mut File) -> Result<(), Failure> {
        if !file.is_pipe() {
            file.shown = self.with(engine).show(file.role)?;
        }
        Ok(())
    }

    /// Gives `trace_pipe` the records that have come since; does nothing to other files.
    pub fn refill(&mut self, engine: &mut dyn Engine, file: &mut File) -> Result<(), Failure> {
        match &mut file.shown {
            Shown::Pipe(stream @ None, kept) => {
                *stream = self.with(engine).take_recorded(kept)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Obeys the last written line, if its end has not come: nothing more of it will.
    pub fn flush(&mut self, engine: &mut dyn Engine, file: &mut File) -> Result<(), Failure> {
        let rest = std::mem::take(&mut file.pending);
        self.with(engine).write_lines(file, &rest)
    }

    pub fn close(&mut self, engine: &mut dyn Engine, mut file: File) -> Result<(), Failure> {
        let written = self.flush(engine, &mut file);
        written.and(self.with(engine).finish(&mut file))
    }

    /// Obeys one or more lines, as a write to `ctl`, and returns their answers: text for a person, often none.
    pub fn command(&mut self, engine: &mut dyn Engine, text: &str) -> Result<String, Failure> {
        self.with(engine).command(text)
    }
}

impl Controller<'_> {
    fn command(&mut self, text: &str) -> Result<String, Failure> {
        let mut answers = String::new();
        let several = text.trim_end().contains('\n');
        for (number, line) in (1..).zip(text.lines()) {
            let answer = self.line(line).map_err(|error| {
                if several {
                    failure(error.number, format_args!("line {number}: {error}"))
                } else {
                    error
                }
            });
            answers.push_str(&answer.map_err(|error| self.control.tracing.failed(error))?);
            if !answers.is_empty() && !answers.ends_with('\n') {
                answers.push('\n');
            }
        }
        Ok(answers)
    }

    fn line(&mut self, line: &str) -> Result<String, Failure> {
        let Some(command) = parse(line).map_err(invalid)? else {
            return Ok(String::new());
        };
        self.obey(command)
            .map_err(|error| invalid(format_args!("{}: {error:#}", quoted(line.trim()))))
    }

    fn write_lines(&mut self, file: &mut File, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = "the written data is not text (UTF-8)";
        let text =
            std::str::from_utf8(bytes).map_err(|_| self.control.tracing.failed(invalid(failed)))?;
        if file.role == Role::Control {
            // A write returns no text.
            let answers = self.command(text)?;
            if !answers.is_empty() {
                self.control.answer = answers.lines().map(str::to_owned).collect();
            }
            return Ok(());
        }
        for line in text.lines() {
            self.write_line(file, line)
                .map_err(|error| self.control.tracing.failed(error))?;
        }
        Ok(())
    }
}

/// The listed folder with the same files as this one, and the processor that this one is of.
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
