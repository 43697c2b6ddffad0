//! Where the functions of a trace are in the source.

use std::collections::HashMap;
use std::path::Path;

use nopal_symbols::Image;
use nopal_trace::{Note, Trace};

use crate::names::{Names, printable};

/// `FILE:LINE` of each function, where the debug information of its file tells.
#[derive(Default)]
pub struct Sources {
    /// By the function's number.
    lines: Vec<Option<String>>,
}

impl Sources {
    /// Reads the files of the trace that are still there. A file with another content than that which was recorded, or
    /// that is no regular file, tells nothing.
    pub fn new(trace: &Trace, names: &Names) -> Sources {
        let mut identities = HashMap::new();
        for note in trace.notes() {
            if let Note::Image { path, identity, .. } = note {
                identities.insert(printable(path), (path.as_str(), identity.as_str()));
            }
        }
        let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, function) in names.functions().iter().enumerate() {
            by_path.entry(&function.path).or_default().push(number);
        }
        let mut lines = vec![None; names.functions().len()];
        for (path, numbers) in by_path {
            let Some(&(path, identity)) = identities.get(path) else {
                continue;
            };
            let Some(image) = opened(Path::new(path), identity) else {
                continue;
            };
            let address = |number: &usize| names.functions()[*number].address;
            let addresses: Vec<u64> = numbers.iter().map(address).collect();
            let places = image.places(&addresses);
            for number in numbers {
                let place = places.get(&address(&number));
                lines[number] = place.map(|(file, line)| printable(&format!("{file}:{line}")));
            }
        }
        Sources { lines }
    }

    /// Of a function, by its number in the names.
    pub fn of(&self, function: u32) -> Option<&str> {
        self.lines.get(function as usize)?.as_deref()
    }
}

fn opened(path: &Path, identity: &str) -> Option<Image> {
    if !path.is_absolute() || !path.is_file() {
        return None;
    }
    let image = Image::open(path).ok()?;
    (image.identity() == identity).then_some(image)
}
