//! `nopal record` and `nopal attach`: runs a program, and ends as it ended; or records a process that runs.

use anstream::eprintln;
use anyhow::Result;
use nopal_analysis::text::{bytes, count};
use nopal_record::{Ended, Options, Outcome};

/// Gives the status to end with; ends by the program's signal where there was one.
pub fn run(options: &Options) -> Result<i32> {
    let outcome = nopal_record::record(options, |_| {})?;
    // The program has ended: that nobody reads these lines any more must not change the status.
    // SAFETY: no handler is installed, only ignored.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    for line in summary(&outcome) {
        eprintln!("nopal: {line}");
    }
    match outcome.ended {
        Ended::RunsOn => Ok(0),
        Ended::Exited(status) => Ok(status),
        Ended::Killed { signal } => Ok(end_by(signal)),
    }
}

fn summary(outcome: &Outcome) -> Vec<String> {
    let [events, functions, refused, lost] = [
        outcome.events,
        outcome.functions,
        outcome.refused,
        outcome.lost,
    ]
    .map(count);
    let (size, directory) = (bytes(outcome.bytes), outcome.directory.display());
    let mut lines = vec![format!(
        "{events} events of {functions} functions, {size} in {directory}"
    )];
    if outcome.refused > 0 {
        let functions = if outcome.refused == 1 {
            "function"
        } else {
            "functions"
        };
        lines.push(format!(
            "{refused} {functions} cannot be traced (`nopal list` says which and why)"
        ));
    }
    if outcome.lost > 0 {
        lines.push(format!(
            "{lost} events were lost for want of room (a larger --buffer, --block or -F keeps them)"
        ));
    }
    lines.extend(outcome.warnings.iter().cloned());
    lines
}

/// Ends this process by the signal that ended the program, without a core dump of its own. What a shell would say is
/// the status where that does not come about.
fn end_by(signal: i32) -> i32 {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain system calls on values of ours; a set that sigemptyset and sigaddset make.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        // A limit does not stop a dump that goes to a program.
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

    fn outcome() -> Outcome {
        Outcome {
            ended: Ended::Exited(0),
            directory: "nopal.data".into(),
            functions: 12,
            refused: 0,
            events: 3456,
            lost: 0,
            bytes: 65536,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_recording_without_trouble_is_one_line() {
        assert_eq!(
            summary(&outcome()),
            ["3,456 events of 12 functions, 64.0 KiB in nopal.data"]
        );
    }

    #[test]
    fn trouble_is_told() {
        let lines = summary(&Outcome {
            refused: 7,
            lost: 1000,
            warnings: vec!["disk full".into()],
            ..outcome()
        });
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].starts_with("7 functions")
                && lines[2].starts_with("1,000 events")
                && lines[3] == "disk full"
        );
    }
}
