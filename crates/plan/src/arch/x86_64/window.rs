//! The instructions that a jump at a function's first byte displaces.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::{JUMP, LONGEST_WINDOW, Reason};

pub(crate) struct Window<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
    /// The reachable instructions. Bytes behind an unconditional jump or return may follow them.
    pub instructions: Vec<Displaced>,
}

pub(crate) struct Displaced {
    pub instruction: Instruction,
    pub kind: Kind,
    /// The position of a displacement in the instruction.
    pub displacement: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Jump,
    Conditional,
    /// loop, loope, loopne, jrcxz and jecxz: they have no long form.
    Counting,
    Call,
    IndirectCall,
    /// The flow ends, and does not depend on where the instruction is.
    End,
}

impl Kind {
    fn ends_flow(self) -> bool {
        matches!(self, Kind::Jump | Kind::End)
    }

    fn is_call(self) -> bool {
        matches!(self, Kind::Call | Kind::IndirectCall)
    }
}

impl<'a> Window<'a> {
    pub fn is_one_instruction(&self) -> bool {
        matches!(&self.instructions[..], [only] if only.instruction.len() == self.bytes.len())
    }

    /// Whether it has a system call, in which a thread may wait for long.
    pub fn waits(&self) -> bool {
        self.instructions.iter().any(|displaced| {
            let mnemonic = displaced.instruction.mnemonic();
            matches!(mnemonic, Mnemonic::Syscall | Mnemonic::Sysenter)
        })
    }

    /// `bytes` run from `start` to the next function or to the end of the code. The first `own` of them are the
    /// function's; the following ones may only be overwritten where they are padding. The window has `least` bytes:
    /// those of a jump, or of a breakpoint.
    pub fn find(
        start: u64,
        bytes: &'a [u8],
        own: usize,
        least: usize,
    ) -> Result<Window<'a>, Reason> {
        let bytes = bytes.get(..LONGEST_WINDOW).unwrap_or(bytes);
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(JUMP);
        let mut ends = false;
        while decoder.position() < least && !ends {
            let offset = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(if offset + 15 > bytes.len() {
                    Reason::TooShort
                } else {
                    Reason::Undecodable
                });
            }
            if offset >= own && instruction.mnemonic() != Mnemonic::Nop {
                return Err(Reason::TooShort);
            }
            let kind = kind(&instruction, &bytes[offset..decoder.position()])?;
            if kind.is_call() && decoder.position() < least {
                return Err(Reason::CallInside);
            }
            ends = kind.ends_flow();
            let displacement = decoder
                .get_constant_offsets(&instruction)
                .displacement_offset();
            instructions.push(Displaced {
                instruction,
                kind,
                displacement,
            });
        }
        let length = decoder.position().max(least);
        if decoder.position() < least && own < least {
            padding(bytes, own.max(decoder.position()))?;
        }
        let bytes = bytes.get(..length).ok_or(Reason::TooShort)?;
        Ok(Window {
            start,
            bytes,
            instructions,
        })
    }

    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Whether an instruction that `is_handled` picks by its address may raise a fault, which a signal handler may turn
    /// into an exception. Calls do not count: their exceptions appear to come from their original address.
    pub fn may_fault(&self, is_handled: impl Fn(u64) -> bool) -> bool {
        self.instructions.iter().any(|displaced| {
            let instruction = &displaced.instruction;
            let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
            let accesses =
                instruction.memory_base() != Register::None || instruction.memory_displ_size() != 0;
            displaced.kind == Kind::Plain
                && (divides || accesses && instruction.mnemonic() != Mnemonic::Lea)
                && is_handled(instruction.ip())
        })
    }

    /// Whether an instruction accesses memory that its callers give it, or divides. The stack does not count.
    pub fn may_fault_for_callers(&self) -> bool {
        self.instructions.iter().any(|displaced| {
            let it = &displaced.instruction;
            let divides = matches!(it.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
            let given = (0..it.op_count()).any(|operand| match it.op_kind(operand) {
                OpKind::Memory => !matches!(
                    it.memory_base(),
                    Register::RSP | Register::RIP | Register::None
                ),
                kind => matches!(
                    kind,
                    OpKind::MemorySegRSI
                        | OpKind::MemoryESRDI
                        | OpKind::MemorySegESI
                        | OpKind::MemoryESEDI
                        | OpKind::MemorySegRDI
                        | OpKind::MemorySegEDI
                ),
            });
            divides || given && !matches!(it.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        })
    }

    /// Whether a jump from this place to the window's start stays in the body: a direct one of the window's own.
    pub fn keeps_jump(&self, from: u64) -> bool {
        self.instructions.iter().any(|displaced| {
            displaced.instruction.ip() == from
                && matches!(
                    displaced.kind,
                    Kind::Jump | Kind::Conditional | Kind::Counting
                )
        })
    }

    pub fn raw(&self, displaced: &Displaced) -> &[u8] {
        let offset = (displaced.instruction.ip() - self.start) as usize;
        &self.bytes[offset..offset + displaced.instruction.len()]
    }
}

/// Whether there is nothing but padding from `offset` to the end of the jump.
fn padding(bytes: &[u8], offset: usize) -> Result<(), Reason> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    decoder.set_position(offset).map_err(|_| Reason::TooShort)?;
    while decoder.position() < JUMP {
        if !matches!(decoder.decode().mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            return Err(Reason::TooShort);
        }
    }
    Ok(())
}

fn kind(instruction: &Instruction, raw: &[u8]) -> Result<Kind, Reason> {
    if instruction.memory_base() == Register::EIP {
        return Err(Reason::Immovable);
    }
    let kind = match instruction.flow_control() {
        FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => return Err(Reason::Traps),
        FlowControl::Next => return Ok(Kind::Plain),
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Kind::Jump,
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => Kind::Conditional,
        FlowControl::ConditionalBranch
            if instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short() =>
        {
            Kind::Counting
        }
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => Kind::Call,
        FlowControl::Call if instruction.code() == Code::Syscall => return Ok(Kind::Plain),
        FlowControl::IndirectCall if instruction.code() == Code::Call_rm64 => {
            return Ok(Kind::IndirectCall);
        }
        FlowControl::IndirectBranch if instruction.code() == Code::Jmp_rm64 => {
            return Ok(Kind::End);
        }
        FlowControl::Return if instruction.code() == Code::Retnq => return Ok(Kind::End),
        FlowControl::Return if instruction.code() == Code::Retnq_imm16 => {
            return Err(Reason::PopsArguments);
        }
        FlowControl::Interrupt | FlowControl::Exception => return Err(Reason::Traps),
        FlowControl::XbeginXabortXend => return Err(Reason::Transaction),
        _ => return Err(Reason::Immovable),
    };
    // With an operand size prefix, AMD cuts the target to 16 bits and Intel does not.
    let opcode = opcode(raw);
    let wide = opcode
        .checked_sub(1)
        .is_some_and(|before| raw[before] & 0xf8 == 0x48);
    if raw[..opcode].contains(&0x66) && !wide {
        Err(Reason::Immovable)
    } else {
        Ok(kind)
    }
}

/// The offset of the opcode in an instruction without VEX, EVEX or XOP.
pub(crate) fn opcode(raw: &[u8]) -> usize {
    let legacy = |byte: &u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let prefixes = raw.iter().take_while(|byte| legacy(byte)).count();
    let rex = raw.get(prefixes).is_some_and(|byte| byte & 0xf0 == 0x40);
    prefixes + usize::from(rex)
}
