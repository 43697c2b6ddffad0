//! Metrics of the daemon and of its sessions, in the text format of Prometheus, on a port of this machine or a socket.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nopal_beside::Mutex;
use nopal_control::{Kind, Metric, escaped};
use nopal_serve::{Access, Client};
use nopal_view::http::{Requests, Response};
use rustix::fs::Mode;
use rustix::process::umask;

/// How long a session may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

const PATH: &str = "/metrics";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Clients at once.
const MOST_CLIENTS: usize = 8;

/// The port or socket at which metrics can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A port of 127.0.0.1.
    Port(u16),
    Socket(PathBuf),
}

impl Endpoint {
    /// From the command line.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Endpoint::Port(port)),
            _ if text.starts_with('/') => Ok(Endpoint::Socket(text.into())),
            _ => Err("a port, or the absolute path of a socket is expected".into()),
        }
    }
}

/// The state of a service, as the daemon knows it.
#[derive(Clone, Debug)]
pub struct Status {
    pub service: String,
    /// The process that holds the session.
    pub tool: Option<i32>,
    /// Recordings that have begun.
    pub begun: u64,
    /// Of these, and of the last one of a former daemon, those whose nopal was killed.
    pub cut_off: u64,
    /// The bytes of its recordings on the disk.
    pub bytes: u64,
}

pub type Statuses = Arc<Mutex<Vec<Status>>>;

/// Answers until the process ends.
pub fn serve(endpoint: &Endpoint, statuses: &Statuses) -> Result<()> {
    let statuses = Arc::clone(statuses);
    let clients = Arc::new(AtomicUsize::new(0));
    match endpoint {
        Endpoint::Port(port) => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port))
                .with_context(|| format!("cannot listen on port {port} of 127.0.0.1"))?;
            let accept = move || loop {
                let accepted = listener.accept().map(|(stream, _)| stream);
                each(accepted, &clients, &statuses, of_network);
            };
            thread::Builder::new().spawn(accept)?;
        }
        Endpoint::Socket(path) => {
            let listener = listen(path)?;
            let accept = move || loop {
                let accepted = listener.accept().map(|(stream, _)| stream);
                each(accepted, &clients, &statuses, of_socket);
            };
            thread::Builder::new().spawn(accept)?;
        }
    }
    Ok(())
}

/// A socket for this user alone. A socket without a listener is replaced.
fn listen(path: &Path) -> Result<UnixListener> {
    let shown = path.display();
    if let Ok(facts) = std::fs::symlink_metadata(path) {
        match UnixStream::connect(path) {
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && facts.file_type().is_socket() =>
            {
                std::fs::remove_file(path).with_context(|| format!("cannot replace {shown}"))?;
            }
            _ => bail!("{shown} is there already"),
        }
    }
    // This comes before other threads that make files.
    let mask = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(mask);
    let listener = listener.with_context(|| format!("cannot listen at {shown}"))?;
    Ok(listener)
}

/// Answers a client in a thread of its own.
fn each<Stream: Send + 'static>(
    accepted: io::Result<Stream>,
    clients: &Arc<AtomicUsize>,
    statuses: &Statuses,
    answer: fn(&Stream, &Statuses) -> Result<()>,
) {
    let Ok(stream) = accepted else {
        // The client is gone, or descriptors are scarce for a while.
        thread::sleep(Duration::from_millis(50));
        return;
    };
    let leave = |clients: &AtomicUsize| clients.fetch_sub(1, Ordering::Relaxed);
    if clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
        leave(clients);
        return;
    }
    let (of_client, statuses) = (Arc::clone(clients), Arc::clone(statuses));
    let work = move || {
        // A client that has gone is no error.
        let _ = answer(&stream, &statuses);
        leave(&of_client);
    };
    if thread::Builder::new().spawn(work).is_err() {
        leave(clients);
    }
}

fn of_network(stream: &TcpStream, statuses: &Statuses) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    answer(&mut { stream }, &mut { stream }, statuses, true)
}

fn of_socket(stream: &UnixStream, statuses: &Statuses) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    answer(&mut { stream }, &mut { stream }, statuses, false)
}

/// Answers one request. `by_name`: a page of another site could make the browser ask, by the site's name for this
/// machine.
fn answer(
    incoming: &mut dyn Read,
    out: &mut dyn Write,
    statuses: &Statuses,
    by_name: bool,
) -> Result<()> {
    let response = match Requests::new(incoming).take() {
        Ok(None) => return Ok(()),
        Ok(Some(request)) if by_name && !request.is_local() => {
            Response::refusal("403 Forbidden", "ask for localhost or 127.0.0.1")
        }
        Ok(Some(request)) if request.target == PATH => {
            let known = statuses.lock().clone();
            Response::new(TEXT, text(&known))
        }
        Ok(Some(_)) => Response::refusal("404 Not Found", "metrics are at /metrics"),
        Err(error) => Response::refusal("400 Bad Request", &format!("{error:#}")),
    };
    response.write(out)
}

