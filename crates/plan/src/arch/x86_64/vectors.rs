//! Finds functions that change registers other than general ones.

use std::collections::BTreeSet;

use iced_x86::{CpuidFeature, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind};
use nopal_symbols::Image;

use super::instructions::Instructions;
use crate::VectorUse;

/// Functions beyond this many are not followed.
const MOST_FUNCTIONS: usize = 1000;

/// Looks at a function and at all that it calls within the file.
pub(crate) fn vector_use(image: &Image, function: u64) -> Option<VectorUse> {
    let mut known = BTreeSet::from([function]);
    let mut open = vec![function];
    while let Some(function) = open.pop() {
        if known.len() > MOST_FUNCTIONS {
            return Some(VectorUse::Unknown { address: function });
        }
        let found = image.function_at(function).ok().flatten();
        let Some(body) = found.filter(|found| found.address == function && found.size > 0) else {
            return Some(VectorUse::Elsewhere { address: function });
        };
        let bytes = usize::try_from(body.size)
            .ok()
            .and_then(|size| image.bytes(function, size));
        let Some(bytes) = bytes else {
            return Some(VectorUse::Unknown { address: function });
        };
        let body = function..function + body.size;
        let code = Instructions::of(bytes, function);
        let mut factory = InstructionInfoFactory::new();
        for it in code.iter() {
            if changes_others(it, &mut factory) {
                return Some(VectorUse::Instruction { address: it.ip() });
            }
            let target = it.near_branch_target();
            match it.flow_control() {
                // A table of a `switch` too.
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    return Some(VectorUse::Unknown { address: it.ip() });
                }
                FlowControl::Call
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                    if it.op0_kind() == OpKind::NearBranch64
                        && !body.contains(&target)
                        && known.insert(target) =>
                {
                    open.push(target);
                }
                _ => {}
            }
        }
    }
    None
}

fn changes_others(it: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let written = [
        OpAccess::Write,
        OpAccess::CondWrite,
        OpAccess::ReadWrite,
        OpAccess::ReadCondWrite,
    ];
    let is_other = |register: iced_x86::Register| {
        register.is_vector_register()
            || register.is_k()
            || register.is_mm()
            || register.is_st()
            || register.is_tmm()
    };
    let registers = factory.info(it).used_registers();
    registers
        .iter()
        .any(|used| is_other(used.register()) && written.contains(&used.access()))
        || it.cpuid_features().contains(&CpuidFeature::FPU)
}
