//! Functions that switch between flows which share a stack, as greenlets do: a call copies the part in use away, the
//! stack pointer moves to where the other flow left it, and a second call copies that flow's part back. The return
//! addresses that come back with it belong to calls which others have overwritten in the mirror. Functions that bring
//! back a part of the stack and continue there, as continuations do.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The registers of a call's first arguments.
const ARGUMENTS: [Register; 3] = [Register::RDI, Register::RSI, Register::RDX];

/// The registers that a call preserves.
pub(super) const KEPT: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Whether a function that leaves its stack switches so: it hands its stack pointer to a call, then moves it, and hands
/// the new one to a call that runs there, or takes its frame pointer along by the same distance. Functions that run
/// others on a stack of their own do neither.
pub(super) fn copies_stacks<'a>(code: impl Iterator<Item = &'a Instruction>) -> bool {
    let mut copy = Copy::default();
    let mut code = code;
    code.any(|it| copy.step(it))
}

/// A function read from its start to its end, as it stands.
#[derive(Default)]
struct Copy {
    /// Registers that hold the stack pointer.
    holders: Vec<Register>,
    /// These, and other registers that hold a stack pointer that the function had before.
    own: Vec<Register>,
    /// A call has been given the stack pointer.
    is_given: bool,
    /// The stack pointer has moved since to the address that the holders hold.
    moved: bool,
    /// It has moved by the distance in this register.
    distance: Option<Register>,
    frame_moved: bool,
}

impl Copy {
    /// Whether the instruction completes the sequence.
    fn step(&mut self, it: &Instruction) -> bool {
        match it.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                let given = ARGUMENTS.iter().any(|one| self.holders.contains(one));
                if self.moved && (given || self.frame_moved) {
                    return true;
                }
                let mut own = std::mem::take(&mut self.own);
                own.retain(|holder| KEPT.contains(holder));
                *self = Copy {
                    is_given: self.is_given || given,
                    own,
                    ..Copy::default()
                };
            }
            FlowControl::Next => self.moves(it),
            FlowControl::ConditionalBranch => {}
            _ => *self = Copy::default(),
        }
        false
    }

    fn moves(&mut self, it: &Instruction) {
        if !(it.op0_kind() == OpKind::Register && writes(it)) {
            return;
        }
        let (to, from) = (it.op0_register(), it.op1_register());
        let by_register = it.op1_kind() == OpKind::Register;
        let is_copy = it.mnemonic() == Mnemonic::Mov && by_register;
        match (to, it.mnemonic()) {
            (Register::RSP, Mnemonic::Mov) if is_copy && from != Register::RBP => {
                self.moved = self.is_given && !self.own.contains(&from);
                self.holders = vec![from];
            }
            (Register::RSP, Mnemonic::Add) if by_register => {
                self.moved = self.is_given;
                self.distance = Some(from);
                self.holders.clear();
            }
            (Register::RSP, _) => self.holders.clear(),
            (Register::RBP, Mnemonic::Add) if by_register && self.distance == Some(from) => {
                self.frame_moved = true;
            }
            _ => {
                let is_copied = |known: &[Register]| is_copy && known.contains(&from);
                let is_present = is_copied(&[Register::RSP]) || is_copied(&self.holders);
                let is_own = is_present || is_copied(&self.own);
                for (known, gains) in [(&mut self.holders, is_present), (&mut self.own, is_own)] {
                    known.retain(|holder| *holder != to);
                    known.extend(gains.then_some(to));
                }
            }
        }
    }
}

/// Whether a function brings back a stack that was copied away, as runtimes with continuations do: it compares where its
/// own frame is with an address, to be out of the way of that stack, and leaves its frames by a jump.
pub(super) fn brings_back_stacks<'a>(
    code: impl Iterator<Item = &'a Instruction>,
    leaves: impl Fn(&Instruction) -> bool,
) -> bool {
    // Registers that hold an address in its frame, and those with an address from elsewhere than its frame.
    let mut own = vec![Register::RSP];
    let mut other: Vec<Register> = Vec::new();
    let (mut compared, mut looks, mut leaves_frames) = (false, false, false);
    for it in code {
        looks |= compared && orders_addresses(it);
        compared = false;
        match it.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                leaves_frames |= leaves(it);
                own.retain(|holder| *holder == Register::RSP || KEPT.contains(holder));
                other.retain(|holder| KEPT.contains(holder));
            }
            FlowControl::Next => {
                let (to, from) = (it.op0_register(), it.op1_register());
                let base = it.memory_base();
                let from_elsewhere = base != Register::None && !own.contains(&base);
                let loads = it.op1_kind() == OpKind::Memory && from_elsewhere;
                if it.mnemonic() == Mnemonic::Cmp {
                    let other_too = |one| other.contains(one) || from_elsewhere;
                    compared = own.contains(&to) && other_too(&from)
                        || own.contains(&from) && other_too(&to);
                } else if it.op0_kind() == OpKind::Register && writes(it) && to != Register::RSP {
                    let of = |known: &[Register]| match it.mnemonic() {
                        Mnemonic::Mov => known.contains(&from),
                        Mnemonic::Lea => {
                            known.contains(&base) || known.contains(&it.memory_index())
                        }
                        Mnemonic::Add | Mnemonic::And => {
                            known.contains(&to) || known.contains(&from)
                        }
                        Mnemonic::Sub => known.contains(&to),
                        _ => false,
                    };
                    let is_own = of(&own);
                    let is_other =
                        !is_own && (of(&other) || loads && it.mnemonic() == Mnemonic::Mov);
                    for (known, gains) in [(&mut own, is_own), (&mut other, is_other)] {
                        known.retain(|holder| holder.full_register() != to.full_register());
                        known.extend(gains.then_some(to));
                    }
                }
            }
            _ => {}
        }
        if looks && leaves_frames {
            return true;
        }
    }
    false
}

fn orders_addresses(it: &Instruction) -> bool {
    use Mnemonic::{Ja, Jae, Jb, Jbe};
    matches!(it.mnemonic(), Ja | Jae | Jb | Jbe)
}

pub(super) fn writes(it: &Instruction) -> bool {
    !matches!(
        it.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt | Mnemonic::Nop
    )
}
