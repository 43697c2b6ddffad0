//! Pictures of a thread: a cell for each of its depths in each column of time.

use std::ops::Range;

use nopal_trace::{Packet, ThreadInfo};

use crate::cell::Cell;
use crate::chart::{Chart, Open, Pieces};
use crate::thread_index::ThreadIndex;

/// A column of time at one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GridCell {
    /// Ticks that calls cover.
    pub covered: f64,
    /// Calls that begin.
    pub calls: f64,
    /// The site that takes most of this, and its least ticks: for a node of the index, only the longest piece is known.
    pub most: f64,
    pub site: u32,
}

/// The pictures of a thread.
pub struct Grid {
    /// Counter where each column begins, and where the last one ends.
    pub bounds: Vec<u64>,
    pub depths: Range<usize>,
    /// All depths of the first column, then those of the second, and so on.
    pub cells: Vec<GridCell>,
    pub markers: Vec<f64>,
    /// Words of records that were read.
    pub read: u64,
    /// Whether all nodes wider than a column were read. If not, its calls are spread evenly over its time.
    pub is_exact: bool,
    scale: f64,
    /// The column that was looked for last.
    last: usize,
}

impl Grid {
    fn new(bounds: Vec<u64>, depths: Range<usize>) -> Grid {
        let columns = bounds.len().saturating_sub(1);
        let ticks = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => last.saturating_sub(*first).max(1),
            _ => 1,
        };
        Grid {
            cells: vec![GridCell::default(); columns * depths.len()],
            markers: vec![0.0; columns],
            depths,
            read: 0,
            is_exact: true,
            scale: columns as f64 / ticks as f64,
            last: 0,
            bounds,
        }
    }

    pub fn columns(&self) -> usize {
        self.markers.len()
    }

    pub fn column(&self, column: usize) -> &[GridCell] {
        let depths = self.depths.len();
        &self.cells[column * depths..(column + 1) * depths]
    }

    fn begin(&self) -> u64 {
        self.bounds.first().copied().unwrap_or(0)
    }

    fn end(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// The column in which a moment is.
    fn column_at(&mut self, clock: u64) -> Option<usize> {
        let (mut column, bounds) = (self.last, &self.bounds[..]);
        let is_in = |column: usize| bounds[column] <= clock && clock < bounds[column + 1];
        if column + 1 < bounds.len() && is_in(column) {
            return Some(column);
        }
        if clock < self.begin() || clock >= self.end() {
            return None;
        }
        let about = ((clock - self.begin()) as f64 * self.scale) as usize;
        column = about.min(self.columns() - 1);
        while self.bounds[column] > clock {
            column -= 1;
        }
        while self.bounds[column + 1] <= clock {
            column += 1;
        }
        self.last = column;
        Some(column)
    }

    fn cell(&mut self, column: usize, depth: usize) -> Option<&mut GridCell> {
        let at = depth.checked_sub(self.depths.start)?;
        let depths = self.depths.len();
        (at < depths).then(|| &mut self.cells[column * depths + at])
    }

    /// Spreads a node of the index over its time.
    fn spread(&mut self, index: &ThreadIndex, level: usize, node: usize) {
        let nodes = &index.levels[level];
        let time = nodes.time(node, index.from);
        let cells = nodes.cells(node);
        let wanted = self.depths.start.min(cells.len())..self.depths.end.min(cells.len());
        let (cells, markers) = (&cells[wanted], nodes.markers[node]);
        let Some(mut column) = self.column_at(time.start.max(self.begin())) else {
            return;
        };
        let ticks = time.end - time.start;
        if ticks == 0 {
            if time.start >= self.begin() {
                self.add(column, cells, markers, 1.0);
            }
            return;
        }
        while column < self.columns() && self.bounds[column] < time.end {
            let part = self.bounds[column].max(time.start)..self.bounds[column + 1].min(time.end);
            let part = part.end.saturating_sub(part.start);
            self.add(column, cells, markers, part as f64 / ticks as f64);
            column += 1;
        }
    }

    /// Adds a share of a node to a column.
    fn add(&mut self, column: usize, cells: &[Cell], markers: u64, share: f64) {
        self.markers[column] += markers as f64 * share;
        let depths = self.depths.len();
        let column = &mut self.cells[column * depths..(column + 1) * depths];
        for (cell, sum) in column.iter_mut().zip(cells) {
            let (longest, site) = sum.longest();
            cell.covered += number(sum.covered) * share;
            cell.calls += number(sum.calls) * share;
            cell.reach(number(longest) * share, site);
        }
    }
}

/// As a number with a sign it takes one instruction.
fn number(value: u64) -> f64 {
    value.min(i64::MAX as u64) as i64 as f64
}

impl GridCell {
    /// Without a branch, since none could be predicted.
    #[inline(always)]
    fn reach(&mut self, ticks: f64, site: u32) {
        let is_same = site == self.site;
        let is_more = ticks > self.most || self.site == 0;
        let sum = self.most * f64::from(u8::from(is_same)) + ticks;
        let is_new = is_same | is_more;
        self.most = if is_new { sum } else { self.most };
        self.site = if is_new { site } else { self.site };
    }
}

/// Draws the pieces of blocks.
struct Drawing<'a> {
    grid: &'a mut Grid,
    /// Whether the blocks have begun; those before are only read.
    is_on: bool,
    begin: u64,
}

