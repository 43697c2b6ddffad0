//! The notes of a recording in progress: its images and its clocks.

use std::collections::HashMap;

use nopal_abi::SITE_LIMIT;
use nopal_trace::{Clocks, Note, Snapshot};

use crate::names::Function;

#[derive(Default)]
pub struct LiveNotes {
    images: HashMap<u32, String>,
    first: Option<Snapshot>,
    last: Option<Snapshot>,
}

impl LiveNotes {
    pub fn learn(&mut self, note: &Note) {
        match note {
            &Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns,
            } => {
                let snapshot = Snapshot {
                    counter,
                    monotonic_ns,
                    realtime_ns,
                };
                match self.first {
                    None => self.first = Some(snapshot),
                    Some(_) => self.last = Some(snapshot),
                }
            }
            Note::Image { image, path, .. } => {
                self.images.insert(*image, path.clone());
            }
            _ => {}
        }
    }

    /// Clocks by the first snapshot and the last one.
    pub fn clocks(&self) -> Clocks {
        Clocks::new(self.first.into_iter().chain(self.last))
    }

    /// The functions of a note, by site number.
    pub fn functions(&self, note: &Note) -> impl Iterator<Item = (u32, Function)> {
        let (image, sites) = match note {
            Note::Sites { image, sites } => (Some(image), sites.as_slice()),
            _ => (None, [].as_slice()),
        };
        let path = image.and_then(|image| self.images.get(image));
        let path = path.map_or("?", String::as_str);
        let sites = sites.iter().filter(|site| site.0 < SITE_LIMIT);
        sites.map(move |(site, address, size, name)| {
            (*site, Function::new(path, *address, *size, name))
        })
    }
}
