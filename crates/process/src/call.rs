use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::gadget::Gadget;
use crate::information::times_scheduled;
use crate::ptrace::{self, Request};
use crate::stopped::LONGEST_MOMENT;
use crate::thread::LONGEST_WAIT;
use crate::way_back::WayBack;
use crate::{Event, Memory, Registers, Stop, Stopped, Thread};

/// The time for which a thread runs in [`Thread::run_for_a_moment`].
const MOMENT: Duration = Duration::from_micros(20);
/// The time for which a thread that runs for a moment may wait for a processor.
const FOR_A_PROCESSOR: Duration = Duration::from_millis(10);
/// Signals that an instruction itself can cause. To block one of these would, if it came, reset the program's handling.
const SYNCHRONOUS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A system call that a thread makes for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    pub number: i64,
    pub arguments: [u64; 6],
    /// The only successful result, if there is just one.
    pub expected: Option<i64>,
}

impl SystemCall {
    pub fn has_failed(&self, result: i64) -> bool {
        match self.expected {
            Some(expected) => result != expected,
            None => (-4095..0).contains(&result),
        }
    }
}

enum Attempt {
    Done,
    /// A signal that cannot be blocked came first.
    Signal,
}

/// A stopped thread that makes system calls. Dropping this restores the thread.
#[derive(Debug)]
pub struct Lent<'a> {
    thread: &'a mut Thread,
    gadget: Gadget,
    borrowed: Option<Borrowed>,
    /// The other threads of its process, while they stand still.
    others: Option<Stopped>,
    /// The longest wait for a stop that should come at once.
    patience: Duration,
}

/// The state of a thread that is restored afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    saved: Registers,
    mask: u64,
    way_back: Option<WayBack>,
}

