use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::blocked::{
    blocked, children_beside, has_children, runs_program, sharers, vfork_children,
};
use crate::information::{thread_status, threads, time_on_processor};
use crate::reaper::Reaper;
use crate::refusal::{barrier, gone, traced_by};
use crate::restart::{is_wound_back, wind_back};
use crate::sleepers;
use crate::thread::{LONGEST_WAIT, Pause, is_gone, own_thread};
use crate::way_back::unused;
use crate::{Ending, Event, Mapping, Options, Stop, StopError, Thread, maps};

/// All threads of a process, stopped as [`Stop::Interrupted`] or [`Stop::Group`]. Dropping this resumes them. Threads
/// that only run the kernel's instructions are not among them: see [`runs_program`].
///
/// The child of a `vfork` that has not executed anything yet runs in the same memory: it stands still, too, and is
/// among the threads, with its own process id. So are those of other processes in that memory: see [`sharers`].
///
/// Signals that come before a thread has stopped are delivered first; it may then stand at the start of a handler.
/// Later signals wait in the kernel.
///
/// System calls that are woken by the stop are repeated afterwards: most by the kernel, `poll` and `nanosleep` with the
/// time that is left. `epoll_wait`, `sigtimedwait`, `semtimedop`, `io_getevents` and calls on sockets with a timeout
/// would fail with `EINTR`; they are made to be repeated, too. Their timeouts start over. After the first stop the end of
/// such a wait is known, and the next stop after that ends it, except that of a `pselect` or `splice`.
/// Transfers that are cut short by the stop go on with the rest.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    threads: Vec<Thread>,
    late: Vec<Thread>,
    /// Threads of other processes in the memory, which stand still while no more than one of its own does.
    beside: Vec<Thread>,
    /// A first thread that ended while we were stopping it: it remains traced until its process ends.
    first: Option<Thread>,
    /// The threads that get signals of the process, including that of an ended child.
    sent_signals: HashSet<i32>,
    /// It was stopped before, and stays so afterwards: see [`Stopped::with_only`].
    stays: bool,
    /// See [`Stopped::stay_together`].
    together: bool,
    /// Its mappings, once they were needed: where the stacks of its threads are.
    maps: OnceCell<Vec<Mapping>>,
}

/// The factor by which a thread that does not sleep is waited for longer.
pub(crate) const FOR_A_PROCESSOR: u32 = 5;

/// Querying the kernel about more threads than this would stop them for too long.
const CROWD: usize = 256;

/// The number of threads to examine to find one that can make system calls for us.
const ENOUGH_TO_CHOOSE_FROM: usize = 64;

/// The number of threads to stop, one after the other, to find one that has a way back from such calls.
const ENOUGH_TO_STOP: usize = 8;

/// The number of times that a running thread is looked at again before it is seized, and the time between.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// The longest wait for a thread that was let run for a moment: it may need a processor first.
pub(crate) const LONGEST_MOMENT: Duration = Duration::from_millis(500);

/// The processor time that a thread may need to stop.
const LONGEST_WAY_TO_STOP: Duration = Duration::from_millis(2);

/// The time between looks at the other threads, while one is waited for.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(10);

/// The threads in the list of threads that are not held yet.
#[derive(Default)]
struct Found {
    new: bool,
    /// The kernel may leave out others when a thread vanishes while it makes the list. A first thread does not vanish.
    dying: bool,
}

/// Threads that are resumed while others do not stop.
struct Others {
    /// Those that did not stop, and then did: they remain stopped, or one would always be waited for.
    awaited: HashSet<i32>,
    /// The time for which they are resumed next.
    moment: Duration,
    /// The time that each late thread had had a processor when it was first looked at.
    spent: HashMap<i32, Duration>,
}

impl Default for Others {
    fn default() -> Others {
        Others {
            awaited: HashSet::new(),
            moment: BETWEEN_SWEEPS,
            spent: HashMap::new(),
        }
    }
}

impl Stopped {
    /// Stops all threads, and gives up on those that have not stopped after `patience`: see [`Stopped::late`]. Runnable
    /// threads without a processor get more time. Expected failures are [`StopError`]s.
    pub fn stop(pid: i32, patience: Duration) -> Result<Stopped> {
        let stopped = Stopped::stop_beside(pid, None, false, patience)?;
        if stopped.are_killed() || stopped.threads.is_empty() && stopped.late.is_empty() {
            return Err(ended_or_executes(pid));
        }
        Ok(stopped)
    }

