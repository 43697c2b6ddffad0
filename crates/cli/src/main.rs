//! The `nopal` command. Only this crate prints and ends the process.
#![cfg_attr(not(test), no_main)]

mod arguments;
mod ctl;
mod cut;
mod daemon;
mod diff;
mod doctor;
mod dump;
mod examples;
mod export;
mod file;
mod flame;
mod graph;
mod hist;
mod info;
mod list;
mod manual;
mod message;
mod mount;
mod open;
mod output;
mod picture;
mod plot;
mod program;
mod progress;
mod record;
mod replay;
mod report;
mod requests;
mod run;
mod settings;
mod signals;
mod size;
mod slow;
#[cfg(not(test))]
mod stack;
mod status_line;
mod terminal;
mod time;
mod top;
mod trusted_file;
mod tui;
mod view;

use anstream::ColorChoice;
use anyhow::Result;

use crate::arguments::{Arguments, Color, Command};
use crate::settings::Settings;

/// Replaces Rust's own `main`, which would ignore SIGPIPE before nopal could read its original action: a traced program
/// inherits that action, and a closed pipe ends nopal silently, like other tools.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_count: i32, _words: *const *const libc::c_char) -> i32 {
    hold_standard_descriptors();
    nopal_process::lift_limits();
    match nopal_process::is_survivor() {
        Some(program) => record::survive(program),
        None => stack::on_enough(command_line),
    }
}

/// Opens the closed standard descriptors, so that no file that nopal opens becomes its standard output. They are closed
/// again in programs that nopal starts.
#[cfg(not(test))]
fn hold_standard_descriptors() {
    // SAFETY: plain system calls; open returns the lowest free number, which is the closed one.
    unsafe {
        for standard in 0..3 {
            if libc::fcntl(standard, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

#[cfg_attr(test, expect(dead_code))]
fn command_line() -> i32 {
    cut::expect();
    nopal_record::end_by(message::end);
    let arguments = Arguments::of_process();
    let settings = Settings::of_process();
    for complaint in &settings.complaints {
        message::write(complaint);
    }
    match arguments.color.or(settings.color).unwrap_or_default() {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
    .write_global();
    let names = arguments.names.or(settings.names).unwrap_or_default();
    names.style().write_global();
    match run(arguments.command) {
        Ok(status) => status,
        Err(error) => {
            message::write(&format!("{error:#}"));
            nopal_record::status_of(&error)
        }
    }
}

fn run(command: Command) -> Result<i32> {
    match command {
        Command::Record(record) => return record::run(&record.options(), |_| ()),
        Command::Attach(attach) => return record::run(&attach.options()?, |_| ()),
        Command::Run(arguments) => return run::run(arguments),
        Command::Probe(probe) => return record::run(&probe.options(), |_| ()),
        Command::Detach(detach) => ctl::detach(&detach)?,
        Command::Ctl(ctl) => ctl::run(&ctl)?,
        Command::Mount(mount) => mount::run(&mount)?,
        Command::Daemon(daemon) => daemon::run(&daemon)?,
        Command::Top(top) => return top::run(top.options(), top.pid),
        Command::Report(report) => report::run(&report)?,
        Command::Tui(tui) => tui::run(&tui)?,
        Command::Replay(replay) => replay::run(&replay)?,
        Command::Slow(slow) => slow::run(&slow)?,
        Command::Requests(requests) => requests::run(&requests)?,
        Command::Graph(graph) => graph::run(&graph)?,
        Command::Hist(hist) => hist::run(&hist)?,
        Command::Plot(plot) => plot::run(&plot)?,
        Command::Flame(flame) => flame::run(&flame)?,
        Command::Diff(diff) => diff::run(&diff)?,
        Command::Dump(dump) => dump::run(&dump)?,
        Command::Export(export) => export::run(&export)?,
        Command::Info(info) => info::run(&info)?,
        Command::View(view) => view::run(&view)?,
        Command::List(list) => list::run(&list)?,
        Command::Doctor => doctor::run()?,
        Command::Man(man) => manual::write(&man.directory)?,
        Command::Completions(completions) => manual::write_completions(&completions.directory)?,
    }
    Ok(open::status())
}
