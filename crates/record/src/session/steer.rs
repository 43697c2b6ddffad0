//! What other threads ask of a session: work that is done on the session's own thread, the only one that may use
//! ptrace on the traced processes.

use crate::collecting::drain::Shared;
use crate::session::Session;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

pub(crate) type Work = Box<dyn FnOnce(&mut Session) + Send>;

/// A session, for other threads.
#[derive(Clone)]
pub struct Handle {
    work: Sender<Work>,
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> (Handle, Receiver<Work>) {
        let (work, asked) = channel();
        (Handle { work, shared }, asked)
    }

    /// Has all that is recorded at this moment written to the trace, and waits for it: a few milliseconds. An error:
    /// the session is over.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush()
    }

    /// Has the session do something, which begins at once unless it does something else at the moment, and waits for
    /// the result. An error: the session is over.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> T + Send + 'static,
    ) -> Result<T> {
        const OVER: &str = "the recording is over";
        let (answer, answered) = channel();
        let work = move |session: &mut Session| {
            // Nobody may wait for it any more.
            let _ = answer.send(work(session));
        };
        self.work.send(Box::new(work)).ok().context(OVER)?;
        self.shared.wake();
        answered.recv().context(OVER)
    }
}

impl Session {
    /// Does what other threads have asked for.
    pub(crate) fn work(&mut self) {
        while let Ok(work) = self.asked.try_recv() {
            work(self);
        }
    }
}
