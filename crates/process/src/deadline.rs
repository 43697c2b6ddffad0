//! Deadlines of system calls that start over when they are interrupted.
//!
//! The call's timeout starts over, and the kernel does not tell how long the call has lasted. So we leave the time at
//! which the wait must end with the thread, for the next stop, even by another nopal. It is kept in a register that the
//! program cannot see: the debug status, which the kernel keeps for each thread, and which takes any value. That it is
//! of this very call is known by the arithmetic flags. They are dead behind a system call, as all compilers have it,
//! and any comparison overwrites them; but no operation leaves them as they are left here, as of a result that is both
//! zero and negative.

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::time::ClockId;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::{Memory, Registers, Thread};

/// The time is kept in units of so many nanoseconds, above a digest of the call.
const UNIT: u64 = 1 << 10;
const DIGEST_BITS: u32 = 16;

pub(crate) const SYS_IO_PGETEVENTS: i64 = 333;

/// The end of a wait at its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    pub until: u64,
    /// The result of the call then.
    pub result: i64,
}

impl Limit {
    /// The deadline of the call by which a thread entered the kernel; `None` if it has no timeout, or it cannot be
    /// found.
    pub fn of(thread: &Thread, registers: &Registers) -> Option<Limit> {
        let (timeout, result) = timeout(thread, registers)?;
        let timeout = u64::try_from(timeout.as_nanos()).ok()?;
        let latest = now().checked_add(timeout)?;
        let until = left_in(thread, registers).map_or(latest, |until| until.min(latest));
        Some(Limit { until, result })
    }

    /// Stores the deadline for a wait that starts over with these registers, if the kernel keeps the value.
    pub fn leave_in(&self, thread: &Thread, registers: &mut Registers) {
        let digest = digest(registers) >> (64 - DIGEST_BITS);
        let status = self.until.div_ceil(UNIT) << DIGEST_BITS | digest;
        // First, since the flags say that the time is there.
        if thread.set_debug_status(status).is_ok() {
            registers.mark();
        }
    }

    pub fn is_over(&self) -> bool {
        now() >= self.until
    }
}

fn left_in(thread: &Thread, registers: &Registers) -> Option<u64> {
    let status = registers
        .is_marked()
        .then(|| thread.debug_status().ok())??;
    let is_of_this = status & ((1 << DIGEST_BITS) - 1) == digest(registers) >> (64 - DIGEST_BITS);
    is_of_this.then_some((status >> DIGEST_BITS) * UNIT)
}

/// A digest of the thread's call, equal when it is repeated: another call most likely differs.
fn digest(registers: &Registers) -> u64 {
    let [first, _, third, fourth, fifth, _] = registers.arguments();
    let number = registers.system_call() as u64;
    let call = [number, first, third, fourth, fifth];
    call.iter().fold(0, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The timeout of the call, and its result then.
fn timeout(thread: &Thread, registers: &Registers) -> Option<(Duration, i64)> {
    let (again, over) = (-i64::from(libc::EAGAIN), -i64::from(libc::ETIME));
    let at = |address| time_at(thread.pid(), address);
    let [first, _, third, fourth, fifth, _] = registers.arguments();
    match registers.system_call() {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
            let milliseconds = u64::try_from(fourth as i32).ok()?;
            Some((Duration::from_millis(milliseconds), 0))
        }
        libc::SYS_epoll_pwait2 => Some((at(fourth)?, 0)),
        libc::SYS_ppoll => Some((at(third)?, 0)),
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => Some((at(fifth)?, 0)),
        libc::SYS_rt_sigtimedwait => Some((at(third)?, again)),
        libc::SYS_semtimedop => Some((at(fourth)?, again)),
        libc::SYS_io_uring_enter => Some((at(ring_time(thread.pid(), registers)?)?, over)),
        number => Socket::open(thread, first as i32)?.timeout(number),
    }
}

/// A `struct timespec`.
fn time_at(pid: i32, address: u64) -> Option<Duration> {
    let memory = Memory::open(pid).ok()?;
    let seconds = memory.read_word(address).ok()?;
    let nanoseconds = memory.read_word(address.checked_add(8)?).ok()?;
    let nanoseconds = u32::try_from(nanoseconds).ok()?;
    (nanoseconds < 1_000_000_000).then(|| Duration::new(seconds, nanoseconds))
}

/// The address of the timeout of an `io_uring_enter`, if it has one that is not absolute.
fn ring_time(pid: i32, registers: &Registers) -> Option<u64> {
    const HAS_ARGUMENT: u64 = 1 << 3;
    const IS_THE_END: u64 = 1 << 5;
    const IS_REGISTERED: u64 = 1 << 6;
    /// In `struct io_uring_getevents_arg`.
    const TIME: u64 = 16;
    let [_, _, _, flags, argument, _] = registers.arguments();
    let flags = flags & (HAS_ARGUMENT | IS_THE_END | IS_REGISTERED);
    let argument = argument.checked_add(TIME)?;
    let memory = (flags == HAS_ARGUMENT).then(|| Memory::open(pid).ok())??;
    memory.read_word(argument).ok()
}

/// A socket of another process.
pub(crate) struct Socket {
    file: OwnedFd,
}

impl Socket {
    pub fn open(thread: &Thread, descriptor: i32) -> Option<Socket> {
        /// Since Linux 6.9: a thread may have descriptors of its own.
        const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
        if descriptor < 0 {
            return None;
        }
        let open = |id: i32, flags: PidfdFlags| pidfd_open(Pid::from_raw(id)?, flags).ok();
        let process =
            open(thread.tid(), OF_THREAD).or_else(|| open(thread.pid(), PidfdFlags::empty()))?;
        let file = pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).ok()?;
        Some(Socket { file })
    }

    /// Whether bytes follow one another on it, without messages.
    pub fn is_stream(&self) -> bool {
        sockopt::socket_type(&self.file).is_ok_and(|kind| kind == SocketType::STREAM)
    }

    fn timeout(&self, number: i64) -> Option<(Duration, i64)> {
        let (option, result) = match number {
            libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_preadv2
            | libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_recvfrom
            | libc::SYS_recvmmsg
            | libc::SYS_recvmsg => (Timeout::Recv, libc::EAGAIN),
            libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_sendmmsg
            | libc::SYS_sendmsg
            | libc::SYS_sendto
            | libc::SYS_write
            | libc::SYS_writev => (Timeout::Send, libc::EAGAIN),
            libc::SYS_connect => match sockopt::socket_domain(&self.file).ok()? {
                AddressFamily::UNIX => (Timeout::Send, libc::EAGAIN),
                AddressFamily::INET | AddressFamily::INET6 => (Timeout::Send, libc::EINPROGRESS),
                _ => return None,
            },
            _ => return None,
        };
        let timeout = sockopt::socket_timeout(&self.file, option).ok()??;
        Some((timeout, -i64::from(result)))
    }
}
