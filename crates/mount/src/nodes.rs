//! Numbers for the names that the kernel has looked up, until it forgets them.

use fuser::FileType;
use std::collections::HashMap;

/// The location of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    Root,
    /// `""` is the session's own folder.
    Session {
        process: i32,
        path: String,
    },
    /// The folder of the kernel's module.
    Kernel,
    /// A file of it: a link to this device.
    Device(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub form: FileType,
    pub mode: u32,
}

impl Kind {
    pub fn is_folder(&self) -> bool {
        self.form == FileType::Directory
    }
}

pub const ROOT: u64 = 1;
pub const FOLDER: Kind = Kind {
    form: FileType::Directory,
    mode: 0o700,
};
pub const LINK: Kind = Kind {
    form: FileType::Symlink,
    mode: 0o777,
};

pub struct Nodes {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Location, u64>,
    next: u64,
}

struct Node {
    place: Location,
    kind: Kind,
    lookups: u64,
}

impl Default for Nodes {
    fn default() -> Nodes {
        let root = Node {
            place: Location::Root,
            kind: FOLDER,
            lookups: 1,
        };
        Nodes {
            nodes: HashMap::from([(ROOT, root)]),
            numbers: HashMap::from([(Location::Root, ROOT)]),
            next: ROOT + 1,
        }
    }
}

impl Nodes {
    pub fn get(&self, number: u64) -> Option<(Location, Kind)> {
        let node = self.nodes.get(&number)?;
        Some((node.place.clone(), node.kind))
    }

    /// Returns the number of a location to the kernel. A number keeps its kind: a location that changes its kind gets
    /// another one.
    pub fn look_up(&mut self, place: Location, kind: Kind) -> u64 {
        if let Some(number) = self.numbers.get(&place)
            && let Some(node) = self.nodes.get_mut(number)
            && node.kind == kind
        {
            node.lookups += 1;
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(place.clone(), number);
        let lookups = 1;
        let node = Node {
            place,
            kind,
            lookups,
        };
        self.nodes.insert(number, node);
        number
    }

    /// The kernel has forgotten that many lookups.
    pub fn forget(&mut self, number: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| number != ROOT) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        if let Some(node) = self.nodes.remove(&number)
            && self.numbers.get(&node.place) == Some(&number)
        {
            self.numbers.remove(&node.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Kind = Kind {
        form: FileType::RegularFile,
        mode: 0o600,
    };

    fn place(path: &str) -> Location {
        Location::Session {
            process: 7,
            path: path.into(),
        }
    }

    #[test]
    fn a_place_keeps_its_number_until_it_is_forgotten() {
        let mut nodes = Nodes::default();
        let number = nodes.look_up(place("ctl"), FILE);
        assert_eq!(nodes.look_up(place("ctl"), FILE), number);
        assert_ne!(nodes.look_up(place("trace"), FILE), number);
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), Some((place("ctl"), FILE)));
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), None);
        assert_ne!(nodes.look_up(place("ctl"), FILE), number);
    }

    #[test]
    fn what_has_changed_gets_another_number() {
        let mut nodes = Nodes::default();
        let file = nodes.look_up(place("x"), FILE);
        let folder = nodes.look_up(place("x"), FOLDER);
        assert_ne!(file, folder);
        nodes.forget(file, 1);
        assert_eq!(nodes.look_up(place("x"), FOLDER), folder);
    }

    #[test]
    fn the_root_stays() {
        let mut nodes = Nodes::default();
        nodes.forget(ROOT, 100);
        assert_eq!(nodes.get(ROOT), Some((Location::Root, FOLDER)));
    }
}