impl Lent<'_> {
    pub fn pid(&self) -> i32 {
        self.thread.pid()
    }

    pub fn tid(&self) -> i32 {
        self.thread.tid()
    }

    /// Has the other threads stand still until [`Lent::let_others_go`]. A call may have to wait for what one of them does:
    /// then they run for as long, and stand still again. One of them may wait for what this thread does: then it runs.
    pub fn stop_others(&mut self, patience: Duration) -> Result<()> {
        if self.thread.others_stand_still {
            return Ok(());
        }
        self.give_back()?;
        self.others = Some(Stopped::stop_others(self.thread, true, patience)?);
        Ok(())
    }

    /// The same with the others of the process that stand still already: see [`Stopped::take_one`].
    pub fn keep_others(&mut self, others: Stopped) {
        self.others = Some(others);
    }

    pub fn let_others_go(&mut self) {
        self.others = None;
    }

    /// Others stand still as long as the calls take, and are not to be let go: if the thread needs one of them, the calls
    /// fail soon.
    pub fn without_others(&mut self) {
        self.patience = LONGEST_MOMENT;
    }

    /// See [`Thread::remote_system_calls`].
    pub fn calls(&mut self, calls: &[SystemCall]) -> Result<Vec<i64>> {
        let mut results = Vec::with_capacity(calls.len());
        if calls.is_empty() {
            return Ok(results);
        }
        for _ in 0..100 {
            let attempt = self.attempt(calls, &mut results);
            if !matches!(attempt, Ok(Attempt::Done)) {
                self.put_back()?;
            }
            match attempt.with_context(|| {
                format!("cannot make thread {} call the kernel", self.thread.tid())
            })? {
                Attempt::Done => return Ok(results),
                Attempt::Signal => {}
            }
        }
        bail!("thread {} is given too many signals", self.thread.tid())
    }

    /// At [`Stop::Interrupted`] or [`Stop::Group`].
    pub fn give_back(&mut self) -> Result<()> {
        if self.borrowed.is_none() {
            return Ok(());
        }
        let settled = self.thread.settle_among(&mut self.others, self.patience);
        self.put_back()?;
        match settled? {
            Event::Stopped(_) => Ok(()),
            Event::Ended(_) => bail!("thread {} has ended", self.thread.tid()),
        }
    }

    /// Makes the calls that have no result yet.
    fn attempt(&mut self, calls: &[SystemCall], results: &mut Vec<i64>) -> Result<Attempt> {
        let mut is_first = self.borrowed.is_none();
        let borrowed = match self.borrowed.take() {
            Some(borrowed) => borrowed,
            None => self.thread.borrow(self.gadget)?,
        };
        let Borrowed {
            saved,
            mask,
            way_back,
        } = *self.borrowed.insert(borrowed);
        let mut registers = saved;
        registers.set_instruction_pointer(self.gadget.call);
        if let Some(way_back) = way_back {
            registers.set_stack_pointer(way_back.start);
        }
        registers.stop_steps();
        registers.execute_native_code();
        for call in &calls[results.len()..] {
            // The first one blocks signals, for all.
            let mask = is_first.then_some(mask);
            is_first = false;
            let others = (&mut self.others, self.patience);
            let made = self.thread.attempt_call(&registers, mask, call, others)?;
            let Some(result) = made else {
                return Ok(Attempt::Signal);
            };
            results.push(result);
            if call.has_failed(result) {
                break;
            }
        }
        Ok(Attempt::Done)
    }

    fn put_back(&mut self) -> Result<()> {
        let Some(borrowed) = self.borrowed.take() else {
            return Ok(());
        };
        if self.thread.ending().is_some() {
            return Ok(());
        }
        if self.thread.stop().is_none() {
            self.thread.owed = Some(Box::new(borrowed));
            return self.thread.interrupt();
        }
        self.thread.get_back(borrowed)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

impl Thread {
    /// Makes the stopped thread execute a system call, with the instructions of `gadget`, and leaves it as it was; at
    /// [`Stop::Interrupted`] or [`Stop::Group`]. The result is what the kernel returned: negative is `-errno`. No text
    /// is modified. Signals wait meanwhile. If we are killed, the thread still continues as it would have: see
    /// [`WayBack`].
    ///
    /// A program with seccomp filters may be killed by its filter: look at [`crate::Status::seccomp`] first.
    pub fn remote_system_call(
        &mut self,
        gadget: Gadget,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<i64> {
        let call = SystemCall {
            number,
            arguments,
            expected: None,
        };
        let results = self.remote_system_calls(gadget, &[call])?;
        results.first().copied().context("no result")
    }

    /// The same for several, one after the other, up to the first that fails: as many results as were made.
    pub fn remote_system_calls(
        &mut self,
        gadget: Gadget,
        calls: &[SystemCall],
    ) -> Result<Vec<i64>> {
        let mut lent = self.lend(gadget);
        let results = lent.calls(calls)?;
        lent.give_back()?;
        Ok(results)
    }

    /// Makes calls repeatedly, without restoring the thread in between.
    pub fn lend(&mut self, gadget: Gadget) -> Lent<'_> {
        let mut lent = Lent {
            thread: self,
            gadget,
            borrowed: None,
            others: None,
            patience: LONGEST_WAIT,
        };
        if lent.thread.others_stand_still {
            lent.without_others();
        }
        lent
    }

    fn borrow(&mut self, gadget: Gadget) -> Result<Borrowed> {
        if self.owed.is_some() && self.poll()?.is_none() {
            bail!("thread {} still waits in the kernel", self.tid());
        }
        if let Event::Ended(_) = self.settle()? {
            bail!("thread {} has ended", self.tid());
        }
        let saved = self.registers_to_keep()?;
        let mask = self.signal_mask()?;
        let way_back = WayBack::prepare(self, gadget, &saved, mask)?;
        Ok(Borrowed {
            saved,
            mask,
            way_back,
        })
    }

    /// Afterwards the thread is stopped behind the call, unless a signal came first: `None`.
    fn attempt_call(
        &mut self,
        borrowed: &Registers,
        mask: Option<u64>,
        call: &SystemCall,
        (others, patience): (&mut Option<Stopped>, Duration),
    ) -> Result<Option<i64>> {
        let mut registers = *borrowed;
        registers.begin_call(call.number, call.arguments);
        self.set_registers(&registers)?;
        if let Some(mask) = mask {
            self.set_signal_mask(mask | !SYNCHRONOUS)?;
        }
        loop {
            self.restart(Request::SystemCall, 0)?;
            match self.wait_among(others, patience)? {
                Event::Stopped(Stop::SystemCall) => break,
                Event::Stopped(Stop::Signal(signal)) => {
                    let information = self.signal_information()?;
                    // An instruction before may have caused it. A fault of ours would be at the gadget, and a system call
                    // that is dispatched to the program stands behind it.
                    let came_before = self.stands_at(&registers)?
                        && match signal {
                            libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE => {
                                // SAFETY: these signals have an address.
                                let at = unsafe { information.si_addr() };
                                at as u64 != registers.instruction_pointer()
                            }
                            _ => true,
                        };
                    if information.si_code > 0 && !came_before {
                        // Caused by our registers: bad gadget, or system calls are dispatched to the program itself.
                        self.settle_suppressing()?;
                        bail!("the process does not let system calls through");
                    }
                    return Ok(None);
                }
                Event::Stopped(_) => {}
                Event::Ended(_) => bail!("the thread has ended"),
            }
        }
        self.restart(Request::SystemCall, 0)?;
        match self.wait_among(others, patience)? {
            Event::Stopped(Stop::SystemCall) => {}
            Event::Stopped(stop) => bail!("unexpected stop in a system call: {stop:?}"),
            Event::Ended(_) => bail!("the thread has ended"),
        }
        let result = self.registers()?.result();
        // A filter that answers with SIGSYS leaves the number where the result should be.
        if result == call.number && self.take_refusal()? {
            bail!("a seccomp filter refuses the system call");
        }
        Ok(Some(result))
    }

    /// Waits for the next stop. Before the thread makes a call, it may wait in the kernel for what another thread does, as
    /// where the program itself provides a page that the kernel writes to (`userfaultfd`, rseq). If the `others` stand
    /// still, they run until then. It is an error if the stop does not come.
    fn wait_among(&mut self, others: &mut Option<Stopped>, patience: Duration) -> Result<Event> {
        if others.is_none() {
            return self.wait_at_most(patience);
        }
        if let Some(event) = self.wait_until(Instant::now() + LONGEST_MOMENT)? {
            return Ok(event);
        }
        others.take();
        let event = self.wait_at_most(patience)?;
        if let Event::Stopped(_) = event {
            *others = Some(Stopped::stop_others(self, false, LONGEST_MOMENT)?);
        }
        Ok(event)
    }

    /// Restores what was borrowed, at a stop.
    fn get_back(&mut self, borrowed: Borrowed) -> Result<()> {
        // In this order: once its registers are restored, the thread has no way back.
        self.set_signal_mask(borrowed.mask)?;
        self.set_registers(&borrowed.saved)?;
        borrowed.way_back.map_or(Ok(()), |way| way.forget(self))
    }

    /// Restores what is owed, at a stop where the kernel then repeats a call that was interrupted before.
    pub(crate) fn pay_back(&mut self) -> Result<()> {
        match self.stop() {
            Some(Stop::Interrupted | Stop::Group(_) | Stop::Signal(_)) => {
                let owed = self.owed.take();
                owed.map_or(Ok(()), |owed| self.get_back(*owed))
            }
            _ => Ok(()),
        }
    }

    /// As [`Thread::settle`], with others that may stand still.
    fn settle_among(&mut self, others: &mut Option<Stopped>, patience: Duration) -> Result<Event> {
        loop {
            match self.wait_among(others, patience)? {
                event @ (Event::Stopped(Stop::Interrupted | Stop::Group(_)) | Event::Ended(_)) => {
                    return Ok(event);
                }
                Event::Stopped(stop) => self.pass(stop)?,
            }
        }
    }

    fn stands_at(&self, registers: &Registers) -> Result<bool> {
        let own = self.registers()?;
        Ok(own.instruction_pointer() == registers.instruction_pointer())
    }

    /// Takes away the SIGSYS of a seccomp filter.
    fn take_refusal(&mut self) -> Result<bool> {
        const SYS_SECCOMP: i32 = 1;
        let refusal = |signal: &libc::siginfo_t| {
            signal.si_signo == libc::SIGSYS && signal.si_code == SYS_SECCOMP
        };
        if !ptrace::queued_signals(self.tid())?.iter().any(refusal) {
            return Ok(false);
        }
        self.restart(Request::Continue, 0)?;
        self.wait_at_most(LONGEST_WAIT)?;
        self.settle_suppressing()?;
        Ok(true)
    }

    /// Lets the thread run for a moment, to be stopped again: [`Thread::settle_until`]. A single step would raise a trap,
    /// which kills the program if we are killed before we discard it.
    pub(crate) fn run_for_a_moment(&mut self) -> Result<()> {
        if let Event::Ended(_) = self.settle()? {
            return Ok(());
        }
        let before = times_scheduled(self.pid(), self.tid());
        self.restart(Request::Continue, 0)?;
        // Interrupted before it has a processor, it would not execute an instruction.
        let begun = Instant::now();
        loop {
            std::thread::sleep(MOMENT);
            let waits = before.is_some() && times_scheduled(self.pid(), self.tid()) == before;
            if !waits || begun.elapsed() >= FOR_A_PROCESSOR {
                return self.interrupt();
            }
        }
    }

    /// The registers as they would be when the thread next runs: inside a restartable sequence the kernel aborts it, as
    /// the thread has been off its processor. A remote call makes the kernel forget the sequence.
    fn registers_to_keep(&self) -> Result<Registers> {
        let mut registers = self.registers()?;
        if let Some(abort) = self.restartable_abort(registers.instruction_pointer()) {
            registers.set_instruction_pointer(abort);
        }
        Ok(registers)
    }

    fn restartable_abort(&self, at: u64) -> Option<u64> {
        let area = ptrace::restartable_sequences(self.tid())?;
        let memory = Memory::open(self.pid()).ok()?;
        // struct rseq: two processor numbers, then a pointer to struct rseq_cs: version and flags, start, length,
        // abort.
        let sequence = memory
            .read_word(area.checked_add(8)?)
            .ok()
            .filter(|&address| address != 0)?;
        let mut words = [0; 3];
        for (word, offset) in words.iter_mut().zip([8, 16, 24]) {
            *word = memory.read_word(sequence.checked_add(offset)?).ok()?;
        }
        let [start, length, abort] = words;
        (at.wrapping_sub(start) < length).then_some(abort)
    }
}
