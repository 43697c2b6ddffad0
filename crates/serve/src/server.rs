//! The threads in a session that wait for clients: one that accepts them, and one for each.

use crate::connection::{Connection, Stays};
use crate::line::Line;
use crate::sockets::{Names, is_trusted};
use crate::tree::Tree;
use anyhow::{Context, Result};
use nopal_beside::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Clients at a time. More are turned away.
const MOST: usize = 128;
/// The time that clients get to ask once more when the session ends: a reader of a stream asks until it sees its end.
const GRACE: Duration = Duration::from_secs(1);
/// The time for which the end of the session waits for an answer that is being made.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// The pause after running out of descriptors.
const RECOVERY: Duration = Duration::from_millis(100);

/// Serves a session until it is dropped.
pub struct Server {
    names: Names,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    tree: Arc<dyn Tree>,
    ending: AtomicBool,
    /// Has a count when the session ends.
    end: OwnedFd,
    connections: Mutex<HashMap<u64, Connected>>,
}

struct Connected {
    socket: OwnedFd,
    stays: Arc<Stays>,
}

impl Server {
    /// Processes are added afterwards. It must not be started before the process forks for the last time.
    pub fn start(tree: Arc<dyn Tree>) -> Result<Server> {
        let (names, listener) = Names::create()?;
        let shared = Arc::new(Shared {
            tree,
            ending: AtomicBool::new(false),
            end: eventfd(0, EventfdFlags::CLOEXEC)?,
            connections: Mutex::default(),
        });
        let theirs = shared.clone();
        let thread = Builder::new()
            .name("control".into())
            .spawn(move || theirs.accept(&listener))?;
        Ok(Server {
            names,
            shared,
            thread: Some(thread),
        })
    }

    /// Adds a link by which clients find the session of a traced process.
    pub fn add(&mut self, process: i32) -> Result<()> {
        self.names.add(process)
    }

    pub fn remove(&mut self, process: i32) {
        self.names.remove(process);
    }

    /// Adds and removes links, so that clients find the session by these processes and no others. A process of another
    /// session keeps that session's link.
    pub fn name(&mut self, processes: impl Iterator<Item = i32> + Clone) {
        self.names
            .keep(|named| processes.clone().any(|process| process == named));
        for process in processes {
            self.names.try_add(process);
        }
    }

    /// Serves no new clients, while `work` goes on doing what clients ask of the session: readers of streams get the
    /// rest, all others their answers. An answer that is being made is waited for up to `PATIENCE`, one more request up
    /// to `GRACE`.
    ///
    /// The client that has asked for the session's end sees it when the server is dropped.
    pub fn end(&mut self, mut work: impl FnMut()) {
        self.turn_away();
        let stays = |connected: &Connected| connected.stays.to_the_end.load(Ordering::Acquire);
        self.shared.disconnect(|connected| {
            !stays(connected) && !connected.stays.to_read.load(Ordering::Acquire)
        });
        let start = Instant::now();
        let is_awaited = |connected: &Connected| {
            let patience = match connected.stays.to_be_answered.load(Ordering::Acquire) {
                true => PATIENCE,
                false => GRACE,
            };
            !stays(connected) && start.elapsed() < patience
        };
        while self.shared.connections().values().any(is_awaited) {
            work();
            std::thread::sleep(PAUSE);
        }
    }

    fn turn_away(&mut self) {
        self.names.remove_all();
        self.shared.ending.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.turn_away();
        self.shared.disconnect(|_| true);
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Connected>> {
        self.connections.lock()
    }

    /// Pending requests are still answered.
    fn disconnect(&self, of: impl Fn(&Connected) -> bool) {
        for connected in self.connections().values().filter(|one| of(one)) {
            let _ = rustix::net::shutdown(&connected.socket, Shutdown::Read);
        }
    }

    fn accept(self: &Arc<Shared>, listener: &OwnedFd) {
        for number in 0.. {
            let mut ready = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(&self.end, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(Errno::INTR) | Ok(0) => continue,
                Err(_) => return,
                Ok(_) if !ready[1].revents().is_empty() => return,
                Ok(_) => {}
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(listener, flags) {
                Ok(socket) => {
                    let _ = self.serve(number, socket);
                }
                // Out of descriptors or memory: a client that goes gives some back.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    std::thread::sleep(RECOVERY);
                }
                Err(_) => {}
            }
        }
    }

    /// An error: the client is turned away.
    fn serve(self: &Arc<Shared>, number: u64, socket: OwnedFd) -> Result<()> {
        let mut connections = self.connections();
        if !is_trusted(&socket) || connections.len() >= MOST {
            return Ok(());
        }
        let line = Line::new(socket.as_fd().try_clone_to_owned()?);
        let theirs = self.clone();
        let stays = Arc::new(Stays::default());
        let their_stays = stays.clone();
        Builder::new()
            .name("client".into())
            .spawn(move || {
                // A client that did not keep to the protocol needs no more than to be let go.
                let _ = Connection::new(line, &*theirs.tree, &theirs.ending, &their_stays).run();
                theirs.connections().remove(&number);
            })
            .context("no thread for a client")?;
        connections.insert(number, Connected { socket, stays });
        Ok(())
    }
}
