//! Calls summed up while they are recorded.

use std::collections::HashMap;

use nopal_abi::SITE_LIMIT;
use nopal_trace::{Audience, Clocks, Heard, Note, Snapshot, ThreadKey};

use crate::calls::{Machine, Style};
use crate::names::Function;
use crate::report::Stats;

/// Calls of a site so far, also of those that have not ended. `total_ns` leaves out calls inside a call of the same site
/// and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub calls: u64,
    pub total_ns: u64,
    pub self_ns: u64,
}

/// What is known of a recording in progress.
pub struct Ongoing {
    machines: HashMap<ThreadKey, Machine>,
    stats: Stats,
    images: HashMap<u32, String>,
    /// By site number.
    functions: Vec<Option<Function>>,
    /// The first one, and the last one.
    clocks: Vec<Snapshot>,
}

impl Default for Ongoing {
    fn default() -> Ongoing {
        Ongoing {
            machines: HashMap::new(),
            stats: Stats::new(0),
            images: HashMap::new(),
            functions: Vec::new(),
            clocks: Vec::new(),
        }
    }
}

impl Ongoing {
    pub fn function(&self, site: u32) -> Option<&Function> {
        self.functions.get(site as usize)?.as_ref()
    }

    /// Sites that were called, with their sums at `now`, a value of the counter. `runs` tells whether a thread lives: what
    /// one that has ended left behind takes no more time.
    pub fn sums(&self, now: u64, runs: impl Fn(ThreadKey) -> bool) -> HashMap<u32, Sum> {
        let mut ticks = HashMap::<u32, Sum>::new();
        for (site, (live, totals)) in (0..).zip(self.stats.live.iter().zip(&self.stats.totals)) {
            if live.calls > 0 {
                let sum = Sum {
                    calls: live.calls,
                    total_ns: totals.total,
                    self_ns: totals.own,
                };
                ticks.insert(site, sum);
            }
        }
        let clocks = Clocks::new(self.clocks.iter().copied());
        let running = self.machines.iter();
        let running = running.filter(|(_, machine)| !machine.frames().is_empty());
        for (_, machine) in running.filter(|(thread, _)| runs(**thread)) {
            add_running(machine, now, &mut ticks);
        }
        for sum in ticks.values_mut() {
            sum.total_ns = clocks.duration_ns(sum.total_ns);
            sum.self_ns = clocks.duration_ns(sum.self_ns);
        }
        ticks
    }
}

/// Adds the time of calls in progress, in ticks.
fn add_running(machine: &Machine, now: u64, sums: &mut HashMap<u32, Sum>) {
    let timed = machine.frames().iter();
    let timed = timed.filter(|frame| frame.style() != Style::Only);
    let mut inner = 0;
    let mut since = HashMap::new();
    for frame in timed.rev() {
        let time = now.saturating_sub(frame.clock);
        let sum = sums.entry(frame.site()).or_default();
        sum.self_ns += time.saturating_sub(frame.child).saturating_sub(inner);
        since.insert(frame.site(), time);
        inner = time;
    }
    // The outermost call of each.
    for (site, time) in since {
        sums.entry(site).or_default().total_ns += time;
    }
}

impl Audience for Ongoing {
    fn note(&mut self, note: &Note) {
        match note {
            &Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns,
            } => {
                self.clocks.truncate(1);
                self.clocks.push(Snapshot {
                    counter,
                    monotonic_ns,
                    realtime_ns,
                });
            }
            Note::Image { image, path, .. } => {
                self.images.insert(*image, path.clone());
            }
            Note::Sites { image, sites } => {
                let path = self.images.get(image).map_or("?", String::as_str);
                for (site, address, size, name) in sites.iter().filter(|site| site.0 < SITE_LIMIT) {
                    let at = *site as usize;
                    if self.functions.len() <= at {
                        self.functions.resize(at + 1, None);
                    }
                    self.functions[at] = Some(Function::new(path, *address, *size, name));
                }
                self.stats.grow(self.functions.len());
            }
            _ => {}
        }
    }

    fn records(&mut self, heard: Heard) {
        let machine = self.machines.entry(heard.thread).or_default();
        machine.records(heard.words, heard.clock, heard.lossy, &mut self.stats);
    }

    fn thread_ended(&mut self, thread: ThreadKey) {
        if let Some(mut machine) = self.machines.remove(&thread) {
            machine.end(&mut self.stats);
        }
    }
}

