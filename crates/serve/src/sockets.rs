//! The names of sockets. A session's socket is `session-TOOL.0`; each process that it traces is a symbolic link to it,
//! by its number. The files of a dead session are removed by its guardian, or by the next process that comes upon them.

use crate::directory::Directory;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::geteuid;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PREFIX: &str = "session-";
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;
/// The time for which a client waits for a session that does not accept.
const PATIENCE: Duration = Duration::from_secs(5);

/// The names of one session. They are removed with this value.
pub struct Names {
    directory: Directory,
    socket: String,
    processes: Vec<i32>,
    /// Processes for which no name could be added.
    without: Vec<i32>,
}

impl Names {
    /// Makes the session's socket, which listens from then on.
    pub fn create() -> Result<(Names, OwnedFd)> {
        let directory = Directory::create()?;
        let (socket, listener) = directory.locked(|| {
            remove_stale(&directory);
            listen(&directory)
        })??;
        let names = Names {
            directory,
            socket,
            processes: Vec::new(),
            without: Vec::new(),
        };
        Ok((names, listener))
    }

    /// Fails where another session traces that process.
    pub fn add(&mut self, process: i32) -> Result<()> {
        if self.processes.contains(&process) {
            return Ok(());
        }
        let name = process.to_string();
        let link = || self.directory.link(&self.socket, &name);
        self.directory.locked(|| {
            let linked = match link() {
                Err(Errno::EXIST) => {
                    remove_stale(&self.directory);
                    link()
                }
                other => other,
            };
            match linked {
                Err(Errno::EXIST) => bail!(
                    "process {process} is already traced by nopal: `nopal ctl {process}` controls it"
                ),
                other => other.context("the control socket cannot be named"),
            }
        })??;
        self.processes.push(process);
        Ok(())
    }

    pub fn remove(&mut self, process: i32) {
        if let Some(at) = self.processes.iter().position(|known| *known == process) {
            self.processes.swap_remove(at);
            self.directory.remove(&process.to_string());
        }
    }

    /// As `add`, but not again where another session traces that process.
    pub fn try_add(&mut self, process: i32) {
        if !self.without.contains(&process)
            && self.add(process).is_err()
            && !self.directory.is_held()
        {
            self.without.push(process);
        }
    }

    /// Removes all but some.
    pub fn keep(&mut self, keeps: impl Fn(i32) -> bool) {
        self.without.retain(|process| keeps(*process));
        let gone = self.processes.iter().copied();
        let gone: Vec<i32> = gone.filter(|process| !keeps(*process)).collect();
        for process in gone {
            self.remove(process);
        }
    }

    pub fn remove_all(&mut self) {
        for process in std::mem::take(&mut self.processes) {
            self.directory.remove(&process.to_string());
        }
        self.directory.remove(&self.socket);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.remove_all();
    }
}

