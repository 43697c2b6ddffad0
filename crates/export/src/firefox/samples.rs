//! The stacks of threads in order of time, merged if they are too many.

use super::stacks::{NOTHING, Stacks};

/// The cell of a first merge, in nanoseconds.
const FIRST_CELL: u64 = 1 << 10;

/// The most stacks of all threads; further calls count as their callers'.
const STACKS: usize = 1 << 22;

/// The time for which a thread had a stack. It ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub stack: u32,
    pub ns: u64,
}

/// A thread.
pub struct Profile {
    pub name: String,
    pub process_name: String,
    pub process: u32,
    pub thread: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub stacks: Stacks,
    pub samples: Vec<Sample>,
}

/// The samples of all threads. If there are more than a limit, time is cut into cells: within each, the samples of a
/// stack become one, in the order in which they came first. Samples that cross the bounds of a cell stay as they are,
/// so that cells of twice the length can be made of these.
pub struct Samples {
    pub profiles: Vec<Profile>,
    limit: usize,
    /// The most stacks of the present thread.
    stacks: usize,
    /// The samples of the threads before the present one.
    before: usize,
    /// In nanoseconds; 0: nothing has been merged.
    cell: u64,
    /// The present stack, its begin, and the stacks below it.
    stack: u32,
    since_ns: u64,
    below: Vec<u32>,
    deep: u64,
}

impl Samples {
    pub fn new(limit: usize) -> Samples {
        Samples {
            profiles: Vec::new(),
            limit,
            stacks: STACKS,
            before: 0,
            cell: 0,
            stack: NOTHING,
            since_ns: 0,
            below: Vec::new(),
            deep: 0,
        }
    }

    /// The order of stacks is unknown within times of this length; 0: it is known.
    pub fn merged_ns(&self) -> u64 {
        self.cell
    }

    /// Calls that count as their callers', since they are too deep or there are too many stacks.
    pub fn deep(&self) -> u64 {
        self.deep
    }

    pub fn begin(&mut self, profile: Profile) {
        self.stack = NOTHING;
        self.since_ns = profile.begin_ns;
        self.below.clear();
        self.profiles.push(profile);
    }

    #[inline(always)]
    pub fn push(&mut self, function: u32, ns: u64) {
        self.go_to(ns);
        let Some(profile) = self.profiles.last_mut() else {
            return;
        };
        self.below.push(self.stack);
        match profile.stacks.with(self.stack, function, self.stacks) {
            Some(stack) => self.stack = stack,
            None => self.deep += 1,
        }
    }

    #[inline(always)]
    pub fn pop(&mut self, ns: u64) {
        self.go_to(ns);
        self.stack = self.below.pop().unwrap_or(NOTHING);
    }

    pub fn end(&mut self) {
        let Some(profile) = self.profiles.last() else {
            return;
        };
        self.stacks -= profile.stacks.all().len();
        self.go_to(profile.end_ns);
        self.before = self.length();
    }

    fn length(&self) -> usize {
        let all = self.profiles.iter();
        all.map(|profile| profile.samples.len()).sum()
    }

    /// The present stack ends.
    #[inline(always)]
    fn go_to(&mut self, ns: u64) {
        let Some(profile) = self.profiles.last_mut() else {
            return;
        };
        let passed = ns.saturating_sub(self.since_ns);
        self.since_ns = ns;
        match profile.samples.last_mut() {
            Some(last) if last.stack == self.stack => last.ns += passed,
            _ => profile.samples.push(Sample {
                stack: self.stack,
                ns: passed,
            }),
        }
        if self.before + profile.samples.len() > self.limit {
            self.merge();
        }
    }

    #[cold]
    fn merge(&mut self) {
        let end = self.profiles.iter().map(|profile| profile.end_ns).max();
        loop {
            let cell = self.cell.max(FIRST_CELL);
            for profile in &mut self.profiles {
                profile.merge(cell);
            }
            self.cell = cell;
            let length = self.length();
            if length <= self.limit / 2 {
                break;
            }
            let Some(longer) = cell.checked_mul(2).filter(|_| Some(cell) <= end) else {
                // There are as many stacks as samples.
                self.limit = 2 * length;
                break;
            };
            self.cell = longer;
        }
        let present = self.profiles.last();
        self.before = self.length() - present.map_or(0, |profile| profile.samples.len());
    }
}

