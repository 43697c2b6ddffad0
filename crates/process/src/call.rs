use anyhow::{Context, Result, bail};

use crate::ptrace;
use crate::{Event, Memory, Module, Registers, Stop, Thread, auxiliary, modules};

const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
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

/// Whether there is a `syscall` instruction at an address.
pub fn is_system_call_gadget(memory: &Memory, address: u64) -> bool {
    let mut found = [0; SYSTEM_CALL.len()];
    memory.read(address, &mut found).is_ok() && found == SYSTEM_CALL
}

/// The address of a `syscall` instruction in the text of the loader, of libc, or of any other file that the process has
/// mapped.
pub fn find_system_call_gadget(pid: i32) -> Result<u64> {
    find_system_call_gadget_in(pid, modules(pid)?)
}

/// The same, in one of the files that the process is known to have mapped.
pub fn find_system_call_gadget_in(pid: i32, mut modules: Vec<Module>) -> Result<u64> {
    let memory = Memory::open(pid)?;
    let loader = auxiliary(pid)?.loader_base;
    let rank = |module: &Module| {
        let name = module
            .path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        (
            Some(module.base) != loader,
            !name.starts_with("libc.so") && !name.starts_with("libc-"),
        )
    };
    modules.sort_by_key(rank);
    let texts = modules.iter().flat_map(|module| &module.mappings);
    for text in texts.filter(|mapping| mapping.executable && mapping.readable) {
        if let Some(address) = find_in(&memory, text.start, text.end) {
            return Ok(address);
        }
    }
    bail!("process {pid} has no system call instruction in a mapped file")
}

fn find_in(memory: &Memory, start: u64, end: u64) -> Option<u64> {
    let mut piece = [0; 4 << 10];
    let mut at = start;
    while at + 1 < end {
        let length = piece.len().min((end - at) as usize);
        memory.read(at, &mut piece[..length]).ok()?;
        let found = piece[..length]
            .windows(2)
            .position(|bytes| bytes == SYSTEM_CALL);
        if let Some(offset) = found {
            return Some(at + offset as u64);
        }
        // The last byte again: the instruction may span two pieces.
        at += length as u64 - 1;
    }
    None
}

/// A call of the kernel that a thread is made to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    pub number: i64,
    pub arguments: [u64; 6],
    /// The only result that is no failure, if there is one.
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
    /// A signal that cannot be held back came first.
    Signal,
}