/// The processes of this user's living sessions, in order.
pub fn processes() -> Vec<i32> {
    let mut processes = Vec::new();
    for directory in own() {
        let names = directory.names().unwrap_or_default().into_iter();
        let numbers = names.filter_map(|name| process_number(&name));
        processes.extend(numbers.filter(|number| is_alive(&directory, &number.to_string())));
    }
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// The processes that hold this user's sessions, in no order. Some may have ended.
pub fn tools() -> Vec<i32> {
    let names = own().into_iter();
    let names = names.flat_map(|directory| directory.names().unwrap_or_default());
    let tool = |name: String| {
        let (tool, _) = name.strip_prefix(PREFIX)?.split_once('.')?;
        tool.parse().ok()
    };
    names.filter_map(tool).collect()
}

/// Whether a session of this user traces a process.
pub fn is_traced(process: i32) -> bool {
    let name = process.to_string();
    own().iter().any(|directory| is_alive(directory, &name))
}

/// Removes the files of ended sessions of this user.
pub fn remove_dead_names() {
    for directory in own() {
        let _ = directory.locked(|| remove_stale(&directory));
    }
}

/// Connects to the session that traces a process.
pub fn connect(process: i32) -> Result<UnixStream> {
    let mut sources = vec![Directory::own()];
    if geteuid().is_root()
        && let Ok(about) = std::fs::metadata(format!("/proc/{process}"))
    {
        sources.push(Directory::of(about.uid()));
    }
    // An unusable directory does not hide the sessions in another.
    let mut failed = None;
    for source in sources {
        let found = source.map(|directories| {
            let name = process.to_string();
            let streams = directories
                .iter()
                .map(|directory| connect_to(directory, &name));
            streams.collect::<Vec<_>>()
        });
        for stream in found.unwrap_or_else(|error| vec![Err(error)]) {
            match stream {
                Ok(Some(stream)) => return Ok(stream),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
    Err(failed.unwrap_or_else(|| NotTraced { process }.into()))
}

/// Connects to the session of a tool, by the tool's own process. `None`: it has none, or not yet.
pub fn connect_to_tool(tool: i32) -> Option<UnixStream> {
    let prefix = format!("{PREFIX}{tool}.");
    connections(|name| name.starts_with(&prefix)).next()
}

/// Connections to all sessions of this user.
pub fn sessions() -> Vec<UnixStream> {
    connections(|name| name.starts_with(PREFIX)).collect()
}

fn connections(is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = UnixStream> {
    own().into_iter().flat_map(move |directory| {
        let mut names = directory.names().unwrap_or_default();
        names.retain(|name| is_wanted(name));
        names
            .into_iter()
            .filter_map(move |name| connect_to(&directory, &name).ok()?)
    })
}

/// Without unusable ones.
fn own() -> Vec<Directory> {
    Directory::own().unwrap_or_default()
}

/// `None`: nobody is there.
fn connect_to(directory: &Directory, name: &str) -> Result<Option<UnixStream>> {
    let socket = new_socket(SocketFlags::CLOEXEC)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(directory.path(name))?) {
        Ok(()) if is_trusted(&socket) => Ok(Some(UnixStream::from(socket))),
        Ok(()) => bail!("the socket {name} is another user's"),
        Err(Errno::AGAIN) => bail!("the session of {name} does not answer"),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
        Err(error) => Err(error).context("the session cannot be reached"),
    }
}

/// No session has this process.
#[derive(Debug)]
pub struct NotTraced {
    pub process: i32,
}

impl std::fmt::Display for NotTraced {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(out, "process {} is not traced by nopal", self.process)
    }
}

impl std::error::Error for NotTraced {}

/// Whether the other end of a connection is this user's or root's.
pub fn is_trusted(socket: impl AsFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root())
}

fn listen(directory: &Directory) -> Result<(String, OwnedFd)> {
    let listener = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    // Only a test has more than one session.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}.{number}", std::process::id());
    rustix::net::bind(&listener, &SocketAddrUnix::new(directory.path(&name))?)
        .context("the control socket cannot be made")?;
    std::fs::set_permissions(directory.path(&name), PermissionsExt::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok((name, listener))
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .context("no socket can be had")
}

/// Names of sessions that are no more. Only with the directory locked, where every socket that is named listens.
fn remove_stale(directory: &Directory) {
    let names = directory.names().unwrap_or_default();
    for name in names {
        let known = name.starts_with(PREFIX) || process_number(&name).is_some();
        if known && !is_alive(directory, &name) {
            directory.remove(&name);
        }
    }
}

fn is_alive(directory: &Directory, name: &str) -> bool {
    let connected = || -> Result<rustix::io::Result<()>> {
        let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let address = SocketAddrUnix::new(directory.path(name))?;
        Ok(rustix::net::connect(&socket, &address))
    };
    !matches!(
        connected(),
        Ok(Err(Errno::CONNREFUSED | Errno::NOENT | Errno::LOOP))
    )
}

fn process_number(name: &str) -> Option<i32> {
    let number = name.parse().ok().filter(|number| *number > 0)?;
    // One spelling only: no sign, no zeroes before it.
    (i32::to_string(&number) == name).then_some(number)
}
