//! The end of a session.

use crate::collecting::drain::Drain;
use crate::collecting::notes::{counter, snapshot};
use crate::collecting::slowest;
use crate::memory::lost::Counts;
use crate::memory::region::Region;
use crate::options::{Ended, Outcome};
use crate::patch::journal::Journal;
use crate::patch::remove::{self, WhileHeld};
use crate::session::Session;
use crate::session::budget::HeldBudget;
use crate::sites::fitting::{nothing_came, waited_in_vain};
use anyhow::Result;
use nopal_analysis::text::several;
use nopal_process::{Memory, StopError};
use nopal_trace::{Note, Writer};
use std::sync::Arc;

impl Session {
    /// Lets go of what still runs, and completes the trace.
    pub(crate) fn finish(mut self, ended: Ended, left: &[i32], drain: Drain) -> Result<Outcome> {
        self.progress.step();
        let left = self.let_all_go(left.to_vec());
        let others = left
            .iter()
            .filter(|process| **process != self.processes.main && !self.attached.contains(process));
        let count = others.count();
        // What nopal has attached to runs on anyhow.
        if count > 0 && self.attached.is_empty() {
            self.context.warnings.push(several(
                count as u64,
                "process that the program started still runs; it is no longer traced",
                "processes that the program started still run; they are no longer traced",
            ));
        }
        let mut collector = drain.stop()?;
        self.progress.step();
        collector.finish_snapshots(&self.context.shared);
        self.obey_triggers();
        let regions = self.context.shared.regions();
        let mut writer = self.context.shared.writer.lock();
        match writer.end_kernel_events() {
            Err(error) if Writer::is_full(&error) => {}
            other => other?,
        }
        for note in collector.open_calls() {
            writer.note(&note)?;
        }
        writer.given_up(&collector.given_up());
        for region in &regions {
            region.mark_gone();
            collector.finish(region, &mut writer)?;
            self.progress.step();
        }
        for (_, note) in self.context.shared.alive(&collector) {
            collector.end.unless_full(writer.note(&note))?;
        }
        let counts = self.context.shared.counts();
        let Counts {
            lost,
            threads_untraced: threads,
            stacks_unmirrored: stacks,
            ..
        } = counts;
        self.unfollowed.add_unanswered(counts.executions_unanswered);
        self.context.warnings.extend(self.unfollowed.describe());
        self.context.warnings.extend(self.describe_left_text());
        self.context.warnings.extend(self.discarded.describe());
        if counts.libraries_unanswered > 0 {
            self.context.warnings.push(format!(
                "{} not traced: nopal could not answer in time",
                several(
                    counts.libraries_unanswered,
                    "load of a library was",
                    "loads of libraries were"
                )
            ));
        }
        let given_up = collector.totals.given_up;
        let lost_note = collector.totals.lost(lost);
        let (lost_by_reason, lost) = (lost.reasons(), lost.all());
        let full = collector
            .end
            .reason()
            .map(|reason| match self.stopped_when_full {
                true => format!("{reason}; recording was stopped then"),
                false => reason.to_owned(),
            });
        self.context.warnings.extend(full);
        if threads > 0 {
            self.context.warnings.push(format!(
                "{} not traced: there were too many at once",
                several(threads, "thread was", "threads were")
            ));
        }
        let kernel_events_lost = collector.totals.kernel_events_lost;
        if kernel_events_lost > 0 {
            self.context.warnings.push(format!(
                "{} lost: they came faster than nopal reads them",
                several(kernel_events_lost, "kernel event was", "kernel events were")
            ));
        }
        let cut = collector.totals.kernel_processors_cut;
        if cut > 0 {
            self.context.warnings.push(format!(
                "on {} a record of the kernel was begun and never finished: later records there are lost",
                several(cut, "processor", "processors")
            ));
        }
        self.context.warnings.append(&mut collector.warnings);
        let missed = collector.totals.kernel_events_missed;
        if missed > 0 {
            self.context.warnings.push(format!(
                "the kernel did not report {}, nor the wake-ups before",
                several(
                    missed,
                    "switch from an idle processor",
                    "switches from idle processors"
                )
            ));
        }
        if collector.totals.system > 0 && !collector.naming.in_namespaces.is_empty() {
            self.context.warnings.push(
                "kernel events are not matched with the calls of threads that ended before nopal could see their numbers outside of their PID namespace"
                    .to_owned(),
            );
        }
        if stacks > 0 {
            self.context.warnings.push(format!(
                "{} could not be mirrored: only entries were recorded there",
                several(stacks, "part of a stack", "parts of stacks")
            ));
        }
        let main = 0;
        let complete = lost + given_up == 0 && self.context.warnings.is_empty();
        let why = match self.context.warnings.as_slice() {
            [] if lost + given_up > 0 => {
                several(lost + given_up, "event was lost", "events were lost")
            }
            [] if matches!(ended, Ended::RunsOn | Ended::Left { .. }) => {
                "the process goes on untraced".to_owned()
            }
            [] => "the program ended".to_owned(),
            warnings => warnings.join("; "),
        };
        for last in [
            snapshot(),
            lost_note,
            Note::Untraced {
                process: main,
                threads,
                stacks,
            },
            Note::End {
                counter: counter(),
                complete,
                why,
            },
        ] {
            match writer.note(&last) {
                Err(error) if Writer::is_full(&error) => {}
                other => other?,
            }
        }
        match writer.sync_metadata() {
            Err(error) if Writer::is_full(&error) => {}
            other => other?,
        }
        let bytes = writer.bytes();
        drop(writer);
        self.dismiss_guardian();
        // All these are nothing that the trace lacks.
        let left_in = self.left_in(&left);
        if let Ended::Left { signal } = ended {
            self.context.warnings.push(format!(
                "the program has not taken signal {signal} for 5 s, as it is stopped by another, or waits in the kernel: it goes on untraced"
            ));
        }
        self.context.warnings.extend(left_in);
        let nothing = nothing_came(&self.options, &self.context.files);
        self.context.warnings.extend(nothing);
        let in_vain = waited_in_vain(&self.options, &self.context.files);
        self.context.warnings.extend(in_vain);
        let unhooked = self.context.files.unhooked();
        self.context.warnings.extend(unhooked);
        let kept_nothing = slowest::found_nothing(&self.context.shared);
        self.context.warnings.extend(kept_nothing);
        let risk = self.context.files.probes.untold_risk();
        self.context.warnings.extend(risk.map(str::to_owned));
        let breakpoints = self.context.files.probes.by_breakpoints();
        self.context.warnings.extend(breakpoints);
        self.keep_budget();
        let remarks = self.budget.iter().flat_map(HeldBudget::remarks);
        self.context.warnings.extend(remarks);
        self.context.warnings.extend(self.service.not_served.take());
        self.context
            .warnings
            .extend(self.kernel_events.limited.take());
        let outcome = Outcome {
            ended,
            directory: self.options.directory.clone(),
            functions: self.context.files.traced_sites.values().sum::<u64>()
                + collector.totals.kernel_functions,
            refused: self.context.files.refused.len() as u64,
            events: collector.totals.events,
            system: collector.totals.system,
            lost,
            lost_by_reason,
            given_up,
            short: collector.totals.short,
            snapshots: self.context.shared.snapshots().describe(),
            bytes,
            warnings: self.context.warnings,
            untraced: None,
        };
        // The end of our own process takes it away in less time.
        std::mem::forget((
            self.context.files,
            self.processes.tracees,
            self.context.shared,
        ));
        Ok(outcome)
    }

