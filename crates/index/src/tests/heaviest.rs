//! The nodes with most time are those of the whole tree.

use std::collections::HashMap;
use std::sync::Arc;

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::graph::{self, Heaviest, Limits, ROOT, Tree};
use nopal_analysis::names::Names;
use nopal_analysis::span;
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Random, Shape};

use super::made::{made, seeds};
use crate::Index;

/// Calls, total and own ticks by the functions that lead to a node.
type ByPath = HashMap<Vec<u32>, (u64, u64, u64)>;

fn by_path(nodes: impl Iterator<Item = (u32, u32, (u64, u64, u64))>) -> ByPath {
    let mut paths: Vec<Vec<u32>> = Vec::new();
    let mut found = ByPath::new();
    for (number, (function, parent, sums)) in nodes.enumerate() {
        let path = match number {
            0 => Vec::new(),
            _ => [&paths[parent as usize][..], &[function]].concat(),
        };
        if number > 0 {
            assert_eq!(
                found.insert(path.clone(), sums),
                None,
                "{path:?} is there twice"
            );
        }
        paths.push(path);
    }
    found
}

/// What is below a path, and not below another one that is there.
fn made_in(nodes: &ByPath, path: &[u32]) -> u64 {
    let is_below = |other: &[u32]| {
        other
            .split_last()
            .is_some_and(|(_, callers)| callers == path)
    };
    let below = nodes.iter().filter(|(other, _)| is_below(other));
    below.map(|(_, (_, total, _))| total).sum()
}

fn check(tree: &Tree, found: &Heaviest, most: usize, asked: &str) {
    let nodes = tree.nodes().iter();
    let all = by_path(nodes.map(|node| {
        let sums = (node.calls, node.total, node.own);
        (node.function, node.parent, sums)
    }));
    let nodes = found.nodes.iter();
    let shown = by_path(nodes.map(|node| {
        let sums = (node.calls, node.total, node.own);
        (node.function, node.parent, sums)
    }));
    assert_eq!(shown.len(), all.len().min(most), "{asked}");
    for (path, sums) in &shown {
        assert_eq!(Some(sums), all.get(path), "{asked}: {path:?}");
    }
    let least = shown
        .values()
        .map(|(_, total, _)| *total)
        .min()
        .unwrap_or(0);
    let missed = all
        .iter()
        .find(|(path, (_, total, _))| *total > least && !shown.contains_key(*path));
    assert_eq!(missed, None, "{asked}, at least {least}");
    let calls = |nodes: &ByPath| nodes.values().map(|(calls, _, _)| calls).sum::<u64>();
    assert_eq!(found.left_out, calls(&all) - calls(&shown), "{asked}");
    let mut paths = vec![Vec::new()];
    for node in &found.nodes {
        let path = match paths.len() {
            1 if node == &found.nodes[0] => Vec::new(),
            _ => [&paths[node.parent as usize + 1][..], &[node.function]].concat(),
        };
        let left_out = made_in(&all, &path) - made_in(&shown, &path);
        assert_eq!(node.left_out, left_out, "{asked}: {path:?}");
        paths.push(path);
    }
    assert_eq!(
        found.nodes[ROOT as usize].total,
        made_in(&all, &[]),
        "{asked}"
    );
}

fn compare(trace: &Trace, seed: u64, random: &mut Random, workers: usize, mosts: &[usize]) {
    let names = Names::new(trace);
    let checkpoints = Arc::new(Index::make(trace, 1, None).checkpoints());
    let (begin, end) = (span::begin(trace), span::end(trace));
    for number in 0..4 {
        let mut time = [0; 2].map(|_| begin + random.below(end - begin + 1));
        time.sort_unstable();
        let mut filter = Filter::default();
        (filter.from, filter.until) = match number {
            0 => (None, None),
            1 => (Some(time[0]), None),
            _ => (Some(time[0]), Some(time[1])),
        };
        filter.checkpoints = Some(Arc::clone(&checkpoints));
        let drive = Drive {
            workers,
            filter: Some(&filter),
            ..Drive::default()
        };
        let tree = graph::tree(trace, &names, &drive).unwrap();
        let list = Limits {
            nodes: 0,
            ..Limits::default()
        };
        let neither = Limits { nodes: 0, calls: 0 };
        for most in mosts {
            for limits in [Limits::default(), list, neither] {
                let asked = format!(
                    "seed {seed}, {:?} to {:?}, {most}, {limits:?}",
                    filter.from, filter.until
                );
                let found = graph::heaviest(trace, &names, &drive, *most, limits).unwrap();
                check(&tree, &found, *most, &asked);
            }
        }
    }
}

#[test]
fn the_heaviest_nodes_are_those_of_the_tree() {
    for seed in seeds(9, &[]) {
        let mut random = Random::new(seed);
        let (_directory, trace) = made(seed, seed % 3 != 0);
        compare(&trace, seed, &mut random, 1, &[3, 1000]);
    }
}

/// So they are where nearly every call has a path of its own.
#[test]
fn the_heaviest_nodes_are_those_of_a_tree_of_many_paths() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("trace");
    let shape = Shape {
        threads: 3,
        calls_per_thread: 4000,
        functions: 50,
        ..Shape::default()
    };
    synthetic::write(&directory, &shape).unwrap();
    let trace = Trace::open(&directory).unwrap();
    compare(&trace, 1, &mut Random::new(1), 2, &[10, 300]);
}
