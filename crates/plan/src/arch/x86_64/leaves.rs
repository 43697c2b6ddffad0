//! Functions of a few instructions, known by their code.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// The most bytes of such a function: some fifteen instructions.
const TINY: usize = 64;

/// Whether a function with this code, which begins at `address`, takes a few nanoseconds: it is short, calls nothing, goes
/// nowhere else, and repeats nothing.
pub fn is_tiny_leaf(code: &[u8], address: u64) -> bool {
    let within = address..address.saturating_add(code.len() as u64);
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    !code.is_empty()
        && code.len() <= TINY
        && decoder.iter().all(|instruction| {
            let goes_on = match instruction.flow_control() {
                FlowControl::Next | FlowControl::Return => true,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    target > instruction.ip() && within.contains(&target)
                }
                _ => false,
            };
            let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            goes_on && !repeats && !instruction.is_invalid()
        })
}

#[cfg(test)]
mod tests {
    use super::is_tiny_leaf;

    #[test]
    fn tiny_leaves_are_known_by_their_code() {
        let known = |code: &[u8]| is_tiny_leaf(code, 0x1000);
        // lea 1(%rdi), %rax; ret
        assert!(known(&[0x48, 0x8d, 0x47, 0x01, 0xc3]));
        // test %edi, %edi; je 1f; inc %edi; 1: ret
        assert!(known(&[0x85, 0xff, 0x74, 0x02, 0xff, 0xc7, 0xc3]));
        // 1: dec %edi; jne 1b; ret
        assert!(!known(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]));
        // call; jmp to another function; jmp *%rax; rep stosb; syscall
        assert!(!known(&[0xe8, 0, 0, 0, 0, 0xc3]));
        assert!(!known(&[0xe9, 0, 1, 0, 0]));
        assert!(!known(&[0xff, 0xe0]));
        assert!(!known(&[0xf3, 0xaa, 0xc3]));
        assert!(!known(&[0x0f, 0x05, 0xc3]));
        // No instruction, nothing, and too much.
        assert!(!known(&[0x06]) && !known(&[]));
        assert!(!known(&[[0x90; 64].as_slice(), &[0xc3]].concat()));
    }
}
