//! An open file: a connection to its session.

use crate::reader::{LOOK, Reader};
use anyhow::Result;
use fuser::Errno;
use nopal_serve::{Access, Client, Failure, LONGEST_READ, NotTraced, Request, STREAM};

pub struct OpenFile {
    pub process: i32,
    client: Client,
    access: Access,
    is_stream: bool,
    /// Somebody asked and was killed: the answer is still to come.
    owed: bool,
    /// Where a reader has come to the end, and waits for more.
    end: Option<u64>,
    /// What has been found there since.
    more: Vec<u8>,
}

/// Why a file could not do what it should: a number of errno(3), and the session's own words, if it had any.
pub struct Refusal {
    pub number: Errno,
    pub words: Option<String>,
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Refusal {
        match error.downcast::<Failure>() {
            Ok(failure) => Refusal {
                number: Errno::from_i32(failure.number),
                words: Some(failure.message),
            },
            Err(error) => Refusal {
                number: match error.is::<NotTraced>() {
                    true => Errno::ENOENT,
                    false => Errno::EIO,
                },
                words: None,
            },
        }
    }
}

impl From<Errno> for Refusal {
    fn from(number: Errno) -> Refusal {
        let words = None;
        Refusal { number, words }
    }
}

impl OpenFile {
    pub fn open(
        process: i32,
        path: &str,
        access: Access,
        reader: Reader,
    ) -> Result<OpenFile, Refusal> {
        let mut file = OpenFile {
            process,
            client: Client::connect(process)?,
            access,
            is_stream: false,
            owed: false,
            end: None,
            more: Vec::new(),
        };
        let path = path.into();
        file.is_stream = file.ask(&Request::Open { access, path }, &[], reader)? == STREAM;
        Ok(file)
    }

    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    pub fn writable(&self) -> bool {
        self.access.write
    }

    /// How long the file is, as far as its reader cares: one that has not come to an end cares not.
    pub fn size(&self) -> u64 {
        self.end.unwrap_or(0) + self.more.len() as u64
    }

    /// Looks whether the file has grown since its reader came to the end, or is shorter than it was.
    pub fn look(&mut self, reader: Reader) -> Result<(), Refusal> {
        let Some(end) = self.end.filter(|_| self.more.is_empty()) else {
            return Ok(());
        };
        let mut part = |offset, length| {
            let wait = false;
            let request = Request::Read {
                offset,
                length,
                wait,
            };
            self.ask(&request, &[], reader)
        };
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
    ) -> Result<Vec<u8>, Refusal> {
        let length = length.min(LONGEST_READ);
        if self.end == Some(offset) && !self.more.is_empty() {
            let rest = self.more.split_off(length.min(self.more.len()));
            self.end = Some(offset + self.more.len() as u64);
            return Ok(std::mem::replace(&mut self.more, rest));
        }
        let request = Request::Read {
            offset,
            length,
            wait,
        };
        let bytes = if self.is_stream {
            self.settle(reader)?;
            self.client.send(&request, &[])?;
            match self
                .client
                .answer_while(|| !reader.is_interrupted(), LOOK)?
            {
                Some(bytes) => bytes,
                None => {
                    // So that nothing is taken from the stream for a reader that may be no more.
                    self.client.send(&Request::Cancel, &[])?;
                    self.client.answer()?
                }
            }
        } else {
            self.ask(&request, &[], reader)?
        };
        self.more.clear();
        self.end = (bytes.is_empty() && !self.is_stream).then_some(offset);
        Ok(bytes)
    }

    pub fn write(&mut self, bytes: &[u8], reader: Reader) -> Result<(), Refusal> {
        let length = bytes.len();
        self.ask(&Request::Write { length }, bytes, reader)?;
        Ok(())
    }

    pub fn flush(&mut self, reader: Reader) -> Result<(), Refusal> {
        self.ask(&Request::Flush, &[], reader)?;
        Ok(())
    }

    fn ask(&mut self, request: &Request, bytes: &[u8], reader: Reader) -> Result<Vec<u8>, Refusal> {
        self.settle(reader)?;
        self.client.send(request, bytes)?;
        self.owed = true;
        self.take(reader)
    }

    /// Takes an answer that nobody waits for any more.
    fn settle(&mut self, reader: Reader) -> Result<(), Refusal> {
        if self.owed {
            // That it failed was for another to know. That the session is gone shows in what is asked next.
            match self.take(reader) {
                Err(refusal) if self.owed => return Err(refusal),
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, reader: Reader) -> Result<Vec<u8>, Refusal> {
        let answer = self.client.answer_while(|| !reader.is_killed(), LOOK);
        if let Ok(None) = answer {
            return Err(Errno::EINTR.into());
        }
        self.owed = false;
        Ok(answer?.unwrap_or_default())
    }
}
