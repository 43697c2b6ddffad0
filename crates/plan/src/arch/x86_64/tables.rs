//! Recognises tables of return addresses, by which a runtime finds the contents of each frame on its stacks, as OCaml's
//! collector does. The return addresses on such stacks must be the original ones.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use crate::code::{Code, Marks, Range};

/// A program of such a runtime has hundreds of these words. Elsewhere few words point behind a call: a case of a
/// `switch` may follow the call of a function that does not return.
const LEAST: usize = 32;

const SHORTEST_CALL: usize = 2;
const LONGEST_CALL: usize = 8;

/// Whether most words that point into functions point behind calls. `pointers`: words and their targets.
pub(crate) fn of_return_addresses(
    pointers: &[(u64, u64)],
    code: &Code<'_>,
    is_start: &Marks,
) -> bool {
    let (mut behind_calls, mut others) = (0, 0);
    for &(place, target) in pointers {
        let Some(range) = code.range(target) else {
            continue;
        };
        let is_function = code.number(target).is_some_and(|it| is_start.get(it));
        if is_function || code.number(place).is_some() {
            continue;
        }
        if follows_call(range, target, code) {
            behind_calls += 1;
        } else {
            others += 1;
        }
    }
    behind_calls >= LEAST && behind_calls > others
}

fn follows_call(range: &Range<'_>, target: u64, code: &Code<'_>) -> bool {
    let before = &range.bytes[..(target - range.address) as usize];
    (SHORTEST_CALL..=LONGEST_CALL.min(before.len())).any(|length| {
        let from = target - length as u64;
        let bytes = &before[before.len() - length..];
        if !may_call(bytes) {
            return false;
        }
        let call = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE).decode();
        call.len() == length
            && match call.flow_control() {
                FlowControl::Call => code.number(call.near_branch_target()).is_some(),
                FlowControl::IndirectCall => true,
                _ => false,
            }
    })
}

/// Judges by the first byte that is no prefix. Decoding tells, but takes longer.
fn may_call(bytes: &[u8]) -> bool {
    let is_prefix = |byte: u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let code = bytes.iter().find(|byte| !is_prefix(**byte));
    matches!(code, Some(0x0f | 0xe8 | 0xff))
}
