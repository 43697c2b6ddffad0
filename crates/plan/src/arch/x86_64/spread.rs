use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::Reason;

/// Properties of the first end of an edge also apply to the second.
pub(crate) fn spread(found: &mut HashMap<u64, Reason>, edges: &mut [(u64, u64)]) {
    if found.is_empty() {
        return;
    }
    edges.sort_unstable();
    let mut new: Vec<(u64, Reason)> = found
        .iter()
        .map(|(&function, &reason)| (function, reason))
        .collect();
    while let Some((function, reason)) = new.pop() {
        let first = edges.partition_point(|edge| edge.0 < function);
        for &(_, next) in edges[first..].iter().take_while(|edge| edge.0 == function) {
            if let Entry::Vacant(vacant) = found.entry(next) {
                vacant.insert(reason);
                new.push((next, reason));
            }
        }
    }
}
