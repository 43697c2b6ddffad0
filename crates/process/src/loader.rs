use anyhow::{Context, Result};

use crate::{Ending, Event, Memory, Stop, Thread, find_system_call_gadget, thread_status};

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

const BREAKPOINT: u8 = 0xcc;
const CONSISTENT: i32 = 0;
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// From the stop at `execve`, runs the loader until it has mapped and relocated everything.
///
/// `breakpoint` is the address of `_dl_debug_state`, which the loader calls before and after it changes the list of
/// libraries, and which does nothing; `state_address` that of `r_debug.r_state`. The thread control block must exist,
/// too, for an early call may find the list consistent because nothing has been loaded yet. The thread then stands at
/// [`Stop::Interrupted`] (or [`Stop::Group`]), as if `_dl_debug_state` had just returned.
///
/// Auditing libraries (`LD_AUDIT`) run code of their own before this point; threads of theirs must not load libraries.
pub fn run_to_loader_consistent(
    thread: &mut Thread,
    breakpoint: u64,
    state_address: u64,
) -> Result<LoaderStop> {
    let memory = Memory::open(thread.pid())?;
    let mut original = [0];
    memory.read(breakpoint, &mut original)?;
    // A trap resets the program's SIGTRAP if it is ignored or blocked, as it may have been by whoever launched us.
    let status = thread_status(thread.pid(), thread.tid())?;
    let ignored = status.ignored & TRAP != 0;
    let mask = thread.signal_mask()?;
    thread.set_signal_mask(mask & !TRAP)?;
    memory.write(breakpoint, &[BREAKPOINT])?;
    let end = run(thread, &memory, breakpoint, state_address);
    match end {
        Ok(LoaderStop::Consistent) => memory.write(breakpoint, &original)?,
        // That failure is the one to tell.
        Err(_) => drop(memory.write(breakpoint, &original)),
        Ok(LoaderStop::Executed) => thread.set_signal_mask(mask)?,
        Ok(LoaderStop::Exited(_) | LoaderStop::Killed { .. }) => {}
    }
    if let Ok(LoaderStop::Consistent) = end {
        if let Some(end) = gone(thread.settle_suppressing()?) {
            return Ok(end);
        }
        if ignored {
            ignore_trap(thread, &memory)?;
        }
        thread.set_signal_mask(mask)?;
        // Of a call that a seccomp filter refuses, a trap behind it would tell nothing; and a SIGTRAP that is blocked and
        // waits would go with it.
        thread.may_trap = !ignored && mask & TRAP == 0 && status.seccomp == 0;
    }
    end
}

fn run(
    thread: &mut Thread,
    memory: &Memory,
    breakpoint: u64,
    state_address: u64,
) -> Result<LoaderStop> {
    thread.resume()?;
    loop {
        match thread.wait()? {
            Event::Stopped(Stop::Signal(libc::SIGTRAP)) => {
                let mut registers = thread.registers()?;
                if registers.rip != breakpoint.wrapping_add(1) {
                    thread.resume()?;
                    continue;
                }
                registers.rip = memory.read_word(registers.rsp)?;
                registers.rsp = registers.rsp.wrapping_add(8);
                thread.set_registers(&registers)?;
                let mut state = [0; 4];
                memory.read(state_address, &mut state)?;
                if i32::from_le_bytes(state) == CONSISTENT && registers.fs_base != 0 {
                    return Ok(LoaderStop::Consistent);
                }
                thread.resume_suppressing()?;
            }
            Event::Stopped(Stop::Executed) => return Ok(LoaderStop::Executed),
            Event::Stopped(_) => thread.resume()?,
            event @ Event::Ended(_) => return gone(event).context("the thread has vanished"),
        }
    }
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
