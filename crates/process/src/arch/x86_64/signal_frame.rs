//! The frame of a signal handler, as the kernel makes it and `rt_sigreturn` takes it.

use std::arch::x86_64::__cpuid_count;

use super::Registers;

/// Offsets in the extended state, as ptrace and signal frames have it.
const SOFTWARE: usize = 464;
const FEATURES: usize = 512;
const EXTENSIONS: usize = 576;
const FRAME_BEGINS: u32 = 0x4650_5853;
const FRAME_ENDS: u32 = 0x4650_5845;
/// x87 and SSE, which have their places before the extensions.
const LEGACY: u64 = 0b11;

/// In the words of the kernel's frame: its flags, the alternate stack, the registers, the mask.
const WORDS: usize = 1 + 2 + 3 + 32 + 1;
const STATE_OFFSET: usize = ((1 + WORDS) * 8).next_multiple_of(ALIGNMENT);
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`.
const FLAGS: u64 = 7;
/// No flags of an alternate stack: the kernel leaves the thread's as it is.
const NO_ALTERNATE_STACK: u64 = 0x40;

/// The kernel's own words for calls that it is about to repeat.
const REPEATED: [i64; 4] = [-512, -513, -514, -516];

/// The mark of a frame, with the frame's own address in it. It takes the place of the link of the kernel's frames,
/// which the kernel does not look at.
const MARK: u64 = 0x6e6f_7061_6c5f_6261;

/// The alignment of the frame's parts, as the kernel requires it of the extended state.
const ALIGNMENT: usize = 64;

/// It begins with the address to which the return leads, and the words that the kernel takes from there. The extended
/// state stands above: handlers of signals that come before the thread is back write below.
pub(crate) struct SignalFrame {
    state: Vec<u8>,
}

impl SignalFrame {
    /// `state` is the extended state, as `ptrace` has it.
    pub fn new(state: Vec<u8>) -> SignalFrame {
        SignalFrame {
            state: signal_state(state),
        }
    }

    pub fn bytes(&self) -> usize {
        STATE_OFFSET + self.state.len()
    }

    /// A word that a frame at `start` has, and nothing else.
    pub fn mark(start: u64) -> u64 {
        MARK ^ start
    }

    /// The frame's bytes at `start`, with the state that the thread is to have again. A `ret` with the stack pointer at
    /// `start` leads back.
    pub fn at(self, start: u64, restorer: u64, saved: &Registers, mask: u64) -> Vec<u8> {
        let words = std::iter::once(restorer).chain(frame_words(saved, mask, start));
        let mut frame: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        frame.resize(STATE_OFFSET, 0);
        frame.extend(self.state);
        frame
    }
}

/// The part of a frame that the kernel restores at `rt_sigreturn`, without the extended state.
fn frame_words(saved: &Registers, mask: u64, start: u64) -> [u64; WORDS] {
    let mut registers = saved.0;
    // The kernel repeats no call behind an `rt_sigreturn`: it begins again.
    if registers.orig_rax as i64 >= 0 && REPEATED.contains(&(registers.rax as i64)) {
        registers.rax = registers.orig_rax;
        registers.rip = registers.rip.wrapping_sub(2);
    }
    let mut words = [0; WORDS];
    words[0] = FLAGS;
    words[1] = SignalFrame::mark(start);
    words[3] = NO_ALTERNATE_STACK;
    words[5..23].copy_from_slice(&[
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
        registers.rdi,
        registers.rsi,
        registers.rbp,
        registers.rbx,
        registers.rdx,
        registers.rax,
        registers.rcx,
        registers.rsp,
        registers.rip,
        registers.eflags,
    ]);
    words[23] = registers.cs | registers.ss << 48;
    words[28] = start + STATE_OFFSET as u64;
    words[WORDS - 2] = mask;
    words
}

/// The extended state as a signal frame has it: it says what is in it, and where it ends.
fn signal_state(mut state: Vec<u8>) -> Vec<u8> {
    let features = u64::from_le_bytes(std::array::from_fn(|byte| {
        state.get(FEATURES + byte).copied().unwrap_or(0)
    }));
    let features = features | LEGACY;
    let end = |feature: u32| {
        let place = __cpuid_count(0xd, feature);
        (place.eax + place.ebx) as usize
    };
    let extensions = (2..63).filter(|feature| features & 1 << feature != 0);
    let size = extensions.map(end).fold(EXTENSIONS, usize::max);
    state.resize(size, 0);
    let mut says = [0; 512 - SOFTWARE];
    says[..4].copy_from_slice(&FRAME_BEGINS.to_le_bytes());
    says[4..8].copy_from_slice(&(size as u32 + 4).to_le_bytes());
    says[8..16].copy_from_slice(&features.to_le_bytes());
    says[16..20].copy_from_slice(&(size as u32).to_le_bytes());
    state[SOFTWARE..512].copy_from_slice(&says);
    state.extend(FRAME_ENDS.to_le_bytes());
    state
}
