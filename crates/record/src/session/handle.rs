//! Work on a session for other threads. It is done on the session's own thread, the only one that may use ptrace on the
//! traced processes.

use crate::collecting::drain::Shared;
use crate::collecting::progress::Progress;
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
        let (work, work_queue) = channel();
        (Handle { work, shared }, work_queue)
    }

    /// Writes all that is recorded at this moment to the trace, and waits for that: a few milliseconds. An error: the
    /// session is over.
    pub fn flush(&self) -> Result<()> {
        self.shared.flush()
    }

    /// The recording's progress half a second ago. Nothing before the first call.
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Runs work on the session's thread and waits for the result. Work that is under way is finished first. An error: the
    /// session is over.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> T + Send + 'static,
    ) -> Result<T> {
        const OVER: &str = "the recording is over";
        let (answer, answered) = channel();
        let work = move |session: &mut Session| {
            // The thread that waits may be gone.
            let _ = answer.send(work(session));
        };
        self.work.send(Box::new(work)).ok().context(OVER)?;
        self.shared.wake();
        answered.recv().context(OVER)
    }
}

impl Session {
    /// Does the work that other threads have sent.
    pub(crate) fn work(&mut self) {
        while let Ok(work) = self.service.work_queue.try_recv() {
            work(self);
        }
    }
}