impl Thread {
    /// Makes the stopped thread execute a system call, with the `syscall` instruction at `gadget`, and leaves it as it
    /// was; at [`Stop::Interrupted`] or [`Stop::Group`]. The result is what the kernel returned: negative is `-errno`.
    /// No text is modified. Signals that come meanwhile wait.
    ///
    /// A program with seccomp filters may be killed by its filter: look at [`crate::Status::seccomp`] first.
    pub fn remote_system_call(
        &mut self,
        gadget: u64,
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
    pub fn remote_system_calls(&mut self, gadget: u64, calls: &[SystemCall]) -> Result<Vec<i64>> {
        let mut results = Vec::with_capacity(calls.len());
        for _ in 0..100 {
            if let Event::Ended(_) = self.settle()? {
                bail!("thread {} has ended", self.tid());
            }
            let saved = self.registers_to_keep()?;
            let mask = self.signal_mask()?;
            let attempt = self.attempt_calls(&saved, mask, gadget, calls, &mut results);
            if self.ending().is_none() {
                self.set_registers(&saved)?;
                self.set_signal_mask(mask)?;
            }
            match attempt
                .with_context(|| format!("cannot make thread {} call the kernel", self.tid()))?
            {
                Attempt::Done => return Ok(results),
                Attempt::Signal => {}
            }
        }
        bail!("thread {} is given too many signals", self.tid())
    }

    /// Makes those calls that have no result yet.
    fn attempt_calls(
        &mut self,
        saved: &Registers,
        mask: u64,
        gadget: u64,
        calls: &[SystemCall],
        results: &mut Vec<i64>,
    ) -> Result<Attempt> {
        self.set_signal_mask(mask | !SYNCHRONOUS)?;
        for call in &calls[results.len()..] {
            let Some(result) = self.attempt_call(saved, gadget, call)? else {
                return Ok(Attempt::Signal);
            };
            results.push(result);
            if call.has_failed(result) {
                break;
            }
        }
        // The trap in hand, if there is one, is ours.
        match self.settle_suppressing()? {
            Event::Stopped(_) => Ok(Attempt::Done),
            Event::Ended(_) => bail!("the thread has ended"),
        }
    }

    /// Stands behind the call then, unless a signal has come before it: `None`.
    fn attempt_call(
        &mut self,
        saved: &Registers,
        gadget: u64,
        call: &SystemCall,
    ) -> Result<Option<i64>> {
        let number = call.number;
        let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
        // With -1, the kernel does not take the registers for those of a call that is to be repeated.
        let (rax, orig_rax) = (number as u64, u64::MAX);
        let registers = Registers {
            rip: gadget,
            rax,
            orig_rax,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..*saved
        };
        self.set_registers(&registers)?;
        // One stop, where it may be the trap behind a single step, in place of two.
        let how = match self.may_trap {
            true => libc::PTRACE_SINGLESTEP,
            false => libc::PTRACE_SYSCALL,
        };
        loop {
            self.restart(how, 0)?;
            match self.wait()? {
                Event::Stopped(Stop::SystemCall) => break,
                Event::Stopped(Stop::Signal(signal)) => {
                    let now = self.registers()?;
                    let behind = gadget.wrapping_add(SYSTEM_CALL.len() as u64);
                    if self.may_trap && signal == libc::SIGTRAP && now.rip == behind {
                        return Ok(Some(now.rax as i64));
                    }
                    if self.signal_information()?.si_code > 0 {
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
        self.restart(libc::PTRACE_SYSCALL, 0)?;
        match self.wait()? {
            Event::Stopped(Stop::SystemCall) => {}
            Event::Stopped(stop) => bail!("unexpected stop in a system call: {stop:?}"),
            Event::Ended(_) => bail!("the thread has ended"),
        }
        let result = self.registers()?.rax as i64;
        // A filter that answers with SIGSYS leaves the number where the result should be.
        if result == number && self.take_refusal()? {
            bail!("a seccomp filter refuses the system call");
        }
        Ok(Some(result))
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
        self.restart(libc::PTRACE_CONT, 0)?;
        self.wait()?;
        self.settle_suppressing()?;
        Ok(true)
    }

    /// Executes one instruction, which must not be a system call, and stands at [`Stop::Interrupted`] or
    /// [`Stop::Group`] after it. If the instruction faults, at [`Stop::Signal`], before it.
    pub fn step(&mut self) -> Result<Event> {
        if let end @ Event::Ended(_) = self.settle()? {
            return Ok(end);
        }
        // The kernel's trap would reset a SIGTRAP that the program ignores or blocks.
        if crate::thread_status(self.pid(), self.tid())?.ignored & bit(libc::SIGTRAP) != 0 {
            bail!("cannot step a process that ignores SIGTRAP");
        }
        let mut next = [0; 2];
        Memory::open(self.pid())?.read(self.registers()?.rip, &mut next)?;
        if next == SYSTEM_CALL {
            bail!("cannot step over a system call");
        }
        let mask = self.signal_mask()?;
        self.set_signal_mask((mask | !SYNCHRONOUS) & !bit(libc::SIGTRAP))?;
        let event = self.step_once();
        if self.ending().is_none() {
            self.set_signal_mask(mask)?;
        }
        event
    }

    fn step_once(&mut self) -> Result<Event> {
        loop {
            self.restart(libc::PTRACE_SINGLESTEP, 0)?;
            match self.wait()? {
                Event::Stopped(Stop::Signal(libc::SIGTRAP)) => return self.settle_suppressing(),
                // A stop signal cannot be blocked: the process is then stopped, and this thread steps nevertheless.
                Event::Stopped(Stop::Signal(libc::SIGSTOP)) => {
                    self.settle()?;
                }
                Event::Stopped(Stop::Interrupted | Stop::Group(_)) => {}
                other => return Ok(other),
            }
        }
    }

    /// The registers as they would be when the thread next runs: inside a restartable sequence the kernel aborts it, as
    /// the thread has been off its processor. A remote call makes the kernel forget that there was one.
    fn registers_to_keep(&self) -> Result<Registers> {
        let mut registers = self.registers()?;
        if let Some(abort) = self.restartable_abort(registers.rip) {
            registers.rip = abort;
        }
        Ok(registers)
    }

    fn restartable_abort(&self, rip: u64) -> Option<u64> {
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
        (rip.wrapping_sub(start) < length).then_some(abort)
    }
}
