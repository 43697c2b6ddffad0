//! What the threads of traced processes ask, and wait for.

use crate::launch;
use crate::memory::region::{Question, Region};
use crate::places::modules::some_handle_stacks;
use crate::places::signs::HANDLES_STACKS;
use crate::session::Session;
use crate::session::lock;
use crate::session::unfollowed::Unfollowed;
use crate::text::remove;
use crate::text::unwrap;
use crate::traced::{Traced, Workshop};
use anyhow::{Context, Result};
use nopal_abi::{ASK_EXEC, ASK_LIBRARIES, ASK_LOCK, ASK_TRAPS};
use nopal_process::{ExecFollower, Followed, Mapping, Options as Trace, Thread};
use std::sync::Arc;

impl Session {
    pub(crate) fn answer(&mut self, region: &Arc<Region>, question: &Question) {
        // Others were answered before it.
        if !region.is_waiting(question) {
            return;
        }
        // In a PID namespace of its own a process has a number that is another's out here, which must not be touched.
        let maps = nopal_process::maps(question.process).unwrap_or_default();
        if !remove::is_mapped(&maps, region) {
            if question.what == ASK_EXEC && self.asks_from_elsewhere(region, question) {
                self.unfollowed.add(region.process(), Unfollowed::ELSEWHERE);
            }
            region.answer(question);
            return;
        }
        // Each question is answered once: its place may be another question's by the next moment.
        let served = match question.what {
            ASK_EXEC => self.exec(region, question),
            ASK_LIBRARIES => {
                let changed = self.libraries_changed(region, question, maps);
                region.answer(question);
                changed
            }
            ASK_LOCK => match self.lock_all(region, question) {
                Ok(true) => {
                    region.grant(question);
                    Ok(())
                }
                refused => {
                    region.answer(question);
                    refused.map(|_| ())
                }
            },
            ASK_TRAPS => {
                let left = self.leave_traps(region, question.process);
                region.answer(question);
                left
            }
            _ => {
                region.answer(question);
                Ok(())
            }
        };
        match served {
            Err(error) if question.what == ASK_EXEC => {
                self.unfollowed.add(question.process, format!("{error:#}"));
            }
            Err(error) => self
                .warnings
                .push(format!("process {}: {error:#}", question.process)),
            Ok(()) => {}
        }
    }

    /// Whether a thread asks that calls itself by numbers of a PID namespace of its own; and was not just killed.
    fn asks_from_elsewhere(&self, region: &Arc<Region>, question: &Question) -> bool {
        let ours = [std::process::id() as i32, self.guardian.process()];
        remove::processes_with(std::slice::from_ref(region), &ours)
            .into_iter()
            .filter_map(|process| nopal_process::status(process).ok())
            .filter(|status| status.namespace_ids.len() > 1)
            .any(|status| status.namespace_ids.last() == Some(&question.process))
    }

    /// The process that asks: known, or a forked child of one that is.
    pub(crate) fn asker(&mut self, region: &Arc<Region>, process: i32) -> Result<&mut Traced> {
        if !self.traced.contains_key(&process) {
            let parent = self
                .traced
                .values()
                .find(|traced| Arc::ptr_eq(&traced.region, region))
                .context("its memory belongs to no traced process")?;
            let child = parent.fork(process)?;
            self.traced.insert(process, child);
        }
        self.traced.get_mut(&process).context("unknown process")
    }

    fn libraries_changed(
        &mut self,
        region: &Arc<Region>,
        question: &Question,
        maps: Vec<Mapping>,
    ) -> Result<()> {
        let modules = nopal_process::modules_among(maps);
        if !self.asker(region, question.process)?.entry_only && some_handle_stacks(&modules) {
            self.warnings.push(HANDLES_STACKS.into());
            self.wrap_nothing_more(region)?;
        }
        let Some(mut traced) = self.traced.remove(&question.process) else {
            return Ok(());
        };
        let mut workshop = Workshop {
            settings: &self.settings,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        };
        let wrapped = !traced.entry_only;
        let changed = traced
            .look_at_libraries(&modules, &mut workshop)
            .and_then(|new| match new.is_empty() {
                true => Ok(()),
                false => with_thread(question, |thread| {
                    traced.add_libraries(&new, thread, &mut workshop)
                }),
            });
        let wraps = !traced.entry_only;
        self.traced.insert(question.process, traced);
        if wrapped && !wraps {
            self.wrap_nothing_more(region)?;
        }
        changed.and_then(|()| self.refresh())
    }

