use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::blocked::{blocked, has_children, vfork_children};
use crate::information::{alive, thread_status, threads};
use crate::reaper::Reaper;
use crate::refusal::{barrier, traced_by};
use crate::restart::{is_wound_back, may_fail, wind_back};
use crate::thread::{Pause, is_gone, own_thread};
use crate::{Ending, Event, Options, Stop, StopError, Thread};

/// All threads of a process, standing still as [`Stop::Interrupted`] or [`Stop::Group`]. Dropped, all go on.
///
/// The child of a `vfork` that has not executed anything yet runs in the same memory: it stands still, too, and is
/// among the threads, with its own process id.
///
/// Signals that come before a thread has stopped are delivered first; it may then stand at the start of a handler.
/// Those that come later wait in the kernel.
///
/// System calls that are woken by the stop are repeated afterwards: most by the kernel, `poll` and `nanosleep` with the
/// time that is left. `epoll_wait`, `sigtimedwait`, `semtimedop`, `io_getevents` and calls on sockets with a timeout
/// would fail with `EINTR`; they are made to be repeated, too. Their timeouts start over, but from the first stop on the
/// end of such a wait is known, and the first stop behind it ends the wait; but not that of a `pselect` or `splice`.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    threads: Vec<Thread>,
    late: Vec<Thread>,
    /// A first thread that ended while we were stopping it: it remains traced until its process ends.
    first: Option<Thread>,
    /// Those that a signal for the process, or that of a child which ends, is sent to.
    sent_signals: HashSet<i32>,
    /// It stood still before, and is to stand still afterwards: see [`Stopped::with_only`].
    stays: bool,
}

/// How many times longer a thread is waited for that does not sleep.
const FOR_A_PROCESSOR: u32 = 5;

/// More threads than this stand still for too long while the kernel is asked about each.
const CROWD: usize = 256;

/// How many threads are looked at to find one that can be made to call the kernel.
const ENOUGH_TO_CHOOSE_FROM: usize = 64;

/// What a look at the list of threads showed, besides those that are held.
#[derive(Default)]
struct Found {
    new: bool,
    /// The kernel may leave out others when a thread vanishes while it makes the list. A first thread does not vanish.
    dying: bool,
}

impl Stopped {
    /// Stops all threads, and gives up on those that have not stopped after `patience`: see [`Stopped::late`]. Those
    /// that are not asleep, but have got no processor, are waited for longer. Failures that are to be expected are
    /// [`StopError`]s.
    pub fn stop(pid: i32, patience: Duration) -> Result<Stopped> {
        let begun = Instant::now();
        let mut stopped = Stopped::nothing(pid);
        let mut known = HashSet::new();
        let reaper = Reaper::start();
        let mut pause = Pause::default();
        let mut look = true;
        let mut hopeless = false;
        loop {
            // A thread that still runs may create others; when all stand still, one more look finds none.
            let settled = stopped.wait_for_children() || hopeless;
            if look {
                let found = stopped.seize_new(&mut known, &reaper)?;
                if settled && !found.new && (hopeless || !found.dying) {
                    break;
                }
            }
            // Stopped threads are gathered once more when the time is over: the tool may have got no processor, either.
            let waited = begun.elapsed();
            stopped.gather(&mut known)?;
            hopeless =
                waited >= patience && (stopped.all_sleep() || waited >= patience * FOR_A_PROCESSOR);
            if pause.is_long() {
                stopped.seize_children(&mut known)?;
            }
            look = stopped.wait_for_children() || hopeless;
            pause.rest();
        }
        // Those that stood still may have been killed since, all at once: by SIGKILL, or by another's `execve`.
        let gone = |thread: &Thread| !thread.is_held();
        if stopped.threads.first().is_some_and(gone)
            || stopped.threads.last().is_some_and(gone)
            || stopped.threads.is_empty() && stopped.late.is_empty()
        {
            let error = if alive(pid) {
                StopError::Executes
            } else {
                StopError::Ended
            };
            return Err(error.into());
        }
        Ok(stopped)
    }

    /// Stops one thread only, which can then be made to call the kernel: see [`Stopped::keep_one`]. Where there is one,
    /// it is one that no signals are sent to, and whose call would not fail; with `others` above 0, one that is less fit,
    /// if there are several. Where none stops, all are stopped.
    pub fn stop_one(pid: i32, others: usize, patience: Duration) -> Result<Stopped> {
        let mut threads = threads(pid).map_err(|_| StopError::Ended)?;
        threads.drain(..threads.len().saturating_sub(ENOUGH_TO_CHOOSE_FROM));
        threads.sort_by_cached_key(|&tid| {
            let sent_signals = is_sent_signals(pid, tid);
            (sent_signals, may_fail(pid, tid))
        });
        let others = others % threads.len().max(1);
        threads.rotate_left(others);
        for tid in threads {
            // One that neither runs nor can be woken would remain traced.
            let state = thread_status(pid, tid).map(|status| status.state);
            if !matches!(state, Ok('R' | 'S')) {
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
                return Ok(stopped);
            }
        }
        Stopped::stop(pid, patience)
    }

    fn nothing(pid: i32) -> Stopped {
        Stopped {
            pid,
            threads: Vec::new(),
            late: Vec::new(),
            first: None,
            sent_signals: HashSet::new(),
            stays: false,
        }
    }

    /// A process with one thread, which stands still already, as after `execve`. [`Stopped::let_go`] gives it back.
    pub fn with_only(thread: Thread) -> Stopped {
        let pid = thread.pid();
        let mut stopped = Stopped::nothing(pid);
        stopped.threads.push(thread);
        stopped.stays = true;
        stopped
    }

