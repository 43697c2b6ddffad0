//! The file beside the trace.

use std::fs;
use std::sync::Arc;

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::Filter;
use nopal_analysis::{report, span};
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Random, Shape};

use super::made::{made, seeds};
use crate::find::CallId;
use crate::{Index, store};

#[test]
fn an_index_is_kept_beside_its_trace_and_read_again() {
    let (_directory, trace) = made(1, true);
    let first = Index::open(&trace, 2, None);
    let path = Index::path(&trace);
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    let second = Index::open(&trace, 2, None);
    assert_eq!(first.threads, second.threads);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    assert_eq!(first.threads, Index::make(&trace, 2, None).threads);
}

#[test]
fn an_index_of_another_trace_or_another_version_is_made_anew() {
    let (_first, trace) = made(1, true);
    let (_second, other) = made(2, true);
    Index::open(&trace, 2, None);
    Index::open(&other, 2, None);
    fs::copy(Index::path(&trace), Index::path(&other)).unwrap();
    assert!(
        store::Kept::read(other.directory())
            .and_then(|kept| kept.of(&other))
            .is_err()
    );
    let made = Index::make(&other, 2, None).threads;
    assert_eq!(Index::open(&other, 2, None).threads, made);
    assert!(
        store::Kept::read(other.directory())
            .and_then(|kept| kept.of(&other))
            .is_ok()
    );
    let mut bytes = fs::read(Index::path(&other)).unwrap();
    bytes[7] ^= 1;
    fs::write(Index::path(&other), bytes).unwrap();
    assert!(
        store::Kept::read(other.directory())
            .and_then(|kept| kept.of(&other))
            .is_err()
    );
    fs::write(Index::path(&other), b"").unwrap();
    assert!(
        store::Kept::read(other.directory())
            .and_then(|kept| kept.of(&other))
            .is_err()
    );
}

/// Levels that do not sum each other up would be read beyond their ends.
#[test]
fn levels_that_do_not_fit_together_are_refused() {
    let (_directory, trace) = made(1, true);
    let index = Index::open(&trace, 1, None);
    let good = &index.threads[0];
    let thread = &trace.threads()[0];
    assert!(good.is_sound(thread));
    let mut hostile = good.clone();
    hostile.levels.insert(1, good.levels[0].clone());
    assert!(!hostile.is_sound(thread));
}

/// The checksum is valid, so that the parts are checked.
#[test]
fn a_hostile_index_is_refused_or_harmless() {
    for seed in seeds(4, &[]) {
        let mut random = Random::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        let shape = Shape {
            seed,
            threads: 1,
            calls_per_thread: 60_000,
            ..Shape::default()
        };
        synthetic::write(&path, &shape).unwrap();
        let trace = Trace::open(&path).unwrap();
        Index::open(&trace, 1, None);
        let good = fs::read(Index::path(&trace)).unwrap();
        for _ in 0..40 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.below(4) {
                let at = 32 + random.below(bytes.len() as u64 - 32) as usize;
                bytes[at] = random.number() as u8;
            }
            if random.below(4) == 0 {
                bytes.truncate(32 + random.below(bytes.len() as u64 - 32) as usize);
            }
            store::sum_again(&mut bytes);
            fs::write(Index::path(&trace), &bytes).unwrap();
            let known = Index::open_trace(trace.directory()).unwrap();
            let packets = known.threads().into_iter();
            let packets = packets.flat_map(|thread| thread.packets());
            let records = packets.flat_map(|packet| packet.records());
            assert!(records.count() < 1 << 20);
            let Ok(threads) = store::Kept::read(trace.directory()).and_then(|kept| kept.of(&trace))
            else {
                continue;
            };
            let checkpoints = threads.iter();
            let checkpoints = checkpoints.map(|one| (one.key(), one.range_checkpoints()));
            let from = span::begin(&trace) + random.below(span::end(&trace) - span::begin(&trace));
            let mut filter = Filter::default();
            filter.from = Some(from);
            filter.until = Some(from + random.below(1 << 20));
            filter.checkpoints = Some(Arc::new(checkpoints.collect()));
            let drive = Drive {
                workers: 1,
                filter: Some(&filter),
                ..Drive::default()
            };
            report::functions(&trace, &drive).unwrap();
            for (index, thread) in threads.iter().zip(&trace.threads()) {
                let bounds = (0..101)
                    .map(|column| index.from.saturating_add(column * 90))
                    .collect();
                index.grid(thread, bounds, 0..30, 1 << 20);
                let clock = index.from.saturating_add(random.below(1 << 20));
                for depth in [0, 2, 20] {
                    if let Some(id) = index.call_at(thread, clock..clock + 1, depth) {
                        index.call(thread, id);
                    }
                }
                index.call(
                    thread,
                    CallId {
                        site: 1,
                        begin: clock,
                    },
                );
            }
        }
    }
}
