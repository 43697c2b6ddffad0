//! One client's requests, answered on a thread of their own.

use crate::line::Line;
use crate::protocol::{LONGEST_LINE, Request, STREAM, VERSION, answer, list_text};
use crate::tree::{Access, Content, Failure, File, Tree};
use anyhow::{Context, Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The time that a client may take to send a request that it has begun, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time after which an empty stream is looked at again, at first and after it has been empty for long. Nobody tells
/// that a traced thread has recorded something: that would cost it a system call.
const LOOK_SOON: Duration = Duration::from_millis(10);
const LOOK_LATE: Duration = Duration::from_millis(80);

pub struct Connection<'a> {
    line: Line,
    tree: &'a dyn Tree,
    /// The session ends: a stream that has nothing is at its end.
    ending: &'a AtomicBool,
    stays: &'a Stays,
    greeted: bool,
    open: Option<Open>,
}

/// The reasons why a client is still listened to when the session ends.
#[derive(Default)]
pub struct Stays {
    /// It reads a stream, and is to see its end.
    pub to_read: AtomicBool,
    /// It wants to know when the session has ended.
    pub to_the_end: AtomicBool,
    /// It has asked for something, and the answer is being made.
    pub to_be_answered: AtomicBool,
}

struct Open {
    path: String,
    access: Access,
    file: Box<dyn File>,
    was_read: bool,
    /// The end that the reader has seen.
    end: Option<u64>,
}

impl Open {
    /// From its start, or past an end that was seen: the reader wants the file's present content.
    fn is_read_again(&self, offset: u64) -> bool {
        self.end == Some(offset) || offset == 0 && self.was_read
    }
}

impl<'a> Connection<'a> {
    pub fn new(
        line: Line,
        tree: &'a dyn Tree,
        ending: &'a AtomicBool,
        stays: &'a Stays,
    ) -> Connection<'a> {
        Connection {
            line,
            tree,
            ending,
            stays,
            greeted: false,
            open: None,
        }
    }

    /// Serves until the client leaves or the session ends.
    pub fn run(mut self) -> Result<()> {
        let served = self.serve();
        // A client that just goes has closed its file, too.
        let _ = self.close();
        served
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            self.line.wait(None)?;
            let Some(line) = self.line.line(LONGEST_LINE, PATIENCE)? else {
                return Ok(());
            };
            let request = Request::parse(&line)
                .filter(|request| self.greeted || matches!(request, Request::Version(_)));
            let Some(request) = request else {
                let quoted = String::from_utf8_lossy(&line);
                let message = format!("'{quoted}' is not a request of version {VERSION}");
                let failure = Failure::new(libc::EPROTO, message);
                return self.line.send(&answer(Err(failure)), PATIENCE);
            };
            let bytes = match request {
                Request::Write { length } | Request::Command { length } => {
                    self.line.bytes(length, PATIENCE)?
                }
                _ => Vec::new(),
            };
            if request == Request::Cancel {
                continue;
            }
            self.stays.to_be_answered.store(true, Ordering::Release);
            let result = self.answer(request, &bytes)?;
            self.stays.to_be_answered.store(false, Ordering::Release);
            self.line.send(&answer(result), PATIENCE)?;
        }
    }

    /// The outer error: nobody waits for the answer any more.
    fn answer(&mut self, request: Request, bytes: &[u8]) -> Result<Result<Vec<u8>, Failure>> {
        Ok(match request {
            Request::Version(VERSION) => {
                self.greeted = true;
                Ok(Vec::new())
            }
            Request::Version(other) => Err(Failure::new(
                libc::EPROTO,
                format!("the session speaks version {VERSION}, not {other}"),
            )),
            Request::List(folder) => self.tree.list(&folder).map(|list| list_text(&list)),
            Request::Open { access, path } => self.open(access, path),
            Request::Read {
                offset,
                length,
                wait,
            } => self.read(offset, length, wait)?,
            Request::Cancel => Ok(Vec::new()),
            Request::Write { .. } => self.write(bytes),
            Request::Flush => self.flush(),
            Request::Close => self.close(),
            Request::Command { .. } => self.command(bytes),
            Request::Find(process) => self.tree.find(process).map(|()| Vec::new()),
            Request::Detach => {
                self.stays.to_the_end.store(true, Ordering::Release);
                self.tree.detach().map(|()| Vec::new())
            }
        })
    }

    fn open(&mut self, access: Access, path: String) -> Result<Vec<u8>, Failure> {
        if self.open.is_some() {
            return Err(Failure::new(libc::EBUSY, "a file is open already"));
        }
        let file = self.tree.open(&path, access)?;
        let kind = if file.is_stream() {
            STREAM
        } else {
            b"".as_slice()
        };
        self.stays
            .to_read
            .store(file.is_stream(), Ordering::Release);
        self.open = Some(Open {
            file,
            path,
            access,
            was_read: false,
            end: None,
        });
        Ok(kind.into())
    }

    fn read(&mut self, offset: u64, length: usize, wait: bool) -> Result<Result<Vec<u8>, Failure>> {
        let Some(open) = self.open.as_mut().filter(|open| open.access.read) else {
            return Ok(Err(not_open()));
        };
        if !open.file.is_stream() && open.is_read_again(offset) {
            let access = Access {
                truncate: false,
                ..open.access
            };
            match self.tree.open(&open.path, access) {
                Ok(again) => (open.file, open.end) = (again, None),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        let (mut looked, mut last) = (false, false);
        let mut pause = LOOK_SOON;
        loop {
            match open.file.read(offset, length) {
                Ok(Content::Later) => {}
                Ok(Content::Bytes(bytes)) => {
                    open.was_read = true;
                    if bytes.is_empty() {
                        open.end = Some(offset);
                    }
                    return Ok(Ok(bytes));
                }
                Err(failure) => return Ok(Err(failure)),
            }
            if last {
                return Ok(Ok(Vec::new()));
            }
            if looked && !wait {
                return Ok(Err(Failure::new(
                    libc::EAGAIN,
                    "there is nothing to read yet",
                )));
            }
            if looked && self.line.has_changed(pause)? {
                let said = self.line.line(LONGEST_LINE, PATIENCE)?;
                let said = said.context("the client has gone")?;
                ensure!(
                    Request::parse(&said) == Some(Request::Cancel),
                    "a request came before the previous one was answered"
                );
                return Ok(Err(Failure::new(libc::EINTR, "cancelled")));
            }
            pause = (pause * 2).min(LOOK_LATE);
            // Loaded before the look, which so sees all that was there when the session ended.
            last = self.ending.load(Ordering::Acquire);
            match open.file.refill() {
                Ok(()) => looked = true,
                Err(_) if last => return Ok(Ok(Vec::new())),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let open = self.open.as_mut().filter(|open| open.access.write);
        let open = open.ok_or_else(not_open)?;
        open.file.write(bytes).map(|()| Vec::new())
    }

    fn flush(&mut self) -> Result<Vec<u8>, Failure> {
        let open = self.open.as_mut().ok_or_else(not_open)?;
        open.file.flush().map(|()| Vec::new())
    }

    fn close(&mut self) -> Result<Vec<u8>, Failure> {
        let open = self.open.take().ok_or_else(not_open)?;
        self.stays.to_read.store(false, Ordering::Release);
        open.file.close().map(|()| Vec::new())
    }

    fn command(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Failure::new(libc::EINVAL, "the command is not UTF-8"))?;
        self.tree.command(text).map(String::into_bytes)
    }
}

fn not_open() -> Failure {
    Failure::new(libc::EBADF, "no file is open for that")
}
