use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The reason why a function is not traced, or why only its entries are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    // By name: see `special`.
    ProgramEntry,
    ReturnsTwice,
    SwitchesStack,
    LeavesFrames,
    SharesStack,
    SignalReturn,
    LooksAtCaller,
    LinksLazily,
    ThreadLocal,
    Unwinder,
    LoaderHook,
    ReplacesProgram,
    RestrictsCalls,
    RawSystemCall,
    LocksMemory,
    SetsSignals,
    ChangesText,
    GrowsStack,
    BranchThunk,
    ProfilerHook,

    // By facts in the file.
    Resolver,
    NotAnEntry,
    OnlyJumpedTo,
    RestartableSequence,
    TextRelocation,
    UnwindRules,
    HandlesFaults,
    FoundByData,
    Go,
    FaultsAreKnown,

    // By its code.
    PopsArguments,
    TooShort,
    TwoPages,
    EnteredInside,
    LoopsToStart,
    CallInside,
    ReadAsData,
    Undecodable,
    Transaction,
    Traps,
    Immovable,
    PassesFlags,

    // Reasons to leave the return address alone.
    ReadsReturnAddress,
    PopsReturnAddress,
    StackNotFollowed,
    CountedByProfiler,
    SharesFrame,
}

impl Reason {
    /// One line, for people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::ProgramEntry => "the program's entry: nothing called it",
            Reason::ReturnsTwice => "returns more than once (setjmp)",
            Reason::SwitchesStack => "switches stacks or contexts",
            Reason::LeavesFrames => "leaves frames without returning (longjmp)",
            Reason::SharesStack => "its child returns on the same or on another stack",
            Reason::SignalReturn => "returns from a signal handler",
            Reason::LooksAtCaller => "its result depends on who called it",
            Reason::LinksLazily => "binds a function at its first call, whose registers are live",
            Reason::ThreadLocal => "called by a special convention to find thread-local data",
            Reason::Unwinder => "part of the unwinder, which looks at its own frames",
            Reason::LoaderHook => "the loader's hook, which nopal itself uses",
            Reason::ReplacesProgram => "replaces the program",
            Reason::RestrictsCalls => "may forbid the system calls or the clock that tracing needs",
            Reason::RawSystemCall => "may make any system call, also one that returns twice",
            Reason::LocksMemory => "locks nopal's memory too, which nopal handles in a hook",
            Reason::SetsSignals => "sets the actions of signals, which nopal has to follow",
            Reason::ChangesText => "may make code writable or move it, which nopal has to follow",
            Reason::GrowsStack => "moves to another part of the stack and back",
            Reason::BranchThunk => "is a branch or return thunk, not a function",
            Reason::ProfilerHook => "the hook of another tracer or profiler",
            Reason::Resolver => "an IFUNC resolver, run by the loader before relocation is done",
            Reason::NotAnEntry => "by its unwind rules it is not entered by calls (a cold part)",
            Reason::OnlyJumpedTo => "only entered by jumps: probably a part of another function",
            Reason::RestartableSequence => "begins inside a restartable sequence (rseq)",
            Reason::TextRelocation => "the loader changes its first bytes",
            Reason::UnwindRules => "its unwinding rules cannot be carried over",
            Reason::HandlesFaults => {
                "handles exceptions that its first instructions raise by faults"
            }
            Reason::FaultsAreKnown => {
                "its first instructions may fault, and a signal handler may know them by their addresses"
            }
            Reason::FoundByData => {
                "its file has data for a runtime that finds, and may read, all code by it"
            }
            Reason::Go => {
                "Go code: its stacks move, and its functions jump back to their own entries"
            }
            Reason::PopsArguments => "pops its arguments (ret imm16)",
            Reason::TooShort => "shorter than a jump, and no padding follows",
            Reason::TwoPages => "the bytes that a jump needs lie on two pages",
            Reason::EnteredInside => "a jump leads behind its first instruction",
            Reason::LoopsToStart => "jumps back to its own first instruction",
            Reason::CallInside => "a call returns into the bytes that a jump needs",
            Reason::ReadAsData => "other code reads or copies its first instructions",
            Reason::Undecodable => "its first instructions are unknown",
            Reason::Transaction => "begins with a hardware transaction",
            Reason::Traps => "begins with an instruction that traps",
            Reason::Immovable => "an instruction at its start cannot run elsewhere",
            Reason::PassesFlags => "takes flags from its caller, or returns flags",
            Reason::ReadsReturnAddress => "uses its return address, or the address of its slot",
            Reason::PopsReturnAddress => "pops its return address off the stack",
            Reason::CountedByProfiler => "the program counts its calls by return addresses (-pg)",
            Reason::SharesFrame => {
                "shares a frame with code that jumps to it, as handlers of interpreters do"
            }
            Reason::StackNotFollowed => "its stack pointer cannot be followed",
        }
    }

    /// The number in stored plans.
    pub(crate) fn number(self) -> Result<u8> {
        let mut number = [0];
        postcard::to_slice(&self, &mut number)?;
        Ok(number[0])
    }

    pub(crate) fn from_number(number: u8) -> Result<Reason> {
        Ok(postcard::from_bytes(&[number])?)
    }

    /// Whether it is refused only by name: a caller that knows the function may hook it nevertheless.
    pub fn is_by_name(self) -> bool {
        self <= Reason::ProfilerHook
    }
}
