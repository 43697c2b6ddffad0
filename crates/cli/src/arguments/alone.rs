//! The arguments of `nopal record`, without the parsers of all other commands.

use clap::{Parser, Subcommand};

use super::{Arguments, Color, Command, Record};

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
            })) => Arguments {
                command: Command::Record(record),
                color,
            },
            _ => Arguments::parse(),
        }
    }
}

/// [`Arguments`] with the command `record`.
#[derive(Debug, Parser)]
struct ToRecord {
    #[command(subcommand)]
    command: RecordAlone,

    #[arg(long, value_enum, default_value_t, global = true)]
    color: Color,
}

#[derive(Debug, Subcommand)]
enum RecordAlone {
    Record(Record),
}