    /// Lets go those threads that went on before. The one that did not stands still as it did.
    pub fn let_go(mut self) -> Option<Thread> {
        if self.stays {
            return self.threads.pop();
        }
        self.release();
        None
    }

    /// Seizes first and interrupts then, those first whose calls could fail, those last that signals are sent to. A
    /// signal that the process ignores is not thrown away by the kernel while the thread that it is sent to is traced,
    /// and wakes another if that one stands still: which must be one that is interrupted already, so that we see it
    /// wake.
    fn seize_new(&mut self, known: &mut HashSet<i32>, reaper: &Reaper) -> Result<Found> {
        let mut found = Found::default();
        for tid in threads(self.pid).map_err(|_| StopError::Ended)? {
            if known.contains(&tid) {
                continue;
            }
            match reaper.watch(self.pid, tid, || seize(self.pid, tid))? {
                Some(thread) => {
                    self.late.push(thread);
                    known.insert(tid);
                    found.new = true;
                }
                None => found.dying |= tid != self.pid,
            }
        }
        if found.new {
            let mut late = std::mem::take(&mut self.late);
            late.sort_by_cached_key(|thread| {
                let (pid, tid) = (thread.pid(), thread.tid());
                let sent_signals = is_sent_signals(pid, tid);
                self.sent_signals.extend(sent_signals.then_some(tid));
                (sent_signals, !may_fail(pid, tid))
            });
            self.late = late;
            self.late.iter().try_for_each(Thread::interrupt)?;
        }
        Ok(found)
    }

    /// Whether all that do not stop are parents of children in the same memory, which do.
    fn wait_for_children(&self) -> bool {
        self.late.iter().all(|thread| {
            thread.pid() == self.pid
                && vfork_children(self.pid, thread.tid())
                    .iter()
                    .any(|child| self.threads.iter().any(|held| held.tid() == *child))
        })
    }

    /// Whether those that have not stopped sleep in the kernel.
    fn all_sleep(&self) -> bool {
        let mut late = self.late.iter();
        late.all(|thread| blocked(thread.pid(), thread.tid()).is_some())
    }

    /// Most children of `vfork` execute something at once: this is for those that do not.
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

    /// Moves the threads that have stopped from `late` to `threads`. Those that have ended are not known any more:
    /// their ids may be given to others.
    fn gather(&mut self, known: &mut HashSet<i32>) -> Result<()> {
        for mut thread in std::mem::take(&mut self.late) {
            loop {
                match thread.poll()? {
                    // Dropped, a child that has left the memory goes on.
                    Some(Event::Stopped(Stop::Executed)) if thread.pid() != self.pid => break,
                    Some(Event::Stopped(Stop::Executed)) => return Err(StopError::Executes.into()),
                    Some(Event::Stopped(stop @ (Stop::Interrupted | Stop::Group(_)))) => {
                        // A group-stop was not ours: what it interrupted, it would have interrupted anyway.
                        if stop == Stop::Interrupted && wind_back(&mut thread).is_err() {
                            break;
                        }
                        self.threads.push(thread);
                        break;
                    }
                    Some(Event::Stopped(stop)) => thread.pass(stop)?,
                    // Its id may be that of the process by now.
                    Some(Event::Ended(Ending::Unknown)) if thread.tid() != self.pid => {
                        thread.become_first();
                        return Err(StopError::Executes.into());
                    }
                    Some(Event::Ended(_)) => {
                        known.remove(&thread.tid());
                        break;
                    }
                    None if thread.is_zombie() => {
                        self.first = Some(thread);
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

    /// Threads that sleep in the kernel, uninterruptibly: the parent of a `vfork` until the child executes or exits, a
    /// wait for a dead file server. They execute no instruction of the program before they are detached, but cannot be
    /// looked at.
    pub fn late(&self) -> &[Thread] {
        &self.late
    }

    /// Lets all threads go on but one, which can be made to call the kernel; not the child of a `vfork`, nor one that
    /// signals are sent to, if there is another: see [`Stopped::seize_new`]. `None`: there is none that stands still.
    pub fn keep_one(&mut self) -> Option<&mut Thread> {
        let threads = self.threads.iter().enumerate();
        let (kept, _) = threads
            .filter(|(_, thread)| thread.pid() == self.pid)
            .min_by_key(|(_, thread)| self.sent_signals.contains(&thread.tid()))?;
        self.threads.swap(0, kept);
        for thread in self.threads.split_off(1) {
            self.late.extend(thread.detach().err());
        }
        self.threads.first_mut()
    }

    /// Lets all threads go on. Those that still do not stop remain traced, and stand still when they wake up; they are
    /// handed back, to be detached later (or by the end of this OS thread).
    pub fn detach_all(mut self) -> Vec<Thread> {
        self.release()
    }

    fn release(&mut self) -> Vec<Thread> {
        let mut threads = std::mem::take(&mut self.threads);
        threads.append(&mut self.late);
        threads.extend(self.first.take());
        // A thread that goes on may at once make a call that an ignored signal makes fail: see `seize_new`. So those go
        // first that signals are sent to. Those that are in such a call go last. Until it stood still, a thread may have
        // had more children; of a crowd that is not asked again.
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
        threads.retain_mut(|thread| !thread.leave_if_stopped());
        // If they have been killed, the first thread's end is told when all others have been waited for.
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

/// Whether a signal for the process, or that of a child which ends, is sent to this of its threads.
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
            return Err(StopError::Executes.into());
        }
        if tracer != 0 {
            return Err(traced_by(tracer).into());
        }
        if attempts == 3 {
            return Err(error).context(StopError::NotPermitted(barrier(pid)));
        }
    }
}