    /// Lets go of processes that still run, and of what they fork until they have been let go. Returns all of them.
    pub(crate) fn let_all_go(&mut self, mut left: Vec<i32>) -> Vec<i32> {
        /// Each forks less often than the one before: what has been let go has nothing of nopal's to pass on.
        const GENERATIONS: usize = 16;
        // Not one by one: some may share their memory.
        self.look_at_all_text(&left);
        let mut done = Vec::new();
        for _ in 0..GENERATIONS {
            for process in &left {
                self.let_go(*process);
            }
            done.append(&mut left);
            left = self.left();
            left.retain(|process| !done.contains(process));
            if left.is_empty() {
                break;
            }
        }
        done
    }

    /// Takes out of a process what this session has put into it.
    pub(crate) fn let_go(&mut self, process: i32) {
        self.context.shared.look_for_the_last_time(process);
        let regions = self.context.shared.regions();
        if let Some(tracee) = self.processes.tracees.get_mut(&process) {
            tracee.release_semaphores();
        }
        for journal in Journal::read_all(process).unwrap_or_default() {
            let mut ours = regions
                .iter()
                .filter(|region| region.inode() == journal.inode);
            let Some(region) = ours.next() else {
                continue;
            };
            let attempted = || self.progress.step();
            match remove::remove(&journal, WhileHeld::GiveUp, &attempted) {
                Ok(()) => {}
                // It has ended meanwhile, or executes another program.
                Err(_) if !remove::has_mapped(process, region) => {}
                Err(error) => match error.downcast() {
                    Ok(held) => self.held.push((process, held)),
                    Err(error) => {
                        self.failed.push(process);
                        self.context.warnings.push(format!(
                            "process {process}: {error:#}; `nopal detach {process}` takes out of it what is left of nopal"
                        ));
                    }
                },
            }
            self.progress.step();
        }
    }

