//! `nopal tui`: a trace in the terminal, to be looked through: functions, their callers and callees, and the tree of
//! calls.

mod browser;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nopal_analysis::names::{Function, Names};
use nopal_analysis::replay::{self, Look};
use nopal_analysis::{graph, losses, report};
use ratatui::DefaultTerminal;

use crate::arguments::Tui;
use crate::open::driven;
use crate::output::{Pages, colors, paged};
use crate::terminal::{REACTION, UNUSABLE, is_there, keys};
use browser::{Action, Browser};

pub fn run(arguments: &Tui) -> Result<()> {
    let input = &arguments.input;
    ensure!(
        io::stdin().is_terminal() && io::stdout().is_terminal(),
        "tui needs a terminal; `nopal report` and `nopal graph` print the same"
    );
    let trace = input.open()?;
    let names = Names::new(&trace);
    let filter = &arguments.filter.of(&trace)?;
    let report = driven("reading calls", filter, |drive| {
        report::functions(&trace, drive)
    })?;
    let tree = driven("reading the tree", filter, |drive| {
        graph::tree(&trace, &names, drive)
    })?;
    let remarks =
        losses::comment(&trace, Some(filter)) + &losses::untimed(&trace, tree.lacks_times());
    let title = input.name();
    let nanoseconds = |ticks| trace.clocks().duration_ns(ticks);
    let mut browser = Browser::new(names.functions(), report.rows, &tree, nanoseconds);
    let mut terminal = ratatui::try_init().context(UNUSABLE)?;
    let shown = browse(&mut browser, &mut terminal, &title, &remarks, |function| {
        let wanted = format!("{}@{}", function.raw, function.module);
        let look = Look {
            color: colors(),
            sources: true,
            words: false,
            filter: arguments.filter.of_function(&trace, wanted)?,
        };
        paged(Pages::All, |out| {
            out.write_all(losses::comment(&trace, Some(&look.filter)).as_bytes())?;
            replay::replay(&trace, &look, out)
        })
    });
    if is_there(Duration::ZERO).unwrap_or(true) {
        ratatui::restore();
        return shown;
    }
    // The terminal is gone. Dropping it would write to it, and the library panics if that fails.
    std::mem::forget(terminal);
    Ok(())
}

/// Runs until the user quits, or the terminal is gone. `replay` shows the calls of a function in a pager, until that
/// ends.
fn browse(
    browser: &mut Browser,
    terminal: &mut DefaultTerminal,
    title: &str,
    remarks: &str,
    replay: impl Fn(&Function) -> Result<()>,
) -> Result<()> {
    loop {
        let drawn = terminal.draw(|frame| screen::draw(browser, title, remarks, frame));
        drawn.context(UNUSABLE)?;
        let Some(keys) = keys(REACTION)? else {
            return Ok(());
        };
        for key in keys {
            match browser.key(key) {
                Action::None => {}
                Action::Quit => return Ok(()),
                Action::Replay(function) => {
                    ratatui::restore();
                    let replayed = replay(function);
                    *terminal = ratatui::try_init().context(UNUSABLE)?;
                    replayed?;
                }
            }
        }
    }
}
