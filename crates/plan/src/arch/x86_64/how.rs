use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use nopal_symbols::{Image, Import};

use super::window::Window;
use crate::How;
use crate::code::Memory;

/// A jump over a 9-byte NOP, from its opcode.
const XRAY_SLED: &[u8] = &[0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84];

/// The purpose for which the compiler made the window.
pub(crate) fn how(window: &Window<'_>, memory: &Memory<'_>, fentry: &Callee) -> How {
    if memory
        .from(window.start)
        .is_some_and(|bytes| bytes.starts_with(XRAY_SLED))
    {
        return How::XraySled;
    }
    let mut instructions = window.instructions.as_slice();
    if let [first, rest @ ..] = instructions
        && first.instruction.mnemonic() == Mnemonic::Endbr64
    {
        instructions = rest;
    }
    match instructions {
        [only] if fentry.is_called_by(&only.instruction, memory) => How::Fentry,
        [_, ..]
            if instructions
                .iter()
                .all(|one| one.instruction.mnemonic() == Mnemonic::Nop) =>
        {
            How::PatchableEntry
        }
        _ => How::Jump,
    }
}

/// A function that may be in another file, known by its names.
pub(crate) struct Callee {
    addresses: Vec<u64>,
    /// The words that the loader fills in with its address, sorted.
    slots: Vec<u64>,
}

impl Callee {
    pub fn of(image: &Image, imports: &[Import], names: &[&str]) -> Callee {
        let is_named = |name: &str| names.contains(&name.split('@').next().unwrap_or(name));
        Callee {
            addresses: names.iter().filter_map(|name| image.symbol(name)).collect(),
            ..Callee::imported(imports, is_named)
        }
    }

    /// Functions of other files.
    pub fn imported(imports: &[Import], is_named: impl Fn(&str) -> bool) -> Callee {
        let named = imports.iter().filter(|import| is_named(&import.name));
        let mut slots: Vec<u64> = named.map(|import| import.slot).collect();
        slots.sort_unstable();
        Callee {
            addresses: Vec::new(),
            slots,
        }
    }

    pub fn is_called_by(&self, call: &Instruction, memory: &Memory<'_>) -> bool {
        match call.flow_control() {
            FlowControl::IndirectCall => self.is_slot_of(call),
            FlowControl::Call if call.op0_kind() == OpKind::NearBranch64 => {
                let target = call.near_branch_target();
                self.addresses.contains(&target) || self.is_stub(target, memory)
            }
            _ => false,
        }
    }

    /// In the PLT: `jmp *slot(%rip)`, perhaps after `endbr64`.
    fn is_stub(&self, address: u64, memory: &Memory<'_>) -> bool {
        let Some(bytes) = memory.from(address).filter(|_| !self.slots.is_empty()) else {
            return false;
        };
        let mut instructions =
            Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).into_iter();
        let first = instructions
            .next()
            .filter(|first| first.mnemonic() != Mnemonic::Endbr64);
        first
            .or_else(|| instructions.next())
            .is_some_and(|jump| self.is_slot_of(&jump))
    }

    /// Whether an indirect branch leads there.
    pub fn is_slot_of(&self, branch: &Instruction) -> bool {
        branch.memory_base() == Register::RIP
            && self
                .slots
                .binary_search(&branch.ip_rel_memory_address())
                .is_ok()
    }
}
