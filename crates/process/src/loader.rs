use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arch::loader::{
    BEHIND_BREAKPOINT, BEHIND_CALL, BEHIND_SENDING, BREAKPOINT, CALL, PUSHED, ROOM, only_returns,
    sending_code,
};
use crate::information::{directory, read};
use crate::{
    Ending, Event, Memory, Registers, Stop, Stopped, Thread, find_system_call_gadget, thread_status,
};

/// The result of [`run_to_loader_consistent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderStop {
    /// All libraries that the program needs are mapped and relocated; no constructor has run.
    Consistent,
    /// The program executed another one, and is stopped as [`Stop::Executed`].
    Executed,
    Exited(i32),
    Killed {
        signal: i32,
        core: bool,
    },
}

/// Signals that do nothing by default.
const SIGNALS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];
const CONSISTENT: i32 = 0;
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
/// The time to wait for the threads of a process to stop.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of attempts until no thread is in the change: between them are pauses, each twice as long as the previous
/// one, of four seconds in all. On a busy machine, the threads of a killed tool may be released late.
const ATTEMPTS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(1);

/// A change to the text of a loader that stops it at a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderChange {
    pub pid: i32,
    pub address: u64,
    /// The original bytes and the new ones, equally long.
    pub original: Vec<u8>,
    pub code: Vec<u8>,
}

/// The way in which the thread stops in the changed function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Signal(i32),
    Call,
    Breakpoint,
}

impl LoaderChange {
    fn at(thread: &Thread, address: u64, memory: &Memory) -> Result<(LoaderChange, By)> {
        let mut original = vec![0; ROOM];
        let room = memory.read(address, &mut original).is_ok() && only_returns(&original);
        let (by, code) = match room.then(|| sending(thread)).transpose()?.flatten() {
            Some((signal, code)) => (By::Signal(signal), code.to_vec()),
            None if room => (By::Call, CALL.to_vec()),
            None => (By::Breakpoint, BREAKPOINT.to_vec()),
        };
        if !room {
            original.truncate(code.len());
            memory.read(address, &mut original)?;
        }
        let change = LoaderChange {
            pid: thread.pid(),
            address,
            original,
            code,
        };
        Ok((change, by))
    }

    /// Whether the change is in the text, or a part of it if the tool was killed while writing.
    pub fn is_there(&self) -> bool {
        Memory::open(self.pid).is_ok_and(|memory| self.is_in(&memory))
    }

    fn is_in(&self, memory: &Memory) -> bool {
        let mut found = vec![0; self.original.len()];
        let is_read = memory.read(self.address, &mut found).is_ok();
        let mut places = found.iter().zip(&self.code).zip(&self.original);
        is_read
            && found != self.original
            && places.all(|((found, code), original)| found == code || found == original)
    }

    /// For the guardian, when the tool was killed: restores the text if the change is in it.
    pub fn take_back(&self) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            if matches!(self.is_taken_back(), Ok(true)) || !crate::alive(self.pid) {
                return Ok(());
            }
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        bail!("a thread of process {} stays in the loader", self.pid)
    }

    /// `false` while a thread is in the change. Errors may be temporary, as long as the tool still holds threads.
    fn is_taken_back(&self) -> Result<bool> {
        let memory = Memory::open(self.pid)?;
        if !self.is_in(&memory) {
            return Ok(true);
        }
        let inside = self.address + 1..self.address + self.original.len() as u64;
        let stopped = Stopped::stop(self.pid, PATIENCE)?;
        if stopped
            .positions()?
            .iter()
            .any(|at| inside.contains(&at.instruction))
        {
            return Ok(false);
        }
        memory.write(self.address, &self.original)?;
        Ok(true)
    }
}

/// A signal that the process can send itself for its tracer, and the code that sends it. None if it could be blocked,
/// by a seccomp filter or by an auditing library that changes the mask, or if the program would get it too.
fn sending(thread: &Thread) -> Result<Option<(i32, [u8; ROOM])>> {
    let status = thread_status(thread.pid(), thread.tid())?;
    let is_free = |signal: &&i32| (status.blocked | status.caught) & 1 << (*signal - 1) == 0;
    let signal = SIGNALS.iter().find(is_free);
    let process = status.namespace_ids.last();
    let (Some(&signal), Some(process)) = (signal, process) else {
        return Ok(None);
    };
    if status.seccomp != 0 || is_audited(thread.pid())? {
        return Ok(None);
    }
    Ok(Some((signal, sending_code(*process, signal))))
}

/// Whether the environment makes the loader load libraries that run at once.
fn is_audited(pid: i32) -> Result<bool> {
    let environment = read(&format!("{}/environ", directory(pid)))?;
    let mut entries = environment.split(|byte| *byte == 0);
    Ok(entries.any(|entry| entry.starts_with(b"LD_AUDIT=")))
}

