//! Requests of threads of traced processes, which wait for the answers.

use crate::filters::is_under_new_filter;
use crate::launch;
use crate::memory::control_block::thread_with;
use crate::memory::region::{ProgramRequest, Region};
use crate::memory::space::Space;
use crate::patch::remove;
use crate::patch::unwrap;
use crate::session::Session;
use crate::session::lock;
use crate::session::unfollowed::Unfollowed;
use crate::sites::catalog::Boundary;
use crate::sites::modules::named_runtime_among;
use crate::sites::signs::handles_stacks_because;
use crate::tracee::Tracee;
use anyhow::{Result, ensure};
use nopal_abi::{
    REQUEST_EXEC, REQUEST_LIBRARIES, REQUEST_LOCK, REQUEST_PAGE_BYTES, REQUEST_SECRET,
    REQUEST_TEXT, REQUEST_TRAPS,
};
use nopal_analysis::text::several;
use nopal_process::{ExecFollower, Followed, Mapping, Options as Trace, Thread};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

impl Session {
    pub(crate) fn answer(&mut self, region: &Arc<Region>, asked: &ProgramRequest) {
        // Others were answered before it.
        if !region.is_waiting(asked) {
            return;
        }
        // Both who asks and what has changed are read from one list: it is long where many libraries are loaded.
        let maps = nopal_process::maps(asked.process).unwrap_or_default();
        let listed = asked.process;
        let request = match *Session::who_waits(region, asked, &maps) {
            [(process, thread)] => &ProgramRequest {
                process,
                thread,
                ..*asked
            },
            ref found => {
                // None: it was killed.
                if region.answer(asked) && !found.is_empty() {
                    self.cannot_tell(region, asked);
                }
                return;
            }
        };
        let served = match request.what {
            REQUEST_EXEC => {
                // It will have another region.
                region.meet_threads();
                self.exec(region, asked, request)
            }
            REQUEST_LIBRARIES => {
                let maps = if request.process == listed {
                    maps
                } else {
                    Vec::new()
                };
                let changed = self.libraries_changed(region, request, maps);
                // A thread that has given up has told that.
                match region.answer(asked) {
                    true => changed,
                    false => Ok(()),
                }
            }
            REQUEST_LOCK => match self.lock_all(region, request) {
                Ok(true) => {
                    region.grant(asked);
                    Ok(())
                }
                refused => {
                    region.answer(asked);
                    refused.map(|_| ())
                }
            },
            REQUEST_TRAPS => {
                let left = self.leave_traps(region, request.process);
                region.answer(asked);
                left
            }
            REQUEST_TEXT | REQUEST_SECRET => {
                let left = match request.what {
                    REQUEST_TEXT => self.leave_text(region, request),
                    _ => self.leave_secret(region, request.process),
                };
                match left {
                    Ok(()) => region.grant(asked),
                    Err(_) => region.answer(asked),
                };
                left
            }
            _ => {
                region.answer(asked);
                Ok(())
            }
        };
        match served {
            Err(error) if request.what == REQUEST_EXEC => {
                self.unfollowed.add(request.process, format!("{error:#}"));
            }
            Err(error) => self
                .context
                .warn_once(format!("process {}: {error:#}", request.process)),
            Ok(()) => {}
        }
    }

    /// Several processes may be the one that requests this: none is touched.
    fn cannot_tell(&mut self, region: &Region, request: &ProgramRequest) {
        let process = region.process();
        match request.what {
            REQUEST_EXEC => self.unfollowed.add(process, Unfollowed::AMBIGUOUS),
            REQUEST_LIBRARIES => self.context.warn_once(format!(
                "libraries that a fork of process {process} loads are not traced: {}",
                Unfollowed::AMBIGUOUS
            )),
            _ => {}
        }
    }

    /// The ids, out here, of a process and its thread that give those which they have in their own PID namespace: these
    /// may be others' here, or those of several processes with this region.
    pub(crate) fn out_here(region: &Region, process: i32, thread: i32) -> Vec<(i32, i32)> {
        let has_mapped = || remove::has_mapped(process, region);
        Session::out_here_if(has_mapped, region, process, thread)
    }

    /// The same, if it is known whether a process with this number here has mapped the region.
    fn out_here_if(
        has_mapped: impl FnOnce() -> bool,
        region: &Region,
        process: i32,
        thread: i32,
    ) -> Vec<(i32, i32)> {
        if !region.has_other_numbers()
            && has_mapped()
            && let Some(same) = thread_with(process, process, thread)
        {
            return vec![(process, same)];
        }
        region.called(process, thread)
    }

