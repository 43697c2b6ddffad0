//! A terminal that may go away while it is used.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub const UNUSABLE: &str = "the terminal cannot be used";

/// The time within which a new size of the terminal is noticed.
pub const REACTION: Duration = Duration::from_millis(100);

/// The keys that were pressed, after a wait for one of at most this long. `None`: the terminal is gone.
pub fn keys(wait: Duration) -> Result<Option<Vec<KeyEvent>>> {
    if !is_there(wait)? {
        return Ok(None);
    }
    let mut keys = Vec::new();
    while event::poll(Duration::ZERO).context(UNUSABLE)? {
        if let Event::Key(key) = event::read().context(UNUSABLE)? {
            keys.push(key);
        }
    }
    Ok(Some(keys))
}

/// Whether there still is a terminal, which the library that reads keys does not show. Waits for a key, at most for
/// this time.
pub fn is_there(wait: Duration) -> Result<bool> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut input, Timespec::try_from(wait).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context(UNUSABLE),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(!input[0].revents().intersects(gone))
}

/// The effect of a key in every screen.
pub enum Pressed {
    Nothing,
    Quit,
    Key(KeyCode),
}

pub fn pressed(key: KeyEvent) -> Pressed {
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => Pressed::Nothing,
        KeyCode::Char('c' | 'd') if with_control => Pressed::Quit,
        _ if with_control => Pressed::Nothing,
        code => Pressed::Key(code),
    }
}
