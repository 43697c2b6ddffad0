use anyhow::{Result, bail};

use crate::sleepers;
use crate::thread::Pause;
use crate::{Ending, Event, Options, Stop, Thread};

/// Follows a thread that is about to call `execve` into the program that it executes.
#[derive(Debug)]
pub struct ExecFollower {
    thread: Thread,
}

/// The outcome of the call.
#[derive(Debug)]
pub enum Followed {
    /// The new program's only thread, stopped as [`Stop::Executed`]. It has the id of the process.
    Executed(Thread),
    /// `execve` failed with this `errno`. The thread is detached, and has returned to the program.
    Failed(i32),
    /// The thread ended first, or another thread of its process executed something.
    Ended(Ending),
}

impl ExecFollower {
    /// Seizes a thread that waits, in a loop, for its tool's answer, and asks it to stop; it may be the child of
    /// `vfork`. The caller then gives the answer, and calls [`ExecFollower::run`]: the thread cannot call `execve`
    /// unnoticed between the two.
    pub fn seize(pid: i32, tid: i32) -> Result<ExecFollower> {
        let mut thread = Thread::seize(pid, tid, Options { executions: true })?;
        match thread.interrupt().and_then(|()| thread.settle())? {
            Event::Stopped(_) => Ok(ExecFollower { thread }),
            Event::Ended(_) => bail!("thread {tid} has ended"),
        }
    }

    /// The thread, standing still until [`ExecFollower::run`].
    pub fn thread(&mut self) -> &mut Thread {
        &mut self.thread
    }

    /// Lets the thread go on until `execve` or `execveat` has succeeded or failed.
    pub fn run(mut self) -> Result<Followed> {
        let mut executing = false;
        loop {
            self.thread.resume_to_system_call()?;
            match self.next()? {
                Event::Stopped(Stop::Executed) => return Ok(Followed::Executed(self.thread)),
                Event::Stopped(Stop::SystemCall) => {
                    let registers = self.thread.registers()?;
                    let number = registers.system_call();
                    let is_exec = number == libc::SYS_execve || number == libc::SYS_execveat;
                    if executing && is_exec {
                        let errno = registers.result().wrapping_neg();
                        return Ok(Followed::Failed(
                            i32::try_from(errno).unwrap_or(libc::EINVAL),
                        ));
                    }
                    executing = is_exec;
                }
                Event::Stopped(_) => {}
                Event::Ended(ending) => return Ok(Followed::Ended(ending)),
            }
        }
    }

    /// The next event of the thread, which loses its own id to that of the process if it executes. A blocking wait for
    /// the old id would not wake up.
    fn next(&mut self) -> Result<Event> {
        let mut pause = Pause::default();
        loop {
            match self.thread.poll()? {
                None => {
                    sleepers::reap(self.thread.pid());
                    pause.rest();
                }
                Some(Event::Ended(Ending::Unknown)) if self.thread.tid() != self.thread.pid() => {
                    self.thread.become_first();
                    return self.thread.wait();
                }
                Some(event) => return Ok(event),
            }
        }
    }
}
