//! Handles files that become shorter while they are read: files are mapped, so this causes a signal, not an error.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::open::OF_DAMAGED;

const MESSAGE: &[u8] =
    b"nopal: a file became shorter while it was read: the output is incomplete\n";

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Makes such a signal end nopal with a message and the status of damage.
pub fn expect() {
    // SAFETY: zeroes are a valid action to fill in, and the handler only makes system calls.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = end as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

extern "C" fn end(signal: i32, notes: *const libc::siginfo_t, _: *const c_void) {
    // SAFETY: the kernel has made what it points to; behind it, system calls only. Another cause comes again at once,
    // and ends nopal.
    unsafe {
        if (*notes).si_code != libc::BUS_ADRERR {
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
        // Another thread may be here, too.
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        }
        libc::_exit(OF_DAMAGED);
    }
}
