//! Text that is made of a trace while it is read: no more of it is in memory than is being read.

use nopal_beside::Mutex;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nopal_analysis::dump::{self, Excerpt, Look, Recorder};
use nopal_analysis::names::Names;
use nopal_trace::Trace;

/// Blocks of text under way.
const BLOCKS: usize = 2;

/// A trace as it was at the last read, so that the next read gives the records since.
pub type Kept = Arc<Mutex<Option<Trace>>>;

/// The trace to show, the part of it, and the format.
#[derive(Clone)]
pub struct Show {
    pub directory: PathBuf,
    pub kept: Kept,
    pub excerpt: Excerpt,
    pub format: Format,
    /// The lines above it.
    pub head: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Devtrace,
    Function(Look),
    /// All that was recorded, as a latency trace with this title.
    Latency(&'static str, Look),
}

/// A text from its begin to its end. Reading backwards makes it anew.
pub struct Stream {
    show: Show,
    making: Making,
    /// The position of `block` in the text.
    position: u64,
    block: Vec<u8>,
    /// The position of [`Stream::next`].
    taken: u64,
}

enum Making {
    NotBegun,
    Running {
        blocks: Receiver<Vec<u8>>,
        thread: JoinHandle<Result<()>>,
    },
    Ended,
}

impl Stream {
    pub fn new(show: Show) -> Stream {
        Stream {
            show,
            making: Making::NotBegun,
            position: 0,
            block: Vec::new(),
            taken: 0,
        }
    }

    /// At most `length` bytes more; none only at the end.
    pub fn next(&mut self, length: usize) -> Result<Vec<u8>> {
        let bytes = self.read(self.taken, length)?;
        self.taken += bytes.len() as u64;
        Ok(bytes)
    }

    /// At most `length` bytes from `offset` on; none only at the end.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        if offset < self.position {
            *self = Stream::new(self.show.clone());
        }
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let within = offset + bytes.len() as u64 - self.position;
            let within = usize::try_from(within).unwrap_or(usize::MAX);
            if let Some(rest) = self.block.get(within..).filter(|rest| !rest.is_empty()) {
                bytes.extend_from_slice(&rest[..rest.len().min(length - bytes.len())]);
            } else if !self.advance()? {
                break;
            }
        }
        Ok(bytes)
    }

    /// Goes on to the next block; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if let Making::NotBegun = self.making {
            let (sender, blocks) = sync_channel(BLOCKS);
            let show = self.show.clone();
            let thread = thread::Builder::new()
                .name("show".into())
                .spawn(move || write(&show, &mut Sender(sender)))
                .context("cannot start a thread")?;
            self.making = Making::Running { blocks, thread };
        }
        let Making::Running { blocks, .. } = &self.making else {
            return Ok(false);
        };
        if let Ok(next) = blocks.recv() {
            self.position += self.block.len() as u64;
            self.block = next;
            return Ok(true);
        }
        match std::mem::replace(&mut self.making, Making::Ended) {
            Making::Running { thread, .. } => match thread.join() {
                Ok(written) => written.map(|()| false),
                Err(panic) => std::panic::resume_unwind(panic),
            },
            _ => Ok(false),
        }
    }
}

fn write(show: &Show, out: &mut Sender) -> Result<()> {
    out.write_all(show.head.as_bytes())?;
    let mut kept = show.kept.lock();
    let trace = match kept.take() {
        Some(trace) => trace.again()?,
        None => Trace::open(&show.directory)?,
    };
    let trace = kept.insert(trace);
    match show.format {
        Format::Devtrace => dump::devtrace(trace, show.excerpt, out),
        Format::Function(look) => dump::function(trace, show.excerpt, look, out),
        Format::Latency(title, look) => dump::all(
            trace,
            &Names::new(trace),
            title,
            Recorder::Function,
            show.excerpt,
            look,
            out,
        ),
    }
}

/// A reader that is gone ends the writing.
struct Sender(SyncSender<Vec<u8>>);

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            let sent = self.0.send(bytes.to_vec());
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