/// All metrics.
fn text(statuses: &[Status]) -> String {
    let own = |name, kind, about, value: fn(&Status) -> f64| Metric {
        name,
        kind,
        about,
        values: statuses
            .iter()
            .map(|status| (vec![("service", status.service.clone())], value(status)))
            .collect(),
    };
    let daemon = std::process::id() as i32;
    let mut metrics = [
        own(
            "nopal_service_recording",
            Kind::Gauge,
            "Whether the service is being recorded.",
            |status| f64::from(u8::from(status.tool.is_some())),
        ),
        own(
            "nopal_service_recordings_total",
            Kind::Counter,
            "Recordings that have begun.",
            |status| status.begun as f64,
        ),
        own(
            "nopal_service_recordings_cut_off_total",
            Kind::Counter,
            "Recordings whose nopal was killed, also the last one before the daemon began.",
            |status| status.cut_off as f64,
        ),
        own(
            "nopal_service_disk_bytes",
            Kind::Gauge,
            "Size of the recordings that are kept.",
            |status| status.bytes as f64,
        ),
        own(
            "nopal_service_tool_seconds",
            Kind::Gauge,
            "Processor time that nopal has used for the present recording.",
            |status| status.tool.map_or(0.0, seconds),
        ),
        Metric::plain(
            "nopal_daemon_seconds_total",
            Kind::Counter,
            "Processor time of the daemon, and of recordings that have ended.",
            seconds(daemon),
        ),
    ]
    .iter()
    .map(Metric::to_string)
    .collect::<String>();
    let mut merged = Merged::default();
    for status in statuses {
        let of_session = status.tool.and_then(|tool| of_session(tool).ok());
        merged.add(&status.service, &of_session.unwrap_or_default());
    }
    for (header, lines) in merged.0 {
        let _ = write!(metrics, "{header}{lines}");
    }
    metrics
}

fn of_session(tool: i32) -> Result<String> {
    let mut session = Client::of_tool(tool)?.within(PATIENCE);
    let access = Access {
        read: true,
        ..Access::default()
    };
    session.open("metrics", access)?;
    Ok(String::from_utf8(session.read_all()?)?)
}

/// Whether the session has stopped recording.
pub fn is_full(tool: i32) -> bool {
    of_session(tool).is_ok_and(|text| text.lines().any(|line| line == "nopal_trace_full 1"))
}

fn seconds(process: i32) -> f64 {
    nopal_process::processor_time(process).map_or(0.0, |time| time.as_secs_f64())
}

/// The metrics of sessions: the header of each, and the lines of all services.
#[derive(Default)]
struct Merged(Vec<(String, String)>);

impl Merged {
    /// Adds the text of a session. Lines that are no metric of nopal are left out.
    fn add(&mut self, service: &str, text: &str) {
        let label = format!("service=\"{}\"", escaped(service));
        let mut lines = text.lines();
        let mut at = None;
        while let Some(line) = lines.next() {
            if line.starts_with("# HELP nopal_") {
                let kind = lines.next().unwrap_or_default();
                let header = format!("{line}\n{kind}\n");
                let known = self.0.iter().position(|(known, _)| *known == header);
                at = Some(known.unwrap_or_else(|| {
                    self.0.push((header, String::new()));
                    self.0.len() - 1
                }));
                continue;
            }
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at(end);
            let lines = at
                .and_then(|at: usize| self.0.get_mut(at))
                .map(|(_, lines)| lines);
            let Some(lines) = lines.filter(|_| name.starts_with("nopal_")) else {
                continue;
            };
            let _ = match rest.strip_prefix('{') {
                Some(rest) => writeln!(lines, "{name}{{{label},{rest}"),
                None => writeln!(lines, "{name}{{{label}}}{rest}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_ports_and_sockets() {
        assert_eq!(Endpoint::parse("9464"), Ok(Endpoint::Port(9464)));
        let socket = Endpoint::Socket("/run/nopal/metrics".into());
        assert_eq!(Endpoint::parse("/run/nopal/metrics"), Ok(socket));
        for wrong in ["", "0", "70000", "metrics", "localhost:80"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_metric_of_several_sessions_has_one_header() {
        let mut merged = Merged::default();
        let of = |value: u32| {
            format!(
                "# HELP nopal_a A.\n# TYPE nopal_a gauge\nnopal_a{{x=\"1\"}} {value}\nnopal_a {value}\nother 1\n"
            )
        };
        merged.add("s", &of(1));
        merged.add("t", &of(2));
        merged.add("u", "nopal_b 1\n");
        let [(header, lines)] = merged.0.as_slice() else {
            panic!("{:?}", merged.0);
        };
        assert_eq!(header, "# HELP nopal_a A.\n# TYPE nopal_a gauge\n");
        assert_eq!(
            lines,
            "nopal_a{service=\"s\",x=\"1\"} 1\nnopal_a{service=\"s\"} 1\nnopal_a{service=\"t\",x=\"1\"} 2\nnopal_a{service=\"t\"} 2\n"
        );
    }
}
