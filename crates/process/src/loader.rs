use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{
    Ending, Event, Memory, Registers, Stop, Stopped, Thread, find_system_call_gadget, thread_status,
};

/// Where [`run_to_loader_consistent`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderStop {
    /// All libraries that the program needs are mapped and relocated; no constructor has run.
    Consistent,
    /// The program executed another, and stands at [`Stop::Executed`].
    Executed,
    Exited(i32),
    Killed {
        signal: i32,
        core: bool,
    },
}

/// A call that changes nothing, in place of a function that only returns, and its padding: whoever traces sees it, and a
/// thread that is not traced any more goes on. Pushes and pops are of `%rax`, `%rcx` and `%r11`, which a call changes.
const CALL: [u8; 14] = [
    0x50,
    0x51,
    0x41,
    0x53,
    0x6a,
    libc::SYS_getpid as u8,
    0x58,
    0x0f,
    0x05,
    0x41,
    0x5b,
    0x59,
    0x58,
    0xc3,
];
/// Where its `syscall` ends.
const BEHIND_CALL: u64 = 9;
/// Where there is no room for that. It kills the program if we are killed before it is met.
const BREAKPOINT: [u8; 1] = [0xcc];
const CONSISTENT: i32 = 0;
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);
/// How long the threads of a process are waited for when they are stopped.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often that is tried until none is in what is taken back: between the attempts are pauses, each twice as long as the
/// one before, of four seconds in all. On a busy machine a tool that was killed lets go late, and a thread goes on late.
const ATTEMPTS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(1);

/// A change to the text of a loader, while it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderChange {
    pub pid: i32,
    pub address: u64,
    /// What stood there: as long as the change.
    pub original: Vec<u8>,
}

impl LoaderChange {
    fn at(pid: i32, address: u64, memory: &Memory) -> Result<LoaderChange> {
        let mut original = CALL.to_vec();
        let room = memory.read(address, &mut original).is_ok() && only_returns(&original);
        if !room {
            original.truncate(BREAKPOINT.len());
            memory.read(address, &mut original)?;
        }
        Ok(LoaderChange {
            pid,
            address,
            original,
        })
    }

    fn is_call(&self) -> bool {
        self.original.len() == CALL.len()
    }

    fn code(&self) -> &'static [u8] {
        if self.is_call() { &CALL } else { &BREAKPOINT }
    }

    /// Whether it is in the text, or a part of it, by who was killed while writing it.
    pub fn is_there(&self) -> bool {
        Memory::open(self.pid).is_ok_and(|memory| self.is_in(&memory))
    }

    fn is_in(&self, memory: &Memory) -> bool {
        let mut found = vec![0; self.original.len()];
        let is_read = memory.read(self.address, &mut found).is_ok();
        let mut places = found.iter().zip(self.code()).zip(&self.original);
        is_read
            && found != self.original
            && places.all(|((found, code), original)| found == code || found == original)
    }

    /// For who is left when the tool has been killed: puts the text back, if the change is in it.
    pub fn take_back(&self) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            if matches!(self.is_taken_back(), Ok(true)) || !crate::alive(self.pid) {
                return Ok(());
            }
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        bail!("a thread of process {} stays in the loader", self.pid)
    }

    /// `false` while a thread is in the change; errors pass, as while the tool has not let go yet.
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
            .any(|at| inside.contains(&at.rip))
        {
            return Ok(false);
        }
        memory.write(self.address, &self.original)?;
        Ok(true)
    }
}

/// Whether code is that of a function that does nothing, and padding.
fn only_returns(code: &[u8]) -> bool {
    const BRANCH_TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(&BRANCH_TARGET).unwrap_or(code);
    let Some(mut padding) = code.strip_prefix(&[0xc3]) else {
        return false;
    };
    while let [first, rest @ ..] = padding {
        let length = match (first, rest) {
            (0x66 | 0x2e | 0x90 | 0xcc, _) => 1,
            // The last may go on behind what was read.
            (0x0f, []) => 1,
            (0x0f, [0x1f]) => 2,
            (0x0f, [0x1f, mode, ..]) => match mode {
                0x00 => 3,
                0x40 => 4,
                0x44 => 5,
                0x80 => 7,
                0x84 => 8,
                _ => return false,
            },
            _ => return false,
        };
        padding = padding.get(length..).unwrap_or_default();
    }
    true
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
    let change = LoaderChange::at(thread.pid(), function, &memory)?;
    tell(&change);
    if !change.is_call() {
        return run_to_breakpoint(thread, &memory, &change, state_address);
    }
    memory.write(function, change.code())?;
    let end = run(thread, &memory, &change, state_address);
    match end {
        Ok(LoaderStop::Consistent) => memory.write(function, &change.original)?,
        // That failure is the one to tell.
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
    // A trap resets the program's SIGTRAP if it is ignored or blocked, as it may have been by whoever launched us.
    let ignored = thread_status(thread.pid(), thread.tid())?.ignored & TRAP != 0;
    let mask = thread.signal_mask()?;
    thread.set_signal_mask(mask & !TRAP)?;
    memory.write(change.address, change.code())?;
    let end = run(thread, memory, change, state_address);
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
    state_address: u64,
) -> Result<LoaderStop> {
    let mut calling = false;
    loop {
        if change.is_call() {
            thread.resume_to_system_call()?;
        } else {
            thread.resume()?;
        }
        match thread.wait()? {
            Event::Stopped(Stop::SystemCall) => {
                let registers = thread.registers()?;
                let is_ours = registers.rip == change.address + BEHIND_CALL;
                calling = is_ours && !calling;
                // Its registers can be set where the call ends.
                if is_ours && !calling && is_consistent(memory, state_address, &registers)? {
                    let word = |index: u64| memory.read_word(registers.rsp + index * 8);
                    return arrive(
                        thread,
                        Registers {
                            r11: word(0)?,
                            rcx: word(1)?,
                            rax: word(2)?,
                            rip: word(3)?,
                            rsp: registers.rsp + 4 * 8,
                            orig_rax: u64::MAX,
                            ..registers
                        },
                    );
                }
            }
            Event::Stopped(Stop::Signal(libc::SIGTRAP)) if !change.is_call() => {
                let mut registers = thread.registers()?;
                if registers.rip != change.address + 1 {
                    continue;
                }
                registers.rip = memory.read_word(registers.rsp)?;
                registers.rsp = registers.rsp.wrapping_add(8);
                if is_consistent(memory, state_address, &registers)? {
                    return arrive(thread, registers);
                }
                thread.set_registers(&registers)?;
                if let Some(end) = gone(thread.settle_suppressing()?) {
                    return Ok(end);
                }
            }
            Event::Stopped(Stop::Executed) => return Ok(LoaderStop::Executed),
            Event::Stopped(_) => {}
            event @ Event::Ended(_) => return gone(event).context("the thread has vanished"),
        }
    }
}

fn is_consistent(memory: &Memory, state_address: u64, registers: &Registers) -> Result<bool> {
    let mut state = [0; 4];
    memory.read(state_address, &mut state)?;
    Ok(i32::from_le_bytes(state) == CONSISTENT && registers.fs_base != 0)
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
    let address = thread.registers()?.rsp.wrapping_sub(1024);
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
        registers.rsp -= 1024;
        let pushed = [registers.rax, behind];
        memory
            .write(registers.rsp, &pushed.map(u64::to_le_bytes).concat())
            .unwrap();
        registers.rip = change.address + 1;
        registers.orig_rax = u64::MAX;
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
