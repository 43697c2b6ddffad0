//! A sufficient stack, even under `ulimit -s 64`.

use std::ptr::null_mut;
use std::sync::OnceLock;

const ROOM: usize = 8 << 20;

static RUN: OnceLock<fn() -> i32> = OnceLock::new();
static STATUS: OnceLock<i32> = OnceLock::new();

extern "C" fn begin() {
    STATUS.get_or_init(|| RUN.get().map_or(1, |run| run()));
}

/// Runs nopal, on another stack if that of this thread may not grow enough. There is still one thread.
pub fn on_enough(run: fn() -> i32) -> i32 {
    let Some(stack) = new_stack() else {
        return run();
    };
    RUN.get_or_init(|| run);
    // SAFETY: contexts that live until the second has come back, by its link, to the first.
    unsafe {
        let mut here = std::mem::zeroed::<libc::ucontext_t>();
        let mut there = std::mem::zeroed::<libc::ucontext_t>();
        libc::getcontext(&raw mut there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = ROOM;
        there.uc_link = &raw mut here;
        libc::makecontext(&raw mut there, begin, 0);
        libc::swapcontext(&raw mut here, &raw const there);
    }
    STATUS.get().copied().unwrap_or(1)
}

/// None if the current stack suffices, or no other can be mapped.
fn new_stack() -> Option<*mut libc::c_void> {
    // A mapping that is a stack does not count towards the limit of data.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_GROWSDOWN;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel fills the structure in; a failure leaves the limit at 0, which is too little. A new mapping.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
        if limit.rlim_cur >= ROOM as u64 {
            return None;
        }
        let stack = libc::mmap(null_mut(), ROOM, protection, flags, -1, 0);
        (stack != libc::MAP_FAILED).then_some(stack)
    }
}
