//! Indexes of random small traces, compared with plain scans of their records.

mod coroutines;
mod heaviest;
mod made;
mod ranges;
mod stored;

use std::ops::Range;

use nopal_abi::{Event, Style};
use nopal_analysis::calls::CallRebuilder;
use nopal_trace::synthetic::Random;
use nopal_trace::{ThreadInfo, Trace};

use crate::chart::{Chart, Open, Pieces};
use crate::find::{CallId, End};
use crate::{Index, ThreadIndex};
use made::{made, seeds};

/// Events of a block, so that small traces have some levels.
const BLOCK: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    depth: usize,
    site: u32,
    begin: u64,
    end: u64,
}

impl Piece {
    fn within(&self, time: &Range<u64>) -> u64 {
        let end = self.end.min(time.end);
        end.saturating_sub(self.begin.max(time.start))
    }
}

/// All pieces of a thread, and its calls: packet, depth, clock and site.
#[derive(Default)]
struct Scan {
    pieces: Vec<Piece>,
    calls: Vec<(usize, usize, u64, u32)>,
    packet: usize,
}

impl Pieces for Scan {
    fn call(&mut self, depth: usize, site: u32, clock: u64) {
        self.calls.push((self.packet, depth, clock, site));
    }

    fn piece(&mut self, depth: usize, open: Open, end: u64) {
        if open.begin < end {
            self.pieces.push(Piece {
                depth,
                site: open.site,
                begin: open.begin,
                end,
            });
        }
    }
}

/// The chart of the whole thread, made without any block.
fn charted(thread: &ThreadInfo) -> Scan {
    let mut rebuilder = CallRebuilder::new();
    let mut chart = Chart::new(&[], 0, Scan::default());
    for (number, packet) in thread.packets().enumerate() {
        chart.pieces.packet = number;
        rebuilder.packet(&packet, &mut chart);
    }
    chart.finish();
    chart.pieces
}

/// The same of a thread without jumps, by a stack of our own.
fn walked(thread: &ThreadInfo) -> Scan {
    let mut scan = Scan::default();
    let mut stack: Vec<(u32, u64, Style)> = Vec::new();
    let mut now = 0;
    let end = |scan: &mut Scan, stack: &mut Vec<(u32, u64, Style)>, end: u64| {
        let (site, begin, style) = stack.pop().unwrap();
        let depth = stack.len();
        if begin < end && style != Style::Only {
            scan.pieces.push(Piece {
                depth,
                site,
                begin,
                end,
            });
        }
    };
    for (number, packet) in thread.packets().enumerate() {
        if packet.is_behind_loss() {
            while !stack.is_empty() {
                end(&mut scan, &mut stack, now);
            }
        }
        for record in packet.records() {
            let clock = record.clock;
            match record.event {
                Event::Entry { site, style, .. } => {
                    if stack.last().is_some_and(|top| top.2 == Style::Only) {
                        stack.pop();
                    }
                    scan.calls.push((number, stack.len(), clock, site));
                    stack.push((site, clock, style));
                    now = clock;
                }
                Event::Exit { .. } => {
                    while stack
                        .pop_if(|top| top.2 != Style::Wrapped)
                        .map(|top| {
                            stack.push(top);
                            end(&mut scan, &mut stack, clock);
                        })
                        .is_some()
                    {}
                    end(&mut scan, &mut stack, clock);
                    now = clock;
                }
                _ => {}
            }
        }
    }
    while !stack.is_empty() {
        end(&mut scan, &mut stack, now);
    }
    scan
}

fn sorted(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| (piece.depth, piece.begin, piece.end, piece.site));
    pieces
}

fn index_of(trace: &Trace) -> Index {
    let mut index = Index::of_blocks(BLOCK);
    index.extend(trace, 1, None);
    index
}

/// Compares each cell of each level.
fn check_levels(index: &ThreadIndex, scan: &Scan, seed: u64) {
    for (number, level) in index.levels.iter().enumerate() {
        let fan_out = crate::FAN_OUT.pow(number as u32);
        for node in 0..level.len() {
            let time = level.time(node, index.from);
            let first = index.packets_of(node * fan_out).start;
            let last = index
                .packets_of(((node + 1) * fan_out - 1).min(index.blocks() - 1))
                .end;
            let deepest = scan.calls.iter().map(|call| call.1 + 1).max().unwrap_or(0);
            for depth in 0..deepest {
                let cell = level.cells(node).get(depth).copied().unwrap_or_default();
                let of = format!("seed {seed}, level {number}, node {node}, depth {depth}");
                let calls = scan.calls.iter().filter(|call| call.1 == depth);
                let calls = calls.filter(|call| (first..last).contains(&call.0)).count();
                assert_eq!(cell.calls, calls as u64, "{of}");
                let pieces = scan.pieces.iter().filter(|piece| piece.depth == depth);
                let lengths: Vec<_> = pieces
                    .map(|piece| (piece.within(&time), piece.site))
                    .collect();
                assert_eq!(
                    cell.covered,
                    lengths.iter().map(|one| one.0).sum::<u64>(),
                    "{of}"
                );
                let longest = lengths.iter().map(|one| one.0).max().unwrap_or(0);
                assert_eq!(cell.longest().0, longest, "{of}");
                assert!(longest == 0 || lengths.contains(&cell.longest()), "{of}");
            }
        }
    }
}

