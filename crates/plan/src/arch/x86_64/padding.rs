//! Padding between functions.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Mnemonic};

/// Whether these bytes are nothing but what linkers and assemblers fill up with. Several NOPs of one byte are not: a
/// compiler may have left them to be patched, in front of the next function.
pub(crate) fn is_padding(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut single = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Int3 => {}
            Mnemonic::Nop => single += u32::from(instruction.code() == Code::Nopd),
            _ => return false,
        }
    }
    single <= 1
}

/// The bytes of these instructions before what linkers and assemblers fill up with.
pub(crate) fn code_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    while decoder.can_decode() {
        let mnemonic = decoder.decode().mnemonic();
        if !matches!(mnemonic, Mnemonic::Int3 | Mnemonic::Nop) {
            length = decoder.position();
        }
    }
    length
}

/// Whether the last of these instructions leads nowhere behind itself, so that no thread runs on there, and no call
/// returns there.
pub(crate) fn ends_flow(bytes: &[u8]) -> bool {
    let mut ends = false;
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return false;
        }
        ends = matches!(
            instruction.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        );
    }
    ends
}