    /// The same for all threads but this one, which stands still. If one of them waits for it and it `may_run`, it does so
    /// meanwhile.
    pub fn stop_others(held: &mut Thread, may_run: bool, patience: Duration) -> Result<Stopped> {
        let pid = held.pid();
        match threads(pid).map_err(|_| ended_or_executes(pid))?[..] {
            [only] if only == held.tid() => Ok(Stopped::nothing(pid)),
            _ => Stopped::stop_beside(pid, Some(held), may_run, patience),
        }
    }

    fn stop_beside(
        pid: i32,
        mut held: Option<&mut Thread>,
        may_run: bool,
        patience: Duration,
    ) -> Result<Stopped> {
        let begun = Instant::now();
        let mut stopped = Stopped::nothing(pid);
        let reaper = Reaper::new();
        let mut known = HashSet::new();
        if let Some(thread) = &held {
            known.insert(thread.tid());
            reaper.watch(pid, thread.tid(), || ());
        }
        let mut pause = Pause::default();
        let mut look = true;
        let mut hopeless = false;
        let mut others = Others::default();
        loop {
            // The kernel makes a thread that executes a program wait for one that is held and does not know its end.
            if held.as_ref().is_some_and(|thread| !thread.is_held()) {
                return Err(ended_or_executes(pid));
            }
            // A running thread may create others; when all are stopped, one more look finds no new ones.
            let settled = stopped.wait_for_children() || hopeless;
            if look {
                let found = stopped.seize_new(&mut known, &reaper, patience)?;
                // To look for others in the memory takes long, and is not over while there are new threads.
                let settled = settled && !found.new;
                let sharers = settled && stopped.seize_sharers(&mut known, &reaper)?;
                if settled && !sharers && (hopeless || !found.dying) {
                    return Ok(stopped);
                }
            }
            // Check once more when the time is over: the tool may have had no processor, either.
            let waited = begun.elapsed();
            stopped.gather(&mut known)?;
            hopeless =
                waited >= patience && (stopped.all_sleep() || waited >= patience * FOR_A_PROCESSOR);
            if pause.is_long() {
                // A thread that executes a program waits until they have been waited for.
                if stopped.are_killed() {
                    return Err(ended_or_executes(pid));
                }
                stopped.seize_children(&mut known)?;
                if waited < patience && stopped.may_wait_for_others(&mut others) {
                    let held = held.as_deref_mut().filter(|_| may_run);
                    stopped.let_others_go_on(held, &mut others, &mut known)?;
                    pause = Pause::default();
                    look = true;
                    continue;
                }
            }
            look = stopped.wait_for_children() || hopeless;
            pause.rest();
        }
    }

    /// Stops only one thread, which can then make system calls for us: see [`Stopped::keep_one`]. Prefers a thread that
    /// has a way back if we are killed, gets no signals, and whose call would not fail; `others` above 0 selects a less
    /// suitable one. If none stops, all are stopped.
    pub fn stop_one(pid: i32, others: usize, patience: Duration) -> Result<Stopped> {
        let mut threads = threads(pid).map_err(|_| ended_or_executes(pid))?;
        threads.drain(..threads.len().saturating_sub(ENOUGH_TO_CHOOSE_FROM));
        threads.sort_by_cached_key(|&tid| {
            let sent_signals = is_sent_signals(pid, tid);
            let call = blocked(pid, tid);
            (sent_signals, call.is_some_and(|call| call.may_fail()))
        });
        let others = others % threads.len().max(1);
        threads.rotate_left(others);
        let mut beside = hold_children_beside(pid, patience)?;
        let (mut without_way_back, mut left) = (None, ENOUGH_TO_STOP);
        for tid in threads {
            // A thread that neither runs nor can be woken would remain traced.
            let state = thread_status(pid, tid).map(|status| status.state);
            if !matches!(state, Ok('R' | 'S')) || !runs_program(pid, tid) {
                continue;
            }
            let Some(thread) = seize(pid, tid)? else {
                continue;
            };
            thread.interrupt()?;
            let mut stopped = Stopped::nothing(pid);
            stopped.late.push(thread);
            let begun = Instant::now();
            let mut pause = Pause::default();
            while stopped.threads.is_empty() && !stopped.late.is_empty() {
                if begun.elapsed() >= patience {
                    break;
                }
                stopped.gather(&mut HashSet::new())?;
                pause.rest();
            }
            if !stopped.threads.is_empty() {
                left -= 1;
                if left == 0 || stopped.has_way_back(&stopped.threads[0]) {
                    stopped.beside = beside;
                    return Ok(stopped);
                }
                without_way_back.get_or_insert(stopped);
            }
        }
        match without_way_back {
            Some(mut stopped) => {
                stopped.beside = beside;
                Ok(stopped)
            }
            None => {
                beside.clear();
                Stopped::stop(pid, patience)
            }
        }
    }

