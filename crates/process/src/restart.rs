//! System calls that an interruption by ptrace would make fail.

use anyhow::Result;

use crate::blocked::blocked;
use crate::deadline::Limit;
use crate::way_back::WayBack;
use crate::{Memory, Registers, Thread, find_system_call_gadget};

/// The kernel's own word for "fail with `EINTR` if a handler runs, else repeat". Programs never see it.
const ERESTARTNOHAND: i64 = 514;

pub(crate) const SYS_IO_PGETEVENTS: i64 = 333;

/// These give `EINTR` whenever a signal is pending, whether or not a handler runs for it: those of signal(7) which fail
/// after `SIGCONT`, those on sockets with a timeout, and those that could not say which time was left, because that is
/// in memory which may not be written. `close` is not among them: it has closed. `io_pgetevents` is repeated by the
/// kernel, but from the beginning.
const NEVER_REPEATED: [i64; 29] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_epoll_wait,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
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

/// For an interrupted thread: if its system call failed because of that alone, leaves it to the kernel to repeat it,
/// just as the kernel does with others: unless a handler runs first, in which case the program gets its `EINTR` after
/// all. The time of the wait goes on: when it is over, the call returns what it returns then.
pub(crate) fn wind_back(thread: &mut Thread) -> Result<()> {
    let mut registers = thread.registers()?;
    let submitted = has_submitted(&registers);
    let failed = submitted || waits_again(&registers) || was_cut_short(&registers);
    if !failed || !is_after_system_call(thread, &registers) {
        return Ok(());
    }
    let limit = Limit::of(thread, &registers);
    match limit.filter(Limit::is_over) {
        // What it says is true.
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

/// Whether an `io_uring_enter` that had only to wait says that something is there, perhaps less than was waited for. If
/// it is as much, the same call returns at once.
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

/// Whether an `io_uring_enter` has submitted all that it was to submit, and was to wait then: an interruption ends the
/// wait, and the call returns the number.
fn has_submitted(registers: &Registers) -> bool {
    let submitted = registers.result();
    waits_for_ring(registers) && submitted > 0 && submitted == i64::from(to_submit(registers))
}

/// Lets the thread wait in a call that submits nothing more, from which it goes on as from its own. The call returns at
/// once if there is nothing to wait for any more.
fn wait_on(thread: &mut Thread, registers: &Registers) -> Result<()> {
    let gadget = find_system_call_gadget(thread.pid())?;
    let mut returned = *registers;
    returned.leave_call();
    let mask = thread.signal_mask()?;
    // Where there is no room for the way back, the wait has ended early.
    let Some(way_back) = WayBack::prepare(thread, gadget, &returned, mask)? else {
        return Ok(());
    };
    let mut waiting = returned;
    let mut arguments = registers.arguments();
    arguments[1] = 0;
    waiting.begin_call(registers.system_call(), arguments);
    waiting.set_instruction_pointer(gadget.call);
    waiting.set_stack_pointer(way_back.stack_pointer);
    thread.set_registers(&waiting)
}

/// Whether a thread sleeps in a call that fails when a signal is pending.
pub(crate) fn may_fail(pid: i32, tid: i32) -> bool {
    blocked(pid, tid).is_some_and(|call| NEVER_REPEATED.contains(&call.number))
}

/// Whether the thread's system call was made to be repeated.
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