impl Profile {
    fn merge(&mut self, cell: u64) {
        // The place at which the sample of a stack was put last.
        let mut places = vec![usize::MAX; self.stacks.all().len() + 1];
        let nothing = self.stacks.all().len();
        let (mut at, mut kept) = (self.begin_ns, 0);
        // The present cell, and the place of its first sample.
        let (mut present, mut first) = (None, 0);
        for number in 0..self.samples.len() {
            let sample = self.samples[number];
            let end = at + sample.ns;
            let within = (end.saturating_sub(1).max(at) / cell == at / cell).then_some(at / cell);
            at = end;
            if within.is_none() || within != present {
                (present, first) = (within, kept);
            }
            let place = &mut places[match sample.stack {
                NOTHING => nothing,
                stack => stack as usize,
            }];
            if within.is_some() && (first..kept).contains(place) {
                self.samples[*place].ns += sample.ns;
                continue;
            }
            *place = kept;
            self.samples[kept] = sample;
            kept += 1;
        }
        self.samples.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::synthetic::Random;
    use std::collections::BTreeMap;

    fn profile(end_ns: u64) -> Profile {
        Profile {
            name: String::new(),
            process_name: String::new(),
            process: 1,
            thread: 1,
            begin_ns: 5,
            end_ns,
            stacks: Stacks::default(),
            samples: Vec::new(),
        }
    }

    /// Random calls in two threads.
    fn made(seed: u64, limit: usize) -> Samples {
        let mut random = Random::new(seed);
        let mut samples = Samples::new(limit);
        for _ in 0..2 {
            let mut at = 5;
            let mut times = vec![at];
            for _ in 0..5000 {
                at += random.below(3) * random.below(400);
                times.push(at);
            }
            samples.begin(profile(at + 100));
            let mut depth = 0;
            for ns in times {
                if depth > 0 && random.below(2) == 0 || depth == 6 {
                    samples.pop(ns);
                    depth -= 1;
                } else {
                    samples.push(random.below(2) as u32, ns);
                    depth += 1;
                }
            }
            samples.end();
        }
        samples
    }

    /// The time of each stack of a thread, by its functions.
    fn sums(profile: &Profile) -> BTreeMap<Vec<u32>, u64> {
        let mut sums = BTreeMap::new();
        for sample in &profile.samples {
            let mut path = Vec::new();
            let mut at = sample.stack;
            while let Some(stack) = profile.stacks.all().get(at as usize) {
                path.push(stack.function);
                at = stack.prefix;
            }
            *sums.entry(path).or_insert(0) += sample.ns;
        }
        sums
    }

    #[test]
    fn merged_samples_have_the_same_sums_and_bounds() {
        for seed in 0..20 {
            let all = made(seed, usize::MAX);
            let merged = made(seed, 600);
            assert_eq!(all.merged_ns(), 0);
            assert!(all.length() > 5000, "seed {seed}");
            assert!(merged.merged_ns() > 0, "seed {seed}");
            assert!(merged.length() <= 600, "seed {seed}: {}", merged.length());
            let cell = merged.merged_ns();
            for (all, merged) in all.profiles.iter().zip(&merged.profiles) {
                assert_eq!(sums(all), sums(merged), "seed {seed}");
                // Samples that cross a cell's bound are where they were.
                let mut at = all.begin_ns;
                let mut long = Vec::new();
                for sample in &all.samples {
                    if at / cell != (at + sample.ns).saturating_sub(1).max(at) / cell {
                        long.push((at, sample.ns));
                    }
                    at += sample.ns;
                }
                let mut at = merged.begin_ns;
                let mut found = Vec::new();
                for sample in &merged.samples {
                    found.push((at, sample.ns));
                    at += sample.ns;
                }
                assert_eq!(at, all.end_ns, "seed {seed}");
                for one in long {
                    assert!(found.contains(&one), "seed {seed}: {one:?}");
                }
            }
        }
    }

    #[test]
    fn merging_ends_where_no_cell_is_longer() {
        let mut all = Samples::new(usize::MAX);
        let mut merged = Samples::new(16);
        for samples in [&mut all, &mut merged] {
            samples.begin(profile(u64::MAX));
            for function in 0..100 {
                let ns = 10 * u64::from(function + 1);
                samples.push(function, ns);
                samples.pop(ns + 5);
            }
            samples.end();
        }
        assert!(merged.merged_ns() > 0);
        assert_eq!(sums(&all.profiles[0]), sums(&merged.profiles[0]));
    }

    #[test]
    fn calls_that_are_too_deep_count_as_their_callers() {
        let mut samples = Samples::new(usize::MAX);
        samples.begin(profile(10_000));
        for ns in 0..1500 {
            samples.push(0, 10 + ns);
        }
        for ns in 0..1500 {
            samples.pop(2000 + ns);
        }
        samples.end();
        assert_eq!(samples.deep(), 500);
        let profile = &samples.profiles[0];
        assert_eq!(profile.stacks.all().len(), 1000);
        assert_eq!(profile.samples.last().unwrap().stack, NOTHING);
    }
}