    fn nothing(pid: i32) -> Stopped {
        Stopped {
            pid,
            threads: Vec::new(),
            late: Vec::new(),
            beside: Vec::new(),
            first: None,
            sent_signals: HashSet::new(),
            stays: false,
            together: false,
            maps: OnceCell::new(),
        }
    }

    /// A process with one thread that is already stopped, as after `execve`. [`Stopped::let_go`] returns it.
    pub fn with_only(thread: Thread) -> Stopped {
        let pid = thread.pid();
        let mut stopped = Stopped::nothing(pid);
        stopped.threads.push(thread);
        stopped.stays = true;
        stopped
    }

    /// Resumes the threads, except the one that was already stopped.
    pub fn let_go(mut self) -> Option<Thread> {
        if self.stays {
            return self.threads.pop();
        }
        self.release();
        None
    }

    /// While a thread is traced, the kernel does not discard ignored signals sent to it, and if it is stopped, at an
    /// interruption or at a signal, wakes another thread. If that one is only seized and its call fails, it may go on
    /// with the failure, as any thread that forks takes the signal away. So threads whose calls could fail are seized and
    /// interrupted first, and those that get signals last; of these the first thread before parents, which get many.
    fn seize_new(
        &mut self,
        known: &mut HashSet<i32>,
        reaper: &Reaper,
        patience: Duration,
    ) -> Result<Found> {
        let mut found = Found::default();
        let mut new = threads(self.pid).map_err(|_| ended_or_executes(self.pid))?;
        new.retain(|tid| !known.contains(tid));
        let (mut sent_signals, mut rest): (Vec<_>, Vec<_>) = new
            .into_iter()
            .partition(|&tid| is_sent_signals(self.pid, tid));
        let (mut waiting, mut harmless) = (Vec::new(), Vec::new());
        for look in 0..LOOKS {
            let mut running = Vec::new();
            for tid in rest {
                let call = blocked(self.pid, tid);
                match call {
                    Some(call) if call.is_kernels() => {}
                    Some(call) if call.may_fail() => waiting.push(tid),
                    Some(_) => harmless.push(tid),
                    None if look > 0 && has_children(self.pid, tid) => sent_signals.push(tid),
                    // It may be between two calls that may fail, or between two children.
                    None => running.push(tid),
                }
            }
            rest = running;
            if rest.is_empty() || look + 1 == LOOKS {
                break;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        rest.retain(|&tid| runs_program(self.pid, tid));
        sent_signals.sort_by_key(|tid| *tid != self.pid);
        self.sent_signals.extend(&sent_signals);
        if self.threads.is_empty() && self.late.is_empty() {
            self.threads = hold_children_beside(self.pid, patience)?;
            known.extend(self.threads.iter().map(Thread::tid));
        }
        for group in [waiting, harmless, rest, sent_signals] {
            self.seize_and_interrupt(group, known, reaper, &mut found)?;
        }
        Ok(found)
    }

    fn seize_and_interrupt(
        &mut self,
        group: Vec<i32>,
        known: &mut HashSet<i32>,
        reaper: &Reaper,
        found: &mut Found,
    ) -> Result<()> {
        let before = self.late.len();
        for tid in group {
            match reaper.watch(self.pid, tid, || seize(self.pid, tid))? {
                Some(thread) => {
                    self.late.push(thread);
                    known.insert(tid);
                    found.new = true;
                }
                None => found.dying |= tid != self.pid,
            }
        }
        self.late[before..].iter().try_for_each(Thread::interrupt)
    }

    /// Whether the stopped threads have been killed, all at once: by SIGKILL, or by another thread's `execve`.
    fn are_killed(&self) -> bool {
        let mut own = self.threads.iter().filter(|it| it.pid() == self.pid);
        let ends = [own.next(), own.next_back()];
        ends.into_iter().flatten().any(|thread| !thread.is_held())
    }

    /// Whether all threads that do not stop are parents of stopped children in the same memory.
    fn wait_for_children(&self) -> bool {
        self.late.iter().all(|thread| {
            thread.pid() == self.pid
                && vfork_children(self.pid, thread.tid())
                    .iter()
                    .any(|child| self.threads.iter().any(|held| held.tid() == *child))
        })
    }

    /// Whether the threads that have not stopped sleep in the kernel.
    fn all_sleep(&self) -> bool {
        let mut late = self.late.iter();
        late.all(|thread| blocked(thread.pid(), thread.tid()).is_some())
    }

    /// Whether a thread that does not stop may wait for what another one does: for a page that the program provides
    /// itself (`userfaultfd`). It sleeps, and not for its `vfork` child, or keeps a processor busy: a fault in the kernel
    /// is tried again at once while there is a signal.
    fn may_wait_for_others(&self, others: &mut Others) -> bool {
        self.late.iter().any(|thread| {
            let (pid, tid) = (thread.pid(), thread.tid());
            let is_busy = time_on_processor(pid, tid).is_some_and(|now| {
                let before = *others.spent.entry(tid).or_insert(now);
                now.saturating_sub(before) >= LONGEST_WAY_TO_STOP
            });
            let sleeps = || thread_status(pid, tid).is_ok_and(|it| it.state == 'D');
            is_busy || sleeps() && vfork_children(self.pid, tid).is_empty()
        })
    }

    /// Resumes the threads that have stopped until those that have not stop, or for a moment that is longer each time.
    /// The one that is `held` runs, too.
    fn let_others_go_on(
        &mut self,
        mut held: Option<&mut Thread>,
        others: &mut Others,
        known: &mut HashSet<i32>,
    ) -> Result<()> {
        let (resumed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.threads)
            .into_iter()
            .partition(|it| it.pid() == self.pid && !others.awaited.contains(&it.tid()));
        self.threads = kept;
        for thread in &resumed {
            known.remove(&thread.tid());
        }
        let late = self.resume(resumed);
        known.extend(late.iter().map(Thread::tid));
        self.late.extend(late);
        others.awaited.extend(self.late.iter().map(Thread::tid));
        if let Some(held) = &mut held {
            held.resume()?;
        }
        let until = Instant::now() + others.moment;
        let mut pause = Pause::default();
        while !self.late.is_empty() && Instant::now() < until {
            self.gather(known)?;
            pause.rest();
        }
        if let Some(held) = held {
            held.interrupt()?;
            match held.settle_until(Instant::now() + LONGEST_WAIT)? {
                Some(Event::Stopped(Stop::Interrupted)) => wind_back(held, &self.maps)?,
                Some(Event::Stopped(Stop::Group(_))) => {}
                Some(_) => return Err(ended_or_executes(self.pid)),
                None => bail!("thread {} does not stop", held.tid()),
            }
        }
        if !self.late.is_empty() {
            // They may wait for one of those that remained stopped.
            others.awaited.clear();
            others.moment *= 2;
        }
        others.spent.clear();
        Ok(())
    }

    /// Most children of `vfork` call `execve` at once: this handles those that do not.
    fn seize_children(&mut self, known: &mut HashSet<i32>) -> Result<()> {
        let parents = self.late.iter().filter(|late| late.pid() == self.pid);
        let children = parents
            .flat_map(|late| vfork_children(self.pid, late.tid()))
            .collect::<Vec<_>>();
        for child in children {
            if !known.contains(&child)
                && let Some(thread) = seize(child, child)?
            {
                thread.interrupt()?;
                self.late.push(thread);
                known.insert(child);
            }
        }
        Ok(())
    }

    /// Seizes the threads of other processes in the same memory. Returns whether there were new ones.
    fn seize_sharers(&mut self, known: &mut HashSet<i32>, reaper: &Reaper) -> Result<bool> {
        let of_process = |thread: &&Thread| thread.pid() == self.pid;
        let mut parents: Vec<i32> = self
            .threads
            .iter()
            .filter(of_process)
            .map(Thread::tid)
            .collect();
        if parents.len() > CROWD {
            parents.retain(|tid| self.sent_signals.contains(tid));
        }
        let before = self.late.len();
        for process in sharers(self.pid, &parents) {
            for tid in threads(process).unwrap_or_default() {
                if !known.contains(&tid)
                    && let Some(thread) = reaper.watch(process, tid, || seize(process, tid))?
                {
                    known.insert(tid);
                    self.late.push(thread);
                }
            }
        }
        self.late[before..].iter().try_for_each(Thread::interrupt)?;
        Ok(self.late.len() > before)
    }

    /// Moves the threads that have stopped from `late` to `threads`. Ended ones are removed, since their ids may be
    /// reused.
    fn gather(&mut self, known: &mut HashSet<i32>) -> Result<()> {
        for mut thread in std::mem::take(&mut self.late) {
            loop {
                match thread.poll()? {
                    // Dropping a child that has left the memory resumes it.
                    Some(Event::Stopped(Stop::Executed)) if thread.pid() != self.pid => break,
                    Some(Event::Stopped(Stop::Executed)) => return Err(StopError::Executes.into()),
                    Some(Event::Stopped(stop @ (Stop::Interrupted | Stop::Group(_)))) => {
                        // A group-stop is not ours: it would have interrupted the call anyway.
                        if stop == Stop::Interrupted && wind_back(&mut thread, &self.maps).is_err()
                        {
                            break;
                        }
                        self.threads.push(thread);
                        break;
                    }
                    Some(Event::Stopped(stop)) => thread.pass(stop)?,
                    // Its id may be that of the process by now.
                    Some(Event::Ended(Ending::Unknown))
                        if thread.pid() == self.pid && thread.tid() != self.pid =>
                    {
                        thread.become_first();
                        return Err(StopError::Executes.into());
                    }
                    Some(Event::Ended(_)) => {
                        known.remove(&thread.tid());
                        break;
                    }
                    None if thread.is_zombie() => {
                        if thread.pid() == self.pid {
                            self.first = Some(thread);
                        }
                        break;
                    }
                    None => {
                        self.late.push(thread);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    pub fn threads_mut(&mut self) -> &mut [Thread] {
        &mut self.threads
    }

    /// Lets one of the threads run for a moment, and stops it at [`Stop::Interrupted`] or [`Stop::Group`] again. If it
    /// ends in that moment, it is not among the threads any more.
    ///
    /// If it executes a program in that moment, the kernel ends all others, and makes it wait until those that are
    /// traced have been waited for: then the error is [`StopError::Executes`].
    ///
    /// `None`: it waits in the kernel, perhaps for what another thread does, as after a fault that the program handles
    /// itself (`userfaultfd`). It is among [`Stopped::late`] then.
    pub fn run_for_a_moment(&mut self, thread: usize) -> Result<Option<Event>> {
        self.threads[thread].run_for_a_moment()?;
        let Some(event) = self.settle(thread)? else {
            let waiting = self.threads.remove(thread);
            self.late.push(waiting);
            return Ok(None);
        };
        if let Event::Ended(_) = event {
            let ended = self.threads.remove(thread);
            // The kernel has not reported its end yet.
            if ended.ending().is_none() && ended.pid() == self.pid {
                self.first = Some(ended);
            }
        }
        Ok(Some(event))
    }

    /// Waits until a thread that was let run has stopped again, or ended. `None`: it takes too long.
    fn settle(&mut self, thread: usize) -> Result<Option<Event>> {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_MOMENT {
            let running = &mut self.threads[thread];
            match running.settle_until(Instant::now() + BETWEEN_SWEEPS)? {
                Some(Event::Stopped(Stop::Executed)) => return Err(StopError::Executes.into()),
                // Its id is that of the process by now.
                Some(Event::Ended(Ending::Unknown))
                    if running.pid() == self.pid && running.tid() != self.pid =>
                {
                    running.become_first();
                    return Err(StopError::Executes.into());
                }
                Some(event) => {
                    let is_interrupted = event == Event::Stopped(Stop::Interrupted);
                    match is_interrupted.then(|| wind_back(running, &self.maps)) {
                        // Killed where it stood: its end is the next event.
                        Some(Err(_)) if running.is_swept_away()? => {}
                        Some(Err(error)) => return Err(error),
                        _ => return Ok(Some(event)),
                    }
                }
                // A thread that is not held has executed a program, and has its id now.
                None if !running.is_ours() => return Err(StopError::Executes.into()),
                None => {}
            }
            let mut any_is_gone = false;
            for (at, other) in self.threads.iter_mut().enumerate() {
                any_is_gone |= at != thread && other.is_swept_away()?;
            }
            if self.threads[thread].is_zombie() {
                if !any_is_gone {
                    return Ok(Some(Event::Ended(Ending::Unknown)));
                }
                std::thread::sleep(BETWEEN_SWEEPS);
            }
        }
        Ok(None)
    }

    /// Threads that sleep in the kernel, uninterruptibly: the parent of a `vfork` until the child executes or exits, a
    /// wait for a dead file server. They execute no instruction of the program before they are detached, but cannot be
    /// looked at.
    pub fn late(&self) -> &[Thread] {
        &self.late
    }

    /// Whether all threads stand still as long as [`Stopped::keep_one`] keeps one. So a process cannot trace itself
    /// meanwhile, as for LeakSanitizer, which would not look at the stack of a thread that we trace.
    pub fn stay_together(&mut self, together: bool) {
        self.together = together;
    }

    /// Resumes all threads of the process except one, which can make system calls for us. Avoids the child of a `vfork`,
    /// and a thread that gets signals, if there is another: see [`Stopped::seize_new`]. `None`: no thread is stopped.
    pub fn keep_one(&mut self) -> Option<&mut Thread> {
        let kept = self.fittest()?;
        self.threads.swap(0, kept);
        if self.together {
            self.threads[0].others_stand_still = true;
            return self.threads.first_mut();
        }
        for thread in self.threads.split_off(1) {
            if thread.pid() == self.pid {
                self.late.extend(thread.detach().err());
            } else {
                self.beside.push(thread);
            }
        }
        self.threads.first_mut()
    }

    /// The same thread, while all others stand still: see [`crate::Lent::keep_others`].
    pub fn take_one(&mut self) -> Option<Thread> {
        let taken = self.fittest()?;
        Some(self.threads.swap_remove(taken))
    }

    fn fittest(&self) -> Option<usize> {
        let threads = self.threads.iter().enumerate();
        let own = threads.filter(|(_, thread)| thread.pid() == self.pid);
        let mut own: Vec<(usize, &Thread)> = own.collect();
        own.sort_by_key(|(_, thread)| self.sent_signals.contains(&thread.tid()));
        let (first, last) = (own.first(), own.len().saturating_sub(1));
        // Those that get signals are the last ones.
        let mut some = own.iter().take(ENOUGH_TO_CHOOSE_FROM).chain(own.get(last));
        let fittest = some.find(|(_, thread)| self.has_way_back(thread)).or(first);
        fittest.map(|(index, _)| *index)
    }

    /// Whether a stopped thread can go back from a call for us if we are killed: see [`crate::way_back`].
    fn has_way_back(&self, thread: &Thread) -> bool {
        let Ok(registers) = thread.registers() else {
            return false;
        };
        let known = || maps(self.pid).unwrap_or_default();
        unused(thread, self.maps.get_or_init(known), &registers).is_some()
    }

    /// Resumes all threads. Threads that have not stopped remain traced, and stop when they wake up; they are returned,
    /// to be detached later (or by the end of this OS thread).
    pub fn detach_all(mut self) -> Vec<Thread> {
        self.release()
    }

    fn release(&mut self) -> Vec<Thread> {
        let mut threads = std::mem::take(&mut self.threads);
        threads.append(&mut self.late);
        threads.append(&mut self.beside);
        threads.extend(self.first.take());
        self.resume(threads)
    }

    /// Those that have not stopped are returned, still traced.
    fn resume(&mut self, mut threads: Vec<Thread>) -> Vec<Thread> {
        // A resumed thread may at once make a call that an ignored signal interrupts: see `seize_new`. So threads that
        // get signals go first, and threads in such a call last. Before it stopped, a thread may have got more
        // children; for many threads this is not checked again.
        if threads.len() <= CROWD {
            let is_sent = |tid: &i32| is_sent_signals(self.pid, *tid);
            self.sent_signals = threads.iter().map(Thread::tid).filter(is_sent).collect();
        }
        threads.sort_by_cached_key(|thread| {
            let is_first = thread.tid() == self.pid;
            (
                !self.sent_signals.contains(&thread.tid()),
                is_wound_back(thread),
                !is_first,
            )
        });
        // One of another process may be about to trace these: see `hold_children_beside`.
        let (own, mut others): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|it| it.pid() == self.pid);
        let mut threads = sleepers::let_parents_go(own, &mut others);
        threads.append(&mut others);
        threads.retain_mut(|thread| !thread.leave_if_stopped());
        // If they have been killed, the first thread's end is reported after all others have been waited for.
        threads.sort_by_key(|thread| thread.tid() == self.pid);
        threads
            .into_iter()
            .filter_map(|thread| thread.detach().err())
            .collect()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.release();
    }
}

fn ended_or_executes(pid: i32) -> anyhow::Error {
    gone(pid).into()
}

/// Stops the children that run in the memory of the process, before its threads. One may be stopping these threads
/// itself, as LeakSanitizer has a child do: it would go on without those that we trace, and find nothing on their
/// stacks. If one traces a thread already, this waits until it has let go of it.
fn hold_children_beside(pid: i32, patience: Duration) -> Result<Vec<Thread>> {
    let begun = Instant::now();
    loop {
        let mut own = threads(pid).map_err(|_| ended_or_executes(pid))?;
        if own.len() > CROWD {
            own.truncate(1);
        }
        let mut children = Stopped::nothing(pid);
        for child in children_beside(pid, &own) {
            children.late.extend(seize(child, child)?);
        }
        if children.late.is_empty() {
            return Ok(Vec::new());
        }
        children.late.iter().try_for_each(Thread::interrupt)?;
        let mut pause = Pause::default();
        let all: HashSet<i32> = children.late.iter().map(Thread::tid).collect();
        let until = Instant::now() + LONGEST_MOMENT;
        while !children.late.is_empty() && Instant::now() < until {
            children.gather(&mut HashSet::new())?;
            pause.rest();
        }
        let tracers = own.iter().filter_map(|&tid| thread_status(pid, tid).ok());
        let tracer = tracers.map(|it| it.tracer).find(|it| all.contains(it));
        match tracer {
            None => return Ok(std::mem::take(&mut children.threads)),
            Some(tracer) if begun.elapsed() >= patience => return Err(traced_by(tracer).into()),
            Some(_) => {}
        }
        drop(children);
        std::thread::sleep(BETWEEN_SWEEPS);
    }
}

/// Whether this thread gets signals of the process, including that of an ended child.
fn is_sent_signals(pid: i32, tid: i32) -> bool {
    tid == pid || has_children(pid, tid)
}

/// `None`: the thread has ended.
fn seize(pid: i32, tid: i32) -> Result<Option<Thread>> {
    let mut attempts = 0;
    loop {
        let error = match Thread::try_seize(pid, tid, Options { executions: true }) {
            Ok(thread) => return Ok(Some(thread)),
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => error,
        };
        // A zombie is refused, too, and `execve` may have given its id to another since.
        let tracer = match thread_status(pid, tid) {
            Ok(status) if !status.is_dead() => status.tracer,
            _ => return Ok(None),
        };
        attempts += 1;
        if tracer == own_thread() {
            let sleeper = sleepers::take(tid).ok_or(StopError::Executes)?;
            return Ok(Some(sleeper));
        }
        if tracer != 0 {
            return Err(traced_by(tracer).into());
        }
        if attempts == 3 {
            return Err(error).context(StopError::NotPermitted(barrier(pid)));
        }
    }
}
