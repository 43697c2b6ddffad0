//! The functions that each process has passed to sigaction as signal handlers.

use std::collections::{BTreeSet, HashMap, HashSet};

use nopal_trace::{Event, Marker, Note, ThreadInfo, Trace, Value};

use crate::addresses::{Addresses, GENERATIONS};
use crate::names::Names;
use crate::sort;

/// The event of a handler that is set, as a probe that `nopal_control` takes.
pub const PROBE: &str =
    "sigaction@libc.so.6 new nopal:handler fetch signal=$di:s32 act=$si handler=+0($si):x64";

/// The address that the probe has read, if it has read one.
fn address(marker: &Marker, payload: &[u64]) -> Option<u64> {
    const DEFAULT_OR_IGNORED: u64 = 1;
    let at = marker
        .fields
        .iter()
        .position(|field| field.name == "handler")?;
    match marker.values(payload)?.get(at)? {
        Value::Unsigned(handler) => Some(*handler).filter(|handler| *handler > DEFAULT_OR_IGNORED),
        _ => None,
    }
}

/// The time at which a process began to run a program; or was forked, and from which process.
struct Begin {
    counter: u64,
    parent: u32,
    is_forked: bool,
}

/// Begins of processes, and their handlers.
struct Processes {
    /// In order of time.
    begins: HashMap<u32, Vec<Begin>>,
    /// By process: the clock of each setting, and the handler's address.
    handlers: HashMap<u32, Vec<(u64, u64)>>,
}

impl Processes {
    fn new(trace: &Trace) -> Processes {
        let mut processes = Processes {
            begins: HashMap::new(),
            handlers: HashMap::new(),
        };
        let is_wanted = |marker: &Marker| marker.name == "nopal:handler";
        if !trace.markers().iter().any(|(_, marker)| is_wanted(marker)) {
            return processes;
        }
        for thread in trace.threads() {
            for record in thread.packets().flat_map(|packet| packet.records()) {
                if let Event::Marker { event, payload } = record.event
                    && let Some(marker) = trace.markers().get(event)
                    && is_wanted(marker)
                    && let Some(address) = address(marker, payload)
                {
                    let handlers = processes.handlers.entry(thread.process).or_default();
                    handlers.push((record.clock, address));
                }
            }
        }
        for note in trace.notes() {
            if let Note::Process {
                process,
                parent,
                counter,
                executable,
                ..
            } = note
            {
                processes.begins.entry(*process).or_default().push(Begin {
                    counter: *counter,
                    parent: *parent,
                    is_forked: executable.is_empty(),
                });
            }
        }
        for begins in processes.begins.values_mut() {
            sort::by_key(begins, |begin| begin.counter);
        }
        processes
    }

    /// The handlers that a thread's process has. A forked child has those that its parent had then; a program that is
    /// executed has none.
    fn of(&self, thread: &ThreadInfo) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        if self.handlers.is_empty() {
            return found;
        }
        let (mut process, mut moment, mut until) = (thread.process, thread.begin, u64::MAX);
        for _ in 0..GENERATIONS {
            let begins = self.begins.get(&process).map_or(&[][..], Vec::as_slice);
            let (before, after) =
                begins.split_at(begins.partition_point(|begin| begin.counter <= moment));
            if let Some(next) = after.iter().find(|begin| !begin.is_forked) {
                until = until.min(next.counter);
            }
            let program = before.last().filter(|begin| !begin.is_forked);
            let from = program.map_or(0, |begin| begin.counter);
            let handlers = self.handlers.get(&process).into_iter().flatten();
            let then = handlers.filter(|(clock, _)| (from..until).contains(clock));
            found.extend(then.map(|(_, address)| address));
            // A child whose first record is older than its first note was forked, too.
            match before.last().or(after.first()) {
                Some(begin) if program.is_none() => {
                    moment = moment.min(begin.counter);
                    (process, until) = (begin.parent, moment);
                }
                _ => break,
            }
        }
        found
    }
}

/// For each of these threads: the sites that are signal handlers in its process.
pub fn handlers(trace: &Trace, names: &Names, threads: &[ThreadInfo]) -> Vec<HashSet<u32>> {
    let processes = Processes::new(trace);
    let addresses = Addresses::new(trace);
    let mut known: HashMap<(u32, BTreeSet<u64>), HashSet<u32>> = HashMap::new();
    let of_thread = |thread: &ThreadInfo| {
        let handlers = processes.of(thread);
        if handlers.is_empty() {
            return HashSet::new();
        }
        let find = |(process, handlers): &(u32, BTreeSet<u64>)| {
            let address = |site: u32| addresses.address(*process, site, thread.begin);
            let sites = 0..names.sites() as u32;
            sites
                .filter(|site| handlers.contains(&address(*site)))
                .collect()
        };
        let key = (thread.process, handlers);
        known.entry(key).or_insert_with_key(find).clone()
    };
    threads.iter().map(of_thread).collect()
}
