//! Text that the program has discarded (`madvise`), or mapped other memory over, and with it jumps of nopal's: what is not
//! recorded any more is told.

use crate::patch::change::Change;
use crate::patch::remove::has_mapped;
use crate::session::Session;
use crate::tracee::Tracee;
use anyhow::Result;
use nopal_analysis::text::several;
use nopal_process::Pages;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// Pages that are this near are looked at together, up to about this many bytes.
const NEAR: u64 = 64 * PAGE;
const TOGETHER: u64 = 1 << 20;

/// How often it is looked for, or more seldom, so that it takes a thousandth of a processor.
const EVERY: Duration = Duration::from_secs(1);
const APART: u32 = 1000;

/// What was found so far.
pub(crate) struct Discarded {
    begun: Instant,
    looked: Instant,
    next: Instant,
    /// By process and file, the functions, and the last look at which their jumps were there, since the beginning.
    found: BTreeMap<(i32, String), (usize, Duration)>,
    /// By process, the addresses of these functions.
    known: HashSet<(i32, u64)>,
}

impl Discarded {
    pub fn new() -> Discarded {
        let now = Instant::now();
        Discarded {
            begun: now,
            looked: now,
            next: now + EVERY,
            found: BTreeMap::new(),
            known: HashSet::new(),
        }
    }

    /// Looks for functions without their jumps in these pages.
    fn look(&mut self, tracee: &Tracee, among: impl Fn(u64) -> bool) {
        let (process, since) = (tracee.process, self.looked - self.begun);
        let is_asked_for = |change: &Change| {
            among(page_of(change)) && !self.known.contains(&(process, change.address))
        };
        let missing = undone(tracee, is_asked_for);
        // It may have executed another program, which nopal does not follow.
        if missing.is_empty() || !has_mapped(process, &tracee.region) {
            return;
        }
        for change in missing {
            self.known.insert((process, change.address));
            let module = tracee.module_at(change.address);
            let file = module.map_or("its text", |module| module.file_name());
            let found = self.found.entry((process, file.to_owned()));
            found.or_insert((0, since)).0 += 1;
        }
    }

    /// For people, a line each.
    pub fn describe(&self) -> Vec<String> {
        let lines = self.found.iter().map(|((process, file), (count, since))| {
            format!(
                "process {process} has discarded text: {} of {file} not recorded from some moment after {:.1} s on",
                several(*count as u64, "function", "functions"),
                since.as_secs_f64()
            )
        });
        lines.collect()
    }
}

impl Session {
    /// Looks whether pages of text with jumps are still the processes' own, when it is time to.
    pub(crate) fn look_for_discarded_text(&mut self) {
        let now = Instant::now();
        if now < self.discarded.next {
            return;
        }
        for tracee in self.processes.tracees.values() {
            // A process that is about to end cannot be read.
            let gone = gone_pages(tracee).unwrap_or_default();
            if !gone.is_empty() {
                self.discarded.look(tracee, |page| gone.contains(&page));
            }
        }
        self.discarded.looked = now;
        self.discarded.next = now + EVERY.max(now.elapsed() * APART);
    }

    /// The same for the last time, of all jumps, before nopal takes them out of these processes.
    pub(crate) fn look_at_all_text(&mut self, processes: &[i32]) {
        for process in processes {
            if let Some(tracee) = self.processes.tracees.get(process) {
                self.discarded.look(tracee, |_| true);
            }
        }
    }
}

/// The pages with jumps of functions that the process has discarded since.
fn gone_pages(tracee: &Tracee) -> Result<HashSet<u64>> {
    let pages = Pages::of(tracee.process)?;
    let mut gone = HashSet::new();
    for run in runs(&tracee.changes) {
        let own = pages.are_own(run.clone())?;
        let all = run.step_by(PAGE as usize).zip(own);
        gone.extend(all.filter(|(_, own)| !own).map(|(page, _)| page));
    }
    Ok(gone)
}

/// The changes at functions of these that are undone.
fn undone(tracee: &Tracee, is_asked_for: impl Fn(&Change) -> bool) -> Vec<&Change> {
    let mut undone = Vec::new();
    for run in runs(&tracee.changes) {
        let before = |address: u64| tracee.changes.partition_point(|it| it.address < address);
        let changes = tracee.changes[before(run.start)..before(run.end)].iter();
        let changes = changes.filter(|it| it.function().is_some() && is_asked_for(it));
        let mut changes = changes.peekable();
        if changes.peek().is_none() {
            continue;
        }
        let mut text = vec![0; (run.end - run.start) as usize];
        let is_read = tracee.memory.read(run.start, &mut text).is_ok();
        undone.extend(changes.filter(|change| {
            let text = text.get((change.address - run.start) as usize..);
            let found = text.and_then(|text| text.get(..change.before().len()));
            match found.filter(|_| is_read) {
                Some(found) => found == change.before(),
                None => change.is_undone(&tracee.memory),
            }
        }));
    }
    undone
}

fn page_of(change: &Change) -> u64 {
    change.address / PAGE * PAGE
}

/// The pages with changes at functions, and those between near ones. The changes are in order.
fn runs(changes: &[Change]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for change in changes.iter().filter(|change| change.function().is_some()) {
        let page = page_of(change);
        match runs.last_mut() {
            Some(last) if page < last.end + NEAR && last.end - last.start < TOGETHER => {
                last.end = last.end.max(page + PAGE)
            }
            _ => runs.push(page..page + PAGE),
        }
    }
    runs
}
