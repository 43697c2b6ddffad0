//! The raw requests.

use crate::arch::{DEBUG_STATUS, EXTENDED_STATE, Registers};
use crate::seccomp::Instruction;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;

use libc::{c_uint, c_void, siginfo_t};

/// Reports beyond signals. `PTRACE_O_TRACESYSGOOD` is always set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Stop at `execve`.
    pub executions: bool,
}

impl Options {
    pub(crate) fn bits(self) -> usize {
        let executions = if self.executions {
            libc::PTRACE_O_TRACEEXEC
        } else {
            0
        };
        (libc::PTRACE_O_TRACESYSGOOD | executions) as usize
    }
}

pub(crate) type Result<T> = std::result::Result<T, io::Error>;

/// # Safety
/// `data` must be what `request` wants: a number, or the address of a buffer that is valid for it.
unsafe fn request(request: c_uint, tid: i32, address: usize, data: usize) -> Result<()> {
    // SAFETY: the caller vouches for `data`; the kernel checks everything else.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data as *mut c_void) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A request whose data is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Request {
    Seize = libc::PTRACE_SEIZE,
    Interrupt = libc::PTRACE_INTERRUPT,
    Listen = libc::PTRACE_LISTEN,
    Continue = libc::PTRACE_CONT,
    /// Until the next system call begins or ends.
    SystemCall = libc::PTRACE_SYSCALL,
    Detach = libc::PTRACE_DETACH,
    SetOptions = libc::PTRACE_SETOPTIONS,
}

pub(crate) fn command(which: Request, tid: i32, data: usize) -> Result<()> {
    // SAFETY: none of these requests takes a buffer.
    unsafe { request(which as c_uint, tid, 0, data) }
}

/// Writes a word of the memory of a thread that is stopped.
pub(crate) fn poke(tid: i32, address: u64, word: u64) -> Result<()> {
    // SAFETY: the data is a number.
    unsafe { request(libc::PTRACE_POKEDATA, tid, address as usize, word as usize) }
}

pub(crate) fn registers(tid: i32) -> Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    // SAFETY: the buffer is a whole register set, and the kernel fills it if the request succeeds.
    unsafe {
        request(
            libc::PTRACE_GETREGS,
            tid,
            0,
            registers.as_mut_ptr() as usize,
        )?;
        Ok(registers.assume_init())
    }
}

pub(crate) fn set_registers(tid: i32, registers: &Registers) -> Result<()> {
    // SAFETY: the kernel reads one register set.
    unsafe { request(libc::PTRACE_SETREGS, tid, 0, &raw const *registers as usize) }
}

pub(crate) fn debug_status(tid: i32) -> Result<u64> {
    let mut status = 0u64;
    // SAFETY: the kernel stores one word. libc's function would return it, and could not tell it from an error.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKUSER,
            tid,
            DEBUG_STATUS,
            &raw mut status,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(status)
}

pub(crate) fn set_debug_status(tid: i32, status: u64) -> Result<()> {
    // SAFETY: the kernel takes a number.
    unsafe { request(libc::PTRACE_POKEUSER, tid, DEBUG_STATUS, status as usize) }
}

pub(crate) fn extended_state(tid: i32) -> Result<Vec<u8>> {
    let mut state = vec![0u8; 64 << 10];
    let mut vector = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    // SAFETY: the vector describes a buffer of ours; the kernel writes no more than its length and updates that.
    unsafe {
        request(
            libc::PTRACE_GETREGSET,
            tid,
            EXTENDED_STATE,
            &raw mut vector as usize,
        )?
    };
    state.truncate(vector.iov_len);
    Ok(state)
}

pub(crate) fn set_extended_state(tid: i32, state: &[u8]) -> Result<()> {
    let vector = libc::iovec {
        iov_base: state.as_ptr().cast_mut().cast(),
        iov_len: state.len(),
    };
    // SAFETY: the kernel only reads the buffer that the vector describes.
    unsafe {
        request(
            libc::PTRACE_SETREGSET,
            tid,
            EXTENDED_STATE,
            &raw const vector as usize,
        )
    }
}

pub(crate) fn signal_mask(tid: i32) -> Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel's signal set is eight bytes.
    unsafe {
        request(
            libc::PTRACE_GETSIGMASK,
            tid,
            size_of::<u64>(),
            &raw mut mask as usize,
        )?
    };
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> Result<()> {
    // SAFETY: the kernel's signal set is eight bytes.
    unsafe {
        request(
            libc::PTRACE_SETSIGMASK,
            tid,
            size_of::<u64>(),
            &raw const mask as usize,
        )
    }
}

