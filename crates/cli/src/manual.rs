//! Manual pages and completions of shells, made from the definitions of the command line and of the control language.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Inline, Roff, bold, italic, roman};

use crate::arguments::Arguments;
use crate::examples;

/// Shells for whose completions most systems have a directory.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn command() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// `nopal.1`, one page for each command, and `nopal-ctl.5`.
pub fn write(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut command = command();
    command.build();
    write_pages(&command, "", directory)?;
    let page = directory.join("nopal-ctl.5");
    std::fs::write(&page, nopal_control::manual()).with_context(|| page.display().to_string())
}

/// The page of a command, and those of its commands. `words` are those behind `nopal`.
fn write_pages(command: &Command, words: &str, directory: &Path) -> Result<()> {
    let man = Man::new(command.clone());
    let path = directory.join(man.get_filename());
    let mut page = Vec::new();
    render(&man, command, words, &mut page).with_context(|| path.display().to_string())?;
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    for command in shown(command) {
        let words = format!("{words} {}", command.get_name());
        write_pages(command, words.trim(), directory)?;
    }
    Ok(())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

fn render(man: &Man, command: &Command, words: &str, page: &mut dyn Write) -> io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    synopsis.text(synopsis_of(command));
    synopsis.to_writer(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if shown(command).next().is_some() {
        man.render_subcommands_section(page)?;
    }
    let mut section = Roff::new();
    let examples = examples::of(words);
    if !examples.is_empty() {
        section.control("SH", ["EXAMPLES"]);
    }
    for (purpose, example) in examples {
        section.control("TP", []);
        section.text([bold(*example)]);
        section.text([roman(*purpose)]);
    }
    section.to_writer(page)?;
    if words.is_empty() {
        man.render_version_section(page)?;
    }
    Ok(())
}

/// The command with its options, their values, and its arguments.
fn synopsis_of(command: &Command) -> Vec<Inline> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(name)];
    let is_shown = |argument: &&Arg| !argument.is_hide_set();
    let options = command.get_arguments().filter(|one| !one.is_positional());
    for argument in options.filter(is_shown) {
        let must = argument.is_required_set();
        line.push(roman(if must { " " } else { " [" }));
        let short = argument.get_short().map(|short| format!("-{short}"));
        let long = argument.get_long().map(|long| format!("--{long}"));
        let forms: Vec<String> = short.into_iter().chain(long).collect();
        line.push(bold(forms.join("|")));
        line.extend(values(argument).map(|value| italic(format!(" {value}"))));
        line.push(roman(if must { "" } else { "]" }));
    }
    for argument in command.get_positionals().filter(is_shown) {
        let names: Vec<String> = values(argument).collect();
        let (open, close) = match argument.is_required_set() {
            true => (" ", ""),
            false => (" [", "]"),
        };
        let is_several = argument
            .get_num_args()
            .is_some_and(|number| number.max_values() > 1);
        line.extend([
            roman(open),
            italic(names.join(" ")),
            roman(if is_several { "..." } else { "" }),
            roman(close),
        ]);
    }
    if shown(command).next().is_some() {
        line.push(italic(" COMMAND"));
    }
    line
}

/// The names of the values that an argument takes.
fn values(argument: &Arg) -> impl Iterator<Item = String> {
    let names = match argument.get_action().takes_values() {
        true => argument.get_value_names().unwrap_or_default(),
        false => &[],
    };
    names.iter().map(ToString::to_string)
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
