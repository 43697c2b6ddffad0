//! Compares displaced instructions with the original ones, both read by another disassembler.

use zydis::ffi::{DecodedOperand, DecodedOperandKind, ImmediateInfo};
use zydis::{AllOperands, Decoder, FullInstruction, Mnemonic, Register};

use crate::Body;

/// Addresses of the code when it runs.
pub struct CodeLayout<'a> {
    pub window: &'a [u8],
    pub window_at: u64,
    pub body: &'a Body,
    pub code: &'a [u8],
    pub code_at: u64,
}

fn decode(bytes: &[u8]) -> Option<FullInstruction> {
    Decoder::new64()
        .decode_first::<AllOperands>(bytes)
        .ok()
        .flatten()
}

/// The operands, with addresses in place of distances.
fn operands(instruction: &FullInstruction, at: u64) -> Vec<DecodedOperand> {
    let absolute = |operand: &DecodedOperand| {
        let mut operand = operand.clone();
        let address = instruction.calc_absolute_address(at, &operand);
        match &mut operand.kind {
            DecodedOperandKind::Mem(memory) if memory.base == Register::RIP => {
                memory.disp.displacement = address.expect("it has an address").cast_signed();
            }
            DecodedOperandKind::Imm(immediate) if immediate.is_relative => {
                immediate.value = address.expect("it has an address");
                operand.size = 64;
            }
            _ => {}
        }
        operand
    };
    instruction.operands().iter().map(absolute).collect()
}

fn target(instruction: &FullInstruction, at: u64) -> Option<u64> {
    operands(instruction, at)
        .iter()
        .find_map(|operand| match operand.kind {
            DecodedOperandKind::Imm(ImmediateInfo {
                is_relative: true,
                value,
                ..
            }) => Some(value),
            _ => None,
        })
}

