//! Classifies instructions by their opcode alone, in one table lookup, instead of by mnemonic and operands.

use std::sync::LazyLock;

use iced_x86::{Code, FlowControl, Mnemonic};

use super::implicit::changed_implicitly;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// It may transfer control.
    Flow,
    /// It changes no register.
    Test,
    /// It only overwrites its first operand.
    Change,
    /// `mov` of 8 bytes to or from memory, or between registers.
    Move,
    /// It needs a closer look.
    Other,
}

/// Indexed by opcode.
pub(crate) static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| Code::values().map(kind).collect());

fn kind(code: Code) -> Kind {
    let mnemonic = code.mnemonic();
    if code.flow_control() != FlowControl::Next {
        return Kind::Flow;
    }
    match mnemonic {
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Nop => Kind::Test,
        Mnemonic::Mov => match code {
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => Kind::Move,
            Code::Mov_r8_rm8
            | Code::Mov_rm8_r8
            | Code::Mov_r16_rm16
            | Code::Mov_rm16_r16
            | Code::Mov_r32_rm32
            | Code::Mov_rm32_r32
            | Code::Mov_r8_imm8
            | Code::Mov_rm8_imm8
            | Code::Mov_r16_imm16
            | Code::Mov_rm16_imm16
            | Code::Mov_r32_imm32
            | Code::Mov_rm32_imm32
            | Code::Mov_r64_imm64
            | Code::Mov_rm64_imm32 => Kind::Change,
            _ => Kind::Other,
        },
        Mnemonic::Movsxd
        | Mnemonic::Lea
        | Mnemonic::Push
        | Mnemonic::Pop
        | Mnemonic::Add
        | Mnemonic::Sub
        | Mnemonic::And
        | Mnemonic::Xchg
        | Mnemonic::Xadd
        | Mnemonic::Mulx
        | Mnemonic::Leave
        | Mnemonic::Enter
        | Mnemonic::Pushfq
        | Mnemonic::Popfq => Kind::Other,
        _ if changed_implicitly(mnemonic) != 0 => Kind::Other,
        _ => Kind::Change,
    }
}
