//! The arguments of `nopal record`, without the parsers of all other commands.

use std::ffi::OsString;
use std::io::Write;

use clap::{FromArgMatches, Parser, Subcommand};
use nopal_analysis::names::printable;

use super::{Arguments, Color, Command, NamesArgument, Record};
use crate::examples;

/// The status after an invalid command line.
const OF_USAGE: i32 = 2;

impl Arguments {
    /// The arguments of this process. To start a recording sooner, only the parser of `record` is built first; if it
    /// fails, the parser of all commands.
    pub fn of_process() -> Arguments {
        if std::env::args_os().len() < 2 {
            // A pipe that is closed changes nothing.
            let _ = writeln!(anstream::stderr(), "{}", examples::first());
            std::process::exit(OF_USAGE);
        }
        let records = std::env::args_os()
            .nth(1)
            .is_some_and(|word| word == "record");
        match records.then(ToRecord::try_parse) {
            Some(Ok(ToRecord {
                command: RecordAlone::Record(record),
                color,
                names,
            })) => Arguments {
                command: Command::Record(record),
                color,
                names,
            },
            _ => parsed(std::env::args_os()).unwrap_or_else(|error| refuse(error)),
        }
    }
}

fn parsed<Word: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = Word>,
) -> Result<Arguments, clap::Error> {
    let mut command = examples::command();
    let matches = command.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Ends the process with an error about its words, which are shown without control characters for terminals.
fn refuse(error: clap::Error) -> ! {
    let words = std::env::args_os().map(|word| printable(&word.to_string_lossy()));
    parsed(words).err().unwrap_or(error).exit()
}

/// [`Arguments`] with the command `record`.
#[derive(Debug, Parser)]
struct ToRecord {
    #[command(subcommand)]
    command: RecordAlone,

    #[arg(long, value_enum, global = true)]
    color: Option<Color>,

    #[arg(long, value_enum, global = true)]
    names: Option<NamesArgument>,
}

#[derive(Debug, Subcommand)]
enum RecordAlone {
    Record(Record),
}
