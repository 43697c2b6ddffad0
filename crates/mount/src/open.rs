//! An open file: a connection to its session.

use crate::reader::{LOOK, Reader};
use anyhow::{Context, Result};
use fuser::Errno;
use nopal_serve::{Access, Client, Failure, LONGEST_READ, NotTraced, Request, STREAM};

pub struct OpenFile {
    client: Client,
    access: Access,
    is_stream: bool,
    /// A reader was killed while it waited: the answer is still pending.
    owed: bool,
    /// The position at which a reader has reached the end, and waits for more.
    end: Option<u64>,
    /// The bytes found there since.
    more: Vec<u8>,
}

/// Converts an error of a session for the kernel. Open files of an ended session give EIO.
pub fn number(error: &anyhow::Error) -> Errno {
    match error.downcast_ref::<Failure>() {
        Some(failure) => Errno::from_i32(failure.number),
        None if error.is::<NotTraced>() => Errno::ENOENT,
        None => Errno::EIO,
    }
}

pub fn interrupted() -> Failure {
    Failure::new(libc::EINTR, "interrupted")
}

impl OpenFile {
    pub fn open(process: i32, path: &str, access: Access, reader: Reader) -> Result<OpenFile> {
        let mut file = OpenFile {
            client: Client::connect(process)?,
            access,
            is_stream: false,
            owed: false,
            end: None,
            more: Vec::new(),
        };
        let path = path.into();
        file.is_stream = file.request(&Request::Open { access, path }, &[], reader)? == STREAM;
        Ok(file)
    }

    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    pub fn changes(&self) -> bool {
        self.access.write || self.access.truncate
    }

    /// The file's length, for a reader that has come to its end. To any other, it is 0.
    pub fn size(&self) -> u64 {
        self.end.unwrap_or(0) + self.more.len() as u64
    }

    /// Looks whether the file has grown since its reader came to the end, or is shorter than it was.
    pub fn look(&mut self, reader: Reader) -> Result<()> {
        let Some(end) = self.end.filter(|_| self.more.is_empty()) else {
            return Ok(());
        };
        let mut part = |offset, length| self.request(&read(offset, length, false), &[], reader);
        let more = part(end, LONGEST_READ)?;
        if more.is_empty() && end > 0 && part(end - 1, 1)?.is_empty() {
            self.more = part(0, LONGEST_READ)?;
            self.end = Some(0);
        } else {
            self.more = more;
        }
        Ok(())
    }

    /// At most `length` bytes.
    pub fn read(
        &mut self,
        offset: u64,
        length: usize,
        wait: bool,
        reader: Reader,
    ) -> Result<Vec<u8>> {
        if self.end == Some(offset) && !self.more.is_empty() {
            let rest = self.more.split_off(length.min(self.more.len()));
            self.end = Some(offset + self.more.len() as u64);
            return Ok(std::mem::replace(&mut self.more, rest));
        }
        let request = read(offset, length.min(LONGEST_READ), wait);
        if self.is_stream {
            return self.read_stream(&request, reader);
        }
        let bytes = self.request(&request, &[], reader)?;
        self.more.clear();
        self.end = bytes.is_empty().then_some(offset);
        Ok(bytes)
    }

    fn read_stream(&mut self, request: &Request, reader: Reader) -> Result<Vec<u8>> {
        self.settle(reader)?;
        self.client.send(request, &[])?;
        let answer = self
            .client
            .answer_while(|| !reader.is_interrupted(), LOOK)?;
        if let Some(bytes) = answer {
            return Ok(bytes);
        }
        // Take nothing from the stream for a reader that may have ended.
        self.client.send(&Request::Cancel, &[])?;
        self.client.answer()
    }

    pub fn write(&mut self, bytes: &[u8], reader: Reader) -> Result<()> {
        let length = bytes.len();
        self.request(&Request::Write { length }, bytes, reader)
            .map(drop)
    }

    pub fn flush(&mut self, reader: Reader) -> Result<()> {
        self.request(&Request::Flush, &[], reader).map(drop)
    }

    pub fn close(&mut self, reader: Reader) -> Result<()> {
        self.request(&Request::Close, &[], reader).map(drop)
    }

    fn request(&mut self, request: &Request, bytes: &[u8], reader: Reader) -> Result<Vec<u8>> {
        self.settle(reader)?;
        self.client.send(request, bytes)?;
        self.owed = true;
        self.take(reader)
    }

    /// Takes an answer for which no reader waits any more.
    fn settle(&mut self, reader: Reader) -> Result<()> {
        if self.owed {
            // Another caller gets this failure. The next request shows that the session is gone.
            match self.take(reader) {
                Err(error) if self.owed => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, reader: Reader) -> Result<Vec<u8>> {
        let answer = self.client.answer_while(|| !reader.is_killed(), LOOK);
        if let Ok(None) = answer {
            return Err(interrupted().into());
        }
        self.owed = false;
        answer?.context("there is an answer")
    }
}

fn read(offset: u64, length: usize, wait: bool) -> Request {
    Request::Read {
        offset,
        length,
        wait,
    }
}
