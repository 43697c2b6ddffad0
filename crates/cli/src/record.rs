//! `nopal record` and `nopal attach`: runs a program, and ends as it ended; or records a running process.

use crate::message;
use crate::status_line::StatusLine;
use anyhow::{Result, ensure};
use nopal_analysis::losses::reasons;
use nopal_analysis::names::printable;
use nopal_analysis::text::{bytes, duration, several};
use nopal_process::Ending;
use nopal_record::{Ended, Membership, Options, Outcome, Target, WhenFull};
use nopal_trace::losses::NO_ROOM;
use std::ffi::{OsStr, OsString};

/// Returns the status to end with, or ends by the program's signal. `after` prints more when the program has ended.
pub fn run(options: &Options, after: impl FnOnce(&Outcome)) -> Result<i32> {
    if let Target::Program { program, .. } = &options.target {
        refuse_option(program)?;
    }
    let mut status_line = None;
    let outcome = nopal_record::record(options, |handle, beginning| {
        say_attached(options, &beginning.left_out);
        beginning.risk.iter().for_each(|risk| message::write(risk));
        beginning
            .missing
            .iter()
            .for_each(|line| message::write(line));
        status_line = StatusLine::start(&handle, options);
    });
    drop(status_line);
    let outcome = outcome.map_err(|error| nopal_record::run_alone(error, message::write))?;
    // The program has ended: a closed standard error must not change the status. SAFETY: no handler is installed, only
    // ignored.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    for line in summary(&outcome, options) {
        message::write(&line);
    }
    if outcome.untraced.is_none() {
        after(&outcome);
    }
    match outcome.ended {
        // The end of a process that is not our child does not matter here.
        _ if matches!(options.target, Target::Processes(_)) => Ok(0),
        Ended::RunsOn => Ok(0),
        Ended::Exited(status) => Ok(status),
        Ended::Killed { signal } | Ended::Left { signal } => Ok(end_by(signal)),
    }
}

/// Runs after nopal has failed: waits for the program that it started, and ends as that does.
#[cfg_attr(test, expect(dead_code))]
pub fn survive(program: i32) -> i32 {
    let ending = nopal_process::wait_as_survivor(program);
    // SAFETY: no handler is installed, only ignored.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    message::write("nopal has failed, and the program ran on untraced");
    match ending {
        Ending::Exited(status) => status,
        Ending::Killed { signal, .. } => end_by(signal),
        Ending::Unknown => 1,
    }
}

/// A word with a hyphen is an unknown option, unless it is after `--`, as a program's name.
pub fn refuse_option(program: &OsStr) -> Result<()> {
    let is_option = program.as_encoded_bytes().starts_with(b"-");
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut pairs = words.windows(2);
    ensure!(
        !is_option || pairs.any(|pair| pair[0] == "--" && pair[1] == *program),
        "there is no option {} (to run a program of that name, write it after --)",
        program.display()
    );
    Ok(())
}

/// Prints that recording has begun, which processes are left out, and how to end it.
fn say_attached(options: &Options, left_out: &[String]) {
    let Target::Processes(processes) = &options.target else {
        return;
    };
    // They will be, within a second.
    let come: Vec<i32> = match options.may_grow() {
        true => options
            .memberships
            .iter()
            .flat_map(Membership::members)
            .collect(),
        false => Vec::new(),
    };
    // Whoever waits for the message may have a process fork others at once, which are traced.
    let untraced = processes
        .iter()
        .filter_map(|process| untraced_children(*process, processes, &come));
    let untraced: Vec<String> = untraced.collect();
    left_out.iter().for_each(|line| message::write(line));
    match processes.len() - left_out.len() {
        1 if processes.len() == 1 => {
            message::write(&format!("tracing process {}; Ctrl-C ends it", processes[0]))
        }
        traced => message::write(&format!(
            "tracing {}; Ctrl-C ends it",
            several(traced as u64, "process", "processes")
        )),
    }
    untraced.iter().for_each(|line| message::write(line));
}

