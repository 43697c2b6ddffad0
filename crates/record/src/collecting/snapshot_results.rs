//! The results of a session's snapshots, which are written by threads of their own.

use crate::collecting::trace_end::Limit;
use nopal_analysis::text::{duration, several};
use nopal_analysis::tracers::Live;
use nopal_trace::{ThreadKey, snapshot_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Snapshots of one session, at most, besides those of slow cases.
const MOST: usize = 16;
/// Copies of the buffer that are in memory at the same time, and are written.
pub const MOST_WRITING: usize = 2;

#[derive(Default)]
pub struct Snapshots {
    /// The reason of a snapshot that a command requests.
    pub asked: Vec<String>,
    /// By number, without those that are no more.
    taken: BTreeMap<u32, Snapshot>,
    /// The number of the last one. Numbers count from 1.
    last: u32,
    /// Snapshots that were not taken.
    passed_over: u64,
    /// Slow cases whose records were given up before they were copied, by tracer.
    given_up: BTreeMap<String, u64>,
    /// Bytes of the whole ones on the disk.
    bytes: u64,
    /// Directories of snapshots that are no more.
    to_delete: Vec<PathBuf>,
}

struct Snapshot {
    why: String,
    slow: Option<Slow>,
    directory: PathBuf,
    written: Written,
}

#[derive(PartialEq)]
enum Written {
    Not,
    /// Not yet, and it is not wanted any more.
    Outrun,
    Whole {
        events: u64,
        bytes: u64,
    },
    Failed(String),
}

/// The outcome of a snapshot.
pub enum Ended {
    Whole {
        events: u64,
        bytes: u64,
    },
    /// The records that it should have had were not held any more.
    GivenUp,
    Failed(String),
}

/// A case that is among the slowest of its minute.
#[derive(Clone)]
pub struct Slow {
    pub tracer: String,
    pub live: Live,
    /// In which it began, and ended.
    pub threads: [ThreadKey; 2],
    /// Of the tracer's cases, this one.
    pub id: u64,
    pub ns: u64,
}

impl Snapshots {
    /// Whether there may be another one that is not of a slow case.
    pub fn may_have_more(&self) -> bool {
        let others = self.taken.values().filter(|one| one.slow.is_none());
        others.count() < MOST
    }

    pub fn pass_over(&mut self) {
        self.passed_over += 1;
    }

    /// The number of a new one.
    pub fn begin(
        &mut self,
        why: &str,
        slow: Option<&Slow>,
        directory: impl FnOnce(u32) -> PathBuf,
    ) -> u32 {
        self.last += 1;
        let one = Snapshot {
            why: why.to_owned(),
            slow: slow.cloned(),
            directory: directory(self.last),
            written: Written::Not,
        };
        self.taken.insert(self.last, one);
        self.last
    }

    /// Whether it is to be written now: it is wanted, and there is room for it.
    pub fn may_write(&mut self, number: u32, limit: Option<Limit>) -> bool {
        let outrun = |one: &Snapshot| one.written == Written::Outrun;
        let is_outrun = self.taken.get(&number).is_none_or(outrun);
        let is_full = self.is_full(limit);
        if is_outrun || is_full {
            self.taken.remove(&number);
            self.passed_over += u64::from(!is_outrun);
        }
        !is_outrun && !is_full
    }

    pub fn is_full(&self, limit: Option<Limit>) -> bool {
        limit.is_some_and(|limit| self.bytes >= limit.bytes())
    }

    /// How many bytes the next one may have; none: any number.
    pub fn room(&self, limit: Option<Limit>) -> Option<u64> {
        Some(limit?.bytes().saturating_sub(self.bytes))
    }

    /// Leaves out those that somebody else has removed, as the daemon does.
    pub fn forget_missing(&mut self) {
        let bytes = &mut self.bytes;
        self.taken.retain(|_, one| match one.written {
            Written::Whole { bytes: of_one, .. } if !one.directory.exists() => {
                *bytes -= of_one;
                false
            }
            _ => true,
        });
    }

    pub fn end(&mut self, number: u32, ended: Ended) {
        let Some(one) = self.taken.get_mut(&number) else {
            return;
        };
        let is_outrun = one.written == Written::Outrun;
        match ended {
            Ended::Whole { events, bytes } => {
                one.written = Written::Whole { events, bytes };
                self.bytes += bytes;
            }
            Ended::Failed(error) => one.written = Written::Failed(error),
            Ended::GivenUp => {
                let tracer = one.slow.as_ref().map(|slow| slow.tracer.clone());
                *self.given_up.entry(tracer.unwrap_or_default()).or_default() += 1;
                self.taken.remove(&number);
            }
        }
        if is_outrun {
            self.remove(number);
        }
    }

    /// The same for one that has not ended: whoever wrote it is gone.
    pub fn abandon(&mut self, number: u32) {
        let one = self.taken.get(&number);
        if one.is_some_and(|one| matches!(one.written, Written::Not | Written::Outrun)) {
            let why = "nothing writes it any more";
            self.end(number, Ended::Failed(why.to_owned()));
        }
    }

    /// Slower cases take the place of this one.
    pub fn outrun(&mut self, live: &Live, id: u64) {
        let is_meant = |slow: &Slow| slow.live == *live && slow.id == id;
        let is_of = |one: &Snapshot| one.slow.as_ref().is_some_and(is_meant);
        // It is among the last.
        let found = self.taken.iter().rev().find(|(_, one)| is_of(one));
        if let Some(number) = found.map(|(number, _)| *number) {
            self.remove(number);
        }
    }

    /// At once, or when it is written. That one has failed is told all the same.
    fn remove(&mut self, number: u32) {
        let Some(one) = self.taken.get_mut(&number) else {
            return;
        };
        match one.written {
            Written::Not | Written::Outrun => one.written = Written::Outrun,
            Written::Failed(_) => self.to_delete.push(one.directory.clone()),
            Written::Whole { bytes, .. } => {
                self.bytes -= bytes;
                let one = self.taken.remove(&number);
                self.to_delete.extend(one.map(|one| one.directory));
            }
        }
    }

    /// The directories that are to be deleted, which takes a while.
    pub fn take_to_delete(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.to_delete)
    }

    // ---- what there is ----

    /// How many are written, and how many could not be.
    pub fn numbers(&self) -> (usize, u64) {
        let is_whole = |one: &&Snapshot| matches!(one.written, Written::Whole { .. });
        let is_failed = |one: &&Snapshot| matches!(one.written, Written::Failed(_));
        let failed = self.taken.values().filter(is_failed).count() as u64;
        let given_up: u64 = self.given_up.values().sum();
        let whole = self.taken.values().filter(is_whole).count();
        (whole, self.passed_over + failed + given_up)
    }

    /// For people: a line each, but for those of slow cases, of which each tracer has one.
    pub fn describe(&self) -> Vec<String> {
        let taken = self.taken.iter().filter_map(|(number, one)| {
            let name = snapshot_name(*number);
            match &one.written {
                Written::Failed(error) => Some(format!("{name}: incomplete: {error}")),
                _ if one.slow.is_some() => None,
                Written::Not | Written::Outrun => {
                    Some(format!("{name}: being written, {}", one.why))
                }
                Written::Whole { events, .. } => Some(format!(
                    "{name}: {}, {}",
                    several(*events, "event", "events"),
                    one.why
                )),
            }
        });
        let given_up = self.given_up.iter().map(|(tracer, cases)| {
            let cases = several(*cases, "slow case", "slow cases");
            format!("{cases} of {tracer} not kept: a larger --buffer would have held the records")
        });
        let more = (self.passed_over > 0).then(|| {
            format!(
                "{} not taken: at most {MOST} are written, {MOST_WRITING} at a time, and only within --max-size",
                several(
                    self.passed_over,
                    "more snapshot was",
                    "more snapshots were"
                )
            )
        });
        taken
            .chain(self.describe_slow())
            .chain(given_up)
            .chain(more)
            .collect()
    }

    fn describe_slow(&self) -> Vec<String> {
        let whole = self.taken.iter();
        let whole = whole.filter(|(_, one)| matches!(one.written, Written::Whole { .. }));
        let slow = whole.filter_map(|(number, one)| Some((*number, one.slow.as_ref()?)));
        let slow: Vec<(u32, &Slow)> = slow.collect();
        let tracers: BTreeSet<&str> = slow.iter().map(|(_, slow)| &*slow.tracer).collect();
        let describe = |tracer: &str| {
            let of_tracer = slow.iter().filter(|(_, slow)| slow.tracer == tracer);
            let count = of_tracer.clone().count() as u64;
            let (number, slowest) = of_tracer.max_by_key(|(_, slow)| slow.ns)?;
            Some(format!(
                "{} of the slowest cases of {tracer}: the slowest took {} ({})",
                several(count, "snapshot", "snapshots"),
                duration(slowest.ns),
                snapshot_name(*number)
            ))
        };
        tracers.into_iter().filter_map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_analysis::tracers::Tracer;

    const THREAD: ThreadKey = ThreadKey {
        process: 1,
        thread: 1,
        begin: 1,
    };
    const WHOLE: Ended = Ended::Whole {
        events: 1,
        bytes: 100,
    };

    fn slow(live: &Live, id: u64) -> Slow {
        Slow {
            tracer: "a..b".to_owned(),
            live: live.clone(),
            threads: [THREAD; 2],
            id,
            ns: 1000 * id,
        }
    }

    fn live() -> Live {
        Live::new(&Tracer::parse("a..b").unwrap())
    }

    fn directory(number: u32) -> PathBuf {
        PathBuf::from("/nowhere").join(snapshot_name(number))
    }

    #[test]
    fn what_is_outrun_goes_whenever_that_is() {
        let (live, other) = (live(), live());
        let mut snapshots = Snapshots::default();
        let mut begin = |live, id| snapshots.begin("", Some(&slow(live, id)), directory);
        let numbers = [
            begin(&other, 1),
            begin(&live, 1),
            begin(&live, 2),
            begin(&live, 3),
        ];
        assert_eq!(numbers, [1, 2, 3, 4]);
        // Before it is written, while it is, and after.
        snapshots.outrun(&live, 1);
        assert!(!snapshots.may_write(2, None) && snapshots.may_write(3, None));
        snapshots.outrun(&live, 2);
        snapshots.end(3, WHOLE);
        assert_eq!(snapshots.take_to_delete(), [directory(3)]);
        snapshots.end(4, WHOLE);
        assert_eq!((snapshots.numbers(), snapshots.bytes), ((1, 0), 100));
        snapshots.outrun(&live, 3);
        assert_eq!(snapshots.take_to_delete(), [directory(4)]);
        assert_eq!((snapshots.numbers(), snapshots.bytes), ((0, 0), 0));
        // Another tracer's case of the same number stays.
        snapshots.end(1, WHOLE);
        let said = "1 snapshot of the slowest cases of a..b: the slowest took 1.00 us (snapshot-1)";
        assert_eq!(snapshots.describe(), [said]);
    }

    #[test]
    fn what_is_not_kept_is_told() {
        let live = live();
        let mut snapshots = Snapshots::default();
        for id in 1..=5 {
            snapshots.begin("", Some(&slow(&live, id)), directory);
        }
        snapshots.end(1, Ended::Failed("no room".to_owned()));
        snapshots.outrun(&live, 1);
        assert_eq!(snapshots.take_to_delete(), [directory(1)]);
        snapshots.end(2, Ended::GivenUp);
        snapshots.abandon(2);
        snapshots.end(3, WHOLE);
        let limit = Some(Limit::Asked(100));
        assert!(snapshots.is_full(limit) && !snapshots.may_write(4, limit));
        snapshots.abandon(5);
        assert_eq!(snapshots.numbers(), (1, 4));
        let said = snapshots.describe().join("\n");
        for part in [
            "snapshot-1: incomplete: no room",
            "snapshot-5: incomplete: nothing writes it any more",
            "1 slow case of a..b not kept",
            "1 more snapshot was not taken",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // Somebody else has removed it.
        snapshots.forget_missing();
        assert!(!snapshots.is_full(limit));
    }

    #[test]
    fn slow_cases_take_no_place_of_others() {
        let live = live();
        let mut snapshots = Snapshots::default();
        for id in 0..MOST as u64 {
            snapshots.begin("", Some(&slow(&live, id)), directory);
            assert!(snapshots.may_have_more());
            snapshots.begin("", None, directory);
        }
        assert!(!snapshots.may_have_more());
    }
}
