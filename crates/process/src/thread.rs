use std::cell::OnceCell;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arch::Registers;
use crate::blocked::blocked;
use crate::call::Borrowed;
use crate::ending::Ending;
use crate::information::{parent, thread_alive, thread_status};
use crate::ptrace::{self, Options, Request, WaitStatus};
use crate::sleepers;
use crate::stopped::FOR_A_PROCESSOR;

/// The reason why a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By [`Thread::interrupt`]: between two instructions, without a pending signal.
    Interrupted,
    /// The whole process is stopped by this signal, such as `SIGSTOP`, and remains so after detaching.
    Group(i32),
    /// Before this signal is delivered.
    Signal(i32),
    /// At the entry or exit of a system call.
    SystemCall,
    /// In `execve`, which has succeeded.
    Executed,
    /// Another `PTRACE_EVENT_*`.
    Event(i32),
}

/// The result of [`Thread::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Stopped(Stop),
    Ended(Ending),
}

/// One thread, traced by this OS thread. Dropping this detaches and resumes it, with the signal that it was stopped
/// for.
#[derive(Debug)]
pub struct Thread {
    pid: i32,
    tid: i32,
    stop: Option<Stop>,
    ended: Option<Ending>,
    detached: bool,
    /// The address of a frame on the thread's stack that may lead it back, until it is resumed.
    pub(crate) place: Option<u64>,
    /// The registers of the stopped thread, once they have been read.
    known: OnceCell<Box<Registers>>,
    /// What it gets back at its next stop, as it did not come to the end of a call that it was to make for us.
    pub(crate) owed: Option<Box<Borrowed>>,
    /// All other threads of its process are stopped as long as it is.
    pub(crate) others_stand_still: bool,
    options: Options,
    /// ptrace accepts only the OS thread that seized: not `Send`.
    local: PhantomData<*mut ()>,
}

const PTRACE_O_SUSPEND_SECCOMP: usize = 1 << 21;

/// The longest wait for a thread that has nothing to wait for but a processor, or another thread that runs.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The time for which a detach waits for a thread to stop.
const PATIENCE: Duration = Duration::from_millis(500);

impl Thread {
    /// Begins to trace, without stopping.
    pub fn seize(pid: i32, tid: i32, options: Options) -> Result<Thread> {
        let seized = Thread::try_seize(pid, tid, options);
        seized.with_context(|| format!("cannot trace thread {tid} of process {pid}"))
    }

    pub(crate) fn try_seize(pid: i32, tid: i32, options: Options) -> ptrace::Result<Thread> {
        ptrace::command(Request::Seize, tid, options.bits())?;
        Ok(Thread::of(pid, tid, options))
    }

    fn of(pid: i32, tid: i32, options: Options) -> Thread {
        Thread {
            pid,
            tid,
            stop: None,
            ended: None,
            detached: false,
            place: None,
            known: OnceCell::new(),
            owed: None,
            others_stand_still: false,
            options,
            local: PhantomData,
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The reason why the thread is stopped, or `None` if it runs or has ended.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    pub fn ending(&self) -> Option<Ending> {
        self.ended
    }

    /// Requests a stop. The thread stops as [`Stop::Interrupted`], as [`Stop::Group`], or first for another reason:
    /// then the request is consumed, and must be repeated before the thread is resumed.
    pub fn interrupt(&self) -> Result<()> {
        match ptrace::command(Request::Interrupt, self.tid, 0) {
            Err(error) if !is_gone(&error) => Err(error).context("cannot interrupt a thread"),
            _ => Ok(()),
        }
    }

    /// Waits for the next stop, or the end.
    pub fn wait(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.look(0)? {
                return Ok(event);
            }
        }
    }

    /// As [`Thread::wait`]; `None` when `deadline` passes first, or the end of the thread is not reported yet, as for
    /// the first thread of a process while others run.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Option<Event>> {
        let mut pause = Pause::default();
        loop {
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            // It takes longer to see this than most stops take to come.
            if Instant::now() >= deadline || pause.sleeps() && self.is_zombie() {
                return self.poll();
            }
            pause.rest();
        }
    }

