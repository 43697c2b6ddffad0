//! The expected state of probes, inserted and on, and how often each runs.

use crate::program::{Counted, FUNCTIONS, instruction};
use crate::traces::COUNTED;

/// The most probes that are inserted at a time.
const MOST: usize = 8;

/// Calls that the program may have counted before they reach the probe, while it runs.
const ON_THE_WAY: u64 = 64;

pub struct Probe {
    pub name: String,
    pub function: usize,
    pub on: bool,
    /// Calls of its function when it was switched on.
    since: u64,
    /// The least number of times that it has been passed while on; `most` is the greatest.
    pub least: u64,
    pub most: u64,
}

impl Probe {
    /// Whether the probe is switched only while no thread is in the functions.
    pub fn is_exact(&self) -> bool {
        self.function < COUNTED
    }

    fn begin(&mut self, counted: &Counted) {
        self.on = true;
        self.since = counted.calls[self.function];
    }

    fn end(&mut self, counted: &Counted, exact: bool) {
        if !std::mem::take(&mut self.on) {
            return;
        }
        let calls = counted.calls[self.function] - self.since;
        self.most += calls;
        match exact && self.is_exact() {
            true => self.least += calls,
            false => self.most += ON_THE_WAY,
        }
    }
}

#[derive(Default)]
pub struct Probes {
    pub all: Vec<Probe>,
    /// Removed probes, whose records are in the trace.
    pub gone: Vec<Probe>,
    number: u64,
    pub toggles: u64,
}

impl Probes {
    /// The command that makes a probe, and the probe, to be added to `all` when it has been made.
    pub fn make(&mut self, random: &mut fastrand::Rng) -> Option<(String, Probe)> {
        let most = random.choice([COUNTED, FUNCTIONS]).expect("two");
        let function = random.usize(0..most);
        let taken = self.all.iter().any(|probe| probe.function == function);
        let place = instruction(function).filter(|_| !taken && self.all.len() < MOST)?;
        self.number += 1;
        let name = format!("p{}", self.number);
        let more = random.choice(["", " $ax", " +0($sp)"]).expect("three");
        let command = format!("probe {place} new {name} fetch x=$di:s64{more}\n");
        let probe = Probe {
            name,
            function,
            on: false,
            since: 0,
            least: 0,
            most: 0,
        };
        Some((command, probe))
    }

    /// The command that turns a probe's switch. `counted` was read before the probe is switched on, or after it is
    /// switched off.
    pub fn command(&mut self, at: usize) -> String {
        let probe = &self.all[at];
        let word = if probe.on { "off" } else { "on" };
        self.toggles += 1;
        format!("probe {} {word}\n", probe.name)
    }

    pub fn switched(&mut self, at: usize, counted: &Counted) {
        let probe = &mut self.all[at];
        match probe.on {
            true => probe.end(counted, false),
            false => probe.begin(counted),
        }
    }

    /// The commands that switch on the probes that are switched only while no thread is in the functions.
    pub fn exact_on(&mut self, counted: &Counted) -> String {
        let exact = self.all.iter_mut().filter(|probe| probe.is_exact());
        let commands = exact.map(|probe| {
            probe.begin(counted);
            format!("probe {} on\n", probe.name)
        });
        commands.collect()
    }

    pub fn exact_off(&mut self, counted: &Counted) -> String {
        let on = self.all.iter_mut();
        let exact = on.filter(|probe| probe.on && probe.is_exact());
        let commands = exact.map(|probe| {
            probe.end(counted, true);
            format!("probe {} off\n", probe.name)
        });
        commands.collect()
    }

    /// Removes a probe from the code.
    pub fn remove(&mut self, at: usize, counted: &Counted) {
        let mut probe = self.all.swap_remove(at);
        probe.end(counted, false);
        self.gone.push(probe);
    }

    pub fn clear(&mut self, counted: &Counted) {
        while !self.all.is_empty() {
            self.remove(0, counted);
        }
    }
}
