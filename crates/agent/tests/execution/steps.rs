//! Counts instructions by the trap flag, and can change memory before one.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static LOW: AtomicU64 = AtomicU64::new(0);
static HIGH: AtomicU64 = AtomicU64::new(0);
static LEFT_OUT_LOW: AtomicU64 = AtomicU64::new(0);
static LEFT_OUT_HIGH: AtomicU64 = AtomicU64::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);
/// The memory that is wiped, and the step before which it is.
static WIPED_LOW: AtomicU64 = AtomicU64::new(0);
static WIPED_HIGH: AtomicU64 = AtomicU64::new(0);
static WIPED_AT: AtomicU32 = AtomicU32::new(u32::MAX);

/// Runs before each instruction.
extern "C" fn on_trap(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a ucontext_t.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let address = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    let within = |low: &AtomicU64, high: &AtomicU64| {
        (low.load(Ordering::Relaxed)..high.load(Ordering::Relaxed)).contains(&address)
    };
    if within(&LOW, &HIGH) && !within(&LEFT_OUT_LOW, &LEFT_OUT_HIGH) {
        let step = STEPS.fetch_add(1, Ordering::Relaxed);
        if step == WIPED_AT.load(Ordering::Relaxed) {
            let low = WIPED_LOW.load(Ordering::Relaxed);
            let bytes = (WIPED_HIGH.load(Ordering::Relaxed) - low) as usize;
            // SAFETY: the caller of `wipe_before` passes memory that only generated code uses.
            unsafe { std::ptr::write_bytes(low as *mut u8, 0, bytes) };
        }
    }
}

/// How many instructions in `code`, but not in `left_out`, `run` executes with the trap flag set.
pub fn count_steps(code: Range<u64>, left_out: Range<u64>, run: impl FnOnce()) -> u32 {
    LOW.store(code.start, Ordering::Relaxed);
    HIGH.store(code.end, Ordering::Relaxed);
    LEFT_OUT_LOW.store(left_out.start, Ordering::Relaxed);
    LEFT_OUT_HIGH.store(left_out.end, Ordering::Relaxed);
    STEPS.store(0, Ordering::Relaxed);
    // SAFETY: zeroes are an empty mask and no flags; the handler calls nothing that is not safe in one.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()),
            0
        );
    }
    run();
    STEPS.load(Ordering::Relaxed)
}

/// Wipes `memory` before the instruction of this number in `code` that `run` executes with the trap flag set, as a fork
/// in a signal handler does in the child. Returns how many instructions it executes.
pub fn wipe_before(step: u32, memory: Range<u64>, code: Range<u64>, run: impl FnOnce()) -> u32 {
    WIPED_LOW.store(memory.start, Ordering::Relaxed);
    WIPED_HIGH.store(memory.end, Ordering::Relaxed);
    WIPED_AT.store(step, Ordering::Relaxed);
    let steps = count_steps(code, 0..0, run);
    WIPED_AT.store(u32::MAX, Ordering::Relaxed);
    steps
}
