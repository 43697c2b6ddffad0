//! Functions that take over registers from code that jumps to them, as handlers of interpreters in assembly do: they
//! share a frame, and the word on top of the stack may be one of its variables.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::copies::{KEPT, writes};

/// Whether a function uses a register that calls preserve, other than to save it, before it has been saved. Reads the
/// function from its start to its end, as it stands.
pub(super) fn takes_over_registers<'a>(code: impl Iterator<Item = &'a Instruction>) -> bool {
    let mut saved: Vec<Register> = Vec::new();
    for it in code {
        let taken = |register: Register, saved: &[Register]| {
            let register = register.full_register();
            KEPT.contains(&register) && !saved.contains(&register)
        };
        if taken(it.memory_base(), &saved) || taken(it.memory_index(), &saved) {
            return true;
        }
        let source = match (it.mnemonic(), it.op1_kind()) {
            (Mnemonic::Push, _) => it.op0_register(),
            (Mnemonic::Mov, OpKind::Register) => it.op1_register(),
            _ => Register::None,
        };
        if taken(source, &saved) {
            saved.push(source.full_register());
        }
        if it.op0_kind() == OpKind::Register && writes(it) && taken(it.op0_register(), &saved) {
            return true;
        }
    }
    false
}
