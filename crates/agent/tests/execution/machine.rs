//! Calls with given values in all registers, after which all registers are read.

use nopal_beside::{Mutex, MutexGuard};
use std::arch::global_asm;
use std::mem::offset_of;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub flags: u64,
    pub vectors: [[u64; 2]; 16],
}

const TRAP_FLAG: u64 = 0x100;
const DIRECTION_FLAG: u64 = 0x400;
const FLAGS: u64 = 0x8d7;

impl Registers {
    /// The argument on the stack, above the return address.
    pub const STACK_ARGUMENT: u64 = 0x5ace_d0ff;

    /// All different, and different for each `seed`.
    pub fn distinct(seed: u64) -> Registers {
        let number = |index: u64| (seed << 56 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Registers {
            rax: number(0),
            rbx: number(1),
            rcx: number(2),
            rdx: number(3),
            rsi: number(4),
            rdi: number(5),
            rbp: number(6),
            r8: number(7),
            r9: number(8),
            r10: number(9),
            r11: number(10),
            r12: number(11),
            r13: number(12),
            r14: number(13),
            r15: number(14),
            flags: FLAGS,
            vectors: std::array::from_fn(|index| {
                [number(20 + index as u64), number(40 + index as u64)]
            }),
        }
    }

    pub fn stepped(mut self) -> Registers {
        self.flags |= TRAP_FLAG;
        self
    }

    pub fn general(&self) -> [u64; 15] {
        let Registers {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            ..
        } = *self;
        [
            rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15,
        ]
    }

    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.rcx, self.r8, self.r9]
    }

    /// The one flag that is not dead at a call and at a return.
    pub fn direction(&self) -> u64 {
        self.flags & DIRECTION_FLAG
    }
}

/// The state that the observer has seen, of one test at a time.
#[repr(C)]
pub struct Observed {
    registers: Registers,
    stack: u64,
    return_address: u64,
    argument: u64,
}

pub struct Observations {
    lock: Mutex<()>,
}

pub static OBSERVED: Observations = Observations {
    lock: Mutex::new(()),
};

unsafe extern "C" {
    #[link_name = "nopal_test_observed"]
    static mut SEEN: Observed;
    fn nopal_test_enter(target: u64, registers: *mut Registers, argument: u64) -> u64;
    #[link_name = "nopal_test_observer"]
    pub fn observer();
}

impl Observations {
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    fn seen(&self) -> Observed {
        // SAFETY: plain data that only the observer writes, in the thread that holds the lock.
        unsafe { std::ptr::read_volatile(&raw const SEEN) }
    }

    pub fn registers(&self) -> Registers {
        self.seen().registers
    }

    pub fn stack(&self) -> u64 {
        self.seen().stack
    }

    pub fn return_address(&self) -> u64 {
        self.seen().return_address
    }

    pub fn argument(&self) -> u64 {
        self.seen().argument
    }

    /// The registers after the observer, if they held `given` before: it changes all that it may.
    pub fn left(&self, given: &Registers) -> Registers {
        let mut left = given.clone();
        let Registers {
            rax,
            rcx,
            rdx,
            rsi,
            rdi,
            r8,
            r9,
            r10,
            r11,
            ..
        } = &mut left;
        for register in [rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11] {
            *register = !*register;
        }
        left.vectors[0] = given.vectors[1];
        left
    }
}

/// Calls `target` with these registers, which then hold the values that it leaves. Returns its stack pointer.
pub fn enter(target: u64, registers: &mut Registers) -> u64 {
    // SAFETY: the target is a function that keeps to the calling conventions; the registers that it must keep are
    // checked by the tests, and those of this function are saved.
    unsafe { nopal_test_enter(target, registers, Registers::STACK_ARGUMENT) }
}

/// The address from which `enter` calls.
pub fn caller() -> u64 {
    nopal_test_enter as *const () as u64
}

