//! Functions that others read as data, to copy or compare them.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::copies::{KEPT, writes};
use super::implicit::changed_implicitly;
use super::input::Input;
use crate::LONGEST_WINDOW;

/// Registers that hold addresses of functions, in code that is read from its start to its end, as it stands.
#[derive(Default)]
pub(super) struct Held(Vec<(Register, u64)>);

impl Held {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn hold(&mut self, register: Register, address: u64) {
        let register = register.full_register();
        self.0.retain(|held| held.0 != register);
        if register.is_gpr64() {
            self.0.push((register, address));
        }
    }

    fn in_register(&self, register: Register) -> Option<u64> {
        let held = self.0.iter().find(|held| held.0 == register);
        held.map(|held| held.1)
    }

    /// Adds the code that the instruction reads to `read`: the first byte, and the end.
    pub fn step(&mut self, it: &Instruction, input: &Input<'_>, read: &mut Vec<(u64, u64)>) {
        let start = |register| {
            let address = self.in_register(register)?;
            Some((address, address.saturating_add(LONGEST_WINDOW as u64)))
        };
        match it.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                if input.copier.is_called_by(it, input.memory) {
                    read.extend([Register::RDI, Register::RSI].into_iter().filter_map(start));
                }
                self.0.retain(|held| KEPT.contains(&held.0));
                return;
            }
            FlowControl::ConditionalBranch => return,
            _ => {
                self.0.clear();
                return;
            }
        }
        // Strings are moved and compared from there.
        if (0..it.op_count()).any(|number| it.op_kind(number) == OpKind::MemorySegRSI) {
            read.extend(start(Register::RSI));
        } else if !matches!(it.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
            && let Some(address) = self.in_register(it.memory_base())
        {
            let first = address.wrapping_add(it.memory_displacement64());
            let bytes = it.memory_size().size() as u64;
            read.push((first, first.saturating_add(bytes.max(1))));
        }
        let implicitly = changed_implicitly(it.mnemonic());
        self.0.retain(|held| implicitly & 1 << held.0.number() == 0);
        if it.op0_kind() == OpKind::Register && writes(it) {
            let is_copy = it.mnemonic() == Mnemonic::Mov && it.op1_kind() == OpKind::Register;
            let copied = is_copy
                .then(|| self.in_register(it.op1_register()))
                .flatten();
            let to = it.op0_register().full_register();
            self.0.retain(|held| held.0 != to);
            self.0.extend(copied.map(|address| (to, address)));
        }
    }
}
