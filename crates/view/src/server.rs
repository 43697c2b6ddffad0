//! Listens, and answers each client in a thread of its own.
//!
//! Whoever has sent the token is a client. Until then a connection is a stranger: it has little time, and the oldest has
//! to go when there are too many. So no number of strangers keeps a client out.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nopal_beside::Mutex;
use nopal_trace::{Trace, random_uuid};

use crate::http::{Request, Requests, Response};
use crate::{Shown, api, page};

/// Clients at once. A browser has six connections to a host.
const MOST_CLIENTS: usize = 64;
/// A client that neither sends nor reads for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same for strangers.
const MOST_STRANGERS: usize = 64;
const PATIENCE_WITH_STRANGERS: Duration = Duration::from_secs(5);

/// From the begin until checksums are compared.
const CHECK: Duration = Duration::from_secs(2);

pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
    traces: Arc<[Shown]>,
    guests: Arc<Guests>,
}

/// The connections.
#[derive(Default)]
struct Guests {
    clients: AtomicUsize,
    /// The oldest first.
    strangers: Mutex<VecDeque<Arc<TcpStream>>>,
}

impl Guests {
    /// A stranger comes. If there are too many, the thread of the oldest sees the end of its connection.
    fn greet(&self, stream: &Arc<TcpStream>) {
        let mut strangers = self.strangers.lock();
        if strangers.len() >= MOST_STRANGERS
            && let Some(oldest) = strangers.pop_front()
        {
            // It may have closed the connection itself.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        strangers.push_back(Arc::clone(stream));
    }

    /// A stranger is none any more.
    fn forget(&self, stream: &Arc<TcpStream>) {
        let mut strangers = self.strangers.lock();
        strangers.retain(|other| !Arc::ptr_eq(other, stream));
    }

    /// A client, as long as the result lives.
    fn admit(&self) -> Result<Client<'_>> {
        let client = Client(self);
        let before = self.clients.fetch_add(1, Ordering::Relaxed);
        ensure!(before < MOST_CLIENTS, "too many connections");
        Ok(client)
    }
}

struct Client<'a>(&'a Guests);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
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
            token: random_uuid()?.simple().to_string(),
            traces: traces.into(),
            guests: Arc::default(),
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
            let stream = Arc::new(stream);
            self.guests.greet(&stream);
            let (traces, token) = (Arc::clone(&self.traces), self.token.clone());
            let (guests, its) = (Arc::clone(&self.guests), Arc::clone(&stream));
            let started = thread::Builder::new().spawn(move || {
                // A client that has gone is no error.
                let _ = answer_all(&its, &guests, &traces, &token);
                guests.forget(&its);
            });
            if started.is_err() {
                self.guests.forget(&stream);
            }
        }
    }
}

fn answer_all(
    stream: &Arc<TcpStream>,
    guests: &Guests,
    traces: &[Shown],
    token: &str,
) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE_WITH_STRANGERS))?;
    stream.set_write_timeout(Some(PATIENCE_WITH_STRANGERS))?;
    stream.set_nodelay(true)?;
    let (mut incoming, mut out) = (&**stream, &**stream);
    let mut requests = Requests::new(&mut incoming);
    requests.patience = PATIENCE_WITH_STRANGERS;
    let mut client = None;
    loop {
        let request = match requests.take() {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) => {
                let refusal = Response::refusal("400 Bad Request", &format!("{error:#}"));
                return refusal.last().write(&mut out);
            }
        };
        let Some((name, query)) = asked(&request, token) else {
            let refusal = Response::refusal("403 Forbidden", "not for you");
            return refusal.last().write(&mut out);
        };
        if client.is_none() {
            client = match guests.admit() {
                Ok(client) => Some(client),
                Err(error) => {
                    let refusal =
                        Response::refusal("503 Service Unavailable", &format!("{error:#}"));
                    return refusal.last().write(&mut out);
                }
            };
            guests.forget(stream);
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            requests.patience = PATIENCE;
        }
        answer(name, query, traces).write(&mut out)?;
    }
}