/// From the stop at `execve`, runs the loader until it has mapped and relocated everything.
///
/// `function` is the address of `_dl_debug_state`, which the loader calls before and after it changes the list of
/// libraries, and which does nothing; `state_address` that of `r_debug.r_state`. The thread control block must exist,
/// too, for an early call may find the list consistent because nothing has been loaded yet. The thread then stands at
/// [`Stop::Interrupted`] (or [`Stop::Group`]), as if `_dl_debug_state` had just returned.
///
/// The function is changed meanwhile; before that, `tell` is called with the change.
///
/// Auditing libraries (`LD_AUDIT`) run code of their own before this point; threads of theirs must not load libraries.
pub fn run_to_loader_consistent(
    thread: &mut Thread,
    function: u64,
    state_address: u64,
    tell: impl FnOnce(&LoaderChange),
) -> Result<LoaderStop> {
    let memory = Memory::open(thread.pid())?;
    let (change, by) = LoaderChange::at(thread, function, &memory)?;
    tell(&change);
    if by == By::Breakpoint {
        return run_to_breakpoint(thread, &memory, &change, state_address);
    }
    memory.write(function, &change.code)?;
    let end = run(thread, &memory, &change, by, state_address);
    match end {
        Ok(LoaderStop::Consistent) => memory.write(function, &change.original)?,
        // Report the first failure.
        Err(_) => drop(memory.write(function, &change.original)),
        Ok(LoaderStop::Executed | LoaderStop::Exited(_) | LoaderStop::Killed { .. }) => {}
    }
    end
}

/// The same by a breakpoint.
fn run_to_breakpoint(
    thread: &mut Thread,
    memory: &Memory,
    change: &LoaderChange,
    state_address: u64,
) -> Result<LoaderStop> {
    // A trap resets the program's SIGTRAP if it is ignored or blocked, as our parent may have set it.
    let ignored = thread_status(thread.pid(), thread.tid())?.ignored & TRAP != 0;
    let mask = thread.signal_mask()?;
    thread.set_signal_mask(mask & !TRAP)?;
    memory.write(change.address, &change.code)?;
    let end = run(thread, memory, change, By::Breakpoint, state_address);
    match end {
        Ok(LoaderStop::Consistent) => memory.write(change.address, &change.original)?,
        Err(_) => drop(memory.write(change.address, &change.original)),
        Ok(LoaderStop::Executed) => thread.set_signal_mask(mask)?,
        Ok(LoaderStop::Exited(_) | LoaderStop::Killed { .. }) => {}
    }
    if let Ok(LoaderStop::Consistent) = end {
        if ignored {
            ignore_trap(thread, memory)?;
        }
        thread.set_signal_mask(mask)?;
    }
    end
}

fn run(
    thread: &mut Thread,
    memory: &Memory,
    change: &LoaderChange,
    by: By,
    state_address: u64,
) -> Result<LoaderStop> {
    let mut calling = false;
    loop {
        match by {
            By::Call => thread.resume_to_system_call()?,
            By::Signal(_) | By::Breakpoint => thread.resume()?,
        }
        let stop = match thread.wait()? {
            Event::Stopped(Stop::Executed) => return Ok(LoaderStop::Executed),
            Event::Stopped(stop) => stop,
            event @ Event::Ended(_) => return gone(event).context("the thread has vanished"),
        };
        let (behind, pushed) = match (by, stop) {
            (By::Signal(wanted), Stop::Signal(signal)) if signal == wanted => (BEHIND_SENDING, 0),
            (By::Call, Stop::SystemCall) => (BEHIND_CALL, PUSHED),
            (By::Breakpoint, Stop::Signal(libc::SIGTRAP)) => (BEHIND_BREAKPOINT, 0),
            _ => continue,
        };
        let registers = thread.registers()?;
        let is_ours = registers.instruction_pointer() == change.address + behind;
        calling = is_ours && by == By::Call && !calling;
        // Its registers can be set at the end of the call.
        if !is_ours || calling {
            continue;
        }
        let stack = registers.stack_pointer();
        let word = |index: usize| memory.read_word(stack.wrapping_add(index as u64 * 8));
        let mut returned = registers;
        returned.set_instruction_pointer(word(pushed)?);
        returned.set_stack_pointer(stack.wrapping_add((pushed as u64 + 1) * 8));
        returned.leave_call();
        if by == By::Call {
            returned.take_back([word(0)?, word(1)?, word(2)?]);
        }
        if is_consistent(memory, state_address, &registers)? {
            return arrive(thread, returned);
        }
        // After the call the function returns by itself, with or without its signal.
        if by == By::Breakpoint {
            thread.set_registers(&returned)?;
            if let Some(end) = gone(thread.settle_suppressing()?) {
                return Ok(end);
            }
        }
    }
}

