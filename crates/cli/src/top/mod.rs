//! `nopal top`: a live table of the functions of a process with the most calls and time.

mod screen;
mod table;

use nopal_beside::Mutex;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nopal_analysis::ongoing::{Ongoing, Sum};
use nopal_process::{name, thread_alive};
use nopal_record::{Ended, Handle, Options, counter};
use nopal_trace::{Batch, Note, Subscriber, ThreadKey};
use ratatui::DefaultTerminal;

use crate::terminal::{REACTION, UNUSABLE, is_there, keys};
use table::{Action, Table};

const SECOND: Duration = Duration::from_secs(1);

/// Shows the process that `options` name until the user or the process ends it.
pub fn run(mut options: Options, process: i32) -> Result<i32> {
    ensure!(
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
        "top needs a terminal; `nopal attach` records into files"
    );
    // For the notes of the trace; the records go to the table.
    let place = tempfile::tempdir().context("no directory for temporary files")?;
    options.directory = place.path().join("trace");
    let ongoing = Arc::new(Mutex::new(Ongoing::default()));
    let mut screen = None;
    let outcome = nopal_record::watch(
        &options,
        Box::new(TopSubscriber(Arc::clone(&ongoing))),
        |handle, _| screen = Some(thread::spawn(move || show(&handle, &ongoing, process))),
    );
    if let Some(screen) = screen {
        screen
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the table cannot be shown")))?;
    }
    let outcome = outcome?;
    let mut lines = outcome.warnings;
    if outcome.ended != Ended::RunsOn {
        lines.push(format!("process {process} has ended"));
    }
    for line in lines {
        // The terminal may be gone.
        let _ = writeln!(anstream::stderr(), "nopal: {line}");
    }
    Ok(0)
}

struct TopSubscriber(Arc<Mutex<Ongoing>>);

impl Subscriber for TopSubscriber {
    fn note(&mut self, note: &Note) {
        self.0.lock().note(note);
    }

    fn records(&mut self, batch: Batch) {
        self.0.lock().records(batch);
    }

    fn thread_ended(&mut self, thread: ThreadKey) {
        self.0.lock().thread_ended(thread);
    }
}

/// Ends the subscription, however the table ends.
struct End<'a>(&'a Handle);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // If the session is over already, there is nothing to end.
        let _ = self.0.run(|session| session.end());
    }
}

fn show(handle: &Handle, ongoing: &Mutex<Ongoing>, process: i32) -> Result<()> {
    let end = End(handle);
    let title = format!("{process} {}", name(process).unwrap_or_default());
    let mut terminal = ratatui::try_init().context(UNUSABLE)?;
    let (updates, updated) = mpsc::channel();
    let shown = thread::scope(|scope| {
        scope.spawn(|| update(handle, ongoing, process, updates));
        let shown = serve(handle, ongoing, updated, &mut terminal, Table::new(title));
        // This comes before the wait for the other thread, which may take all records of a busy process.
        drop(end);
        shown
    });
    if is_there(Duration::ZERO).unwrap_or(true) {
        ratatui::restore();
        return shown;
    }
    // The terminal is gone. Dropping it would write to it, and the library panics if that fails.
    std::mem::forget(terminal);
    Ok(())
}

/// The sums of all sites at a moment, and how many events were lost.
struct Update {
    sums: HashMap<u32, Sum>,
    lost: u64,
    now: Instant,
}

/// Sends the sums each second, until the session is over or they have no reader.
fn update(handle: &Handle, ongoing: &Mutex<Ongoing>, process: i32, updates: Sender<Update>) {
    let runs = |thread: ThreadKey| {
        thread.process as i32 != process || thread_alive(process, thread.thread as i32)
    };
    let lost = || {
        handle
            .flush()
            .and_then(|()| handle.run(|session| session.lost()))
    };
    while let Ok(lost) = lost() {
        let update = Update {
            sums: ongoing.lock().sums(counter(), runs),
            lost,
            now: Instant::now(),
        };
        if updates.send(update).is_err() {
            return;
        }
        thread::sleep(SECOND);
    }
}

/// Runs until the user quits, or the session is over.
fn serve(
    handle: &Handle,
    ongoing: &Mutex<Ongoing>,
    updated: Receiver<Update>,
    terminal: &mut DefaultTerminal,
    mut table: Table,
) -> Result<()> {
    loop {
        match updated.try_recv() {
            Ok(Update { sums, lost, now }) => table.update(&sums, lost, now, |site| {
                ongoing.lock().function(site).cloned()
            }),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let drawn = terminal.draw(|frame| screen::draw(&mut table, frame));
        drawn.context(UNUSABLE)?;
        let Some(keys) = keys(REACTION)? else {
            return Ok(());
        };
        for key in keys {
            match table.key(key) {
                Action::None => {}
                Action::Quit => return Ok(()),
                Action::Switch(site, on) => {
                    match handle.run(move |session| session.switch_number(site, on)) {
                        Ok(switched) => switched?,
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }
}
