//! Requests and responses of HTTP/1.1, of the kind that a browser makes for this page: GET, without a body.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail};

/// A longer request is refused.
const MOST_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// What of a request matters.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// With what follows a question mark.
    pub target: String,
    pub host: String,
    pub origin: Option<String>,
    /// Whether the browser says that a page of another site asks.
    pub is_cross_site: bool,
}

/// Reads the requests of a connection.
pub struct Requests<'a> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
}

impl<'a> Requests<'a> {
    pub fn new(stream: &'a TcpStream) -> Requests<'a> {
        Requests {
            stream,
            bytes: Vec::new(),
        }
    }

    /// The next request; none if the client has closed the connection.
    pub fn next(&mut self) -> Result<Option<Request>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some((length, request)) = parse(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(Some(request));
            }
            if self.bytes.len() >= MOST_BYTES {
                bail!("a request that is too long");
            }
            match self.stream.read(&mut buffer)? {
                0 => return Ok(None),
                read => self.bytes.extend_from_slice(&buffer[..read]),
            }
        }
    }
}

/// A request at the beginning of some bytes, and its length, if it is there as a whole.
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
            // What a body would be is the next request, for someone who disagrees about its length.
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
    pub body: Vec<u8>,
}

/// What the page may do: load its own files, ask its own server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Response {
    pub fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: "200 OK",
            kind,
            body: body.into(),
        }
    }

    /// A message for a person, or for the page, which shows it.
    pub fn refusal(status: &'static str, why: &str) -> Response {
        Response {
            status,
            kind: "text/plain; charset=utf-8",
            body: why.into(),
        }
    }

    pub fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let Response { status, kind, body } = self;
        let length = body.len();
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-store\r\n\r\n"
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        stream.write_all(&bytes)
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
