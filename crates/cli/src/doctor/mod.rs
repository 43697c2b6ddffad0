//! `nopal doctor`: checks what this machine allows, and how to allow more.

mod checks;

use std::io::{self, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use nopal_symbols::without_numbers;

use crate::output::finish;

/// The effect of a finding on tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Good,
    /// Worth knowing.
    Note,
    /// Some programs cannot be traced, or some results are inexact.
    Warning,
    /// Nothing can be recorded.
    Bad,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    state: State,
    what: String,
    /// The remedy.
    advice: Option<String>,
}

impl Finding {
    fn good(what: impl Into<String>) -> Finding {
        Finding {
            state: State::Good,
            what: what.into(),
            advice: None,
        }
    }

    fn new(state: State, what: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            state,
            what: what.into(),
            advice: Some(advice.into()),
        }
    }
}

pub fn run() -> Result<()> {
    let findings: Vec<_> = checks::ALL
        .iter()
        .map(|(name, check)| (*name, check()))
        .collect();
    let mut out = AutoStream::auto(io::stdout());
    let written = write(&mut out, &findings);
    finish(out, written.map_err(Into::into))?;
    if findings
        .iter()
        .any(|(_, finding)| finding.state == State::Bad)
    {
        bail!("programs cannot be traced here");
    }
    Ok(())
}

fn write(out: &mut dyn Write, findings: &[(&str, Finding)]) -> io::Result<()> {
    let widest = findings
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    for (name, finding) in findings {
        let (word, color) = match finding.state {
            State::Good => ("good", AnsiColor::Green),
            State::Note => ("note", AnsiColor::Cyan),
            State::Warning => ("warn", AnsiColor::Yellow),
            State::Bad => ("bad ", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(color.into())).bold();
        writeln!(
            out,
            "{style}{word}{style:#}  {name:widest$}  {}",
            without_numbers(&finding.what)
        )?;
        if let Some(advice) = &finding.advice {
            let advice = without_numbers(advice);
            writeln!(out, "      {:widest$}  {advice}", "")?;
        }
    }
    Ok(())
}