/// The difference, or None where `window` means the same to zydis as `body`. Err where zydis does not know the
/// original.
pub fn difference(layout: &CodeLayout<'_>) -> Result<Option<String>, String> {
    let CodeLayout {
        window,
        window_at,
        body,
        code,
        code_at,
    } = *layout;
    let code_of = |offset: usize| decode(&code[offset..]);
    let mut expected_at = 0;
    for (from, to) in body.map() {
        let (from, mut to) = (usize::from(from), usize::from(to));
        if to != expected_at {
            return Ok(Some(format!(
                "{to} in the map, but the code before it ends at {expected_at}"
            )));
        }
        macro_rules! same {
            ($condition:expr, $what:expr) => {
                if !$condition {
                    return Ok(Some(format!("{} at {from}, {to} in the body", $what)));
                }
            };
        }
        if from == window.len() {
            let Some(jump) = code_of(to) else {
                return Ok(Some("no jump back".into()));
            };
            let back = target(&jump, code_at + to as u64);
            same!(
                jump.mnemonic == Mnemonic::JMP && back == Some(window_at + from as u64),
                "the jump back"
            );
            expected_at = to + usize::from(jump.length);
            continue;
        }
        let original =
            decode(&window[from..]).ok_or_else(|| format!("unknown: {:02x?}", &window[from..]))?;
        let original_at = window_at + from as u64;
        let moved_target = target(&original, original_at).map(|target| {
            let stays = target == window_at && original.mnemonic != Mnemonic::CALL;
            if stays { code_at } else { target }
        });
        match (original.mnemonic, moved_target) {
            (Mnemonic::CALL, goes_to) => {
                let Some(first) = code_of(to) else {
                    return Ok(Some("no call".into()));
                };
                let over =
                    target(&first, code_at + to as u64).map(|over| (over - code_at) as usize);
                same!(
                    first.mnemonic == Mnemonic::CALL && over == Some(to + 6),
                    "the call over a byte"
                );
                to += 6;
                let Some(push) = code_of(to) else {
                    return Ok(Some("no push".into()));
                };
                let literal = match &operands(&push, code_at + to as u64)[0].kind {
                    DecodedOperandKind::Mem(memory) if memory.base == Register::RIP => {
                        (memory.disp.displacement.cast_unsigned() - code_at) as usize
                    }
                    _ => usize::MAX,
                };
                same!(
                    push.mnemonic == Mnemonic::PUSH && literal == code.len() - 8,
                    "the push"
                );
                let pushed = u64::from_le_bytes(code[literal..].try_into().expect("8 bytes"));
                same!(
                    pushed == window_at + window.len() as u64,
                    "the return address"
                );
                same!(
                    from + usize::from(original.length) == window.len(),
                    "the end of the window"
                );
                to += usize::from(push.length);
                same!(code[to..].starts_with(&[0x8f, 0x04, 0x24]), "pop [rsp]");
                to += 3;
                let Some(jump) = code_of(to) else {
                    return Ok(Some("no jump to the callee".into()));
                };
                same!(jump.mnemonic == Mnemonic::JMP, "the jump to the callee");
                if goes_to.is_some() {
                    same!(target(&jump, code_at + to as u64) == goes_to, "the callee");
                } else {
                    let mut called = operands(&original, original_at).swap_remove(0);
                    if let DecodedOperandKind::Mem(memory) = &mut called.kind
                        && memory.base == Register::RSP
                    {
                        memory.disp.displacement += 8;
                        memory.disp.has_displacement = true;
                    }
                    let jumped = operands(&jump, code_at + to as u64).swap_remove(0);
                    same!(
                        called.kind == jumped.kind && called.size == jumped.size,
                        "the callee"
                    );
                }
                expected_at = to + usize::from(jump.length) + 8;
                same!(expected_at == code.len(), "the literal");
            }
            (
                Mnemonic::LOOP
                | Mnemonic::LOOPE
                | Mnemonic::LOOPNE
                | Mnemonic::JRCXZ
                | Mnemonic::JECXZ,
                goes_to,
            ) => {
                let Some(count) = code_of(to) else {
                    return Ok(Some("no loop".into()));
                };
                let taken = to + usize::from(count.length) + 2;
                same!(
                    count.mnemonic == original.mnemonic
                        && count.attributes == original.attributes
                        && target(&count, code_at + to as u64) == Some(code_at + taken as u64),
                    "the loop"
                );
                let (over, far) = (code_of(taken - 2), code_of(taken));
                let (Some(over), Some(far)) = (over, far) else {
                    return Ok(Some("no jumps".into()));
                };
                let end = taken + usize::from(far.length);
                let over_to = target(&over, code_at + taken as u64 - 2);
                same!(
                    over.mnemonic == Mnemonic::JMP && over_to == Some(code_at + end as u64),
                    "the jump over"
                );
                let far_to = target(&far, code_at + taken as u64);
                same!(
                    far.mnemonic == Mnemonic::JMP && far_to == goes_to,
                    "the jump"
                );
                expected_at = end;
            }
            (_, goes_to) => {
                let Some(moved) = code_of(to) else {
                    return Ok(Some("undecodable".into()));
                };
                same!(moved.mnemonic == original.mnemonic, "the mnemonic");
                if goes_to.is_some() {
                    same!(target(&moved, code_at + to as u64) == goes_to, "the target");
                } else {
                    let before = operands(&original, original_at);
                    let after = operands(&moved, code_at + to as u64);
                    same!(before == after, format!("operands: {before:?} {after:?}"));
                    same!(
                        moved.attributes == original.attributes && moved.avx == original.avx,
                        "attributes"
                    );
                    same!(moved.length == original.length, "the length");
                }
                expected_at = to + usize::from(moved.length);
            }
        }
    }
    let last = body.map().last().map_or(0, |last| usize::from(last.0));
    let ends = last < window.len() && {
        let last = decode(&window[last..]).map(|last| last.mnemonic);
        matches!(last, Some(Mnemonic::JMP | Mnemonic::RET | Mnemonic::CALL))
    };
    if expected_at != code.len() || !(ends || last == window.len()) {
        return Ok(Some(format!("it ends at {expected_at} of {}", code.len())));
    }
    Ok(None)
}
