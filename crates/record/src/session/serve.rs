//! The session as its clients see it, through its control socket.

use crate::patch::remove;
use crate::session::Session;
use crate::session::control_files;
use crate::session::handle::Handle;
use nopal_control::Control;
use nopal_serve::{Access, Entry, Failure, File, Server, Tree};
use nopal_symbols::without_numbers;
use std::sync::Arc;

impl Session {
    /// Lets clients come. A session that cannot be controlled records all the same.
    pub(crate) fn serve(&mut self, handle: Handle) {
        self.service.is_served = true;
        match Server::start(Arc::new(handle)) {
            Ok(server) => self.service.server = Some(server),
            Err(error) => {
                self.service.not_served =
                    Some(format!("nopal ctl cannot reach this session: {error:#}"));
            }
        }
        self.name_processes();
    }

    /// Clients find the session by each process of which it knows.
    pub(crate) fn name_processes(&mut self) {
        if let Some(server) = &mut self.service.server {
            server.name(self.processes.tracees.keys().copied());
        }
    }

    /// Readers get what is left. A client that asked for the end waits for it.
    pub(crate) fn serve_no_more(&mut self) {
        if let Some(mut server) = self.service.server.take() {
            server.end(|| self.work());
            self.service.server = Some(server);
        }
    }
}

impl Tree for Handle {
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Failure> {
        Control::list(folder)
    }

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn File>, Failure> {
        control_files::open(self, path, access)
    }

    fn command(&self, text: &str) -> Result<String, Failure> {
        control_files::command(self, text)
    }

    fn find(&self, process: i32) -> Result<(), Failure> {
        let found = self.run(move |session| {
            let mut regions = session.context.shared.regions().into_iter();
            let region = regions.find(|region| remove::has_mapped(process, region));
            region.is_some_and(|region| session.processes.known_or_forked(&region, process).is_ok())
        });
        match found {
            Ok(true) => Ok(()),
            _ => Err(Failure::new(libc::ESRCH, "the session has no such process")),
        }
    }

    fn detach(&self) -> Result<(), Failure> {
        self.run(|session| match session.attached.is_empty() {
            false => {
                session.end();
                Ok(())
            }
            true => Err(Failure::new(
                libc::EBUSY,
                "nopal started this program and traces it until it ends",
            )),
        })
        .map_err(over)?
    }
}

fn over(error: anyhow::Error) -> Failure {
    Failure::new(libc::EIO, without_numbers(&format!("{error:#}")))
}
