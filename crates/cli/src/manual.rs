//! Manual pages, made from the definitions of the command line.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::arguments::Arguments;

/// `nopal.1`, and one page for each command.
pub fn write(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let command = Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory).with_context(|| directory.display().to_string())
}
