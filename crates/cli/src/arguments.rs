//! The command line: parser, help and manual pages all come from here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nopal_analysis::report::Sort;
use nopal_record::Options;

/// Trace any Linux program: every call of every function, without recompiling.
#[derive(Debug, Parser)]
#[command(
    name = "nopal",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,

    /// When to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, global = true)]
    pub color: Color,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Color {
    /// On a terminal
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Report(Report),
    List(List),
    Doctor,
    #[command(hide = true)]
    Man(Man),
}

/// A function a row: what was called, how often, how long
#[derive(Debug, Args)]
pub struct Report {
    #[command(flatten)]
    pub input: Input,

    /// What to order the rows by
    #[arg(short, long, value_name = "COLUMN", default_value = "total", value_parser = sort_parser())]
    sort: String,

    /// Show only the first N rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// As a JSON array
    #[arg(long)]
    pub json: bool,
}

/// What can be traced in a program or library, how, and what not and why
#[derive(Debug, Args)]
pub struct List {
    /// Looked up in PATH unless it holds a slash
    pub program: OsString,

    /// As a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Write the manual pages into a directory
#[derive(Debug, Args)]
pub struct Man {
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct Input {
    /// The trace
    #[arg(value_name = "DIR", default_value = Options::DIRECTORY)]
    pub directory: PathBuf,
}

fn sort_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(Sort::ALL.map(|(name, _)| name))
}

impl Report {
    pub fn sort(&self) -> Sort {
        Sort::named(&self.sort).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Arguments::command().debug_assert();
    }
}
