//! System calls that an interruption by ptrace would make fail.

use std::cell::OnceCell;

use anyhow::Result;

use crate::arch::SYSTEM_CALL;
use crate::blocked::Blocked;
use crate::deadline::{Limit, SYS_IO_PGETEVENTS};
use crate::transfer;
use crate::way_back::WayBack;
use crate::{Mapping, Memory, Registers, Thread, find_system_call_gadget};

/// The kernel's internal code for "fail with `EINTR` if a handler runs, otherwise repeat". Programs never see it.
pub(crate) const ERESTARTNOHAND: i64 = 514;

/// These give `EINTR` whenever a signal is pending, whether or not a handler runs: those of signal(7) that fail after
/// `SIGCONT`, those on sockets with a timeout, and those that could not store the remaining time, because its memory is
/// read-only; `fallocate` of files in memory, and calls of drivers. `close` is not among them: it has closed.
/// `io_pgetevents` is repeated by the kernel, but from the beginning.
const NEVER_REPEATED: [i64; 32] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_fallocate,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_ioctl,
    libc::SYS_perf_event_open,
    libc::SYS_ppoll,
    libc::SYS_preadv2,
    libc::SYS_pselect6,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_select,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_splice,
    libc::SYS_write,
    libc::SYS_writev,
];

/// For an interrupted thread: if its system call failed only because of the interruption, makes the kernel repeat it,
/// as it does with other calls. If a handler runs first, the program gets its `EINTR` after all. The deadline of the
/// wait stays: when it has passed, the call returns its result at a timeout.
///
/// `orig_rax` is the number only if the kernel was entered by a system call and no handler has run since.
///
/// `maps` are the process's mappings, if they have been read at this stop.
pub(crate) fn wind_back(thread: &mut Thread, maps: &OnceCell<Vec<Mapping>>) -> Result<()> {
    let mut registers = thread.registers()?;
    let submitted = has_submitted(&registers);
    let failed = submitted || waits_again(&registers) || was_cut_short(&registers);
    if !failed && !transfer::may_be_cut_short(&registers)
        || !is_after_system_call(thread, &registers)
    {
        return Ok(());
    }
    if !failed {
        // One that cannot go on returns what it has transferred.
        return match transfer::go_on(thread, &registers, maps) {
            Err(_) if thread.is_held() => Ok(()),
            done => done,
        };
    }
    let limit = Limit::of(thread, &registers);
    match limit.filter(Limit::is_over) {
        // The call has succeeded: its result is true.
        Some(_) if registers.result() >= 0 => return Ok(()),
        Some(limit) => registers.set_result(limit.result),
        None => {
            if let Some(limit) = limit {
                limit.leave_in(thread, &mut registers);
            }
            if submitted {
                return wait_on(thread, &registers);
            }
            registers.set_result(-ERESTARTNOHAND);
        }
    }
    thread.set_registers(&registers)
}

fn waits_again(registers: &Registers) -> bool {
    let failures = [-i64::from(libc::EINTR), -ERESTARTNOHAND];
    let number = registers.system_call();
    NEVER_REPEATED.contains(&number) && failures.contains(&(registers.result()))
}

/// Whether an `io_uring_enter` that only had to wait reports events, perhaps fewer than requested. If there are enough,
/// the repeated call returns at once.
fn was_cut_short(registers: &Registers) -> bool {
    waits_for_ring(registers) && to_submit(registers) == 0 && registers.result() == 0
}

fn waits_for_ring(registers: &Registers) -> bool {
    const GET_EVENTS: u64 = 1;
    let [_, _, least, flags, ..] = registers.arguments();
    registers.system_call() == libc::SYS_io_uring_enter
        && least as u32 > 0
        && flags & GET_EVENTS != 0
}

fn to_submit(registers: &Registers) -> u32 {
    registers.arguments()[1] as u32
}

/// Whether an `io_uring_enter` has submitted all its entries and then had to wait: an interruption ends the wait, and
/// the call returns the number of entries.
fn has_submitted(registers: &Registers) -> bool {
    let submitted = registers.result();
    waits_for_ring(registers) && submitted > 0 && submitted == i64::from(to_submit(registers))
}

/// Makes the thread wait in a call that submits nothing, after which it continues as after its own. The call returns at
/// once if there is nothing left to wait for.
fn wait_on(thread: &mut Thread, registers: &Registers) -> Result<()> {
    let gadget = find_system_call_gadget(thread.pid())?;
    let mut returned = *registers;
    returned.leave_call();
    let mask = thread.signal_mask()?;
    // Without room for the way back, the wait ends early.
    let Some(way_back) = WayBack::prepare(thread, gadget, &returned, mask)? else {
        return Ok(());
    };
    // Where a handler runs first, the wait is over.
    let mut waiting = *registers;
    let mut arguments = registers.arguments();
    arguments[1] = 0;
    waiting.set_arguments(arguments);
    waiting.set_result(-ERESTARTNOHAND);
    waiting.set_instruction_pointer(gadget.call + SYSTEM_CALL.len() as u64);
    waiting.set_stack_pointer(way_back.start);
    thread.set_registers(&waiting)?;
    // The frame is in use until the thread has gone back: calls for us, at this stop, need another.
    thread.place = None;
    Ok(())
}

impl Blocked {
    /// Whether the call fails when a signal is pending.
    pub(crate) fn may_fail(&self) -> bool {
        NEVER_REPEATED.contains(&self.number)
    }
}

/// Whether the thread's system call will be repeated.
pub(crate) fn is_wound_back(thread: &Thread) -> bool {
    thread.registers().is_ok_and(|registers| {
        registers.result() == -ERESTARTNOHAND && NEVER_REPEATED.contains(&(registers.system_call()))
    })
}

/// Numbers differ for calls of other kinds.
fn is_after_system_call(thread: &Thread, registers: &Registers) -> bool {
    let memory = Memory::open(thread.pid());
    memory.is_ok_and(|memory| memory.has_system_call_before(registers.instruction_pointer()))
}
