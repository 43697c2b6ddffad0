//! Cells, which sum up the calls at one depth within a time, and the nodes of a level.

use std::ops::Range;

use nopal_abi::SITE_LIMIT;
use serde::{Deserialize, Serialize};

use crate::part::{Parts, Run};

/// The number of nodes that one node of the next level sums up.
pub const FAN_OUT: usize = 8;

/// Calls that are nested deeper are in no cell.
pub const DEPTHS: usize = 1024;

/// Nodes whose cells are decoded at once.
const RUN: usize = 512;

const SITE_BITS: u32 = SITE_LIMIT.ilog2();
const LONGEST: u64 = (1 << (64 - SITE_BITS)) - 1;

/// The pieces at one depth within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Ticks of the longest piece above its site, so that the greater word is the longer piece.
    longest: u64,
    /// Ticks that pieces cover. Pieces do not overlap.
    pub covered: u64,
    /// Calls that begin.
    pub calls: u64,
}

impl Cell {
    /// The longest piece within the time: ticks, of at most a million seconds, and site.
    pub fn longest(&self) -> (u64, u32) {
        let site = self.longest & (u64::from(SITE_LIMIT) - 1);
        (self.longest >> SITE_BITS, site as u32)
    }

    pub fn is_empty(&self) -> bool {
        self.calls == 0 && self.covered == 0
    }

    #[inline(always)]
    pub(crate) fn call(&mut self, calls: u64) {
        self.calls += calls;
    }

    #[inline(always)]
    pub(crate) fn cover(&mut self, ticks: u64, site: u32) {
        self.covered = self.covered.wrapping_add(ticks);
        self.reach(ticks, site);
    }

    /// A piece of this length is within the time.
    #[inline(always)]
    pub(crate) fn reach(&mut self, ticks: u64, site: u32) {
        let piece = ticks.min(LONGEST) << SITE_BITS | u64::from(site);
        self.longest = self.longest.max(piece);
    }

    /// Adds the pieces of another time, each as one of its own.
    pub(crate) fn add(&mut self, other: &Cell) {
        self.longest = self.longest.max(other.longest);
        self.covered = self.covered.saturating_add(other.covered);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

/// Blocks, or sums of [`FAN_OUT`] nodes of the level below.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Level {
    /// The time at which each node ends and the next one begins.
    pub(crate) ends: Vec<u64>,
    /// Markers in each node.
    pub(crate) markers: Vec<u64>,
    /// The place where the cells of each node end, and those of the next one begin.
    cell_ends: Vec<u32>,
    #[serde(skip)]
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Cells {
    Made(Vec<Cell>),
    /// By [`RUN`] nodes.
    Kept(Vec<Run>),
}

impl Default for Cells {
    fn default() -> Cells {
        Cells::Made(Vec::new())
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Level) -> bool {
        let numbers = |level: &Level| (level.ends.clone(), level.markers.clone());
        numbers(self) == numbers(other)
            && (0..self.len()).all(|node| self.cells(node) == other.cells(node))
    }
}

impl Eq for Level {}

impl Level {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The cells of a node, the outermost calls first. Deeper ones are empty.
    pub fn cells(&self, node: usize) -> &[Cell] {
        let range = self.cells_before(node)..self.cells_before(node + 1);
        let cells = match &self.cells {
            Cells::Made(cells) => cells.get(range),
            Cells::Kept(_) => {
                let run = node / RUN;
                let first = self.cells_before(run * RUN);
                self.run(run).get(range.start - first..range.end - first)
            }
        };
        cells.unwrap_or_default()
    }

    /// The number of cells of a node, which need not be decoded for that.
    pub(crate) fn depths(&self, node: usize) -> usize {
        self.cells_before(node + 1) - self.cells_before(node)
    }

    /// The number of cells before those of a node.
    fn cells_before(&self, node: usize) -> usize {
        let end = |node: usize| self.cell_ends.get(node).map_or(0, |end| *end as usize);
        node.checked_sub(1).map_or(0, end)
    }

    /// The numbers of the cells of a run of nodes.
    fn cells_of(&self, run: usize) -> Range<usize> {
        let nodes = self.len().min(run * RUN)..self.len().min((run + 1) * RUN);
        self.cells_before(nodes.start)..self.cells_before(nodes.end)
    }

    /// The cells of a run of nodes.
    fn run(&self, run: usize) -> &[Cell] {
        let cells = self.cells_of(run);
        match &self.cells {
            Cells::Made(all) => all.get(cells).unwrap_or_default(),
            Cells::Kept(runs) => runs.get(run).map_or(&[], |run| run.cells(cells.len())),
        }
    }

    fn runs(&self) -> Range<usize> {
        0..self.len().div_ceil(RUN)
    }

    /// Adds a node to a level that was not read from a file.
    pub(crate) fn push(&mut self, end: u64, markers: u64, cells: &[Cell]) {
        let Cells::Made(all) = &mut self.cells else {
            return;
        };
        all.extend_from_slice(cells);
        self.ends.push(end);
        self.markers.push(markers);
        // 96 GiB of cells are beyond any trace.
        self.cell_ends
            .push(u32::try_from(all.len()).unwrap_or(u32::MAX));
    }

    /// Passes on what the file has of it beside its fields.
    pub(crate) fn write_parts(&self, mut part: impl FnMut(&[u8])) -> postcard::Result<()> {
        for run in self.runs() {
            part(&postcard::to_stdvec(self.run(run))?);
        }
        Ok(())
    }

    /// Takes the parts that were written, to read them later.
    pub(crate) fn take_parts(&mut self, parts: &mut Parts) -> Option<()> {
        let runs = self.runs().map(|_| parts.take().map(Run::new));
        self.cells = Cells::Kept(runs.collect::<Option<_>>()?);
        Some(())
    }

    /// Whether all of its cells can be read. Those that had not been decoded before are not kept.
    pub(crate) fn is_readable(&self) -> bool {
        let Cells::Kept(runs) = &self.cells else {
            return true;
        };
        self.runs().all(|run| {
            let count = self.cells_of(run).len();
            runs.get(run).is_some_and(|run| run.is_readable(count))
        })
    }

    /// Whether the parts fit together, for a level that was read from a file.
    pub(crate) fn is_sound(&self, from: u64) -> bool {
        let nodes = self.ends.len();
        let rises = |ends: &[u64]| ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let cells = std::iter::once(&0).chain(&self.cell_ends);
        let depths = cells.zip(&self.cell_ends).all(|(begin, end)| {
            end.checked_sub(*begin)
                .is_some_and(|depths| depths as usize <= DEPTHS)
        });
        self.markers.len() == nodes
            && self.cell_ends.len() == nodes
            && rises(&self.ends)
            && self.ends.first().is_none_or(|first| from <= *first)
            && depths
    }

    /// The time of a node; `from` is where the thread begins.
    pub fn time(&self, node: usize, from: u64) -> Range<u64> {
        let begin = node.checked_sub(1).map_or(from, |before| self.ends[before]);
        begin..self.ends[node]
    }
}
