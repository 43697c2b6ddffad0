//! Requests and responses of HTTP/1.1, of the kind that a browser makes for a page of this machine: GET, without a body.

use std::io::{self, BufWriter, Read, Write};

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// A longer request is refused.
const MOST_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts of a request that matter.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The path, with the query behind a question mark.
    pub target: String,
    pub host: String,
    pub origin: Option<String>,
    /// Whether the browser says that a page of another site asks.
    pub is_cross_site: bool,
}

impl Request {
    /// Whether it asks for this machine by a name of its own, and not by one that another page may have given it.
    pub fn is_local(&self) -> bool {
        let host = self.host.as_str();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        matches!(name, "127.0.0.1" | "localhost")
    }
}

/// Reads the requests of a connection.
pub struct Requests<'s> {
    stream: &'s mut dyn Read,
    bytes: Vec<u8>,
    /// For all of a request from its first byte on; at first 30 seconds.
    pub patience: Duration,
}

impl<'s> Requests<'s> {
    pub fn new(stream: &'s mut dyn Read) -> Requests<'s> {
        Requests {
            stream,
            bytes: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// The next request; none if the client has closed the connection.
    pub fn take(&mut self) -> Result<Option<Request>> {
        let mut buffer = [0; 4096];
        let mut begun: Option<Instant> = None;
        loop {
            if let Some((length, request)) = parse(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(Some(request));
            }
            if self.bytes.len() >= MOST_BYTES {
                bail!("a request that is too long");
            }
            // A request that comes byte by byte keeps others waiting.
            if begun.is_some_and(|begun| begun.elapsed() > self.patience) {
                bail!("a request that takes too long");
            }
            match self.stream.read(&mut buffer)? {
                0 => return Ok(None),
                read => self.bytes.extend_from_slice(&buffer[..read]),
            }
            begun.get_or_insert_with(Instant::now);
        }
    }
}

/// The request at the beginning of some bytes, and its length, if it is complete.
fn parse(bytes: &[u8]) -> Result<Option<(usize, Request)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = parsed.parse(bytes)? else {
        return Ok(None);
    };
    if parsed.method != Some("GET") {
        bail!("only GET is answered");
    }
    let mut request = Request {
        target: parsed.path.unwrap_or_default().to_owned(),
        host: String::new(),
        origin: None,
        is_cross_site: false,
    };
    for header in parsed.headers {
        let value = String::from_utf8_lossy(header.value).into_owned();
        match header.name.to_ascii_lowercase().as_str() {
            // A proxy that disagrees about the length of a body would take the body for the next request.
            "content-length" if value != "0" => bail!("a body"),
            "transfer-encoding" => bail!("a body"),
            "host" if !request.host.is_empty() => bail!("two hosts"),
            "host" => request.host = value,
            "origin" => request.origin = Some(value),
            "sec-fetch-site" => {
                request.is_cross_site = !matches!(value.as_str(), "same-origin" | "none");
            }
            _ => {}
        }
    }
    Ok(Some((length, request)))
}

/// A response.
pub struct Response {
    pub status: &'static str,
    pub kind: &'static str,
    pub body: Body,
    /// The connection is closed then.
    is_last: bool,
}

type Work = Box<dyn FnOnce(&mut dyn Write) -> Result<()>>;

pub enum Body {
    Whole(Vec<u8>),
    /// A file of this name, written while the client reads it.
    File(&'static str, Work),
}

/// The page may load its own files and ask its own server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Response {
    pub fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: "200 OK",
            kind,
            body: Body::Whole(body.into()),
            is_last: false,
        }
    }

    /// A file that the browser keeps, as `work` writes it.
    pub fn file(
        name: &'static str,
        work: impl FnOnce(&mut dyn Write) -> Result<()> + 'static,
    ) -> Response {
        Response {
            status: "200 OK",
            kind: "application/octet-stream",
            body: Body::File(name, Box::new(work)),
            is_last: false,
        }
    }

    /// A message for a person, or for the page, which shows it.
    pub fn refusal(status: &'static str, why: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            body: Body::Whole(why.into()),
            is_last: false,
        }
    }

    /// The same, as the last one of the connection.
    pub fn last(self) -> Response {
        Response {
            is_last: true,
            ..self
        }
    }

    /// Fails if the client is gone, or if the file cannot be written completely: the client then sees that it is cut
    /// short.
    pub fn write(self, stream: &mut dyn Write) -> Result<()> {
        let Response {
            status,
            kind,
            body,
            is_last,
        } = self;
        let end = if is_last { "Connection: close\r\n" } else { "" };
        let length = match &body {
            Body::Whole(body) => format!("Content-Length: {}", body.len()),
            Body::File(name, _) => format!(
                "Transfer-Encoding: chunked\r\nContent-Disposition: attachment; filename=\"{name}\""
            ),
        };
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}\r\n\
             Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Cache-Control: no-store\r\n{end}\r\n"
        )
        .into_bytes();
        match body {
            Body::Whole(body) => {
                bytes.extend_from_slice(&body);
                stream.write_all(&bytes)?;
            }
            Body::File(_, work) => {
                stream.write_all(&bytes)?;
                let mut out = BufWriter::with_capacity(CHUNK, Chunks(stream));
                work(&mut out)?;
                out.flush()?;
                drop(out);
                stream.write_all(b"0\r\n\r\n")?;
            }
        }
        Ok(())
    }
}

/// Bytes of a file that are sent at a time.
const CHUNK: usize = 1 << 16;

/// Writes its input as chunks of HTTP.
struct Chunks<'s>(&'s mut dyn Write);

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An empty chunk would end the file.
        if !bytes.is_empty() {
            write!(self.0, "{:x}\r\n", bytes.len())?;
            self.0.write_all(bytes)?;
            self.0.write_all(b"\r\n")?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<(usize, Request)>> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_request_is_taken_as_a_whole() {
        let text = "GET /x?y=1 HTTP/1.1\r\nHost: localhost:80\r\nOrigin: http://a\r\nSec-Fetch-Site: cross-site\r\n\r\n";
        for length in 0..text.len() {
            assert!(parsed(&text[..length]).unwrap().is_none(), "{length}");
        }
        let request = Request {
            target: "/x?y=1".into(),
            host: "localhost:80".into(),
            origin: Some("http://a".into()),
            is_cross_site: true,
        };
        assert_eq!(
            parsed(&format!("{text}GET")).unwrap(),
            Some((text.len(), request))
        );
    }

    #[test]
    fn what_is_no_plain_get_is_refused() {
        for bad in [
            "POST / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "\0\0\r\n\r\n",
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
