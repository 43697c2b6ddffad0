//! During a recording: a line on the terminal with its size and speed, and warnings if they are large.

use std::io::{IsTerminal, stderr, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nopal_analysis::names::printable;
use nopal_analysis::text::{bytes, count};
use nopal_record::{Handle, Options, Progress, Target};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};

use crate::message;

/// Shorter recordings show nothing.
const PATIENCE: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_secs(1);
/// The size in bytes from which a trace is warned of: at first here, then each time that it has doubled.
const MUCH: u64 = 1 << 30;
/// The events a second from which a warning is given.
const MANY: u64 = 20_000_000;

/// Ends with the value, and leaves nothing on the terminal.
pub struct StatusLine {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusLine {
    /// None unless standard error is a terminal. If the program writes to the terminal itself, only warnings are shown.
    pub fn start(handle: &Handle, options: &Options) -> Option<StatusLine> {
        if !stderr().is_terminal() {
            return None;
        }
        let is_free = matches!(options.target, Target::Processes(_)) || !stdout().is_terminal();
        let (end, ended) = channel();
        let handle = handle.clone();
        let show = move || show(&handle, &ended, is_free);
        // A recording does not need it.
        let thread = std::thread::Builder::new().spawn(show).ok()?;
        Some(StatusLine {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that failed shows nothing more.
            let _ = thread.join();
        }
    }
}

fn show(handle: &Handle, ended: &Receiver<()>, is_free: bool) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    if is_free {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    let start = Instant::now();
    let mut warnings = Warnings::default();
    while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let progress = handle.progress();
        if start.elapsed() < PATIENCE || !is_ours() {
            continue;
        }
        if let Some(warning) = warnings.of(&progress) {
            bar.suspend(|| message::write(&warning));
        }
        bar.set_message(line(&progress));
        bar.tick();
    }
    bar.finish_and_clear();
}

/// Whether nopal is in the terminal's foreground, and no program has the whole of the screen.
fn is_ours() -> bool {
    let terminal = stderr();
    let is_plain = tcgetattr(&terminal).is_ok_and(|it| it.local_modes.contains(LocalModes::ICANON));
    is_plain && tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

fn line(progress: &Progress) -> String {
    let mut line = format!(
        "{} events/s, {}",
        millions(progress.rate),
        bytes(progress.bytes)
    );
    if let Some(most) = progress.most_bytes {
        line += &format!(" of at most {}", bytes(most));
    }
    line += &format!(", {} lost", count(progress.lost));
    let mut named = progress.busiest.iter().peekable();
    if named.peek().is_some() {
        let named = named.map(|(name, part)| format!("{part} % {}", printable(name)));
        line += &format!("; most by {}", named.collect::<Vec<_>>().join(", "));
    }
    line
}

/// `4.2 M`
fn millions(number: u64) -> String {
    match number {
        0..1_000_000 => count(number),
        _ => format!("{:.1} M", number as f64 / 1e6),
    }
}

/// The warnings that were given.
#[derive(Default)]
struct Warnings {
    bytes: u64,
    is_fast: bool,
    has_lost: bool,
}

impl Warnings {
    /// A warning that is due.
    fn of(&mut self, progress: &Progress) -> Option<String> {
        let is_much = progress.bytes >= MUCH.max(self.bytes.saturating_mul(2));
        let is_fast = progress.rate >= MANY && !self.is_fast;
        let has_lost = progress.lost > 0 && !self.has_lost;
        if !is_much && !is_fast && !has_lost {
            return None;
        }
        if is_much {
            self.bytes = progress.bytes;
        }
        self.is_fast |= is_fast;
        self.has_lost |= has_lost;
        let mut warning = format!(
            "{} already, {} events/s",
            bytes(progress.bytes),
            millions(progress.rate)
        );
        if progress.lost > 0 {
            warning += &format!(", {} lost", count(progress.lost));
        }
        let named = progress
            .busiest
            .iter()
            .map(|(name, part)| format!("-N '{}' ({part} %)", printable(name)));
        let named = named.collect::<Vec<_>>();
        if !named.is_empty() {
            let named = named.join(", ");
            warning += &format!("; to leave out the most frequent: {named}");
        }
        warning += "; for a smaller trace: -t 10us; for a faster program: --budget 5%";
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(bytes: u64, lost: u64, rate: u64) -> Progress {
        Progress {
            events: 0,
            rate,
            lost,
            bytes,
            most_bytes: Some(2 * MUCH),
            busiest: vec![("parse".into(), 31)],
        }
    }

    #[test]
    fn a_line_has_rate_size_losses_and_the_busiest() {
        assert_eq!(
            line(&progress(3 << 20, 12_345, 4_230_000)),
            "4.2 M events/s, 3.00 MiB of at most 2.00 GiB, 12,345 lost; most by 31 % parse"
        );
    }

    #[test]
    fn much_is_warned_of_once_and_when_it_has_doubled() {
        let mut warnings = Warnings::default();
        let due = |warnings: &mut Warnings, bytes, lost, rate| {
            warnings.of(&progress(bytes, lost, rate)).is_some()
        };
        assert!(!due(&mut warnings, MUCH - 1, 0, 0));
        assert!(due(&mut warnings, MUCH, 0, 0));
        assert!(!due(&mut warnings, 2 * MUCH - 1, 0, 0));
        assert!(due(&mut warnings, 2 * MUCH, 0, 0));
        assert!(due(&mut warnings, 2 * MUCH, 0, MANY));
        assert!(!due(&mut warnings, 2 * MUCH, 0, MANY));
        assert!(due(&mut warnings, 2 * MUCH, 1, 0));
        assert!(!due(&mut warnings, 2 * MUCH, 9, MANY));
        let text = Warnings::default().of(&progress(MUCH, 0, 0)).unwrap();
        assert_eq!(
            text,
            "1.00 GiB already, 0 events/s; to leave out the most frequent: -N 'parse' (31 %); for a smaller trace: -t 10us; for a faster program: --budget 5%"
        );
    }
}
