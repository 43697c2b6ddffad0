//! The processes and threads whose records are written to a trace.

use std::collections::HashSet;

/// Processes and threads whose records are kept; all, if none is named.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    ids: HashSet<u32>,
    children: bool,
}

impl Watched {
    /// With `children`, also the processes that those of `ids` fork from now on.
    pub fn new(ids: &[u32], children: bool) -> Watched {
        Watched {
            ids: ids.iter().copied().collect(),
            children,
        }
    }

    pub fn has(&self, process: u32, thread: u32) -> bool {
        self.ids.is_empty() || self.ids.contains(&process) || self.ids.contains(&thread)
    }

    pub fn forked(&mut self, process: u32, parent: u32) {
        if self.children && self.ids.contains(&parent) {
            self.ids.insert(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_followed_where_asked() {
        assert!(Watched::default().has(1, 2));
        for children in [false, true] {
            let mut watched = Watched::new(&[7], children);
            watched.forked(8, 7);
            watched.forked(9, 8);
            watched.forked(11, 10);
            let has = [(7, 1), (1, 7), (8, 8), (9, 9), (11, 11)].map(|(p, t)| watched.has(p, t));
            assert_eq!(has, [true, true, children, children, false]);
        }
    }
}
