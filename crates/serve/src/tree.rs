//! The interface of a session: a tree of virtual files.

use std::fmt;

/// A session, as its clients' threads see it: work that needs the session's own thread is done there, and waited for.
/// Paths are `""` for the root, or names with `/` between them.
pub trait Tree: Send + Sync + 'static {
    /// The content of a folder.
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Failure>;

    fn open(&self, path: &str, access: Access) -> Result<Box<dyn File>, Failure>;

    /// Obeys lines as a write to `ctl` does, and returns their answers.
    fn command(&self, text: &str) -> Result<String, Failure>;

    /// Whether a process is the session's, which may not have met it yet: a child that another has made.
    fn find(&self, process: i32) -> Result<(), Failure>;

    /// Ends the session, after this returns.
    fn detach(&self) -> Result<(), Failure>;
}

/// An open file.
pub trait File: Send {
    /// Whether each byte goes to one reader only.
    fn is_stream(&self) -> bool;

    /// At most `length` bytes of the text that the file showed when it was opened.
    fn read(&mut self, offset: u64, length: usize) -> Result<Content, Failure>;

    /// Looks for new bytes after [`Content::Later`].
    fn refill(&mut self) -> Result<(), Failure>;

    /// Obeys the lines in `bytes`, up to the first that fails.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// Obeys a line whose end may still have been to come.
    fn flush(&mut self) -> Result<(), Failure>;

    /// Nothing more is written. The effect of that, if it has one, has taken place on return.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub folder: bool,
    /// Permission bits for its owner: 0o600, 0o400, 0o200, or 0o700 for a folder.
    pub mode: u32,
}

/// The modes of opening a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
    /// As by `O_TRUNC`, which `>` of a shell asks for: the effect is each file's own matter.
    pub truncate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Without bytes: the end of the file.
    Bytes(Vec<u8>),
    /// Nothing is there yet. Ask again after [`File::refill`]; only a stream answers so.
    Later,
}

/// The reason why something could not be done: a number of errno(3) for programs, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub number: i32,
    pub message: String,
}

impl Failure {
    pub fn new(number: i32, message: impl Into<String>) -> Failure {
        Failure {
            number,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
