//! The arguments of `nopal record`, without the parsers of all other commands.

use clap::{Parser, Subcommand};
use nopal_analysis::names::printable;

use super::{Arguments, Color, Command, NamesArgument, Record};

impl Arguments {
    /// The arguments of this process. To start a recording sooner, only the parser of `record` is built first; if it
    /// fails, the parser of all commands.
    pub fn of_process() -> Arguments {
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
            _ => Arguments::try_parse().unwrap_or_else(|error| refuse(error)),
        }
    }
}

/// Ends the process with what is wrong with its words, which are shown with nothing in them that a terminal would obey.
fn refuse(error: clap::Error) -> ! {
    let words = std::env::args_os().map(|word| printable(&word.to_string_lossy()));
    Arguments::try_parse_from(words)
        .err()
        .unwrap_or(error)
        .exit()
}

/// [`Arguments`] with the command `record`.
#[derive(Debug, Parser)]
struct ToRecord {
    #[command(subcommand)]
    command: RecordAlone,

    #[arg(long, value_enum, default_value_t, global = true)]
    color: Color,

    #[arg(long, value_enum, global = true)]
    names: Option<NamesArgument>,
}

#[derive(Debug, Subcommand)]
enum RecordAlone {
    Record(Record),
}
