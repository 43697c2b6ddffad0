//! Sorts for lists whose time does not matter. The library's sort is compiled for each type and order, some KB each;
//! this one is compiled once.

use std::cmp::Ordering;

/// As the slice's `sort_by_key`.
pub fn by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    by(items, |a, b| key(a).cmp(&key(b)));
}

/// As the slice's `sort_by`.
pub fn by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if items.len() < 2 {
        return;
    }
    let mut sources = sources(items.len(), &|a, b| compare(&items[a], &items[b]));
    for start in 0..items.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut sources[at], at);
            if from == start {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

/// For each place, where its item is now.
#[inline(never)]
fn sources(number: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut sources: Vec<usize> = (0..number).collect();
    sources.sort_by(|a, b| compare(*a, *b));
    sources
}

#[cfg(test)]
mod tests {
    #[test]
    fn items_are_in_the_order_of_the_librarys_sort() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for number in (0..70).chain([1000]) {
            for different in [1, 3, 1_000_000] {
                let item = |at| (random.u32(..different), at);
                let mut items: Vec<(u32, usize)> = (0..number).map(item).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|item| item.0);
                super::by_key(&mut items, |item| item.0);
                assert_eq!(items, expected, "seed {seed}");
            }
        }
    }
}
