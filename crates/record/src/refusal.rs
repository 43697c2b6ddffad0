//! Refusals before any code of a program has run: then it does not run at all. After any other failure it runs
//! untraced.

use anyhow::Error;
use nopal_process::{Command, LaunchError};
use std::fmt;

#[derive(Debug)]
pub enum Refusal {
    /// The program cannot be run under nopal.
    Program(Error),
    /// The request names something that does not exist, or contradicts itself.
    Choice(Error),
    /// Limits do not leave enough to run it beside nopal, but in its place.
    Alone(Command, Error),
}

impl Refusal {
    pub fn program(error: Error) -> Error {
        Refusal::Program(error).into()
    }

    pub fn choice(error: Error) -> Error {
        Refusal::Choice(error).into()
    }
}

impl Refusal {
    pub fn alone(command: &Command, error: Error) -> Error {
        Refusal::Alone(command.clone(), error).into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Refusal::Program(error) | Refusal::Choice(error) => write!(out, "{error:#}"),
            Refusal::Alone(_, error) => write!(out, "the program runs untraced: {error:#}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Where a program can only be run in the place of nopal, it is, after `tell` got the reason. Returns why nothing is run.
pub fn run_alone(error: Error, tell: impl FnOnce(&str)) -> Error {
    let Some(Refusal::Alone(command, _)) = error.downcast_ref() else {
        return error;
    };
    tell(&error.to_string());
    let program = command.program.display().to_string();
    Error::new(nopal_process::become_program(command)).context(program)
}

/// The status that tells of an error with which nothing was run: as a shell has it, 127 for a program that is not there
/// and 126 for one that cannot be run; 1 for all else.
pub fn status_of(error: &Error) -> i32 {
    if let Some(error) = error.downcast_ref::<LaunchError>() {
        return error.status().unwrap_or(1);
    }
    match error.downcast_ref::<Refusal>() {
        Some(Refusal::Program(_)) => 126,
        _ => 1,
    }
}