#[cfg(test)]
mod tests {
    use nopal_abi as abi;

    use super::*;

    const THREAD: ThreadKey = ThreadKey {
        process: 1,
        thread: 2,
        begin: 1000,
    };

    fn word(clock: u64, kind: u32, site: u32, depth: u64) -> u64 {
        let slot = 0x7000_u64 - depth * 0x40;
        u64::from(clock as u32)
            | u64::from(kind) << 32
            | u64::from(site) << 36
            | (slot >> 4 & 0xff) << 56
    }

    fn resync(clock: u64, reason: u32) -> [u64; 6] {
        let first = u64::from(abi::KIND_EXTENDED) << 32 | u64::from(abi::EVENT_RESYNC) << 36;
        [first | clock, clock, 0x7008, 0, 0, u64::from(reason)]
    }

    fn told() -> Ongoing {
        let mut ongoing = Ongoing::default();
        for (counter, monotonic_ns) in [(0, 0), (500, 5000), (1000, 2000)] {
            ongoing.note(&Note::Clock {
                counter,
                monotonic_ns,
                realtime_ns: 0,
            });
        }
        ongoing.note(&Note::Image {
            image: 7,
            path: "/usr/lib/libx.so".into(),
            identity: String::new(),
        });
        ongoing.note(&Note::Sites {
            image: 7,
            sites: (1..4)
                .map(|site| (site, 0x10, 5, format!("f{site}")))
                .collect(),
        });
        ongoing
    }

    fn sum(calls: u64, total_ns: u64, self_ns: u64) -> Sum {
        Sum {
            calls,
            total_ns,
            self_ns,
        }
    }

    /// The counter runs at half a gigahertz.
    #[test]
    fn calls_in_progress_count_until_now() {
        let mut ongoing = told();
        let function = ongoing.function(3).unwrap();
        assert_eq!((&*function.name, &*function.module), ("f3", "libx.so"));
        assert_eq!(ongoing.function(0), None);
        let mut hear = |words: &[u64], clock| {
            ongoing.records(Heard {
                thread: THREAD,
                clock,
                words,
                lossy: false,
            });
        };
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ENTRY, 1, 0));
        words.push(word(1010, abi::KIND_ENTRY, 2, 1));
        words.push(word(1020, abi::KIND_EXIT, 2, 1));
        words.push(word(1030, abi::KIND_ENTRY, 1, 1));
        hear(&words, 1000);
        let mut words = resync(1030, abi::RESYNC_PART).to_vec();
        words.push(word(1050, abi::KIND_ENTRY, 2, 2));
        hear(&words, 1030);
        let sums = ongoing.sums(1100, |_| true);
        assert_eq!(sums[&1], sum(2, 200, 2 * (90 - 70 + 20)));
        assert_eq!(sums[&2], sum(2, 2 * (10 + 50), 2 * (10 + 50)));
        // A thread that has ended takes no time.
        let sums = ongoing.sums(1100, |_| false);
        assert_eq!(sums[&1], sum(2, 0, 0));
        assert_eq!(sums[&2], sum(2, 20, 20));
        ongoing.thread_ended(THREAD);
        assert_eq!(ongoing.sums(1200, |_| true), sums);
    }

    #[test]
    fn more_sites_may_come_at_any_time() {
        let mut ongoing = told();
        ongoing.note(&Note::Sites {
            image: 8,
            sites: vec![(900, 0x10, 5, "late".into())],
        });
        let mut words = resync(1000, abi::RESYNC_CHUNK).to_vec();
        words.push(word(1000, abi::KIND_ONLY, 900, 0));
        words.push(word(1001, abi::KIND_ONLY, 901, 0));
        ongoing.records(Heard {
            thread: THREAD,
            clock: 1000,
            words: &words,
            lossy: true,
        });
        let sums = ongoing.sums(1100, |_| true);
        assert_eq!(sums[&900], sum(1, 0, 0));
        assert_eq!(sums.len(), 2, "what is not known is one row");
        assert_eq!(ongoing.function(900).unwrap().module, "?");
    }
}