/// Whether a request comes from the page, or from a person who opens it.
fn is_our_own(request: &Request) -> bool {
    let host = request.host.as_str();
    // The port may be another one, as behind `ssh -L`.
    let origin = |origin: &String| origin.strip_prefix("http://") == Some(host);
    request.is_local() && request.origin.as_ref().is_none_or(origin) && !request.is_cross_site
}

/// The path below the token, and the query, of a request that has the token and may have it.
fn asked<'a>(request: &'a Request, token: &str) -> Option<(&'a str, &'a str)> {
    let target = request.target.as_str();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (first, name) = path.strip_prefix('/')?.split_once('/')?;
    (is_equal(first, token) && is_our_own(request)).then_some((name, query))
}

fn answer(name: &str, query: &str, traces: &[Shown]) -> Response {
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
    use std::io::{Read, Write};

    use nopal_trace::synthetic::{self, Shape};

    use super::*;

    /// Sends a request for the page, and returns the first line of the answer; empty if there is none.
    fn status(stream: &mut TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let (mut text, mut byte) = (Vec::new(), [0]);
        let is_whole = |text: &[u8]| text.ends_with(b"\r\n\r\n");
        while !is_whole(&text) && stream.read(&mut byte).is_ok_and(|read| read > 0) {
            text.extend(byte);
        }
        let text = String::from_utf8(text).unwrap();
        let length = text.split("Content-Length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        let _ = stream.read_exact(&mut body);
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_oldest_stranger_has_to_go_when_there_are_too_many() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let guests = Guests::default();
        let mut streams = Vec::new();
        let mut comes = || {
            let its = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let ours = Arc::new(listener.accept().unwrap().0);
            guests.greet(&ours);
            its.set_nonblocking(true).unwrap();
            streams.push((its, Arc::clone(&ours)));
            ours
        };
        let first = comes();
        (1..MOST_STRANGERS).for_each(|_| drop(comes()));
        // A client is none of them.
        guests.forget(&first);
        (0..3).for_each(|_| drop(comes()));
        let is_open = |(its, _): &(TcpStream, Arc<TcpStream>)| {
            let read = (&mut &*its).read(&mut [0]);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        let closed: Vec<usize> = (0..streams.len())
            .filter(|at| !is_open(&streams[*at]))
            .collect();
        assert_eq!(closed, [1, 2]);
        assert_eq!(guests.strangers.lock().len(), MOST_STRANGERS);
    }

    #[test]
    fn strangers_keep_no_client_out() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("trace");
        synthetic::write(&directory, &Shape::default()).unwrap();
        let shown = Shown::new(Trace::open(&directory).unwrap(), 1, None);
        let server = Server::new(vec![shown], 0).unwrap();
        let (port, path) = (server.port, format!("/{}/style.css", server.token));
        thread::spawn(move || server.run());
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        };
        let strange = |begin: &[u8]| {
            let mut stream = connect();
            stream.write_all(begin).unwrap();
            stream
        };

        let mut client = connect();
        assert_eq!(status(&mut client, &path), "HTTP/1.1 200 OK");
        let mut strangers: Vec<TcpStream> = (0..200).map(|_| strange(b"GET / ")).collect();
        assert_eq!(status(&mut connect(), &path), "HTTP/1.1 200 OK");
        assert_eq!(status(&mut client, &path), "HTTP/1.1 200 OK");

        // They are closed, be it since others have come or since their time is over.
        for stranger in &mut strangers {
            let _ = stranger.read_to_end(&mut Vec::new());
        }
        let mut guesser = connect();
        assert_eq!(status(&mut guesser, "/token/"), "HTTP/1.1 403 Forbidden");
        assert_eq!(status(&mut guesser, &path), "", "one guess a connection");
        assert_eq!(status(&mut client, &path), "HTTP/1.1 200 OK");

        // Clients do have a limit.
        let mut others: Vec<TcpStream> = (1..MOST_CLIENTS).map(|_| connect()).collect();
        for other in &mut others {
            assert_eq!(status(other, &path), "HTTP/1.1 200 OK");
        }
        let refused = status(&mut connect(), &path);
        assert_eq!(refused, "HTTP/1.1 503 Service Unavailable");
        drop(others);
        let mut last = String::new();
        while !last.contains("200") {
            last = status(&mut connect(), &path);
        }
    }

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