    /// The guardian has nothing to do any more, or the rest.
    pub(crate) fn dismiss_guardian(&mut self) {
        if self.held.is_empty() || !self.guardian.hand_over() {
            self.guardian.dismiss();
        }
    }

    /// A line for each of these processes that nopal could not be taken out of as a whole. It may have been taken out of
    /// one by way of another one in the same memory.
    fn left_in(&self, processes: &[i32]) -> Vec<String> {
        let regions = self.context.shared.regions();
        let leads_to = |journal: &Journal| {
            let ours = |region: &Arc<Region>| region.inode() == journal.inode;
            let memory = Memory::open(journal.process);
            regions.iter().any(ours) && memory.is_ok_and(|memory| journal.has_hooks(&memory))
        };
        let is_left = |process: &&i32| {
            let journals = Journal::read_all(**process);
            !self.failed.contains(process)
                && journals.is_ok_and(|journals| journals.iter().any(leads_to))
        };
        let left = processes.iter().filter(is_left);
        left.map(|process| {
            if let Some((_, held)) = self.held.iter().find(|(it, _)| it == process) {
                return format!(
                    "process {process}: {held}; nopal's guardian, process {}, takes nopal out of it when it goes on",
                    self.guardian.process()
                );
            }
            format!(
                "a part of nopal stays in process {process}, as a thread there unwinds its stack all the time, or does not stop: it records nothing, but some functions of libc still lead through it; `nopal detach {process}` takes it out when that is possible"
            )
        })
        .chain(self.became_secret())
        .collect()
    }

    /// The same of processes that have become secret without asking.
    fn became_secret(&self) -> impl Iterator<Item = String> {
        let is_secret = |process: &&i32| {
            let why = nopal_process::gone(**process);
            matches!(why, StopError::NotPermitted(_)) && !self.secret.contains(process)
        };
        let secret = self.processes.tracees.keys().filter(is_secret);
        secret.map(|process| {
            format!(
                "process {process} has become secret (PR_SET_DUMPABLE), and may only be traced by root: its functions still lead through nopal's code, which records nothing any more; `nopal detach {process}` as root takes it out"
            )
        })
    }
}
