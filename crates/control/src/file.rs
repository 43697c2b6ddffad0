//! An open file of a session: the text that it shows, and the text that was written into it.

use std::fmt;

use nopal_serve::{Content, Failure};

use crate::selection::Part;
use crate::stream::{Kept, Stream};
use crate::table::Role;

/// An open file. It holds the text that it showed when it was opened, and the written part of a line that has not
/// ended.
pub struct File {
    pub(crate) role: Role,
    pub(crate) shown: Shown,
    /// The begin of a line whose end has not been written.
    pub(crate) pending: Vec<u8>,
    /// The list of locations that is being written, if one is.
    pub(crate) locations: Option<Vec<Part>>,
}

pub(crate) enum Shown {
    Text(Vec<u8>),
    Stream(Stream),
    /// The records that the last look found, if it found any; and the trace as it was then.
    Pipe(Option<Stream>, Kept),
}

/// `message` may have names of functions in it, which may be anything.
pub(crate) fn failure(number: i32, message: impl fmt::Display) -> Failure {
    let message = message.to_string();
    Failure::new(number, nopal_symbols::printable(&message))
}

pub(crate) fn invalid(message: impl fmt::Display) -> Failure {
    failure(libc::EINVAL, message)
}

impl File {
    /// At most `length` bytes from `offset` on. It may wait for the disk, but for nothing that takes a lock: it need
    /// not be called by the thread that has the [`Control`].
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Content, Failure> {
        let failed = |error| failure(libc::EIO, format_args!("{error:#}"));
        match &mut self.shown {
            Shown::Text(text) => {
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(text.len());
                let end = from.saturating_add(length).min(text.len());
                Ok(Content::Bytes(text[from..end].to_vec()))
            }
            Shown::Stream(stream) => {
                let bytes = stream.read(offset, length).map_err(failed)?;
                Ok(Content::Bytes(bytes))
            }
            Shown::Pipe(stream, _) => {
                let Some(running) = stream else {
                    return Ok(Content::Later);
                };
                // A pipe gives its next bytes, whatever offset its reader asks for.
                let bytes = running.next(length).map_err(failed)?;
                if bytes.is_empty() {
                    *stream = None;
                    return Ok(Content::Later);
                }
                Ok(Content::Bytes(bytes))
            }
        }
    }

    /// Whether each record goes to one reader only: `trace_pipe`.
    pub fn is_pipe(&self) -> bool {
        matches!(self.shown, Shown::Pipe(..))
    }
}
