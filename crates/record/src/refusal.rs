//! Refusals before any code of a program has run: then it does not run at all. After any other failure, and where nopal
//! lacks descriptors or memory, it runs untraced.

use anyhow::Error;
use nopal_process::{Command, LaunchError};
use rustix::io::Errno;
use std::{fmt, io};

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
    /// The error itself where it comes from what nopal lacks, and says nothing about the program.
    pub fn program(error: Error) -> Error {
        match is_lack(&error) {
            true => error,
            false => Refusal::Program(error).into(),
        }
    }

    /// As `program`, about the request.
    pub fn choice(error: Error) -> Error {
        match is_lack(&error) {
            true => error,
            false => Refusal::Choice(error).into(),
        }
    }

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

/// Whether it comes from a limit of nopal's own process, or of the system.
pub fn is_lack(error: &Error) -> bool {
    error.chain().any(|cause| {
        let code = match cause.downcast_ref::<Errno>() {
            Some(code) => Some(code.raw_os_error()),
            None => cause
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error),
        };
        matches!(code, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nopal_lacks_refuses_no_program() {
        let error = |code| Error::new(io::Error::from_raw_os_error(code)).context("cannot read it");
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(!Refusal::program(error(code)).is::<Refusal>());
            assert!(!Refusal::choice(Errno::from_raw_os_error(code).into()).is::<Refusal>());
        }
        assert!(Refusal::program(error(libc::ENOENT)).is::<Refusal>());
        assert!(Refusal::choice(Error::msg("no such function")).is::<Refusal>());
    }
}