    /// The same of a request: where there are several, the one that waits for the answer. It does not while it wants a
    /// processor, and never under seccomp. `maps` are the mappings of the process that has the request's number here.
    fn who_waits(region: &Region, request: &ProgramRequest, maps: &[Mapping]) -> Vec<(i32, i32)> {
        const LOOKS: usize = 1000;
        /// It waits in naps that follow each other.
        const BETWEEN: Duration = Duration::from_millis(1);
        let has_mapped = || remove::is_among(maps, region);
        let found = Session::out_here_if(has_mapped, region, request.process, request.thread);
        let may_wait = found.len() > 1 && request.thread != 0;
        let is_open = |_: &usize| may_wait && region.is_waiting(request);
        for _ in (0..LOOKS).take_while(is_open) {
            let mut who = found.iter();
            if let Some(one) =
                who.find(|(process, thread)| region.waits(request, *process, *thread))
            {
                return vec![*one];
            }
            std::thread::sleep(BETWEEN);
        }
        found
    }

    /// `maps`: the mappings of the process that asks, since it asked; none if they are to be read.
    fn libraries_changed(
        &mut self,
        region: &Arc<Region>,
        request: &ProgramRequest,
        mut maps: Vec<Mapping>,
    ) -> Result<()> {
        if maps.is_empty() {
            maps = match nopal_process::maps(request.process) {
                Err(_) if !nopal_process::has_memory(request.process) => return Ok(()),
                maps => maps?,
            };
        }
        let space = Space::new(&maps);
        let modules = nopal_process::modules_among(maps);
        if !self
            .processes
            .known_or_forked(region, request.process)?
            .entry_only
            && let Some(runtime) = named_runtime_among(&modules)
        {
            let why = handles_stacks_because(Some(runtime));
            self.context.warnings.push(why);
            self.wrap_nothing_more(region)?;
        }
        let Some(mut tracee) = self.processes.tracees.remove(&request.process) else {
            return Ok(());
        };
        let wrapped = !tracee.entry_only;
        let new = tracee.look_at_libraries(&modules, &mut self.context);
        let changed = new.and_then(|new| {
            if new.is_empty() {
                return Ok(true);
            }
            self.expect(&new, Boundary::With(&tracee, &new))?;
            let why = Unfollowed::FILTERED;
            ensure!(request.thread != 0, "new libraries are not traced: {why}");
            tracee.space = Some(space);
            with_thread(request, |thread| {
                tracee.add_libraries(&new, &self.control, thread, &mut self.context)
            })
        });
        let wraps = !tracee.entry_only;
        self.processes.tracees.insert(request.process, tracee);
        if wrapped && !wraps {
            self.wrap_nothing_more(region)?;
        }
        changed.and_then(|is_switched| self.arrived(is_switched))
    }

    /// A library was loaded that wrapping calls does not go with. All processes with this region run the same thunks.
    fn wrap_nothing_more(&mut self, region: &Arc<Region>) -> Result<()> {
        let ours = [std::process::id() as i32, self.guardian.process()];
        for process in remove::processes_with(std::slice::from_ref(region), &ours) {
            match self.processes.known_or_forked(region, process) {
                Err(error) if nopal_process::has_memory(process) => return Err(error),
                _ => {}
            }
        }
        let waiting: Vec<i32> = region
            .requests()
            .iter()
            .flat_map(|request| Session::out_here(region, request.process, request.thread))
            .map(|(_, thread)| thread)
            .collect();
        let mut processes: Vec<&mut Tracee> = self
            .processes
            .tracees
            .values_mut()
            .filter(|tracee| Arc::ptr_eq(&tracee.region, region))
            .collect();
        unwrap::wrap_nothing_more(&mut processes, &waiting, &self.context.shared.writer)
    }

    /// Whether the program's memory is locked now.
    fn lock_all(&mut self, region: &Arc<Region>, request: &ProgramRequest) -> Result<bool> {
        let tracee = self.processes.known_or_forked(region, request.process)?;
        let Some(mappings) = lock::lockable(tracee, request.word)? else {
            return Ok(false);
        };
        with_thread(request, |thread| {
            lock::lock(thread, &mappings, request.word)
        })?;
        Ok(true)
    }

    /// The program is about to deal with SIGTRAP itself: it gets it back, without breakpoints.
    fn leave_traps(&mut self, region: &Arc<Region>, process: i32) -> Result<()> {
        // The child of posix_spawn, in its parent's memory, sets signals of its own: the parent's breakpoints stay.
        let mut others = self
            .processes
            .tracees
            .keys()
            .filter(|other| **other != process);
        if others.any(|other| nopal_process::share_memory(*other, process)) {
            return Ok(());
        }
        self.processes.known_or_forked(region, process)?;
        let Some(tracee) = self.processes.tracees.get_mut(&process) else {
            return Ok(());
        };
        let left = tracee.leave_traps(&mut self.context)?;
        if left {
            self.context.warnings.push(format!(
                "process {process} uses SIGTRAP itself: its probes by breakpoints were removed"
            ));
        }
        Ok(())
    }

