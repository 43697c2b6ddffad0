//! Random functions: a function computes the same after its first instructions have been displaced.
//!
//! The input's first bytes set the registers, the rest are instructions. Of the decoded instructions, those stay that
//! touch only general and vector registers, flags, the function's data, and the stack in order. Branches are changed to
//! go forward to an instruction.
#![no_main]

mod common;

use common::elf::{CODE, DATA, FRAMES, library};
use iced_x86::code_asm::{CodeAssembler, r14, r15, rsp};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, CpuidFeature, Decoder, DecoderOptions, FlowControl,
    Instruction, InstructionBlock, InstructionInfoFactory, Mnemonic, OpKind, Register, RflagsBits,
};
use libfuzzer_sys::fuzz_target;
use nopal_plan::Plan;
use nopal_symbols::Image;
use std::sync::Once;

/// The address of the library. Its displaced code is `DISPLACED` bytes above.
const BASE: u64 = 0x2a00_0000_0000;
const SIZE: u64 = 0x5000;
const _: () = assert!(FRAMES < SIZE);
const DISPLACED: u64 = 0x3000_0000;

/// The registers before and after a function: rax, rcx, rdx, rbx, rbp, rsi, rdi, r8 to r13, and the defined flags.
type Registers = [u64; 14];

/// Whether an instruction only computes, and has the same result each time.
fn computes(instruction: &Instruction) -> bool {
    let known = |feature: &CpuidFeature| {
        matches!(
            feature,
            CpuidFeature::INTEL8086
                | CpuidFeature::INTEL186
                | CpuidFeature::INTEL286
                | CpuidFeature::INTEL386
                | CpuidFeature::INTEL486
                | CpuidFeature::X64
                | CpuidFeature::CMOV
                | CpuidFeature::MULTIBYTENOP
                | CpuidFeature::SSE
                | CpuidFeature::SSE2
                | CpuidFeature::CET_IBT
        )
    };
    let refused = matches!(
        instruction.mnemonic(),
        Mnemonic::Div
            | Mnemonic::Idiv
            | Mnemonic::Std
            | Mnemonic::Popfq
            | Mnemonic::Popf
            | Mnemonic::Enter
            | Mnemonic::Leave
            | Mnemonic::Ldmxcsr
            | Mnemonic::Stmxcsr
            | Mnemonic::Xlatb
            | Mnemonic::Cpuid
            | Mnemonic::Rdtsc
            | Mnemonic::Sldt
            | Mnemonic::Str
            | Mnemonic::Smsw
            | Mnemonic::Sgdt
            | Mnemonic::Sidt
            | Mnemonic::Lar
            | Mnemonic::Lsl
            | Mnemonic::Verr
            | Mnemonic::Verw
            | Mnemonic::Pushfq
            | Mnemonic::Pushf
            | Mnemonic::Clflush
            // Processors of one maker execute it as a NOP, those of another refuse it.
            | Mnemonic::Reservednop
            | Mnemonic::Bsf
            | Mnemonic::Bsr
    );
    let code = instruction.op_code();
    let flow = match instruction.flow_control() {
        FlowControl::Next => true,
        FlowControl::ConditionalBranch => instruction.op0_kind() == OpKind::NearBranch64,
        FlowControl::UnconditionalBranch => instruction.op0_kind() == OpKind::NearBranch64,
        _ => false,
    };
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let registers = info.used_registers().iter().all(|used| {
        let register = used.register();
        let full = register.full_register();
        let stack = full == Register::RSP && instruction.is_stack_instruction();
        (register.is_gpr() || register.is_xmm())
            && (stack || !matches!(full, Register::RSP | Register::R14 | Register::R15))
    });
    let memory = match instruction.mnemonic() {
        Mnemonic::Lea | Mnemonic::Push | Mnemonic::Pop => true,
        _ => match info.used_memory() {
            [] => true,
            [_] => instruction.is_ip_rel_memory_operand(),
            _ => false,
        },
    };
    // `pop %rsp` leaves no stack.
    let plain_push = !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop)
        || instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_gpr64()
            && instruction.op0_register() != Register::RSP;
    instruction.cpuid_features().iter().all(known)
        && !refused
        && !code.is_privileged()
        && !instruction.is_string_instruction()
        && !instruction.has_lock_prefix()
        && !instruction.has_rep_prefix()
        && !instruction.has_repne_prefix()
        && instruction.segment_prefix() == Register::None
        && flow
        && registers
        && memory
        && plain_push
        && instruction.rflags_undefined() == RflagsBits::NONE
}

