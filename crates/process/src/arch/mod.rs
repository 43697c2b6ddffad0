//! What another process's processor is to us: its registers, the instructions that are looked for or written in its text,
//! and the frames of its signal handlers. A folder for each processor has the same names: whoever adds one writes what is
//! used here.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub use x86_64::Registers;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    // What `ptrace` has by other names.
    DEBUG_STATUS,
    EXTENDED_STATE,
    // Code that makes system calls.
    LONGEST_OF_GADGET,
    RESTORERS,
    SYSTEM_CALL,
    SYSTEM_CALL_AND_RETURN,
    SYSTEM_CALLS,
    // A signal handler's frame.
    SignalFrame,
    // What a loader's function is changed to, so that its calls are seen.
    loader,
    // Code that makes a call again, for the rest of a transfer.
    rest,
};
