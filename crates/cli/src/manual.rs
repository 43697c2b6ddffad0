//! Manual pages and completions of shells, made from the definitions of the command line and of the control language.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

/// Shells of which the packages of most systems have a directory for completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn command() -> clap::Command {
    Arguments::command().disable_help_subcommand(true)
}

/// `nopal.1`, one page for each command, and `nopal-ctl.5`.
pub fn write(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    clap_mangen::generate_to(command(), directory)
        .with_context(|| directory.display().to_string())?;
    let page = directory.join("nopal-ctl.5");
    std::fs::write(&page, nopal_control::manual()).with_context(|| page.display().to_string())
}

/// `nopal.bash`, `_nopal` for zsh, and `nopal.fish`.
pub fn write_completions(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command(), "nopal", directory)
            .with_context(|| directory.display().to_string())?;
    }
    Ok(())
}
