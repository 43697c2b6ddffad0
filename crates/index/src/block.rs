//! Sums up pieces in blocks, and blocks in the levels above.

use crate::cell::{Cell, DEPTHS, FAN_OUT, Level};
use crate::chart::{Open, Pieces};

/// The cells of a node that is not complete.
struct Node {
    begin: u64,
    markers: u64,
    /// The nodes of the level below that are in it.
    nodes: usize,
    /// One for each depth that was reached. In a block, one for every depth, and the last for deeper calls.
    cells: Vec<Cell>,
}

impl Node {
    fn new(begin: u64) -> Node {
        Node {
            begin,
            markers: 0,
            nodes: 0,
            cells: Vec::new(),
        }
    }

    fn used(&self) -> usize {
        let cells = &self.cells[..self.cells.len().min(DEPTHS)];
        let used = cells.iter().rposition(|cell| !cell.is_empty());
        used.map_or(0, |last| last + 1)
    }

    fn cell(&mut self, depth: usize) -> &mut Cell {
        if self.cells.len() <= depth {
            self.cells.resize(depth + 1, Cell::default());
        }
        &mut self.cells[depth]
    }

    /// Appends it to a level, and begins the next one.
    fn push(&mut self, end: u64, level: &mut Level) {
        let used = self.used();
        level.push(end, self.markers, &self.cells[..used]);
        self.cells[..used].fill(Cell::default());
        (self.begin, self.markers, self.nodes) = (end, 0, 0);
    }
}

/// Makes the levels of a thread.
pub struct Blocks {
    block: Node,
    /// The open node of each level above.
    above: Vec<Node>,
    pub calls: u64,
    pub missing: Vec<(u64, u64)>,
}

/// The length of a piece within a time that begins at `from`.
#[inline(always)]
fn ticks(begin: u64, from: u64, end: u64) -> u64 {
    end.saturating_sub(begin.max(from))
}

impl Blocks {
    pub fn new(from: u64) -> Blocks {
        Blocks {
            block: Node {
                cells: vec![Cell::default(); DEPTHS + 1],
                ..Node::new(from)
            },
            above: Vec::new(),
            calls: 0,
            missing: Vec::new(),
        }
    }

    /// Ends the block at `end`, where these pieces are open.
    pub fn close(&mut self, end: u64, open: &[Open], levels: &mut Vec<Level>) {
        let open = &open[..open.len().min(DEPTHS)];
        for (cell, open) in self.block.cells.iter_mut().zip(open) {
            cell.cover(ticks(open.begin, self.block.begin, end), open.site);
        }
        let cells = self.block.cells.iter();
        self.calls += cells.map(|cell| cell.calls).sum::<u64>();
        self.block.cells[DEPTHS] = Cell::default();
        for at in 0.. {
            if self.above.len() == at {
                let begin = self.node(at).begin;
                self.above.push(Node::new(begin));
                levels.push(Level::default());
            }
            let (node, above) = match at.checked_sub(1) {
                None => (&mut self.block, &mut self.above[0]),
                Some(below) => {
                    let (nodes, above) = self.above.split_at_mut(at);
                    (&mut nodes[below], &mut above[0])
                }
            };
            for (depth, open) in open.iter().enumerate() {
                let ticks = ticks(open.begin, node.begin, end);
                node.cell(depth).reach(ticks, open.site);
            }
            let is_complete = above.take(node);
            node.push(end, &mut levels[at]);
            if !is_complete {
                break;
            }
        }
    }

    fn node(&self, level: usize) -> &Node {
        match level.checked_sub(1) {
            None => &self.block,
            Some(below) => &self.above[below],
        }
    }
}

impl Node {
    /// Adds a node of the level below. Returns whether this one is complete.
    fn take(&mut self, node: &Node) -> bool {
        for (depth, other) in node.cells[..node.used()].iter().enumerate() {
            self.cell(depth).add(other);
        }
        self.markers = self.markers.saturating_add(node.markers);
        self.nodes += 1;
        self.nodes == FAN_OUT
    }
}

impl Pieces for Blocks {
    fn call(&mut self, depth: usize, site: u32, clock: u64) {
        self.event(depth, site, 0, Open::default(), clock);
    }

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        self.event(depth, open.site, 1, open, end);
    }

    #[inline(always)]
    fn event(&mut self, depth: usize, site: u32, exit: u64, open: Open, clock: u64) {
        let depth = depth.min(DEPTHS);
        if open.begin < self.block.begin && exit == 1 {
            reach_above(&mut self.above, depth, open, clock);
        }
        let ticks = ticks(open.begin, self.block.begin, clock) & 0u64.wrapping_sub(exit);
        let cell = &mut self.block.cells[depth];
        cell.call(1 - exit);
        cell.cover(ticks, site);
    }

    fn marker(&mut self, _clock: u64, _event: u32, _payload: &[u64]) {
        self.block.markers += 1;
    }

    fn missing(&mut self, begin: u64, end: u64) {
        self.missing.push((begin, end));
    }
}

/// A piece from an earlier block is longer in the levels above.
#[cold]
fn reach_above(above: &mut [Node], depth: usize, open: Open, end: u64) {
    for node in above.iter_mut().filter(|_| depth < DEPTHS) {
        let ticks = ticks(open.begin, node.begin, end);
        node.cell(depth).reach(ticks, open.site);
    }
}