    /// A library was loaded that wrapping calls does not go with. All processes with this region run the same thunks.
    fn wrap_nothing_more(&mut self, region: &Arc<Region>) -> Result<()> {
        let ours = [std::process::id() as i32, self.guardian.process()];
        for process in remove::processes_with(std::slice::from_ref(region), &ours) {
            match self.asker(region, process) {
                Err(error) if nopal_process::has_memory(process) => return Err(error),
                _ => {}
            }
        }
        let mut processes: Vec<&mut Traced> = self
            .traced
            .values_mut()
            .filter(|traced| Arc::ptr_eq(&traced.region, region))
            .collect();
        let waiting: Vec<i32> = region
            .questions()
            .iter()
            .map(|question| question.thread)
            .collect();
        unwrap::wrap_nothing_more(&mut processes, &waiting)
    }

    /// Whether the program's memory is locked now.
    fn lock_all(&mut self, region: &Arc<Region>, question: &Question) -> Result<bool> {
        let traced = self.asker(region, question.process)?;
        let Some(mappings) = lock::lockable(traced, question.word)? else {
            return Ok(false);
        };
        with_thread(question, |thread| {
            lock::lock(thread, &mappings, question.word)
        })?;
        Ok(true)
    }

    /// The program is about to deal with SIGTRAP itself: it gets it back, without breakpoints.
    fn leave_traps(&mut self, region: &Arc<Region>, process: i32) -> Result<()> {
        // The child of posix_spawn, in its parent's memory, sets signals of its own: the parent's breakpoints stay.
        let mut others = self.traced.keys().filter(|other| **other != process);
        if others.any(|other| nopal_process::share_memory(*other, process)) {
            return Ok(());
        }
        self.asker(region, process)?;
        let Some(traced) = self.traced.get_mut(&process) else {
            return Ok(());
        };
        let left = traced.leave_traps(&mut Workshop {
            settings: &self.settings,
            files: &mut self.files,
            writer: &self.shared.writer,
            warnings: &mut self.warnings,
        })?;
        if left {
            self.warnings.push(format!(
                "process {process} deals with SIGTRAP itself: its probes by breakpoints were taken out"
            ));
        }
        Ok(())
    }

    fn exec(&mut self, region: &Arc<Region>, question: &Question) -> Result<()> {
        let follows = self.options.follow_exec && launch::may_follow(question);
        if self.options.follow_exec && !follows && launch::is_set_id(question) {
            self.unfollowed.add(question.process, Unfollowed::SET_ID);
        }
        let follower = follows
            .then(|| ExecFollower::seize(question.process, question.thread))
            .transpose();
        region.answer(question);
        let Some(follower) = follower? else {
            return Ok(());
        };
        match follower.run()? {
            Followed::Executed(mut thread) => {
                let process = thread.pid();
                self.traced.remove(&process);
                let begun = self.begin(&mut thread);
                // What control wants is in place before the program runs, too.
                match self.traced.get_mut(&process) {
                    Some(traced) => traced.held = Some(thread),
                    None => drop(thread.detach()),
                }
                let begun = begun.and_then(|()| self.refresh());
                if let Some(traced) = self.traced.get_mut(&process) {
                    let _ = traced.held.take().map(Thread::detach);
                }
                if begun.is_err() {
                    self.let_go(process);
                }
                begun
            }
            Followed::Failed(_) | Followed::Ended(_) => Ok(()),
        }
    }
}

/// Holds the thread that asks, which waits in the runtime.
fn with_thread<T>(question: &Question, with: impl FnOnce(&mut Thread) -> Result<T>) -> Result<T> {
    let mut thread = Thread::seize(question.process, question.thread, Trace::default())?;
    thread.interrupt()?;
    thread.settle()?;
    let result = with(&mut thread);
    let _ = thread.detach();
    result
}