pub(crate) fn signal_information(tid: i32) -> Result<siginfo_t> {
    let mut information = MaybeUninit::<siginfo_t>::zeroed();
    // SAFETY: the buffer is a whole siginfo_t, valid when zero.
    unsafe {
        request(
            libc::PTRACE_GETSIGINFO,
            tid,
            0,
            information.as_mut_ptr() as usize,
        )?;
        Ok(information.assume_init())
    }
}

/// Signals queued for the thread itself, oldest first; at most 32.
pub(crate) fn queued_signals(tid: i32) -> Result<Vec<siginfo_t>> {
    #[repr(C)]
    struct Arguments {
        offset: u64,
        flags: u32,
        count: i32,
    }
    let arguments = Arguments {
        offset: 0,
        flags: 0,
        count: 32,
    };
    // SAFETY: all zeroes is a siginfo_t.
    let mut queue = [unsafe { mem::zeroed::<siginfo_t>() }; 32];
    // SAFETY: the kernel reads the arguments, and writes no more entries than they say, which the buffer holds.
    let count = unsafe {
        libc::ptrace(
            libc::PTRACE_PEEKSIGINFO,
            tid,
            &raw const arguments as *mut c_void,
            queue.as_mut_ptr() as *mut c_void,
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok(queue[..count.min(queue.len())].to_vec())
}

/// The address of the thread's `struct rseq`, or `None` if it has none, or the kernel does not tell.
pub(crate) fn restartable_sequences(tid: i32) -> Option<u64> {
    const PTRACE_GET_RSEQ_CONFIGURATION: c_uint = 0x420f;
    #[repr(C)]
    struct Configuration {
        address: u64,
        size: u32,
        signature: u32,
        flags: u32,
        padding: u32,
    }
    let mut found = MaybeUninit::<Configuration>::zeroed();
    let size = size_of::<Configuration>();
    // SAFETY: the buffer is as long as the kernel is told, and valid when zero.
    let found = unsafe {
        request(
            PTRACE_GET_RSEQ_CONFIGURATION,
            tid,
            size,
            found.as_mut_ptr() as usize,
        )
        .ok()?;
        found.assume_init()
    };
    Some(found.address).filter(|&address| address != 0)
}

/// The result of `waitid` for a child or a traced thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitStatus {
    pub code: i32,
    pub status: i32,
}

impl WaitStatus {
    /// Whether it is a stop, not an end.
    pub fn is_stop(&self) -> bool {
        !matches!(
            self.code,
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
        )
    }
}

/// `None`: nothing yet. `ECHILD`: it is neither our child nor still traced by us.
pub(crate) fn wait_status(id: i32, options: i32) -> Result<Option<WaitStatus>> {
    loop {
        // SAFETY: all zeroes is a siginfo_t.
        let mut information = unsafe { mem::zeroed::<siginfo_t>() };
        // SAFETY: waitid fills in the structure, which outlives the call.
        let result = unsafe {
            libc::waitid(
                libc::P_PID,
                id as libc::id_t,
                &raw mut information,
                options | libc::__WALL,
            )
        };
        if result == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        // SAFETY: waitid leaves these fields zero or fills them in.
        let (about, status) = unsafe { (information.si_pid(), information.si_status()) };
        return Ok((about != 0).then_some(WaitStatus {
            code: information.si_code,
            status,
        }));
    }
}

/// Whether the thread's system calls from some places raise SIGSYS in it: PR_SET_SYSCALL_USER_DISPATCH. Kernels before
/// 6.4 do not tell.
pub(crate) fn dispatches_system_calls(tid: i32) -> bool {
    const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: c_uint = 0x4211;
    const OFF: u64 = 0;
    #[repr(C)]
    struct Configuration {
        mode: u64,
        selector: u64,
        offset: u64,
        length: u64,
    }
    let mut found = MaybeUninit::<Configuration>::zeroed();
    let size = size_of::<Configuration>();
    // SAFETY: the buffer is as long as the kernel is told, and valid when zero.
    unsafe {
        let buffer = found.as_mut_ptr() as usize;
        request(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, tid, size, buffer).is_ok()
            && found.assume_init().mode != OFF
    }
}

/// A seccomp filter of a thread that is stopped, by its number. ENOENT: it has no more.
pub(crate) fn filter(tid: i32, index: usize) -> Result<Vec<Instruction>> {
    const PTRACE_SECCOMP_GET_FILTER: c_uint = 0x420c;
    let get = |into: *mut c_void| {
        // SAFETY: `into` is null or has room for what the kernel has said that the filter needs; filters do not change.
        let length = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid, index, into) };
        usize::try_from(length).map_err(|_| io::Error::last_os_error())
    };
    let mut filter = vec![Instruction::default(); get(ptr::null_mut())?];
    get(filter.as_mut_ptr().cast())?;
    Ok(filter)
}