impl Pieces for Drawing<'_> {
    fn call(&mut self, depth: usize, site: u32, clock: u64) {
        if self.is_on
            && let Some(column) = self.grid.column_at(clock)
            && let Some(cell) = self.grid.cell(column, depth)
        {
            cell.calls += 1.0;
            cell.reach(0.0, site);
        }
    }

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        let begin = open.begin.max(self.begin).max(self.grid.begin());
        let end = end.min(self.grid.end());
        if !self.is_on || begin >= end || !self.grid.depths.contains(&depth) {
            return;
        }
        let Some(mut column) = self.grid.column_at(begin) else {
            return;
        };
        let mut from = begin;
        while from < end {
            let until = self.grid.bounds[column + 1].min(end);
            if let Some(cell) = self.grid.cell(column, depth) {
                cell.covered += (until - from) as f64;
                cell.reach((until - from) as f64, open.site);
            }
            (from, column) = (until, column + 1);
        }
    }

    fn marker(&mut self, clock: u64, _event: u32, _payload: &[u64]) {
        if self.is_on
            && let Some(column) = self.grid.column_at(clock)
        {
            self.grid.markers[column] += 1.0;
        }
    }
}

impl ThreadIndex {
    /// The picture of some depths. `bounds` are the begins of the columns, in order, and the end of the last one.
    /// Blocks that are wider than a column are read, the widest first, as long as that takes no more than `budget`
    /// words of records.
    pub fn grid(
        &self,
        thread: &ThreadInfo,
        bounds: Vec<u64>,
        depths: Range<usize>,
        budget: u64,
    ) -> Grid {
        let mut grid = Grid::new(bounds, depths);
        if grid.columns() == 0 || self.blocks() == 0 {
            return grid;
        }
        let mut wide = Vec::new();
        // The nodes that have none above them: from the top level on, those behind the summed-up ones.
        let mut summed = 0;
        for level in (0..self.levels.len()).rev() {
            let first = summed * crate::FAN_OUT;
            for node in first..self.levels[level].len() {
                self.descend(&mut grid, level, node, &mut wide);
            }
            summed = self.levels[level].len();
        }
        self.read_blocks(&mut grid, thread, wide, budget);
        grid
    }

    fn descend(&self, grid: &mut Grid, level: usize, node: usize, wide: &mut Vec<usize>) {
        let nodes = &self.levels[level];
        let time = nodes.time(node, self.from);
        if time.end < grid.begin() || time.start >= grid.end() {
            return;
        }
        let width = (time.end - time.start) as f64 * grid.scale;
        let is_even = || {
            let ticks = time.end - time.start;
            let even = |covered| covered == 0 || covered == ticks;
            let mut cells = nodes.cells(node).iter();
            nodes.markers[node] == 0 && cells.all(|cell| cell.calls == 0 && even(cell.covered))
        };
        if width <= 1.0 || is_even() {
            grid.spread(self, level, node);
        } else if level == 0 {
            wide.push(node);
        } else {
            for below in node * crate::FAN_OUT..(node + 1) * crate::FAN_OUT {
                self.descend(grid, level - 1, below, wide);
            }
        }
    }

    /// Draws blocks from their records, or from their sums if that would be too much.
    fn read_blocks(&self, grid: &mut Grid, thread: &ThreadInfo, mut wide: Vec<usize>, budget: u64) {
        let blocks = &self.levels[0];
        let words = self.words / self.blocks() as u64 + 1;
        wide.sort_by_key(|block| {
            let time = blocks.time(*block, self.from);
            std::cmp::Reverse(time.end - time.start)
        });
        // An estimate, since blocks differ: the records from a checkpoint up to the block are read as well.
        let mut cost = 0;
        let cost_of = |block: usize| (block + 1 - self.checkpoint_before(block)) as u64 * words;
        let affordable = wide
            .iter()
            .take_while(|block| {
                cost += cost_of(**block);
                cost <= budget
            })
            .count();
        let rest = wide.split_off(affordable);
        grid.is_exact = rest.is_empty();
        for block in rest {
            grid.spread(self, 0, block);
        }
        wide.sort_unstable();
        for run in wide.chunk_by(|one, next| one + 1 == *next) {
            self.draw(grid, thread, run[0]..run[run.len() - 1] + 1);
        }
    }

    /// Draws successive blocks.
    fn draw(&self, grid: &mut Grid, thread: &ThreadInfo, blocks: Range<usize>) {
        let begin = self.levels[0].time(blocks.start, self.from).start;
        let drawing = Drawing {
            grid,
            is_on: false,
            begin,
        };
        let mut read = 0;
        let first = self.packets_of(blocks.start).start;
        let mut chart = self.read(thread, blocks, drawing, |number, packet, drawing| {
            drawing.is_on = number >= first;
            read += packet.words().len() as u64;
            true
        });
        chart.finish();
        grid.read += read;
    }

    /// Reads blocks, and those before them from a checkpoint on. `before` is called before each packet with its number;
    /// the reading ends when it returns false.
    pub(crate) fn read<P: Pieces>(
        &self,
        thread: &ThreadInfo,
        blocks: Range<usize>,
        pieces: P,
        mut before: impl FnMut(usize, &Packet, &mut P) -> bool,
    ) -> Chart<P> {
        let (first, (mut rebuilder, past)) = self.before(blocks.start);
        let from = self.levels[0].time(first, self.from).start;
        let mut chart = Chart::new(rebuilder.frames(), from, pieces);
        chart.past = past;
        let packets = self.packets_of(first).start..self.packets_of(blocks.end - 1).end;
        let is_whole = packets.end == thread.packets().len();
        for (number, packet) in packets.clone().zip(thread.packets_in(packets)) {
            if !before(number, &packet, &mut chart.pieces) {
                return chart;
            }
            rebuilder.packet(&packet, &mut chart);
        }
        if is_whole {
            chart.reach(&rebuilder, thread);
        }
        chart
    }
}
