//! Deadlines of system calls that start over when they are interrupted.
//!
//! The call's timeout starts over, and the kernel does not tell how long the call has lasted. So we leave the time at
//! which the wait must end with the thread, for the next stop, even by another nopal. It is kept in a register that the
//! program cannot see: the debug status, which the kernel keeps for each thread, and which takes any value. That it is
//! of this very call is known by the arithmetic flags. They are dead behind a system call, as all compilers have it,
//! and any comparison overwrites them; but no operation leaves them as they are left here, as of a result that is both
//! zero and negative.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use crate::restart::SYS_IO_PGETEVENTS;
use crate::{Memory, Registers, Thread};

/// Carry, parity, adjust, zero, sign, overflow.
const FLAGS: u64 = 0x8d5;
/// All except parity, which zero sets.
const LEFT: u64 = FLAGS & !0x4;

/// The unit of the kept time in nanoseconds; below the time is a digest of the call.
const UNIT: u64 = 1 << 10;
const DIGEST_BITS: u32 = 16;

/// How a wait ends at its timeout.
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
            registers.eflags = registers.eflags & !FLAGS | LEFT;
        }
    }

    pub fn is_over(&self) -> bool {
        now() >= self.until
    }
}

fn left_in(thread: &Thread, registers: &Registers) -> Option<u64> {
    let is_left = registers.eflags & FLAGS == LEFT;
    let status = is_left.then(|| thread.debug_status().ok())??;
    let is_of_this = status & ((1 << DIGEST_BITS) - 1) == digest(registers) >> (64 - DIGEST_BITS);
    is_of_this.then_some((status >> DIGEST_BITS) * UNIT)
}

/// A digest of the thread's call, equal when it is repeated: another call most likely differs.
fn digest(registers: &Registers) -> u64 {
    let call = [
        registers.orig_rax,
        registers.rdi,
        registers.rdx,
        registers.r10,
        registers.r8,
    ];
    call.iter().fold(0, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The timeout of the call, and its result then.
fn timeout(thread: &Thread, registers: &Registers) -> Option<(Duration, i64)> {
    let (again, over) = (-i64::from(libc::EAGAIN), -i64::from(libc::ETIME));
    let at = |address| time_at(thread.pid(), address);
    match registers.orig_rax as i64 {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
            let milliseconds = u64::try_from(registers.r10 as i32).ok()?;
            Some((Duration::from_millis(milliseconds), 0))
        }
        libc::SYS_epoll_pwait2 => Some((at(registers.r10)?, 0)),
        libc::SYS_ppoll => Some((at(registers.rdx)?, 0)),
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => Some((at(registers.r8)?, 0)),
        libc::SYS_rt_sigtimedwait => Some((at(registers.rdx)?, again)),
        libc::SYS_semtimedop => Some((at(registers.r10)?, again)),
        libc::SYS_io_uring_enter => Some((at(ring_time(thread.pid(), registers)?)?, over)),
        number => Socket::open(thread, registers.rdi as i32)?.timeout(number),
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
    let flags = registers.r10 & (HAS_ARGUMENT | IS_THE_END | IS_REGISTERED);
    let argument = registers.r8.checked_add(TIME)?;
    let memory = (flags == HAS_ARGUMENT).then(|| Memory::open(pid).ok())??;
    memory.read_word(argument).ok()
}

/// A socket of another process.
struct Socket {
    file: File,
}

impl Socket {
    fn open(thread: &Thread, descriptor: i32) -> Option<Socket> {
        /// `PIDFD_THREAD`, since Linux 6.9: a thread may have descriptors of its own.
        const OF_THREAD: libc::c_int = libc::O_EXCL;
        let owned = |result: libc::c_long| {
            let descriptor = i32::try_from(result).ok().filter(|number| *number >= 0)?;
            // SAFETY: the kernel has just made it for us.
            Some(unsafe { File::from_raw_fd(descriptor) })
        };
        // SAFETY: the kernel takes numbers only.
        let open =
            |id: i32, flags: libc::c_int| unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) };
        let process =
            owned(open(thread.tid(), OF_THREAD)).or_else(|| owned(open(thread.pid(), 0)))?;
        // SAFETY: the kernel takes numbers only.
        let file = owned(unsafe {
            libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0)
        })?;
        Some(Socket { file })
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
            | libc::SYS_recvmsg => (libc::SO_RCVTIMEO, libc::EAGAIN),
            libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_sendmmsg
            | libc::SYS_sendmsg
            | libc::SYS_sendto
            | libc::SYS_write
            | libc::SYS_writev => (libc::SO_SNDTIMEO, libc::EAGAIN),
            libc::SYS_connect => match self.option::<i32>(libc::SO_DOMAIN)? {
                libc::AF_UNIX => (libc::SO_SNDTIMEO, libc::EAGAIN),
                libc::AF_INET | libc::AF_INET6 => (libc::SO_SNDTIMEO, libc::EINPROGRESS),
                _ => return None,
            },
            _ => return None,
        };
        let [seconds, microseconds] = self.option::<[u64; 2]>(option)?;
        let timeout = Duration::from_secs(seconds) + Duration::from_micros(microseconds);
        (!timeout.is_zero()).then_some((timeout, -i64::from(result)))
    }

    fn option<T: Copy + Default>(&self, option: i32) -> Option<T> {
        let mut value = T::default();
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most as many bytes as the value has; any are valid in the numbers that are asked for.
        let result = unsafe {
            libc::getsockopt(
                self.file.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut value).cast(),
                &raw mut size,
            )
        };
        (result == 0 && size as usize == size_of::<T>()).then_some(value)
    }
}
