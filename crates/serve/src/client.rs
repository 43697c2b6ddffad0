//! The other end of a session's socket.

use crate::line::Line;
use crate::protocol::{
    Answer, LONGEST_COMMAND, LONGEST_LINE, LONGEST_READ, LONGEST_WRITE, Request, VERSION,
    parse_list,
};
use crate::sockets::{self, NotTraced};
use crate::tree::{Access, Entry, Failure};
use anyhow::{Context, Result, ensure};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The time that a session may take to send an answer that it has begun, or to take a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a session. An error that is a [`Failure`] is the session's answer; any other means that there is no
/// session any more.
pub struct Client {
    line: Line,
    /// The time that an answer may take that waits for the session's own thread.
    patience: Option<Duration>,
}

impl Client {
    /// Connects to the session that traces a process.
    pub fn connect(process: i32) -> Result<Client> {
        let named = sockets::connect(process).and_then(Client::greet);
        match named {
            Err(error) if error.is::<NotTraced>() => Client::search(process).ok_or(error),
            named => named,
        }
    }

    /// Connects to the session of a tool, which is a process of this user. An error: it has none, or not yet.
    pub fn of_tool(tool: i32) -> Result<Client> {
        Client::greet(sockets::connect_to_tool(tool).context("it has no session")?)
    }

    /// Connects to the session that finds out only now that a process is its own.
    fn search(process: i32) -> Option<Client> {
        sockets::sessions().into_iter().find_map(|socket| {
            let mut client = Client::greet(socket).ok()?;
            client.request(&Request::Find(process), &[]).ok()?;
            Some(client)
        })
    }

    fn greet(socket: UnixStream) -> Result<Client> {
        let mut client = Client {
            line: Line::new(socket.into()),
            patience: None,
        };
        client.request(&Request::Version(VERSION), &[])?;
        Ok(client)
    }

    /// From now on, an answer that takes longer is an error.
    pub fn within(mut self, patience: Duration) -> Client {
        self.patience = Some(patience);
        self
    }

    pub fn list(&mut self, folder: &str) -> Result<Vec<Entry>> {
        let text = self.request(&Request::List(folder.into()), &[])?;
        parse_list(&text).context("the session's answer is not a list of files")
    }

    /// Makes this connection an open file.
    pub fn open(&mut self, path: &str, access: Access) -> Result<()> {
        let path = path.into();
        self.request(&Request::Open { access, path }, &[])?;
        Ok(())
    }

    /// At most `length` bytes; none at the end of the file, or of the session.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let wait = true;
        let request = Request::Read {
            offset,
            length,
            wait,
        };
        self.request(&request, &[])
    }

    /// The whole of an open file.
    pub fn read_all(&mut self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let part = self.read(all.len() as u64, LONGEST_READ)?;
            if part.is_empty() {
                return Ok(all);
            }
            all.extend(part);
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(LONGEST_WRITE) {
            let length = part.len();
            self.request(&Request::Write { length }, part)?;
        }
        Ok(())
    }

    /// Ends a line that has no end yet.
    pub fn flush(&mut self) -> Result<()> {
        self.request(&Request::Flush, &[])?;
        Ok(())
    }

    /// Makes this connection one without a file.
    pub fn close(&mut self) -> Result<()> {
        self.request(&Request::Close, &[])?;
        Ok(())
    }

    /// Executes lines, and returns their answers.
    pub fn command(&mut self, text: &str) -> Result<String> {
        let length = text.len();
        ensure!(
            length <= LONGEST_COMMAND,
            "more than {LONGEST_COMMAND} bytes of commands at once"
        );
        let answer = self.request(&Request::Command { length }, text.as_bytes())?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Ends the session, and waits until it has ended.
    pub fn detach(mut self) -> Result<()> {
        self.request(&Request::Detach, &[])?;
        self.line.wait(None)?;
        // Closed or cut: it has ended either way.
        let _ = self.line.line(LONGEST_LINE, PATIENCE);
        Ok(())
    }

    fn request(&mut self, request: &Request, bytes: &[u8]) -> Result<Vec<u8>> {
        self.send(request, bytes)?;
        self.answer()
    }

    /// Asks without waiting. The answer must be taken before anything else is asked.
    pub fn send(&mut self, request: &Request, bytes: &[u8]) -> Result<()> {
        let mut all = request.line().into_bytes();
        all.extend_from_slice(bytes);
        self.line.send(&all, PATIENCE)
    }

    /// The answer to the request. `wanted` is asked every `often`. `None`: it said no, and the answer is still to come.
    pub fn answer_while(
        &mut self,
        wanted: impl Fn() -> bool,
        often: Duration,
    ) -> Result<Option<Vec<u8>>> {
        while !self.line.wait(Some(often))? {
            if !wanted() {
                return Ok(None);
            }
        }
        self.answer().map(Some)
    }

    /// The answer to the request that was sent.
    pub fn answer(&mut self) -> Result<Vec<u8>> {
        let is_there = self.line.wait(self.patience)?;
        ensure!(is_there, "the session does not answer");
        let line = self.line.line(LONGEST_LINE, PATIENCE)?;
        let line = line.context("the session has ended")?;
        match Answer::parse(&line).context("the session's answer is not understood")? {
            Answer::Ok { length } => self.line.bytes(length, PATIENCE),
            Answer::Error { number, length } => {
                let message = self.line.bytes(length, PATIENCE)?;
                let message = String::from_utf8_lossy(&message).into_owned();
                Err(Failure { number, message }.into())
            }
        }
    }
}
