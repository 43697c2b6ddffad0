//! Another process: its mappings, its memory, its threads under ptrace, its birth and its death. Nothing here knows
//! what nopal puts into a process.
//!
//! | to … | use |
//! | --- | --- |
//! | look without touching | [`maps`], [`modules`], [`auxiliary`], [`status`], [`threads`], [`start_time`], … |
//! | learn whether it may be traced, and what to do if not | [`examine`], [`StopError`] |
//! | read and write memory, and change text | [`Memory`], [`Patch`] |
//! | hold one thread | [`Thread`] |
//! | hold every thread | [`Stopped`] |
//! | move threads out of text, and find what else points there | [`Stopped::move_threads`], [`Stopped::search_stacks`] |
//! | make the process call the kernel | [`find_system_call_gadget`], [`Thread::remote_system_calls`] |
//! | start a program exactly as without nopal | [`launch`], [`run_to_loader_consistent`] |
//! | stay with a thread through `execve` | [`ExecFollower`] |
//! | learn how a process ended | [`ExitWatch`] |
//!
//! # The rules of ptrace
//!
//! - Every request must come from the OS thread that seized. [`Thread`], [`Stopped`] and [`ExecFollower`] are therefore
//!   not `Send`. `/proc/PID/mem` is freer, but kernels may be configured to let only the tracer write to read-only
//!   pages, so write from that thread too.
//! - A thread can be detached only while it is stopped, and one that sleeps uninterruptibly (a `vfork` parent, a dead
//!   file server) does not stop. When an OS thread ends, the kernel detaches all that it traced, whatever its state. One
//!   that stays must call [`release_sleepers`] until none is left.
//! - Never call `waitpid(-1)` in a process that uses this crate: it steals the stops that others wait for.
//! - `PTRACE_O_EXITKILL` is never set. If the tool dies, the kernel detaches and the program goes on.
//!
//! # What a stop does to a program
//!
//! Interrupting a thread wakes it from interruptible sleep inside the kernel. The kernel repeats most system calls by
//! itself; those that it would fail with `EINTR` are made to repeat too, and end in time if they are stopped again (see
//! [`Stopped`]). A `write` that has transferred a part of its bytes goes on with the rest.

mod arch;
mod blocked;
mod call;
mod deadline;
mod ending;
mod executed;
mod gadget;
mod information;
mod initial;
mod launch;
mod loader;
mod maps;
mod memory;
mod pages;
mod patch;
mod positions;
mod processor_time;
mod ptrace;
mod reaper;
mod refusal;
mod restart;
mod scheduling;
mod search;
mod seccomp;
mod sleepers;
mod stacks;
mod start;
mod stopped;
mod survivor;
mod thread;
mod transfer;
mod way_back;

pub use arch::Registers;
pub use blocked::{runs_program, share_memory};
pub use call::{Lent, SystemCall};
pub use ending::{Ending, ExitWatch, child_ending};
pub use executed::{ExecFollower, Followed};
pub use gadget::{Gadget, find_system_call_gadget, find_system_call_gadget_in};
pub use information::{
    Auxiliary, Status, alive, arguments, auxiliary, children, directory, executable, has_memory,
    name, parent, processes, start_time, status, thread_alive, thread_name, thread_status, threads,
    time_awake, waits_at,
};
pub use launch::{Command, LaunchError, Launched, become_program, environment, launch};
pub use loader::{LoaderChange, LoaderStop, run_to_loader_consistent};
pub use maps::{
    Mapping, Module, has_mapping, maps, module_file, modules, modules_among, open_module,
};
pub use memory::Memory;
pub use pages::Pages;
pub use patch::{Behind, Outcome, Patch};
pub use positions::Position;
pub use processor_time::processor_time;
pub use ptrace::Options;
pub use refusal::{
    Barrier, Examined, StopError, counts_memory, examine, gone, memory_that_may_be_asked_for,
};
pub use scheduling::{Scheduling, schedule, scheduling};
pub use seccomp::{Filters, PossibleCall};
pub use sleepers::release_sleepers;
pub use stacks::Search;
pub use start::lift_limits;
pub use stopped::Stopped;
pub use survivor::{is_survivor, survive, wait_as_survivor};
pub use thread::{Event, Stop, Thread};
