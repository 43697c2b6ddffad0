//! The general registers of a thread.

use std::fmt;

/// The processor's flag by which a program steps through itself.
const TRAP_FLAG: u64 = 0x100;

/// Carry, parity, adjust, zero, sign, overflow: dead behind a system call.
const STATUS_FLAGS: u64 = 0x8d5;
/// All flags but parity, which comes with zero: no instruction leaves them so.
const MARKED: u64 = STATUS_FLAGS & !0x4;

/// The registers as the kernel has them while the thread stands still.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Registers(pub(super) libc::user_regs_struct);

impl Registers {
    pub fn instruction_pointer(&self) -> u64 {
        self.0.rip
    }

    pub fn set_instruction_pointer(&mut self, address: u64) {
        self.0.rip = address;
    }

    pub fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }

    pub fn set_stack_pointer(&mut self, address: u64) {
        self.0.rsp = address;
    }

    /// The address of the thread's control block.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// The number of the system call that the thread is in, or has just left; negative where the kernel was entered
    /// otherwise, or a handler has run since.
    pub fn system_call(&self) -> i64 {
        self.0.orig_rax as i64
    }

    /// The system call's result.
    pub fn result(&self) -> i64 {
        self.0.rax as i64
    }

    pub fn set_result(&mut self, result: i64) {
        self.0.rax = result as u64;
    }

    /// The arguments of the system call.
    pub fn arguments(&self) -> [u64; 6] {
        let it = &self.0;
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8, it.r9]
    }

    pub fn set_arguments(&mut self, arguments: [u64; 6]) {
        let it = &mut self.0;
        [it.rdi, it.rsi, it.rdx, it.r10, it.r8, it.r9] = arguments;
    }

    /// The kernel does not take these registers for those of a call that is to be repeated.
    pub fn leave_call(&mut self) {
        self.0.orig_rax = u64::MAX;
    }

    /// The system call instruction that the thread is to execute next makes this call.
    pub fn begin_call(&mut self, number: i64, arguments: [u64; 6]) {
        self.set_result(number);
        self.set_arguments(arguments);
        self.leave_call();
    }

    /// Takes back the registers that a call by [`super::loader::CALL`] has pushed, in the order of addresses.
    pub fn take_back(&mut self, pushed: [u64; super::loader::PUSHED]) {
        [self.0.r11, self.0.rcx, self.0.rax] = pushed;
    }

    /// The thread executes 64-bit code, as we do, also where it stands in 32-bit code.
    pub fn execute_native_code(&mut self) {
        let segment: u64;
        // SAFETY: reads a register.
        unsafe {
            std::arch::asm!("mov {}, cs", out(reg) segment, options(nomem, nostack, preserves_flags));
        }
        self.0.cs = segment;
    }

    /// The program does not step through itself any more.
    pub fn stop_steps(&mut self) {
        self.0.eflags &= !TRAP_FLAG;
    }

    pub fn steps(&self) -> bool {
        self.0.eflags & TRAP_FLAG != 0
    }

    /// A mark that the program cannot see behind a system call, and that nothing else leaves.
    pub fn mark(&mut self) {
        self.0.eflags = self.0.eflags & !STATUS_FLAGS | MARKED;
    }

    pub fn is_marked(&self) -> bool {
        self.0.eflags & STATUS_FLAGS == MARKED
    }

    /// All of them, as words.
    pub fn words(&self) -> [u64; size_of::<Registers>() / 8] {
        // SAFETY: a register set is nothing but words.
        unsafe { std::mem::transmute(*self) }
    }
}

impl fmt::Debug for Registers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x?}", self.words())
    }
}
