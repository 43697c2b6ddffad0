//! Where functions of the kernel begin and end.

use crate::Kernel;
use crate::exits::SITE;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use std::ops::Range;

/// Functions begin at multiples of it.
const ALIGNED: u64 = 16;
/// ftrace's, when it is off.
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// `endbr64`, and what the kernel makes of those that it does not need.
const LANDINGS: [[u8; 4]; 3] = [
    [0xf3, 0x0f, 0x1e, 0xfa],
    [0x66, 0x0f, 0x1f, 0],
    [0x0f, 0x1f, 0x40, 0xd6],
];

/// Where a function ends that fills its range, or is followed there by another one without a name: one that the linker
/// has replaced by a stronger one. Nothing leads to that.
pub fn end(kernel: &Kernel, range: Range<u64>) -> u64 {
    let bytes = kernel
        .text
        .between(range.start, range.end)
        .unwrap_or_default();
    let mut jumps = kernel.hidden_jumps.from(&range).to_vec();
    // Where another function may begin, and whether what is before may go on there.
    let mut begins: Vec<(u64, bool)> = Vec::new();
    let mut last = FlowControl::Next;
    let mut is_padded = false;
    for it in &mut Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
        let goes_on = match last {
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception => Some(false),
            // Of a function that may not return.
            FlowControl::Call if is_padded => Some(true),
            _ => None,
        };
        if let Some(goes_on) = goes_on
            && it.ip().is_multiple_of(ALIGNED)
        {
            let bytes = &bytes[(it.ip() - range.start) as usize..];
            let site = site(bytes, it.ip(), |to| kernel.is_tracer(to));
            begins.extend(site.map(|_| (it.ip(), goes_on)));
        }
        match it.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                jumps.push((it.ip(), it.near_branch_target()));
            }
            _ => (),
        }
        is_padded = matches!(it.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        if !is_padded {
            last = it.flow_control();
        }
    }
    let is_apart = |(begin, goes_on): &&(u64, bool)| {
        let other = *begin..range.end;
        let leads_there = |(from, to): &(u64, u64)| from < begin && other.contains(to);
        // A loop that is only fallen into has a jump to its begin.
        let is_loop = |(_, to): &(u64, u64)| *goes_on && to == begin;
        !jumps.iter().any(|jump| leads_there(jump) || is_loop(jump))
    };
    let begin = begins.iter().find(is_apart);
    begin.map_or(range.end, |(begin, _)| *begin)
}

/// Where ftrace's place is in a function that begins with these bytes: how far from its begin. `leads_to_tracer` says
/// whether a call by ftrace leads to an address.
pub fn site(bytes: &[u8], address: u64, leads_to_tracer: impl Fn(u64) -> bool) -> Option<u64> {
    let landing = bytes
        .first_chunk()
        .is_some_and(|first| LANDINGS.contains(first));
    let distance = if landing { 4 } else { 0 };
    let place: &[u8; 5] = bytes[distance..].first_chunk()?;
    let distance = distance as u64;
    let [0xe8, to @ ..] = place else {
        return (*place == NOP).then_some(distance);
    };
    let to = (address + distance + SITE).wrapping_add_signed(i64::from(i32::from_le_bytes(*to)));
    leads_to_tracer(to).then_some(distance)
}
