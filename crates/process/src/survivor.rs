//! Waits for the launched program when this process fails. Without memory Rust aborts, and a bug may end in a fault;
//! but our parent still needs the program's status.
//!
//! A handler executes our own file again, as the same process: other threads end, and so does their tracing; every
//! descriptor is closed, by which a guardian sees that it is alone; and the remaining thread waits for the program.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::information::{thread_status, threads};
use crate::{Ending, child_ending};

/// The first argument of the waiting process; the id of the program follows.
const NAME: &CStr = c"nopal-survivor";
const FAILURES: [i32; 5] = [
    libc::SIGABRT,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];
const ALTERNATE_STACK: usize = 16 << 10;

static ALLOWED: AtomicBool = AtomicBool::new(false);
static FAILED: AtomicBool = AtomicBool::new(false);
static PROGRAM: OnceLock<CString> = OnceLock::new();

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The program to wait for, if this is the waiting process. Also prepares the file that [`survive`] executes.
pub fn is_survivor() -> Option<i32> {
    ALLOWED.store(true, Ordering::Relaxed);
    let mut words = std::env::args_os();
    let name = words.next()?;
    if name.as_encoded_bytes() != NAME.to_bytes() {
        return None;
    }
    words.next()?.to_str()?.parse().ok()
}

/// Makes this process wait for `program`, its child, even when it fails. The calling thread is the one that may run out
/// of stack.
pub fn survive(program: i32) {
    if !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    let Ok(number) = CString::new(program.to_string()) else {
        return;
    };
    if PROGRAM.set(number).is_err() {
        return;
    }
    // SAFETY: a new mapping that stays; zeroes are a valid action to fill in, and the handler only makes system calls.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let place = libc::mmap(null_mut(), ALTERNATE_STACK, protection, flags, -1, 0);
        if place != libc::MAP_FAILED {
            let stack = libc::stack_t {
                ss_sp: place,
                ss_flags: 0,
                ss_size: ALTERNATE_STACK,
            };
            libc::sigaltstack(&raw const stack, null_mut());
        }
        for signal in FAILURES {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            action.sa_sigaction = fail as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, null_mut());
        }
    }
}

/// Without memory, several threads may fail at once. The first executes the file, which ends the others; none of these
/// may end the process before.
extern "C" fn fail(signal: i32) {
    if FAILED.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: waits.
            unsafe { libc::pause() };
        }
    }
    if let Some(program) = PROGRAM.get() {
        let words = [NAME.as_ptr(), program.as_ptr(), null()];
        // SAFETY: system calls with pointers that were prepared before.
        unsafe {
            libc::close_range(3, u32::MAX, 0);
            libc::execve(c"/proc/self/exe".as_ptr(), words.as_ptr(), environ);
        }
    }
    // SAFETY: ends this process as it would have ended.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Waits for the program, and detaches from threads that this process still traces. Passes on signals meant for the
/// program.
pub fn wait_as_survivor(program: i32) -> Ending {
    let handled = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: sets that sigemptyset and sigaddset make.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in handled {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, null_mut());
        set
    };
    loop {
        let_go_of(program);
        if let Some(ending) = child_ending(program) {
            return ending;
        }
        let nap = libc::timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        // SAFETY: all three live through the call; kill takes two numbers.
        unsafe {
            let mut information = std::mem::zeroed::<libc::siginfo_t>();
            let signal = libc::sigtimedwait(&raw const set, &raw mut information, &raw const nap);
            if matches!(signal, libc::SIGTERM | libc::SIGHUP) && information.si_code <= 0 {
                libc::kill(program, signal);
            }
        }
    }
}

/// Handles stopped threads of the program that the executing thread traced.
fn let_go_of(program: i32) {
    let ours = std::process::id() as i32;
    for thread in threads(program).unwrap_or_default() {
        let is_ours = thread_status(program, thread).is_ok_and(|status| status.tracer == ours);
        // SAFETY: requests about a thread of ours, which the kernel refuses where it is not.
        unsafe {
            if is_ours && libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0) == -1 {
                let is_running = io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
                if is_running {
                    libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0);
                }
            }
        }
    }
}
