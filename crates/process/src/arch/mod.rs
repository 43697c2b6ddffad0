//! The parts of another process that depend on the processor: its registers, the instructions that are looked for or
//! written in its text, and the frames of its signal handlers. Each processor has a folder with the same names. A new
//! one needs all names that are used here.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::Registers;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    // Registers that `ptrace` reads and writes by number.
    DEBUG_STATUS,
    EXTENDED_STATE,
    // Calls of functions whose addresses are in registers or in memory.
    LONGEST_COMPUTED_CALL,
    // Code that makes system calls.
    LONGEST_OF_GADGET,
    RESTORERS,
    SYSTEM_CALL,
    SYSTEM_CALL_AND_RETURN,
    SYSTEM_CALLS,
    // A signal handler's frame.
    SignalFrame,
    ends_with_computed_call,
    // The code that replaces a loader's function, so that its calls are seen.
    loader,
    // Code that makes a call again, for the rest of a transfer.
    rest,
};
