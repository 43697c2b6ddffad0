//! The first commands of a session, which its options ask for.

use anyhow::{Context, Error, Result};
use nopal_analysis::tracers::{Section, Tracer};

use crate::budget::Share;
use crate::command::{Command, parse};
use crate::draft::Draft;
use crate::engine::Mark;
use crate::probe::Probe;
use crate::selection::FunctionSelection;
use crate::syntax::quoted;
use crate::written::written;

/// The trace of the function tracer.
pub const FUNCTION_TRACER: &str = "function";

/// The functions that the function tracer records.
pub fn functions(what: FunctionSelection) -> [Command; 2] {
    let name = FUNCTION_TRACER.to_owned();
    let on = true;
    [
        Command::New {
            what,
            name: name.clone(),
        },
        Command::Switch { name, on },
    ]
}

pub fn marker(glob: &str) -> Command {
    let (name, on) = (glob.to_owned(), true);
    Command::Mark { name, on }
}

pub fn probe(probe: Probe) -> [Command; 2] {
    let name = probe.name.clone();
    let on = true;
    [Command::Probe(probe), Command::SwitchProbe { name, on }]
}

/// A section without a name of its own is named after its ends.
pub fn tracer(tracer: &Tracer) -> Vec<Command> {
    let mut commands = Vec::new();
    if let Tracer::Section(section) = tracer {
        commands.push(made(section));
    }
    let (name, on) = (tracer.name().to_owned(), true);
    commands.push(Command::Tracer { name, on });
    commands
}

pub fn slowest(tracer: &Tracer, most: u32) -> Command {
    Command::KeepSlowest {
        name: tracer.name().to_owned(),
        most,
    }
}

/// A tracer that measures nothing.
pub fn event_tracer(name: &str) -> Command {
    let (name, on) = (name.to_owned(), true);
    Command::Tracer { name, on }
}

pub fn budget(share: Share) -> Command {
    Command::Budget(Some(share))
}

fn made(section: &Section) -> Command {
    Command::Section {
        name: section.name().to_owned(),
        from: section.from.text.clone(),
        to: section.to.text.clone(),
    }
}

/// The command that a line holds.
pub fn command(line: &str) -> Result<Option<Command>> {
    parse(line).map_err(Error::msg)
}

impl Draft<'_> {
    /// Obeys the first commands of a session. Of several markers one has to be there.
    pub fn begin(&mut self, commands: Vec<Command>) -> Result<()> {
        self.begins = true;
        let mut marks = Vec::new();
        for command in commands {
            match command {
                Command::Mark { name, on } => marks.push(Mark { name, on }),
                Command::SetTrigger { ref trigger, .. } => {
                    let line = written(trigger);
                    self.obey(command).with_context(|| quoted(&line))?;
                }
                other => self.obey(other)?,
            }
        }
        let is_alone = self.state.traces.is_empty()
            && self.state.tracers.is_empty()
            && self.state.event_tracers.is_empty();
        let mut missing = None;
        for mark in &marks {
            missing = match self.marker_exists(&mark.name) {
                Err(error) => Some(error),
                Ok(()) => {
                    missing = None;
                    break;
                }
            };
        }
        // All markers beside something else: there may be none.
        let is_any = |mark: &Mark| mark.name == "*";
        let may_be_none = !is_alone && marks.iter().all(is_any);
        self.state.marks.extend(marks);
        missing.filter(|_| !may_be_none).map_or(Ok(()), Err)
    }
}