global_asm!(
    ".macro all_general move",
    "\\move rbx, {rbx}",
    "\\move rcx, {rcx}",
    "\\move rdx, {rdx}",
    "\\move rsi, {rsi}",
    "\\move rdi, {rdi}",
    "\\move rbp, {rbp}",
    "\\move r8, {r8}",
    "\\move r9, {r9}",
    "\\move r10, {r10}",
    "\\move r11, {r11}",
    "\\move r12, {r12}",
    "\\move r13, {r13}",
    "\\move r14, {r14}",
    "\\move r15, {r15}",
    ".endm",
    ".macro load_from_rax register, offset",
    "mov \\register, [rax + \\offset]",
    ".endm",
    ".macro store_at_rax register, offset",
    "mov [rax + \\offset], \\register",
    ".endm",
    ".macro load_vectors",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movdqu xmm\\n, [rax + {vectors} + 16 * \\n]",
    ".endr",
    ".endm",
    ".macro store_vectors",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movdqu [rax + {vectors} + 16 * \\n], xmm\\n",
    ".endr",
    ".endm",
    // nopal_test_enter(target, registers, argument). During the call:
    // [rsp] = argument, [rsp + 8] = target, [rsp + 16] = registers, [rsp + 24] = flags
    ".globl nopal_test_enter",
    "nopal_test_enter:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "pushfq",
    "push rsi",
    "push rdi",
    "push rdx",
    "mov rax, rsi",
    "load_vectors",
    "push qword ptr [rax + {flags}]",
    "popfq",
    "all_general load_from_rax",
    "mov rax, [rax]",
    "call [rsp + 8]",
    "pushfq",
    "push rax",
    "mov rax, [rsp + 32]",
    "all_general store_at_rax",
    "store_vectors",
    "pop qword ptr [rax]",
    "pop qword ptr [rax + {flags}]",
    "lea rax, [rsp - 8]",
    "add rsp, 24",
    "popfq",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    // Stores the registers that it is called with, and changes all that a function may change.
    ".globl nopal_test_observer",
    "nopal_test_observer:",
    "pushfq",
    "pop qword ptr [rip + nopal_test_observed + {flags}]",
    "mov [rip + nopal_test_observed], rax",
    "lea rax, [rip + nopal_test_observed]",
    "all_general store_at_rax",
    "store_vectors",
    "mov [rax + {stack}], rsp",
    "mov rcx, [rsp]",
    "mov [rax + {return_address}], rcx",
    "mov rcx, [rsp + 8]",
    "mov [rax + {argument}], rcx",
    "mov rcx, [rax + {rcx}]",
    "mov rax, [rax]",
    "movdqu xmm0, xmm1",
    ".irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11",
    "not \\register",
    ".endr",
    "ret",
    ".bss",
    ".balign 16",
    ".globl nopal_test_observed",
    "nopal_test_observed:",
    ".zero {size}",
    ".text",
    rbx = const offset_of!(Registers, rbx),
    rcx = const offset_of!(Registers, rcx),
    rdx = const offset_of!(Registers, rdx),
    rsi = const offset_of!(Registers, rsi),
    rdi = const offset_of!(Registers, rdi),
    rbp = const offset_of!(Registers, rbp),
    r8 = const offset_of!(Registers, r8),
    r9 = const offset_of!(Registers, r9),
    r10 = const offset_of!(Registers, r10),
    r11 = const offset_of!(Registers, r11),
    r12 = const offset_of!(Registers, r12),
    r13 = const offset_of!(Registers, r13),
    r14 = const offset_of!(Registers, r14),
    r15 = const offset_of!(Registers, r15),
    flags = const offset_of!(Registers, flags),
    vectors = const offset_of!(Registers, vectors),
    stack = const offset_of!(Observed, stack),
    return_address = const offset_of!(Observed, return_address),
    argument = const offset_of!(Observed, argument),
    size = const size_of::<Observed>(),
);
