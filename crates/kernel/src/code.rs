//! The instructions of functions of the kernel: where they begin and end.

use crate::Kernel;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use std::ops::Range;

/// The length of a jump, which a place of ftrace's or an exit needs.
pub const SITE: u64 = 5;
/// Functions begin at multiples of it.
const ALIGNED: u64 = 16;
/// ftrace's, when it is off.
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// `endbr64`, and the instructions that the kernel puts in place of those that it does not need.
const LANDINGS: [[u8; 4]; 3] = [
    [0xf3, 0x0f, 0x1e, 0xfa],
    [0x66, 0x0f, 0x1f, 0],
    [0x0f, 0x1f, 0x40, 0xd6],
];

/// The instructions of a range, up to the first undecodable one.
pub struct Code<'a> {
    pub range: Range<u64>,
    pub bytes: &'a [u8],
    pub instructions: Vec<Instruction>,
}

impl<'a> Code<'a> {
    pub fn of(kernel: &'a Kernel, range: Range<u64>) -> Code<'a> {
        let bytes = kernel.text.between(range.start, range.end);
        let bytes = bytes.unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        while decoder.can_decode() && !instructions.last().is_some_and(Instruction::is_invalid) {
            instructions.push(decoder.decode());
        }
        Code {
            range,
            bytes,
            instructions,
        }
    }

    /// Cuts off another function without a name that follows in the range: one that the linker has replaced by a
    /// stronger one. Nothing leads to it.
    pub fn cut(&mut self, kernel: &Kernel) {
        let end = self.end(kernel);
        self.range.end = end;
        self.bytes = &self.bytes[..(end - self.range.start) as usize];
        self.instructions.retain(|it| it.ip() < end);
    }

    fn end(&self, kernel: &Kernel) -> u64 {
        let end = self.range.start + self.bytes.len() as u64;
        let mut jumps = kernel.hidden_jumps.from(&self.range).to_vec();
        // The places where another function may begin, each with whether the code before may go on there.
        let mut begins: Vec<(u64, bool)> = Vec::new();
        let mut last = FlowControl::Next;
        let mut is_padded = false;
        for it in &self.instructions {
            let goes_on = match last {
                FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception => Some(false),
                // A call of a function that may not return.
                FlowControl::Call if is_padded => Some(true),
                _ => None,
            };
            if let Some(goes_on) = goes_on
                && it.ip().is_multiple_of(ALIGNED)
            {
                let bytes = &self.bytes[(it.ip() - self.range.start) as usize..];
                let site = kernel.site(bytes, it.ip());
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
            let other = *begin..end;
            let leads_there = |(from, to): &(u64, u64)| from < begin && other.contains(to);
            // A loop that is only fallen into has a jump to its begin.
            let is_loop = |(_, to): &(u64, u64)| *goes_on && to == begin;
            !jumps.iter().any(|jump| leads_there(jump) || is_loop(jump))
        };
        let begin = begins.iter().find(is_apart);
        begin.map_or(end, |(begin, _)| *begin)
    }
}

/// The address of ftrace's place in a function that begins with these bytes. `is_tracer` says whether ftrace's call may
/// lead to an address.
pub fn site(bytes: &[u8], address: u64, is_tracer: impl Fn(u64) -> bool) -> Option<u64> {
    let landing = bytes
        .first_chunk()
        .is_some_and(|first| LANDINGS.contains(first));
    let distance = if landing { 4 } else { 0 };
    let bytes: &[u8; 5] = bytes[distance..].first_chunk()?;
    let place = address + distance as u64;
    let is_site = match bytes {
        [0xe8, to @ ..] => {
            let distance = i64::from(i32::from_le_bytes(*to));
            is_tracer((place + SITE).wrapping_add_signed(distance))
        }
        bytes => *bytes == NOP,
    };
    is_site.then_some(place)
}