fn is_consistent(memory: &Memory, state_address: u64, registers: &Registers) -> Result<bool> {
    let mut state = [0; 4];
    memory.read(state_address, &mut state)?;
    Ok(i32::from_le_bytes(state) == CONSISTENT && registers.thread_pointer() != 0)
}

fn arrive(thread: &mut Thread, registers: Registers) -> Result<LoaderStop> {
    thread.set_registers(&registers)?;
    Ok(gone(thread.settle_suppressing()?).unwrap_or(LoaderStop::Consistent))
}

fn gone(event: Event) -> Option<LoaderStop> {
    match event {
        Event::Stopped(_) => None,
        Event::Ended(Ending::Exited(status)) => Some(LoaderStop::Exited(status)),
        Event::Ended(Ending::Killed { signal, core }) => Some(LoaderStop::Killed { signal, core }),
        Event::Ended(Ending::Unknown) => Some(LoaderStop::Killed {
            signal: libc::SIGKILL,
            core: false,
        }),
    }
}

/// Ignores SIGTRAP again, with a `sigaction` below the stack, which nothing uses between two instructions of the
/// loader.
fn ignore_trap(thread: &mut Thread, memory: &Memory) -> Result<()> {
    // The kernel's structure: handler, flags, restorer, mask.
    let action = [libc::SIG_IGN as u64, 0, 0, 0];
    let bytes = action
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect::<Vec<_>>();
    let address = thread.registers()?.stack_pointer().wrapping_sub(1024);
    memory.write(address, &bytes)?;
    let gadget = find_system_call_gadget(thread.pid())?;
    let arguments = [libc::SIGTRAP as u64, address, 0, 8, 0, 0];
    thread.remote_system_call(gadget, libc::SYS_rt_sigaction, arguments)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A program that sleeps, and a change to code that it does not run.
    fn sleeper() -> (Sleeper, Memory, LoaderChange) {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
        let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        while !call().starts_with(&sleeps) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let maps = crate::maps(pid).unwrap();
        let text = maps.iter().find(|map| map.executable).unwrap();
        let memory = Memory::open(pid).unwrap();
        let mut original = CALL.to_vec();
        memory.read(text.start, &mut original).unwrap();
        let change = LoaderChange {
            pid,
            address: text.start,
            original,
            code: CALL.to_vec(),
        };
        (Sleeper(child), memory, change)
    }

    fn is_restored(memory: &Memory, change: &LoaderChange) -> bool {
        let mut found = CALL;
        memory.read(change.address, &mut found).unwrap();
        found == *change.original
    }

    /// It is stopped behind the first push, as one is that gets no processor, and goes on later.
    #[test]
    fn a_change_is_taken_back_when_the_thread_in_it_goes_on() {
        const FOR_EVER: [u8; 2] = [0xeb, 0xfe];
        let (_child, memory, change) = sleeper();
        let (pid, behind) = (change.pid, change.address + 32);
        memory.write(change.address, &CALL).unwrap();
        memory.write(behind, &FOR_EVER).unwrap();
        let mut stopped = Stopped::stop(pid, PATIENCE).unwrap();
        let thread = &mut stopped.threads_mut()[0];
        let mut registers = thread.registers().unwrap();
        registers.set_stack_pointer(registers.stack_pointer() - 1024);
        let pushed = [registers.result() as u64, behind];
        memory
            .write(
                registers.stack_pointer(),
                &pushed.map(u64::to_le_bytes).concat(),
            )
            .unwrap();
        registers.set_instruction_pointer(change.address + 1);
        registers.leave_call();
        thread.set_registers(&registers).unwrap();
        // SAFETY: two numbers.
        let signal = move |signal| unsafe { libc::kill(pid, signal) };
        signal(libc::SIGSTOP);
        drop(stopped);
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            signal(libc::SIGCONT);
        });
        change.take_back().unwrap();
        assert!(is_restored(&memory, &change));
        later.join().unwrap();
    }

    #[test]
    fn a_change_that_is_half_written_is_taken_back() {
        let (_child, memory, change) = sleeper();
        for written in 1..CALL.len() {
            memory.write(change.address, &CALL[..written]).unwrap();
            change.take_back().unwrap();
            assert!(is_restored(&memory, &change));
        }
        memory.write(change.address, &[0x0b; 14]).unwrap();
        change.take_back().unwrap();
        assert!(!is_restored(&memory, &change), "another's bytes");
    }

    #[test]
    fn room_is_a_return_and_padding() {
        // glibc, musl, and glibc with branch protection.
        let glibc = [
            0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f,
        ];
        let musl = [
            0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x44,
        ];
        let marked = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0,
        ];
        for code in [glibc, musl, marked] {
            assert!(only_returns(&code), "{code:x?}");
        }
        let followed = [
            0xc3, 0x48, 0x8d, 5, 0, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90,
        ];
        let longer = [
            0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
        ];
        for code in [followed, longer] {
            assert!(!only_returns(&code), "{code:x?}");
        }
    }
}