/// The code of a function made of the input, at `CODE`.
fn function(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut chosen = Vec::new();
    let mut decoder = Decoder::with_ip(64, bytes, CODE, DecoderOptions::NONE);
    let mut depth = 0usize;
    while decoder.can_decode() && chosen.len() < 24 {
        let mut instruction = decoder.decode();
        if instruction.is_invalid() || !computes(&instruction) {
            continue;
        }
        match instruction.mnemonic() {
            Mnemonic::Push => depth += 1,
            Mnemonic::Pop if depth == 0 => continue,
            Mnemonic::Pop => depth -= 1,
            _ => {}
        }
        if instruction.is_ip_rel_memory_operand() {
            let offset = (instruction.memory_displacement64() % 0xf0) & !0xf;
            instruction.set_memory_displacement64(DATA + offset);
        }
        chosen.push(instruction);
    }
    // Branches go forward, never over a push or a pop.
    let count = chosen.len();
    for at in 0..count {
        let instruction = chosen[at];
        if instruction.flow_control() == FlowControl::Next {
            chosen[at].set_ip(CODE + at as u64);
            continue;
        }
        let moves_stack =
            |other: &Instruction| matches!(other.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
        let reach = chosen[at + 1..]
            .iter()
            .take_while(|other| !moves_stack(other))
            .count();
        let by = instruction.near_branch64() as usize % (reach + 1);
        chosen[at].set_ip(CODE + at as u64);
        chosen[at].set_near_branch64(CODE + (at + 1 + by) as u64);
    }
    // The encoder makes labels of the instructions' addresses, which are numbers here.
    let mut end: Vec<Instruction> = {
        let mut assembler = CodeAssembler::new(64).ok()?;
        assembler.cld().ok()?;
        assembler.mov(rsp, r15).ok()?;
        assembler.jmp(r14).ok()?;
        assembler.instructions().to_vec()
    };
    for (index, instruction) in end.iter_mut().enumerate() {
        instruction.set_ip(CODE + (count + index) as u64);
    }
    chosen.extend(end);
    let block = InstructionBlock::new(&chosen, CODE);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
    Some(encoded.code_buffer)
}

#[unsafe(naked)]
unsafe extern "C" fn call(function: u64, registers: *mut Registers) {
    std::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "push rdi",
        // Room above the function's stack, and its return address.
        "sub rsp, 128",
        "lea r14, [rip + 2f]",
        "mov r15, rsp",
        // Gives all vector registers the same value, since they hold earlier ones.
        ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movq xmm\\number, [rsi + 64]",
        ".endr",
        "mov rax, [rsi + 104]",
        "push rax",
        "popfq",
        "mov rax, [rsi]",
        "mov rcx, [rsi + 8]",
        "mov rdx, [rsi + 16]",
        "mov rbx, [rsi + 24]",
        "mov rbp, [rsi + 32]",
        "mov r8, [rsi + 56]",
        "mov r9, [rsi + 64]",
        "mov r10, [rsi + 72]",
        "mov r11, [rsi + 80]",
        "mov r12, [rsi + 88]",
        "mov r13, [rsi + 96]",
        "push [rsi + 48]",
        "mov rsi, [rsi + 40]",
        "xchg rdi, [rsp]",
        "ret",
        "2:",
        "mov [rsp], rdi",
        "mov rdi, [rsp + 136]",
        "mov [rdi], rax",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], rdx",
        "mov [rdi + 24], rbx",
        "mov [rdi + 32], rbp",
        "mov [rdi + 40], rsi",
        "mov rax, [rsp]",
        "mov [rdi + 48], rax",
        "mov [rdi + 56], r8",
        "mov [rdi + 64], r9",
        "mov [rdi + 72], r10",
        "mov [rdi + 80], r11",
        "mov [rdi + 88], r12",
        "mov [rdi + 96], r13",
        "add rsp, 144",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

fn room(at: u64, bytes: u64) -> &'static mut [u8] {
    // SAFETY: nothing else in this process uses these addresses, and they are mapped once.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            for (at, bytes) in [(BASE, SIZE), (BASE + DISPLACED, 0x1000)] {
                let mapped = libc::mmap(at as *mut _, bytes as usize, protection, flags, -1, 0);
                assert_eq!(mapped as u64, at);
            }
        });
        std::slice::from_raw_parts_mut(at as *mut u8, bytes as usize)
    }
}

/// Runs the function at `BASE + CODE` on registers and data.
fn run(mut registers: Registers, data: &[u8]) -> (Registers, Vec<u8>) {
    let memory = room(BASE + DATA, 0x1000);
    memory[..data.len()].copy_from_slice(data);
    // SAFETY: the code only computes, as `computes` has checked, keeps r14 and r15, and ends with a jump to r14.
    unsafe { call(BASE + CODE, &mut registers) };
    (registers, memory[..0x100].to_vec())
}

fuzz_target!(|data: &[u8]| {
    let mut input = common::Input(data);
    let mut registers: Registers = std::array::from_fn(|_| input.byte())
        .map(|byte: u8| u64::from(byte).wrapping_mul(0x0101_0101_0101_0101) ^ u64::from(byte & 1));
    const ARITHMETIC_FLAGS: u64 = 0x8d5;
    registers[13] = registers[13] & ARITHMETIC_FLAGS | 2;
    let contents: Vec<u8> = (0..0x100u32)
        .map(|index| (index * 37) as u8 ^ input.byte())
        .collect();
    let Some(code) = function(input.0) else {
        return;
    };
    let size = code.len() as u64;
    let file = common::File::with(&library(&code, &[], &[("f", 0, size)]));
    let image = Image::open_with_debug_directories(file.path(), &[]).unwrap();
    let plan = Plan::make(&image).unwrap();
    // Functions that take flags are not traced, but could be displaced.
    let Some(site) = plan.sites.first().or(plan.hooks.first()) else {
        return;
    };
    let text = room(BASE + CODE, 0x1000);
    text[..code.len()].copy_from_slice(&code);
    let before = run(registers, &contents);

    let displaced = room(BASE + DISPLACED, 0x1000);
    site.body.place(BASE, BASE + DISPLACED, displaced).unwrap();
    text[0] = 0xe9;
    let distance = (DISPLACED - CODE - 5) as u32;
    text[1..5].copy_from_slice(&distance.to_le_bytes());
    text[5..usize::from(site.window)].fill(0xcc);
    let after = run(registers, &contents);
    assert_eq!(before, after, "{code:02x?} {site:x?}");
});
