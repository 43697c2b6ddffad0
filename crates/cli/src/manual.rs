//! Manual pages, made from the definitions of the command line and of the control language.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::arguments::Arguments;

/// `nopal.1`, one page for each command, and `nopal-ctl.5`.
pub fn write(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let command = Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
        .with_context(|| directory.display().to_string())?;
    let page = directory.join("nopal-ctl.5");
    std::fs::write(&page, nopal_control::manual()).with_context(|| page.display().to_string())
}