#[test]
fn each_cell_is_what_a_plain_scan_finds() {
    for seed in seeds(6, &[]) {
        let (_directory, trace) = made(seed, false);
        let index = index_of(&trace);
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            let scan = walked(thread);
            assert!(
                index.levels.len() > 2,
                "seed {seed}: {}",
                index.levels.len()
            );
            check_levels(index, &scan, seed);
            let charted = charted(thread);
            assert_eq!(sorted(charted.pieces), sorted(scan.pieces), "seed {seed}");
        }
    }
}

#[test]
fn each_cell_is_right_with_jumps_other_stacks_and_exits_without_entries() {
    for seed in seeds(6, &[]) {
        let (_directory, trace) = made(seed, true);
        let index = index_of(&trace);
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            check_levels(index, &charted(thread), seed);
        }
    }
}

#[test]
fn an_index_that_grew_is_right() {
    for seed in seeds(3, &[]) {
        let (_directory, trace) = made(seed, true);
        let mut index = Index::of_blocks(BLOCK);
        // As if the trace had grown by a thread, and then by a few packets at a time.
        for part in 1..20 {
            for (at, thread) in trace.threads().iter().enumerate() {
                let end = thread.packets().len() * part / 19;
                index.extend_thread(at, thread, end);
            }
        }
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            check_levels(index, &charted(thread), seed);
        }
        // Nothing has grown.
        let before = index.threads.clone();
        index.extend(&trace, 2, None);
        assert_eq!(before, index.threads, "seed {seed}");
    }
}

fn columns(from: u64, until: u64, number: u64) -> Vec<u64> {
    let bound = |column| from + ((until - from) as u128 * column as u128 / number as u128) as u64;
    (0..=number).map(bound).collect()
}

#[test]
fn a_picture_of_records_is_what_a_plain_scan_finds() {
    for seed in seeds(4, &[]) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made(seed, true);
        let index = index_of(&trace);
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            let scan = charted(thread);
            for _ in 0..20 {
                let from = index.from + random.below(index.until() - index.from);
                // Narrower than any block that is not without length.
                let bounds = columns(from, from + 1 + random.below(60), 30);
                let grid = index.grid(thread, bounds.clone(), 0..20, u64::MAX);
                assert!(grid.is_exact);
                for (column, time) in bounds.windows(2).enumerate() {
                    let time = time[0]..time[1];
                    for (depth, cell) in grid.column(column).to_vec().into_iter().enumerate() {
                        let of = format!("seed {seed}, {time:?}, depth {depth}");
                        let pieces = scan.pieces.iter().filter(|piece| piece.depth == depth);
                        let covered: u64 = pieces.map(|piece| piece.within(&time)).sum();
                        assert_eq!(cell.covered, covered as f64, "{of}");
                        let begins = |call: &&(usize, usize, u64, u32)| {
                            call.1 == depth && time.contains(&call.2)
                        };
                        let calls = scan.calls.iter().filter(begins).count();
                        assert_eq!(cell.calls, calls as f64, "{of}");
                    }
                }
            }
        }
    }
}

