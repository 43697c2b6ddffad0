//! Parts of the index that are decoded when they are needed.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use crate::cell::Cell;

/// A part of the index's file, or bytes of its own.
#[derive(Clone, Default)]
pub struct Part {
    all: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Part {
        Part {
            range: 0..bytes.len(),
            all: Arc::new(bytes),
        }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.all.get(self.range.clone()).unwrap_or_default()
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Part) -> bool {
        **self == **other
    }
}

impl Eq for Part {}

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{} bytes", self.len())
    }
}

/// Hands out the parts of a file, one after the other.
pub struct Parts {
    all: Arc<Vec<u8>>,
    lengths: std::vec::IntoIter<u32>,
    at: usize,
}

impl Parts {
    /// Parts of these lengths, from a byte of the file on.
    pub fn new(all: Vec<u8>, at: usize, lengths: Vec<u32>) -> Parts {
        Parts {
            all: Arc::new(all),
            lengths: lengths.into_iter(),
            at,
        }
    }

    pub fn take(&mut self) -> Option<Part> {
        let begin = self.at;
        self.at = begin.checked_add(self.lengths.next()? as usize)?;
        (self.at <= self.all.len()).then(|| Part {
            all: Arc::clone(&self.all),
            range: begin..self.at,
        })
    }

    /// Whether all have been taken, and nothing is behind them.
    pub fn is_over(&self) -> bool {
        self.lengths.as_slice().is_empty() && self.at == self.all.len()
    }
}

/// The cells of some nodes in the file.
#[derive(Clone, Debug)]
pub struct Run {
    bytes: Part,
    cells: OnceLock<Box<[Cell]>>,
}

impl Run {
    pub fn new(bytes: Part) -> Run {
        Run {
            bytes,
            cells: OnceLock::new(),
        }
    }

    /// The cells, which should be so many. There are none if the file says anything else.
    pub fn cells(&self, count: usize) -> &[Cell] {
        self.cells
            .get_or_init(|| self.decoded(count).unwrap_or_default())
    }

    /// Whether it has so many cells.
    pub fn is_readable(&self, count: usize) -> bool {
        match self.cells.get() {
            Some(cells) => cells.len() == count,
            None => self.decoded(count).is_some(),
        }
    }

    fn decoded(&self, count: usize) -> Option<Box<[Cell]>> {
        let cells: Box<[Cell]> = postcard::from_bytes(&self.bytes).ok()?;
        (cells.len() == count).then_some(cells)
    }
}
