//! `nopal ctl` and `nopal detach`: requests to the session that traces a process, or to the kernel's module.

mod kernel;

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nopal_serve::{Access, Client, NotTraced};

use crate::arguments::{Ctl, Detach, Whose};
use crate::output;

pub fn run(ctl: &Ctl) -> Result<()> {
    match ctl.whose {
        Whose::Process(process) => of_process(process, &ctl.command),
        Whose::Kernel => kernel::run(given(&ctl.command)?.as_deref()),
    }
}

fn of_process(process: i32, command: &[String]) -> Result<()> {
    let mut client = connect(process)?;
    let answer = match given(command)? {
        Some(commands) => client.command(&commands)?.into_bytes(),
        None => {
            let access = Access {
                read: true,
                ..Access::default()
            };
            client.open("ctl", access)?;
            client.read_all()?
        }
    };
    let mut out = output::stdout()?;
    let written = out.write_all(&answer).map_err(Into::into);
    output::finish(out, written)
}

pub fn detach(detach: &Detach) -> Result<()> {
    match connect(detach.pid) {
        Ok(session) => session.detach(),
        Err(error) if !exists(detach.pid) => Err(error),
        // A killed session may have left no process.
        Err(error) => match nopal_record::clean_up(detach.pid) {
            Ok(true) => Ok(()),
            Ok(false) => Err(error),
            Err(reason) if is_denied(&reason) => bail!(
                "none of your sessions traces process {}, and this user may not look into it",
                detach.pid
            ),
            Err(reason) => Err(reason),
        },
    }
}

fn is_denied(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
}

fn connect(process: i32) -> Result<Client> {
    Client::connect(process).map_err(|error| match error.downcast_ref::<NotTraced>() {
        Some(_) => not_traced(error, process),
        None => error,
    })
}

fn exists(process: i32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Adds a hint to the error.
fn not_traced(error: anyhow::Error, process: i32) -> anyhow::Error {
    if !exists(process) {
        return anyhow::anyhow!("there is no process {process}");
    }
    let traced: Vec<String> = nopal_serve::processes()
        .iter()
        .map(i32::to_string)
        .collect();
    match traced.is_empty() {
        true => anyhow::anyhow!("{error}; `nopal attach {process}` traces it"),
        false => anyhow::anyhow!("{error}; these are: {}", traced.join(" ")),
    }
}

/// The commands of the arguments, or of the standard input.
fn given(words: &[String]) -> Result<Option<String>> {
    match words.is_empty() {
        false => Ok(Some(lines(words))),
        true => from_standard_input(),
    }
}

/// The arguments are the words of one command, unless one of them is a whole command.
fn lines(words: &[String]) -> String {
    let several = words.iter().any(|word| word.contains(char::is_whitespace));
    words.join(if several { "\n" } else { " " })
}

/// `None`: there was no input.
fn from_standard_input() -> Result<Option<String>> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut text = Vec::new();
    io::stdin()
        .read_to_end(&mut text)
        .context("standard input")?;
    if text.is_empty() {
        return Ok(None);
    }
    match String::from_utf8(text) {
        Ok(text) => Ok(Some(text)),
        Err(_) => bail!("standard input is not UTF-8 text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_command_or_commands() {
        let words = |words: &[&str]| {
            lines(
                &words
                    .iter()
                    .map(|word| word.to_string())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(words(&["trace", "main", "new", "m"]), "trace main new m");
        assert_eq!(
            words(&["trace main new m", "start"]),
            "trace main new m\nstart"
        );
    }
}
