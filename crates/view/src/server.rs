//! Listens, and answers each client in a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nopal_trace::Trace;
use uuid::Uuid;

use crate::http::{Request, Requests, Response};
use crate::{Shown, api, page};

/// Clients at once. A browser has six connections to a host.
const MOST_CLIENTS: usize = 64;
/// A client that neither sends nor reads for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// From the begin until checksums are compared.
const CHECK: Duration = Duration::from_secs(2);

pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
    traces: Arc<[Shown]>,
    clients: Arc<AtomicUsize>,
}

impl Server {
    /// Listens on a port of 127.0.0.1; on a free one if it is 0. Shows one trace, or two beside each other.
    pub fn new(traces: Vec<Shown>, port: u16) -> Result<Server> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let listener = TcpListener::bind(address)
            .with_context(|| format!("cannot listen on port {port} of 127.0.0.1"))?;
        let port = listener.local_addr()?.port();
        Ok(Server {
            listener,
            port,
            // 122 bits from the system's generator.
            token: Uuid::new_v4().simple().to_string(),
            traces: traces.into(),
            clients: Arc::new(AtomicUsize::new(0)),
        })
    }

    /// The address of the page.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Compares the checksums of traces that are shown before that; `damaged` is told of those that are damaged.
    pub fn check(&self, damaged: impl Fn(&Trace)) {
        // Until then, the first picture needs the processors.
        if self.traces.iter().any(|shown| !shown.is_checked()) {
            thread::sleep(CHECK);
        }
        self.traces.iter().for_each(|shown| shown.check(&damaged));
    }

    /// Answers until the process ends.
    pub fn run(&self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                // The client is gone, or descriptors are scarce for a while.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if self.clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                self.clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (traces, token) = (Arc::clone(&self.traces), self.token.clone());
            let clients = Arc::clone(&self.clients);
            let started = thread::Builder::new().spawn(move || {
                // A client that has gone is no error.
                let _ = answer_all(&stream, &traces, &token);
                clients.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                self.clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

fn answer_all(stream: &TcpStream, traces: &[Shown], token: &str) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let (mut incoming, mut out) = (stream, stream);
    let mut requests = Requests::new(&mut incoming);
    loop {
        match requests.take() {
            Ok(Some(request)) => answer(&request, traces, token).write(&mut out)?,
            Ok(None) => return Ok(()),
            Err(error) => {
                let refusal = Response::refusal("400 Bad Request", &format!("{error:#}"));
                return refusal.write(&mut out);
            }
        }
    }
}

/// Whether a request comes from the page, or from a person who opens it.
fn is_our_own(request: &Request) -> bool {
    let host = request.host.as_str();
    // The port may be another one, as behind `ssh -L`.
    let origin = |origin: &String| origin.strip_prefix("http://") == Some(host);
    request.is_local() && request.origin.as_ref().is_none_or(origin) && !request.is_cross_site
}

fn answer(request: &Request, traces: &[Shown], token: &str) -> Response {
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let inside = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let name = match inside {
        Some((first, name)) if is_equal(first, token) && is_our_own(request) => name,
        _ => return Response::refusal("403 Forbidden", "not for you"),
    };
    if let Some(name) = name.strip_prefix("api/") {
        return api::answer(name, query, traces);
    }
    match page::file(name, || api::traces(traces)) {
        Ok(Some(file)) => Response::new(file.kind, file.content),
        Ok(None) => Response::refusal("404 Not Found", "no such file"),
        Err(error) => api::refused(error),
    }
}

/// Takes the same time wherever the two differ.
fn is_equal(given: &str, token: &str) -> bool {
    let differences = given
        .bytes()
        .zip(token.bytes())
        .map(|(one, other)| one ^ other);
    given.len() == token.len() && differences.fold(0, |all, one| all | one) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_itself_is_answered() {
        let request = |host: &str, origin: Option<&str>, is_cross_site| Request {
            target: String::new(),
            host: host.into(),
            origin: origin.map(str::to_owned),
            is_cross_site,
        };
        assert!(is_our_own(&request("127.0.0.1:80", None, false)));
        assert!(is_our_own(&request(
            "localhost:9",
            Some("http://localhost:9"),
            false
        )));
        assert!(!is_our_own(&request("evil.example:80", None, false)));
        assert!(!is_our_own(&request(
            "127.0.0.1:80",
            Some("http://evil.example"),
            false
        )));
        assert!(!is_our_own(&request(
            "127.0.0.1:80",
            Some("http://127.0.0.1:81"),
            false
        )));
        assert!(!is_our_own(&request("127.0.0.1:80", None, true)));
        assert!(is_equal("abc", "abc") && !is_equal("abc", "abd") && !is_equal("ab", "abc"));
    }
}
