//! Shows the progress of long work on a terminal.

use std::io::IsTerminal;
use std::sync::Once;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_millis(400);

pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    shown: Once,
}

impl Progress {
    pub fn new(what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent} %, {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_message(what);
        Progress {
            bar,
            start: Instant::now(),
            shown: Once::new(),
        }
    }

    pub fn update(&self, done: u64, all: u64) {
        if self.start.elapsed() < PATIENCE || !std::io::stderr().is_terminal() {
            return;
        }
        self.shown
            .call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        self.bar.set_length(all);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