    /// The program is about to make text writable or to move it: it gets it as it is in the file.
    fn leave_text(&mut self, region: &Arc<Region>, request: &ProgramRequest) -> Result<()> {
        let pages = request.descriptor.max(0) as u64;
        let text = request.word
            ..request
                .word
                .saturating_add(pages * REQUEST_PAGE_BYTES as u64);
        let (owner, left) = self.leave_jumps(region, request.process, text)?;
        if left != [0; 2] {
            let sums = self.left_text.entry(owner).or_default();
            *sums = [sums[0] + left[0], sums[1] + left[1]];
        }
        Ok(())
    }

    /// The program forbids other processes of its user to trace it. Who has only attached to it could not leave it any
    /// more, and leaves its functions as long as that is possible.
    fn leave_secret(&mut self, region: &Arc<Region>, process: i32) -> Result<()> {
        if self.attached.is_empty() || rustix::process::geteuid().is_root() {
            return Ok(());
        }
        self.leave_jumps(region, process, 0..u64::MAX)?;
        self.secret.push(process);
        self.context.warnings.push(format!(
            "process {process} is secret now (PR_SET_DUMPABLE), and may only be traced by root: none of its functions are recorded from then on. Nopal's memory stays in it, and some functions of libc lead through it; `nopal detach {process}` as root takes it out"
        ));
        Ok(())
    }

    /// Takes the jumps within `text` out of a process, and of those whose memory it shares. Returns the one that they
    /// were in, and the numbers of functions and probes.
    fn leave_jumps(
        &mut self,
        region: &Arc<Region>,
        process: i32,
        text: Range<u64>,
    ) -> Result<(i32, [usize; 2])> {
        self.processes.known_or_forked(region, process)?;
        let (mut owner, mut left) = (process, [0; 2]);
        for (other, tracee) in &mut self.processes.tracees {
            if *other != process {
                // The child of a `vfork` changes its parent's text.
                if !nopal_process::share_memory(*other, process) {
                    continue;
                }
                owner = *other;
            }
            let (functions, probes) = tracee.leave_text(text.clone(), &mut self.context)?;
            left = [left[0].max(functions), left[1].max(probes)];
        }
        Ok((owner, left))
    }

    /// For people: what is not recorded any more since programs may change or move it.
    pub(crate) fn describe_left_text(&self) -> Vec<String> {
        let describe = |(process, left): (&i32, &[usize; 2])| {
            let kinds = [["function is", "functions are"], ["probe is", "probes are"]];
            let some = left.iter().zip(kinds).filter(|(number, _)| **number > 0);
            let lines = some.map(|(number, [one, more])| {
                let what = several(*number as u64, one, more);
                format!("process {process} may change or move its code: {what} not recorded from then on")
            });
            lines.collect::<Vec<_>>()
        };
        self.left_text.iter().flat_map(describe).collect()
    }

    fn exec(
        &mut self,
        region: &Arc<Region>,
        asked: &ProgramRequest,
        request: &ProgramRequest,
    ) -> Result<()> {
        let follows = self.options.follow_exec && launch::may_follow(request);
        let follower = follows
            .then(|| {
                ensure!(request.thread != 0, Unfollowed::FILTERED);
                ExecFollower::seize(request.process, request.thread)
            })
            .transpose();
        // The path is in the memory of a thread that waits.
        let is_withheld = self.options.follow_exec && !follows && launch::is_set_id(request);
        // It has given up by itself, and told that.
        if !region.answer(asked) {
            return Ok(());
        }
        if is_withheld {
            self.unfollowed.add(request.process, Unfollowed::SET_ID);
        }
        let Some(follower) = follower? else {
            return Ok(());
        };
        match follower.run()? {
            Followed::Executed(mut thread) => {
                let process = thread.pid();
                self.processes.tracees.remove(&process);
                let begun = self.begin_executed(&mut thread);
                // The wanted state is set up before the program runs.
                match self.processes.tracees.get_mut(&process) {
                    Some(tracee) => tracee.held = Some(thread),
                    None => drop(thread.detach()),
                }
                let begun = begun.and_then(|is_switched| self.arrived(is_switched));
                if let Some(tracee) = self.processes.tracees.get_mut(&process) {
                    let _ = tracee.held.take().map(Thread::detach);
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
fn with_thread<T>(
    request: &ProgramRequest,
    with: impl FnOnce(&mut Thread) -> Result<T>,
) -> Result<T> {
    let mut thread = Thread::seize(request.process, request.thread, Trace::default())?;
    thread.interrupt()?;
    thread.settle()?;
    if is_under_new_filter(&thread) {
        thread.suspend_seccomp(true)?;
    }
    let result = with(&mut thread);
    let _ = thread.detach();
    result
}