/// A line about the processes that a traced one had started before, such as a server's workers, and those that it has
/// started since others of them were looked for to be `attached` to. Those that it has forked since it is traced are
/// followed, and those that `come` are attached to later.
fn untraced_children(process: i32, attached: &[i32], come: &[i32]) -> Option<String> {
    /// The most children that are named.
    const NAMED: usize = 5;
    let mut children = nopal_process::children(process);
    let some_are = children.iter().any(|child| attached.contains(child));
    children.retain(|child| {
        !come.contains(child)
            && !nopal_serve::is_traced(*child)
            && !nopal_record::is_followed(*child)
            && nopal_process::has_memory(*child)
    });
    children.first()?;
    let named = children.iter().take(NAMED).map(|child| {
        let name = nopal_process::name(*child).unwrap_or_default();
        format!("{child} {name}")
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match children.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if some_are {
        return Some(format!(
            "not traced are other processes that process {process} has started: {named}{more}"
        ));
    }
    Some(format!(
        "not traced are the processes that process {process} had started before: {named}{more}; `nopal attach --children {process}` records all of them"
    ))
}

fn summary(outcome: &Outcome, options: &Options) -> Vec<String> {
    let events = several(outcome.events, "event", "events");
    let functions = several(outcome.functions, "function", "functions");
    let directory = printable(&outcome.directory.display().to_string());
    let size = bytes(outcome.bytes);
    let system = match outcome.system {
        0 => String::new(),
        system => format!(" and {}", several(system, "kernel event", "kernel events")),
    };
    if let Some(why) = &outcome.untraced {
        return vec![why.clone()];
    }
    let mut lines = vec![format!(
        "{events} of {functions}{system}, {size} in {directory}"
    )];
    let any = !options.libraries && options.only.is_empty() && options.markers.is_empty();
    if outcome.events == 0 && any && matches!(options.target, Target::Processes(_)) {
        lines.push("none of them was called (--libs adds all functions of libraries)".into());
    }
    if let Some(least) = options.least {
        let least = duration(least.as_nanos() as u64);
        lines.push(format!(
            "{} shorter than {least} left out",
            several(outcome.short, "call", "calls")
        ));
    }
    if outcome.refused > 0 {
        lines.push(format!(
            "{} cannot be traced (`nopal list` says which and why)",
            several(outcome.refused, "function", "functions")
        ));
    }
    if outcome.lost > 0 {
        let remedy = match options.when_full {
            WhenFull::Drop => "a larger --buffer, --block or -F avoids this",
            WhenFull::Block => {
                "threads waited as long as they may; a larger --buffer or -F avoids this"
            }
            WhenFull::Flight => "-F leaves more room for the others",
        };
        let mut lost = several(outcome.lost, "event was lost", "events were lost");
        lost += &reasons(outcome.lost, &outcome.lost_by_reason);
        if outcome.lost_by_reason.contains_key(NO_ROOM) {
            lost += &format!(": {remedy}");
        }
        lines.push(lost);
    }
    if outcome.given_up > 0 {
        lines.push(match options.when_full {
            WhenFull::Flight => {
                let dropped = several(
                    outcome.given_up,
                    "older event was dropped",
                    "older events were dropped",
                );
                format!("{dropped} (a larger --buffer keeps more)")
            }
            _ => {
                let came = several(outcome.given_up, "event came", "events came");
                format!("{came} after the trace's end")
            }
        });
    }
    lines.extend(outcome.snapshots.iter().cloned());
    lines.extend(outcome.warnings.iter().cloned());
    lines
}

/// Ends this process by the signal that ended the program, without a core dump of its own. If it does not end so, its
/// status is the one that a shell would give.
fn end_by(signal: i32) -> i32 {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on values of ours; a set that sigemptyset and sigaddset make.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        // The limit does not stop a dump that is piped to a program.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_record::Target;
    use std::collections::BTreeMap;

    fn outcome() -> Outcome {
        Outcome {
            ended: Ended::Exited(0),
            directory: "nopal.data".into(),
            functions: 12,
            refused: 0,
            events: 3456,
            system: 0,
            lost: 0,
            given_up: 0,
            short: 0,
            snapshots: Vec::new(),
            lost_by_reason: BTreeMap::new(),
            bytes: 65536,
            warnings: Vec::new(),
            untraced: None,
        }
    }

    fn options() -> Options {
        Options::new(Target::Processes(vec![1]))
    }

    #[test]
    fn what_helps_against_loss_depends_on_what_was_asked_for() {
        let said = |when_full, lost: &[(&str, u64)], given_up| {
            let lost = lost.iter();
            let outcome = Outcome {
                lost: lost.clone().map(|(_, events)| events).sum(),
                lost_by_reason: lost.map(|&(name, events)| (name.into(), events)).collect(),
                given_up,
                ..outcome()
            };
            let options = Options {
                when_full,
                ..options()
            };
            summary(&outcome, &options)[1..].join("\n")
        };
        let buffer = "a larger --buffer";
        assert!(said(WhenFull::Drop, &[("no_room", 5)], 0).contains("--block"));
        assert!(!said(WhenFull::Block, &[("no_room", 5)], 0).contains("--block"));
        assert_eq!(
            said(WhenFull::Drop, &[("no_clock", 5), ("unknown_thread", 2)], 0),
            "7 events were lost (5 in threads that may not read the clock, 2 in threads whose control block was not their own)"
        );
        assert!(said(WhenFull::Flight, &[], 5).starts_with("5 older events"));
        assert!(!said(WhenFull::Drop, &[], 5).contains(buffer));
    }

    #[test]
    fn a_recording_without_trouble_is_one_line() {
        assert_eq!(
            summary(&outcome(), &options()),
            ["3,456 events of 12 functions, 64.0 KiB in nopal.data"]
        );
    }

    #[test]
    fn nothing_recorded_is_explained() {
        let nothing = Outcome {
            events: 0,
            ..outcome()
        };
        assert!(summary(&nothing, &options())[1].contains("--libs"));
        let chosen = Options {
            only: vec!["f".into()],
            ..options()
        };
        assert_eq!(summary(&nothing, &chosen).len(), 1);
    }

    #[test]
    fn trouble_is_told() {
        let outcome = Outcome {
            refused: 7,
            lost: 1000,
            warnings: vec!["disk full".into()],
            ..outcome()
        };
        let lines = summary(&outcome, &options());
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].starts_with("7 functions")
                && lines[2].starts_with("1,000 events")
                && lines[3] == "disk full"
        );
    }
}
