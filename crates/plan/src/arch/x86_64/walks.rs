//! Functions that follow frame pointers: from their own frame to their caller's, and on, as
//! `__builtin_return_address(1)` and the samplers of some profilers do. For functions that keep a frame pointer, they
//! read the return address on the stack.

use std::ops::ControlFlow;

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};

use nopal_symbols::Function;

use crate::code::Code;

/// A function sets its frame pointer within this many bytes, or keeps none.
const PROLOGUE: usize = 48;

/// `mov %rsp, %rbp`, in both its encodings.
const SETS_FRAME_POINTER: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// It links its frame to its caller's.
    pub kept: bool,
    /// It reads its caller's link.
    pub walked: bool,
}

/// The function's use of its frame pointer.
pub(crate) fn frame(code: &Code<'_>, function: &Function) -> Frame {
    let (start, size) = (function.address, function.size);
    let Some(range) = code.range(start) else {
        return Frame::default();
    };
    let bytes = &range.bytes[(start - range.address) as usize..];
    let bytes = &bytes[..bytes.len().min(usize::try_from(size).unwrap_or(usize::MAX))];
    let prologue = &bytes[..bytes.len().min(PROLOGUE)];
    let [move_to, move_from] = SETS_FRAME_POINTER;
    let mut windows = prologue.array_windows();
    if !windows.any(|window| *window == move_to || *window == move_from) {
        return Frame::default();
    }
    let mut walk = Walk {
        frame: Frame::default(),
        own: Vec::new(),
        callers: Vec::new(),
        own_at: Vec::new(),
        pushed: false,
        info: InstructionInfoFactory::new(),
    };
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if walk.step(&instruction).is_break() {
            break;
        }
    }
    walk.frame
}

/// The function read from its start to its end, as it stands.
struct Walk {
    frame: Frame,
    /// Registers that hold the address of the function's own frame. RBP is back in each block behind an end of one.
    own: Vec<Register>,
    /// Registers that hold the address of the caller's frame.
    callers: Vec<Register>,
    /// The places in the frame that hold that address, such as variables of unoptimised code.
    own_at: Vec<u64>,
    /// The caller's frame pointer is on top of the stack: there a link to its frame would begin.
    pushed: bool,
    info: InstructionInfoFactory,
}

impl Walk {
    fn step(&mut self, instruction: &Instruction) -> ControlFlow<()> {
        if instruction.code() == Opcode::Push_r64 && instruction.op0_register() == Register::RBP {
            self.pushed = true;
            return ControlFlow::Continue(());
        }
        let [to, from] = [instruction.op0_register(), instruction.op1_register()];
        let is_move = instruction.mnemonic() == Mnemonic::Mov;
        if is_move && self.pushed && (to, from) == (Register::RBP, Register::RSP) {
            self.frame.kept = true;
            self.own = vec![Register::RBP];
            return ControlFlow::Continue(());
        }
        let base = instruction.memory_base();
        let links = is_move && self.reads_link(instruction);
        // The unwinder's own functions put the caller's frame pointer elsewhere, and do not follow it.
        if self.follows(instruction) || links && base != Register::RBP {
            self.frame.walked = true;
            return ControlFlow::Break(());
        }
        let place = instruction.memory_displacement64();
        let in_frame = self.own.contains(&Register::RBP)
            && base == Register::RBP
            && instruction.memory_index() == Register::None;
        let copies = is_move
            && match (instruction.op0_kind(), instruction.op1_kind()) {
                (OpKind::Register, OpKind::Register) => self.own.contains(&from),
                (OpKind::Register, OpKind::Memory) => in_frame && self.own_at.contains(&place),
                (OpKind::Memory, OpKind::Register) if in_frame => {
                    self.own_at.retain(|at| *at != place);
                    if self.own.contains(&from) {
                        self.own_at.push(place);
                    }
                    false
                }
                _ => false,
            };
        let info = self.info.info(instruction);
        let written = info.used_registers().iter();
        let written = written.filter(|used| {
            !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            )
        });
        for used in written {
            let register = used.register().full_register();
            self.pushed &= register != Register::RSP;
            self.own.retain(|own| *own != register);
            self.callers.retain(|caller| *caller != register);
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                self.own.retain(|own| is_kept(*own));
                self.callers.retain(|caller| is_kept(*caller));
            }
            FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
                if self.frame.kept =>
            {
                self.own = vec![Register::RBP];
                self.callers.clear();
            }
            _ if links && to != Register::RBP => self.callers.push(to),
            _ if copies => self.own.push(to),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Reads the caller's return address, or the link to its caller's frame.
    fn follows(&self, instruction: &Instruction) -> bool {
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
            && instruction.mnemonic() != Mnemonic::Lea
            && self.callers.contains(&instruction.memory_base())
            && instruction.memory_index() == Register::None
            && matches!(instruction.memory_displacement64(), 0 | 8)
    }

    /// `mov (%rbp), %reg`: there is the caller's frame pointer.
    fn reads_link(&self, instruction: &Instruction) -> bool {
        instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Memory
            && instruction.op0_register().is_gpr64()
            && self.own.contains(&instruction.memory_base())
            && instruction.memory_index() == Register::None
            && instruction.memory_displacement64() == 0
    }
}

/// By calls, under the usual convention.
fn is_kept(register: Register) -> bool {
    matches!(
        register,
        Register::RBX
            | Register::RBP
            | Register::R12
            | Register::R13
            | Register::R14
            | Register::R15
    )
}