/// Calls narrower than a column are neither dropped nor invented, and are off by less than its width.
#[test]
fn a_picture_of_sums_is_off_by_less_than_a_column() {
    for seed in seeds(4, &[]) {
        let (_directory, trace) = made(seed, true);
        let index = index_of(&trace);
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            let scan = charted(thread);
            for number in [1, 3, 10, 40, 200] {
                let bounds = columns(index.from, index.until() + 1, number);
                let width = (0..number as usize)
                    .map(|at| bounds[at + 1] - bounds[at])
                    .max()
                    .unwrap();
                let grid = index.grid(thread, bounds.clone(), 0..20, u64::MAX);
                for depth in 0..20 {
                    let of = format!("seed {seed}, {number} columns, depth {depth}");
                    let (mut covered, mut calls) = (0.0, 0.0);
                    for column in 0..number as usize {
                        let cell = grid.column(column)[depth];
                        covered += cell.covered;
                        calls += cell.calls;
                        let until = bounds[column + 1];
                        let pieces = scan.pieces.iter().filter(|piece| piece.depth == depth);
                        let truth: u64 = pieces.map(|piece| piece.within(&(0..until))).sum();
                        let off = (covered - truth as f64).abs();
                        assert!(off <= width as f64 + 0.001, "{of}: {covered} for {truth}");
                        let until = |end: u64| {
                            let before =
                                |call: &&(usize, usize, u64, u32)| call.1 == depth && call.2 < end;
                            scan.calls.iter().filter(before).count() as f64
                        };
                        let least = until(bounds[column + 1].saturating_sub(width));
                        let most = until(bounds[column + 1] + width);
                        assert!(
                            least - 0.001 <= calls && calls <= most + 0.001,
                            "{of}: {calls}"
                        );
                    }
                    let all = scan.calls.iter().filter(|call| call.1 == depth).count();
                    assert!((calls - all as f64).abs() < 0.001, "{of}: {calls} of {all}");
                }
            }
        }
    }
}

#[test]
fn with_little_time_a_picture_still_has_all_calls() {
    let (_directory, trace) = made(7, false);
    let index = index_of(&trace);
    let (thread, index) = (&trace.threads()[0], &index.threads[0]);
    let bounds = columns(index.from, index.until() + 1, 3000);
    let grid = index.grid(thread, bounds, 0..50, 100);
    assert!(!grid.is_exact && grid.read <= 1000);
    let calls: f64 = grid.cells.iter().map(|cell| cell.calls).sum();
    assert!(
        (calls - index.calls as f64).abs() < 0.01,
        "{calls} of {}",
        index.calls
    );
}

#[test]
fn calls_are_found_again() {
    for seed in seeds(5, &[]) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made(seed, false);
        let index = index_of(&trace);
        for (thread, index) in trace.threads().iter().zip(&index.threads) {
            let scan = walked(thread);
            for _ in 0..30 {
                let clock = index.from + random.below(index.until() - index.from);
                let moment = clock..clock + 1 + random.below(4);
                for depth in 0..30 {
                    let last = moment.end - 1;
                    let is_open = |piece: &&Piece| {
                        piece.depth == depth && piece.begin <= last && last < piece.end
                    };
                    let open = scan.pieces.iter().find(is_open);
                    let open = open.map(|piece| (piece.site, piece.begin));
                    let mut calls = scan.calls.iter();
                    let begun = calls.rfind(|call| call.1 == depth && moment.contains(&call.2));
                    let here = open.or(begun.map(|call| (call.3, call.2)));
                    let here = here.map(|(site, begin)| CallId { site, begin });
                    let of = format!("seed {seed}, {moment:?}, depth {depth}");
                    if last < index.until() {
                        assert_eq!(index.call_at(thread, moment.clone(), depth), here, "{of}");
                    }
                    let Some(id) = here else { continue };
                    let call = index.call(thread, id).unwrap();
                    let end = match call.end {
                        End::Left { clock, .. } | End::Lost(clock) => clock,
                        End::Only => id.begin,
                    };
                    // Calls of a recursion may begin at the same clock.
                    let is_it = |piece: &Piece| {
                        (piece.begin, piece.site, piece.end) == (id.begin, id.site, end)
                    };
                    assert!(
                        end == id.begin || scan.pieces.iter().any(is_it),
                        "{of}: {call:?}"
                    );
                    for (depth, caller) in call.callers.iter().enumerate() {
                        let is_it = |call: &(usize, usize, u64, u32)| {
                            (call.1, call.2, call.3) == (depth, caller.begin, caller.site)
                        };
                        assert!(scan.calls.iter().any(is_it), "{of}: {call:?}");
                    }
                }
                let site = 1 + random.below(5) as u32;
                let is_wanted = |other| other == site;
                let next = index.next_call(thread, clock, is_wanted).map(|id| id.begin);
                let begins = || {
                    scan.calls
                        .iter()
                        .filter(|call| call.3 == site)
                        .map(|call| call.2)
                };
                assert_eq!(next, begins().find(|begin| *begin >= clock), "seed {seed}");
                let previous = index
                    .previous_call(thread, clock, is_wanted)
                    .map(|id| id.begin);
                assert_eq!(
                    previous,
                    begins().rfind(|begin| *begin < clock),
                    "seed {seed}"
                );
                let counted: u64 = index.calls_by_block(thread, is_wanted).iter().sum();
                assert_eq!(counted, begins().count() as u64, "seed {seed}");
            }
        }
    }
}
