//! The instructions of a function, and where its computed jumps may lead.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use crate::{Reason, Unprobed};

/// The number of instructions before a computed jump in which its address is looked for.
const LOOK_BACK: usize = 16;

/// In order.
#[derive(Default)]
pub(crate) struct Instructions(Vec<Instruction>);

impl Instructions {
    /// The instructions up to the first undecodable one.
    pub fn of(bytes: &[u8], address: u64) -> Instructions {
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            instructions.push(instruction);
        }
        Instructions(instructions)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Instruction> {
        self.0.iter()
    }

    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|instruction| instruction.ip())
    }

    /// An error where no instruction begins at the address.
    pub fn begins_at(&self, address: u64) -> Result<(), Unprobed> {
        let code = &self.0;
        let after = code.partition_point(|instruction| instruction.ip() <= address);
        match after.checked_sub(1).map(|index| &code[index]) {
            Some(it) if it.ip() == address => Ok(()),
            Some(it) if address < it.next_ip() => Err(Unprobed::WithinInstruction {
                before: it.ip(),
                after: it.next_ip(),
            }),
            _ => Err(Unprobed::Bytes(Reason::Undecodable)),
        }
    }

    /// Whether it goes on at places that data may name.
    pub fn computes_jumps(&self) -> bool {
        self.iter().any(|it| {
            it.flow_control() == FlowControl::IndirectBranch && it.memory_base() != Register::RIP
        })
    }

    /// A computed jump whose targets are unknown.
    pub fn unknown_jump(&self) -> Option<u64> {
        unknown_jump(&self.0)
    }
}

fn unknown_jump(code: &[Instruction]) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let jumps = code.iter().enumerate();
    let mut computed = jumps.filter(|(_, it)| it.flow_control() == FlowControl::IndirectBranch);
    let unknown = computed.find(|(index, jump)| !is_known(&code[..*index], jump, &mut factory));
    unknown.map(|(_, jump)| jump.ip())
}

/// Whether the address has been loaded from memory, where the loader or the file has put it, or from a table of
/// distances that the sweep knows.
fn is_known(
    before: &[Instruction],
    jump: &Instruction,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let is_pointer =
        |it: &Instruction| it.memory_index() == Register::None || it.memory_index_scale() == 8;
    if jump.op0_kind() == OpKind::Memory {
        return is_pointer(jump);
    }
    let mut register = jump.op0_register();
    let near = before.iter().rev().take(LOOK_BACK);
    // Made wide by the load, or behind it.
    let is_distance = |it: &Instruction| match it.mnemonic() {
        Mnemonic::Movsxd => it.op1_kind() == OpKind::Memory,
        mnemonic => mnemonic == Mnemonic::Cdqe,
    };
    let has_table = near.clone().any(is_distance);
    for it in near {
        let info = factory.info(it);
        let writes = info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
        });
        if !writes {
            continue;
        }
        match it.mnemonic() {
            Mnemonic::Mov if it.op1_kind() == OpKind::Memory => return is_pointer(it),
            Mnemonic::Mov if it.op1_kind() == OpKind::Register => register = it.op1_register(),
            Mnemonic::Pop => return true,
            Mnemonic::Add => return has_table,
            _ => return it.flow_control() == FlowControl::Call,
        }
    }
    // A value that came to the function, or was computed further up: computed addresses are not kept for long.
    !has_lea_of_code(before)
}

/// Whether the function takes the address of a place in itself, as hand-written code does that computes jumps.
fn has_lea_of_code(before: &[Instruction]) -> bool {
    let (Some(first), Some(last)) = (before.first(), before.last()) else {
        return false;
    };
    let own = first.ip()..last.next_ip();
    before.iter().any(|it| {
        it.mnemonic() == Mnemonic::Lea
            && it.is_ip_rel_memory_operand()
            && own.contains(&it.ip_rel_memory_address())
    })
}