    /// As [`Thread::wait`]; an error where it would take longer. A thread that only waits for a processor gets more time.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) -> Result<Event> {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.wait_until(Instant::now() + patience)? {
                return Ok(event);
            }
            let sleeps = blocked(self.pid, self.tid).is_some();
            if sleeps || begun.elapsed() >= patience * FOR_A_PROCESSOR {
                bail!(
                    "thread {} waits in the kernel for what does not come, such as a page that another thread is to provide",
                    self.tid
                );
            }
        }
    }

    /// The next stop, if it has come, or the end.
    pub fn poll(&mut self) -> Result<Option<Event>> {
        self.look(libc::WNOHANG)
    }

    /// The next stop or the end; `None` if there is none yet, or none at all. Without WNOHANG, the kernel waits for it.
    fn look(&mut self, hang: i32) -> Result<Option<Event>> {
        if let Some(ending) = self.ended {
            return Ok(Some(Event::Ended(ending)));
        }
        if let Some(stop) = self.stop {
            return Ok(Some(Event::Stopped(stop)));
        }
        match ptrace::wait_status(self.tid, libc::WSTOPPED | hang) {
            Ok(status) => {
                self.stop = status.map(decode);
                self.pay_back()?;
                Ok(self.stop.map(Event::Stopped))
            }
            // A zombie is no child to one who asks for stops only.
            Err(error) if is_no_child(&error) => self.look_for_end(hang),
            Err(error) => Err(error).context("cannot wait"),
        }
    }

    /// `None` if it has not come, or a stop came before it.
    fn look_for_end(&mut self, hang: i32) -> Result<Option<Event>> {
        // A wait for ends only still reports a tracee's stops, which must not be consumed then.
        let look = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | hang;
        match ptrace::wait_status(self.tid, look) {
            Ok(None) => Ok(None),
            Ok(Some(status)) if status.is_stop() => Ok(None),
            Ok(Some(status)) => {
                // The status of our own child stays for `ExitWatch`; that of any other must be released to its parent.
                let own = self.tid == self.pid
                    && parent(self.pid).is_ok_and(|parent| parent == std::process::id() as i32);
                if !own {
                    let _ = ptrace::wait_status(self.tid, libc::WEXITED | libc::WNOHANG);
                }
                Ok(Some(self.end(Ending::from_wait_status(status))))
            }
            Err(error) if is_no_child(&error) => Ok(Some(self.end(Ending::Unknown))),
            Err(error) => Err(error).context("cannot wait"),
        }
    }

    fn end(&mut self, ending: Ending) -> Event {
        self.stop = None;
        self.ended = Some(ending);
        Event::Ended(ending)
    }

    /// Whether this OS thread traces the thread that has the id now: `execve` may have replaced it.
    pub(crate) fn is_ours(&self) -> bool {
        thread_status(self.pid, self.tid).is_ok_and(|status| status.tracer == own_thread())
    }

    /// Whether this is the first thread of its process, and has ended before others, which the kernel does not report.
    pub(crate) fn is_zombie(&self) -> bool {
        self.tid == self.pid && !thread_alive(self.pid, self.tid)
    }

    /// Resumes the thread as if it had not stopped: a signal is delivered, a stopped process remains stopped.
    pub fn resume(&mut self) -> Result<()> {
        self.place = None;
        match self.stop {
            Some(Stop::Group(_)) => self.restart(Request::Listen, 0),
            Some(Stop::Signal(signal)) => self.restart(Request::Continue, signal),
            _ => self.restart(Request::Continue, 0),
        }
    }

    /// Resumes the thread without the signal for which it stopped.
    pub fn resume_suppressing(&mut self) -> Result<()> {
        self.place = None;
        self.restart(Request::Continue, 0)
    }

    /// As [`Thread::resume`], up to the next entry or exit of a system call.
    pub fn resume_to_system_call(&mut self) -> Result<()> {
        self.place = None;
        match self.stop {
            Some(Stop::Group(_)) => self.restart(Request::Listen, 0),
            Some(Stop::Signal(signal)) => self.restart(Request::SystemCall, signal),
            _ => self.restart(Request::SystemCall, 0),
        }
    }

    /// A thread that is killed at this moment goes on, too: the next wait tells its end.
    pub(crate) fn restart(&mut self, how: Request, signal: i32) -> Result<()> {
        self.known.take();
        if self.stop.take().is_none() {
            bail!("thread {} does not stand still", self.tid);
        }
        match ptrace::command(how, self.tid, signal as usize) {
            Err(error) if !is_gone(&error) => Err(error).context("cannot resume a thread"),
            _ => Ok(()),
        }
    }

    /// Brings a thread from any stop to [`Stop::Interrupted`] or [`Stop::Group`], without running an instruction of the
    /// program. Signals are delivered on the way: it may then be at the start of a handler. It is an error if that takes
    /// longer than moments.
    pub fn settle(&mut self) -> Result<Event> {
        loop {
            match self.wait_at_most(LONGEST_WAIT)? {
                Event::Stopped(Stop::Interrupted | Stop::Group(_)) | Event::Ended(_) => {
                    return self.wait();
                }
                Event::Stopped(stop) => self.pass(stop)?,
            }
        }
    }

    /// As [`Thread::settle`], up to a deadline: `None` when it passes. [`Stop::Executed`] is an end, too: another
    /// program runs then.
    pub(crate) fn settle_until(&mut self, deadline: Instant) -> Result<Option<Event>> {
        loop {
            match self.wait_until(deadline)? {
                Some(Event::Stopped(
                    stop @ (Stop::Signal(_) | Stop::SystemCall | Stop::Event(_)),
                )) => self.pass(stop)?,
                event => return Ok(event),
            }
        }
    }

    /// Whether the kernel has ended it where it stood. Then waits for it, so that it is gone.
    pub(crate) fn is_swept_away(&mut self) -> Result<bool> {
        if self.ended.is_none() && self.is_held() {
            return Ok(false);
        }
        self.stop = None;
        // The end of the first thread is that of the process.
        if self.tid != self.pid {
            self.poll()?;
        }
        Ok(true)
    }

    /// Goes to the next stop, which is an interruption unless another stop comes first.
    pub(crate) fn pass(&mut self, stop: Stop) -> Result<()> {
        self.interrupt()?;
        let signal = if let Stop::Signal(signal) = stop {
            signal
        } else {
            0
        };
        self.restart(Request::Continue, signal)
    }

    /// As [`Thread::settle`], but discards the pending signal.
    pub(crate) fn settle_suppressing(&mut self) -> Result<Event> {
        if let Some(Stop::Signal(_)) = self.stop {
            self.pass(Stop::Signal(0))?;
        }
        self.settle()
    }

    pub fn registers(&self) -> Result<Registers> {
        if let Some(known) = self.known.get() {
            return Ok(**known);
        }
        let registers = ptrace::registers(self.tid).context("cannot read registers")?;
        if self.stop.is_some() {
            let _ = self.known.set(Box::new(registers));
        }
        Ok(registers)
    }

    /// Whether it is still stopped: it may have been killed.
    pub(crate) fn is_held(&self) -> bool {
        ptrace::registers(self.tid).is_ok()
    }

    pub fn set_registers(&mut self, registers: &Registers) -> Result<()> {
        self.known.take();
        ptrace::set_registers(self.tid, registers).context("cannot write registers")
    }

    pub(crate) fn debug_status(&self) -> Result<u64> {
        ptrace::debug_status(self.tid).context("cannot read the debug status")
    }

    pub(crate) fn set_debug_status(&self, status: u64) -> Result<()> {
        ptrace::set_debug_status(self.tid, status).context("cannot write the debug status")
    }

    /// Vector and floating point registers, as one opaque piece.
    pub fn extended_state(&self) -> Result<Vec<u8>> {
        ptrace::extended_state(self.tid).context("cannot read extended state")
    }

    pub fn set_extended_state(&mut self, state: &[u8]) -> Result<()> {
        ptrace::set_extended_state(self.tid, state).context("cannot write extended state")
    }

    /// The address of its control block.
    pub fn thread_pointer(&self) -> Result<u64> {
        Ok(self.registers()?.thread_pointer())
    }

    /// The pending signal, while stopped as [`Stop::Signal`].
    pub fn signal_information(&self) -> Result<libc::siginfo_t> {
        ptrace::signal_information(self.tid).context("cannot read a signal")
    }

    /// The signals that the thread blocks, bit `signal - 1`.
    pub fn signal_mask(&self) -> Result<u64> {
        ptrace::signal_mask(self.tid).context("cannot read the signal mask")
    }

    pub fn set_signal_mask(&mut self, mask: u64) -> Result<()> {
        ptrace::set_signal_mask(self.tid, mask).context("cannot write the signal mask")
    }

    /// While the thread is stopped: whether the kernel turns system calls of its own from some places into signals.
    pub fn dispatches_system_calls(&self) -> bool {
        ptrace::dispatches_system_calls(self.tid)
    }

    /// While the thread is stopped: suspends or restores its seccomp filters, for the calls that it makes for us. Ends
    /// with the tracing. Only root may do this, in a process without filters of its own.
    pub fn suspend_seccomp(&mut self, suspended: bool) -> Result<()> {
        let suspended = if suspended {
            PTRACE_O_SUSPEND_SECCOMP
        } else {
            0
        };
        ptrace::command(
            Request::SetOptions,
            self.tid,
            self.options.bits() | suspended,
        )
        .context("cannot suspend a seccomp filter")
    }

    /// Detaches the thread. One that does not stop in time is returned, still traced.
    pub fn detach(mut self) -> Result<(), Thread> {
        match self.let_go(Instant::now() + PATIENCE) {
            Ok(()) => Ok(()),
            Err(_) => Err(self),
        }
    }

    pub(crate) fn let_go(&mut self, deadline: Instant) -> Result<()> {
        if self.detached {
            return Ok(());
        }
        if self.stop.is_none() && self.ended.is_none() {
            self.interrupt()?;
        }
        let mut pause = Pause::default();
        loop {
            match self.poll()? {
                Some(Event::Ended(Ending::Unknown)) if self.tid != self.pid => self.become_first(),
                Some(Event::Ended(_)) => return Ok(()),
                Some(Event::Stopped(stop)) if self.leave(stop)? => return Ok(()),
                _ => {}
            }
            if !self.is_ours() {
                self.detached = true;
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("thread {} does not stop", self.tid);
            }
            pause.rest();
        }
    }

    /// Lets go of a child that has made us its tracer (`PTRACE_TRACEME`) and stands still at a signal, which it then gets,
    /// unless that tells of an `execve`, or would only stop it again.
    pub fn let_go_of_child(pid: i32) {
        let mut child = Thread::of(pid, pid, Options::default());
        if !child.is_ours() {
            child.detached = true;
            return;
        }
        const WITHOUT: [i32; 5] = [
            libc::SIGTRAP,
            libc::SIGSTOP,
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
        ];
        if let Ok(Some(Event::Stopped(Stop::Signal(signal)))) = child.poll()
            && WITHOUT.contains(&signal)
        {
            child.stop = Some(Stop::Interrupted);
        }
    }

    /// Whether the thread was stopped, lives, and is now detached.
    pub(crate) fn leave_if_stopped(&mut self) -> bool {
        self.stop
            .is_some_and(|stop| self.leave(stop).unwrap_or(false))
    }

    /// False if the thread has been killed, or replaced by `execve`. We must then wait for it, or its parent does not
    /// learn of its end.
    fn leave(&mut self, stop: Stop) -> Result<bool> {
        let signal = if let Stop::Signal(signal) = stop {
            signal
        } else {
            0
        };
        // In a system call it cannot get back what it had before.
        if self.owed.is_some() {
            self.pass(stop)?;
            return Ok(false);
        }
        match ptrace::command(Request::Detach, self.tid, signal as usize) {
            Ok(()) => {
                self.detached = true;
                Ok(true)
            }

            Err(error) if is_gone(&error) => {
                self.stop = None;
                Ok(false)
            }
            Err(error) => Err(error).context("cannot detach"),
        }
    }

    /// `execve` by a thread that is not the first gives it the id of the first.
    pub(crate) fn become_first(&mut self) {
        self.tid = self.pid;
        self.ended = None;
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.let_go(Instant::now() + PATIENCE).is_err() {
            let mut sleeper = Thread::of(self.pid, self.tid, self.options);
            sleeper.owed = self.owed.take();
            sleepers::keep(sleeper);
        }
    }
}

