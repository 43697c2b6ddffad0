//! Which functions of two sides are the same.

use std::collections::{BTreeMap, HashMap};

use super::Side;
use super::run::{Counted, Key, Run};

/// A function on both sides, or on one.
pub type Pair<'a> = [Option<Side<'a>>; 2];

/// Pairs functions with the same module and name. Of the rest, it pairs those whose names are the same without the
/// suffixes of the compiler's copies; then those whose modules differ. In the last two steps, a function is paired only
/// if it is the only such one of its side.
pub fn pairs<'a>(before: &'a [Run], after: &'a [Run]) -> Vec<Pair<'a>> {
    let [mut left, mut right] = [before, after].map(by_identity);
    let mut pairs = Vec::new();
    let both = left.keys().filter(|key| right.contains_key(key));
    let mut alike: Vec<(Key, Key)> = both.map(|key| (key.clone(), key.clone())).collect();
    for with_module in [true, false] {
        pairs.extend(alike.iter().map(|(a, b)| [left.remove(a), right.remove(b)]));
        let by = |key: &Key| {
            let module = with_module.then(|| key.module.clone());
            Some((key.original()?.to_owned(), module))
        };
        let others = only_ones(right.keys(), by);
        let ones = only_ones(left.keys(), by).into_iter();
        alike = ones
            .filter_map(|(by, key)| Some((key, others.get(&by)?.clone())))
            .collect();
    }
    pairs.extend(alike.iter().map(|(a, b)| [left.remove(a), right.remove(b)]));
    pairs.extend(left.into_values().map(|side| [Some(side), None]));
    pairs.extend(right.into_values().map(|side| [None, Some(side)]));
    pairs
}

/// The functions whose value of `by` no other function has, by that value.
fn only_ones<'a, By: Ord>(
    all: impl Iterator<Item = &'a Key>,
    by: impl Fn(&Key) -> Option<By>,
) -> BTreeMap<By, Key> {
    let mut ones: BTreeMap<By, Option<Key>> = BTreeMap::new();
    for key in all {
        if let Some(by) = by(key) {
            let entry = ones.entry(by);
            entry
                .and_modify(|one| *one = None)
                .or_insert(Some(key.clone()));
        }
    }
    let ones = ones.into_iter();
    ones.filter_map(|(by, one)| Some((by, one?))).collect()
}

/// Each function in all runs of a side. Functions of one name in one module are one.
fn by_identity(runs: &[Run]) -> HashMap<Key, Side<'_>> {
    let mut sides: HashMap<Key, Side> = HashMap::new();
    for (place, run) in runs.iter().enumerate() {
        for counted in &run.functions {
            let side = sides
                .entry(counted.known.key.clone())
                .or_insert_with(|| Side {
                    known: &counted.known,
                    runs: runs.iter().map(|run| (run.times as f64, None)).collect(),
                });
            match &mut side.runs[place].1 {
                Some(sum) => sum.add(counted),
                none => *none = Some(counted.clone()),
            }
        }
    }
    sides
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        self.calls += other.calls;
        self.unfinished += other.unfinished;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.self_ns = self.self_ns.saturating_add(other.self_ns);
        self.total_is_least |= other.total_is_least;
        self.self_is_least |= other.self_is_least;
        self.lacks_calls |= other.lacks_calls;
        self.durations.extend(&other.durations);
    }
}
