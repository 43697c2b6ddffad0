//! The files of a trace that are still there.

use std::collections::HashMap;
use std::path::Path;

use nopal_symbols::Image;
use nopal_trace::{Note, Trace};

use crate::names::printable;

/// By the paths that functions have.
pub struct Images<'a> {
    /// The path in the file system, and the recorded identity; if there were several, one that no file can have.
    by_path: HashMap<String, (&'a str, &'a str)>,
}

impl<'a> Images<'a> {
    pub fn new(trace: &'a Trace) -> Images<'a> {
        let mut by_path: HashMap<String, (&str, &str)> = HashMap::new();
        for note in trace.notes() {
            if let Note::Image { path, identity, .. } = note {
                let known = by_path
                    .entry(printable(path))
                    .or_insert((path.as_str(), identity.as_str()));
                if known.1 != identity {
                    known.1 = "";
                }
            }
        }
        Images { by_path }
    }

    /// Opens a file; none if its content is not the recorded one, or if it is no regular file.
    pub fn open(&self, path: &str) -> Option<Image> {
        let (path, identity) = self.by_path.get(path)?;
        let path = Path::new(path);
        if !path.is_absolute() || !path.is_file() {
            return None;
        }
        let image = Image::open(path).ok()?;
        (image.identity() == *identity).then_some(image)
    }
}