/// A stop status holds the signal and, above it, the event.
fn decode(status: WaitStatus) -> Stop {
    let (signal, event) = (status.status & 0xff, status.status >> 8);
    match event {
        0 if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        libc::PTRACE_EVENT_STOP => Stop::Group(signal),
        libc::PTRACE_EVENT_EXEC => Stop::Executed,
        _ => Stop::Event(event),
    }
}

pub(crate) fn own_thread() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

fn is_no_child(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECHILD)
}

/// Waits for events that no descriptor announces: first by yielding, for as long as it takes to go to sleep and to wake
/// up, then by sleeping longer and longer.
#[derive(Default)]
pub(crate) struct Pause {
    begun: Option<Instant>,
    sleeps: u32,
}

impl Pause {
    const YIELDING: Duration = Duration::from_micros(100);

    pub(crate) fn sleeps(&self) -> bool {
        self.sleeps > 0
    }

    /// Whether the wait is longer than a thread usually takes to stop.
    pub(crate) fn is_long(&self) -> bool {
        self.sleeps > 40
    }

    pub(crate) fn rest(&mut self) {
        let begun = self.begun.get_or_insert_with(Instant::now);
        if begun.elapsed() < Self::YIELDING {
            return std::thread::yield_now();
        }
        self.sleeps = self.sleeps.saturating_add(1);
        let micros = if self.sleeps < 80 { 20 } else { 500 };
        std::thread::sleep(Duration::from_micros(micros));
    }
}
