//! What is refused before anything of a program has run: then it does not run at all. Whatever else fails, it runs.

use anyhow::Error;
use nopal_process::LaunchError;
use std::fmt;

#[derive(Debug)]
pub enum Refusal {
    /// The program cannot be run under nopal.
    Program(Error),
    /// What is asked for is not there, or does not go together.
    Choice(Error),
}

impl Refusal {
    pub fn program(error: Error) -> Error {
        Refusal::Program(error).into()
    }

    pub fn choice(error: Error) -> Error {
        Refusal::Choice(error).into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let (Refusal::Program(error) | Refusal::Choice(error)) = self;
        write!(out, "{error:#}")
    }
}

impl std::error::Error for Refusal {}

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
